//! A canvas in logical pixels over the bitmap rasteriser. Shapes are drawn at three times the size and
//! averaged down, since the rasteriser does not smooth them; texts are set over the result.

use std::cell::RefCell;
use std::path::Path;

use plotters::backend::BitMapBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Polygon, Rectangle};
use plotters::style::{Color, RGBColor, ShapeStyle};

use super::text::{Anchor, Face, Fonts, Label};
use crate::error::{DrawError, ReportError};
use crate::write::write_atomically;

/// Width of every figure.
pub(crate) const WIDTH: u32 = 1600;
/// Height of every figure.
pub(crate) const HEIGHT: u32 = 1000;
const SCALE: u32 = 3;

/// Text and axes.
pub(crate) const INK: RGBColor = RGBColor(34, 34, 34);
/// Secondary text.
pub(crate) const GREY: RGBColor = RGBColor(95, 95, 95);
/// Grid lines.
pub(crate) const GRID: RGBColor = RGBColor(224, 224, 224);
/// Leaders from a line to its label.
pub(crate) const RULE: RGBColor = RGBColor(170, 170, 170);
/// Paper.
pub(crate) const PAPER: RGBColor = RGBColor(255, 255, 255);

pub(crate) type Drawn = Result<(), DrawError>;
/// A point in logical pixels, from the upper left.
pub(crate) type Point = (f64, f64);

/// The pattern of a line.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Dash {
    Solid,
    /// Lengths of stroke and gap.
    Pattern(f64, f64),
}

/// The shape of a marker.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Marker {
    Circle,
    Square,
    Diamond,
    Cross,
}

pub(crate) struct Canvas<'a> {
    area: DrawingArea<BitMapBackend<'a>, Shift>,
    fonts: &'a Fonts,
    labels: RefCell<Vec<Label>>,
}

/// Draws a figure and puts it in place as a PNG.
pub(crate) fn render(path: &Path, draw: impl FnOnce(&Canvas<'_>) -> Drawn) -> Result<(), ReportError> {
    let fonts = Fonts::embedded().map_err(|_| ReportError::Font)?;
    let (width, height) = (WIDTH * SCALE, HEIGHT * SCALE);
    let mut pixels = vec![u8::MAX; width as usize * height as usize * 3];
    let labels = {
        let area = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
        let canvas = Canvas { area, fonts: &fonts, labels: RefCell::default() };
        draw(&canvas)
            .and_then(|()| canvas.area.present())
            .map_err(|source| ReportError::Draw { path: path.to_owned(), source: Box::new(source) })?;
        canvas.labels.into_inner()
    };
    let mut small = downsample(&pixels);
    labels.iter().for_each(|label| fonts.set(&mut small, label));
    let png = encode(&small).map_err(|source| ReportError::EncodePng { path: path.to_owned(), source })?;
    write_atomically(path, &png)
}

/// Averages squares of `SCALE` × `SCALE` pixels. Most of a figure is paper, which is compared, not summed.
fn downsample(pixels: &[u8]) -> Vec<u8> {
    const RUN: usize = 50;
    let scale = SCALE as usize;
    let stride = WIDTH as usize * scale * 3;
    let paper = [u8::MAX; RUN * SCALE as usize * 3];
    let mut small = Vec::with_capacity(WIDTH as usize * HEIGHT as usize * 3);
    for rows in pixels.chunks_exact(stride * scale) {
        for from in (0..stride).step_by(paper.len()) {
            let run = || rows.chunks_exact(stride).filter_map(|row| row.get(from..from + paper.len()));
            if run().all(|part| part == paper) {
                small.extend_from_slice(&paper[..RUN * 3]);
                continue;
            }
            let mut sums = [0_u32; RUN * 3];
            for part in run() {
                for (sum, square) in sums.chunks_exact_mut(3).zip(part.chunks_exact(scale * 3)) {
                    for pixel in square.chunks_exact(3) {
                        sum.iter_mut().zip(pixel).for_each(|(sum, &value)| *sum += u32::from(value));
                    }
                }
            }
            let area = SCALE * SCALE;
            small.extend(sums.map(|sum| u8::try_from((sum + area / 2) / area).unwrap_or(u8::MAX)));
        }
    }
    small
}

fn encode(pixels: &[u8]) -> Result<Vec<u8>, png::EncodingError> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, WIDTH, HEIGHT);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Balanced);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(bytes)
}

impl Canvas<'_> {
    pub(crate) fn rectangle(&self, from: Point, to: Point, colour: RGBColor) -> Drawn {
        self.area.draw(&Rectangle::new([dots(from), dots(to)], colour.filled()))
    }

    /// A line through points, with round joints: mitred ones overshoot at spikes.
    pub(crate) fn line(&self, points: &[Point], colour: RGBColor, width: f64, dash: Dash) -> Drawn {
        match dash {
            Dash::Solid => self.stroke(points, colour, width),
            Dash::Pattern(on, off) => {
                dashes(points, on, off).iter().try_for_each(|dash| self.stroke(dash, colour, width))
            }
        }
    }

    fn stroke(&self, points: &[Point], colour: RGBColor, width: f64) -> Drawn {
        let style = ShapeStyle { color: colour.to_rgba(), filled: true, stroke_width: length(width) };
        for pair in points.windows(2) {
            self.area.draw(&PathElement::new(pair.iter().map(|&p| dots(p)).collect::<Vec<_>>(), style))?;
        }
        let inner = points.get(1..points.len().saturating_sub(1)).unwrap_or_default();
        inner.iter().try_for_each(|&point| {
            self.area.draw(&Circle::new(dots(point), length(width / 2.0), colour.filled()))
        })
    }

    /// A marker; a hollow one is white inside.
    pub(crate) fn marker(
        &self,
        at: Point,
        shape: Marker,
        radius: f64,
        colour: RGBColor,
        hollow: bool,
    ) -> Drawn {
        self.shape(at, shape, radius, colour)?;
        let inside = match shape {
            Marker::Circle | Marker::Square => radius - 3.0,
            Marker::Diamond => radius - 4.2,
            Marker::Cross => return Ok(()),
        };
        if hollow { self.shape(at, shape, inside, PAPER) } else { Ok(()) }
    }

    fn shape(&self, (x, y): Point, shape: Marker, r: f64, colour: RGBColor) -> Drawn {
        let polygon = |corners: &[(f64, f64)]| {
            let corners = corners.iter().map(|(dx, dy)| dots((x + r * dx, y + r * dy)));
            self.area.draw(&Polygon::new(corners.collect::<Vec<_>>(), colour.filled()))
        };
        match shape {
            Marker::Circle => self.area.draw(&Circle::new(dots((x, y)), length(r), colour.filled())),
            Marker::Square => self.rectangle((x - 0.9 * r, y - 0.9 * r), (x + 0.9 * r, y + 0.9 * r), colour),
            Marker::Diamond => polygon(&[(0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)]),
            Marker::Cross => {
                let width = (r * 0.45).max(3.0);
                self.line(&[(x - r, y - r), (x + r, y + r)], colour, width, Dash::Solid)?;
                self.line(&[(x - r, y + r), (x + r, y - r)], colour, width, Dash::Solid)
            }
        }
    }

    /// A text, vertically centred on the point.
    pub(crate) fn text(&self, text: &str, at: Point, face: Face, anchor: Anchor) {
        self.labels.borrow_mut().push(Label { text: text.to_owned(), at, face, anchor, upwards: false });
    }

    /// A text that reads upwards, centred on the point.
    pub(crate) fn text_upwards(&self, text: &str, at: Point, face: Face) {
        let label = Label { text: text.to_owned(), at, face, anchor: Anchor::Centre, upwards: true };
        self.labels.borrow_mut().push(label);
    }

    pub(crate) fn text_width(&self, text: &str, face: Face) -> f64 {
        self.fonts.width(text, face)
    }

    /// A text broken into lines of at most `width`, from its first line's centre down.
    pub(crate) fn paragraph(&self, text: &str, (x, y): Point, width: f64, face: Face) {
        let (mut line, mut at) = (String::new(), y);
        for word in text.split_whitespace() {
            let longer = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
            if !line.is_empty() && self.text_width(&longer, face) > width {
                self.text(&line, (x, at), face, Anchor::Left);
                at += face.size * 1.45;
                line = word.to_owned();
            } else {
                line = longer;
            }
        }
        self.text(&line, (x, at), face, Anchor::Left);
    }
}

/// Cuts a line into dashes, carrying the pattern around corners.
fn dashes(points: &[Point], on: f64, off: f64) -> Vec<Vec<Point>> {
    let mut strokes = Vec::new();
    let mut stroke: Vec<Point> = points.first().copied().into_iter().collect();
    let (mut drawing, mut left) = (true, on);
    for pair in points.windows(2) {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        let distance = (x1 - x0).hypot(y1 - y0);
        let mut done = 0.0;
        while distance - done > left {
            done += left;
            let at = (x0 + (x1 - x0) * done / distance, y0 + (y1 - y0) * done / distance);
            if drawing {
                stroke.push(at);
                strokes.push(std::mem::take(&mut stroke));
            } else {
                stroke = vec![at];
            }
            drawing = !drawing;
            left = if drawing { on } else { off };
        }
        left -= distance - done;
        if drawing {
            stroke.push((x1, y1));
        }
    }
    if stroke.len() > 1 {
        strokes.push(stroke);
    }
    strokes
}

fn dots((x, y): Point) -> (i32, i32) {
    (dot(x), dot(y))
}

fn dot(value: f64) -> i32 {
    // Saturating: whatever is drawn far outside stays outside.
    let scaled = (value * f64::from(SCALE)).round().clamp(-1e6, 1e6);
    #[expect(clippy::cast_possible_truncation, reason = "clamped to ±1e6")]
    let dot = scaled as i32;
    dot
}

fn length(value: f64) -> u32 {
    u32::try_from(dot(value)).unwrap_or(0).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashes_keep_their_length_around_corners() {
        let strokes = dashes(&[(0.0, 0.0), (5.0, 0.0), (5.0, 5.0)], 6.0, 2.0);
        assert_eq!(strokes[0], [(0.0, 0.0), (5.0, 0.0), (5.0, 1.0)]);
        assert_eq!(strokes[1], [(5.0, 3.0), (5.0, 5.0)]);
        assert!(dashes(&[], 6.0, 2.0).is_empty() && dashes(&[(1.0, 1.0)], 6.0, 2.0).is_empty());
    }

    #[test]
    fn averaging_keeps_flat_colour_and_size() {
        let mut pixels = vec![u8::MAX; (WIDTH * SCALE * HEIGHT * SCALE * 3) as usize];
        let half = pixels.len() / 2;
        pixels[half..].fill(200);
        let small = downsample(&pixels);
        assert_eq!(small.len(), (WIDTH * HEIGHT * 3) as usize);
        let (above, below) = small.split_at(small.len() / 2);
        assert!(above.iter().all(|&value| value == u8::MAX) && below.iter().all(|&value| value == 200));
    }

    #[test]
    fn absurd_coordinates_saturate() {
        assert_eq!((dot(f64::MAX), dot(f64::NAN), dot(-1e300)), (1_000_000, 0, -1_000_000));
    }
}
