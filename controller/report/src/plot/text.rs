//! Text of the figures, from a font that travels in the binary. Set here rather than by the plotting
//! library, whose own setting drops the side bearings of glyphs.

use ab_glyph::{Font, FontRef, Glyph, PxScale, ScaleFont, point};
use plotters::style::RGBColor;

use super::canvas::{HEIGHT, INK, Point, WIDTH};

/// Height of capitals in ems, which texts are centred on.
const CAPITALS: f64 = 0.714;

/// Where the given point lies in a text.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Left,
    Centre,
    Right,
}

/// How a text looks. The size is an em in pixels.
#[derive(Clone, Copy)]
pub(crate) struct Face {
    pub(crate) size: f64,
    pub(crate) bold: bool,
    pub(crate) colour: RGBColor,
}

impl Face {
    pub(crate) const fn new(size: f64, colour: RGBColor) -> Self {
        Self { size, bold: false, colour }
    }

    pub(crate) const fn ink(size: f64) -> Self {
        Self::new(size, INK)
    }

    pub(crate) const fn bold(self) -> Self {
        Self { bold: true, ..self }
    }
}

/// A text in its place, to be set over the finished shapes.
pub(crate) struct Label {
    pub(crate) text: String,
    pub(crate) at: Point,
    pub(crate) face: Face,
    pub(crate) anchor: Anchor,
    /// It reads from below to above.
    pub(crate) upwards: bool,
}

pub(crate) struct Fonts {
    regular: FontRef<'static>,
    bold: FontRef<'static>,
}

impl Fonts {
    pub(crate) fn embedded() -> Result<Self, ab_glyph::InvalidFont> {
        Ok(Self {
            regular: FontRef::try_from_slice(notosans::REGULAR_TTF)?,
            bold: FontRef::try_from_slice(notosans::BOLD_TTF)?,
        })
    }

    pub(crate) fn width(&self, text: &str, face: Face) -> f64 {
        self.lay_out(text, face).1
    }

    /// Glyphs on a base line through the origin, and their width.
    fn lay_out(&self, text: &str, face: Face) -> (Vec<Glyph>, f64) {
        let font = self.font(face);
        let ems = font.height_unscaled() / font.units_per_em().unwrap_or(1000.0);
        let scale = PxScale::from(narrow(face.size) * ems);
        let scaled = font.as_scaled(scale);
        let (mut x, mut previous, mut glyphs) = (0.0, None, Vec::new());
        for c in text.chars() {
            let id = font.glyph_id(c);
            x += previous.map_or(0.0, |before| scaled.kern(before, id));
            glyphs.push(id.with_scale_and_position(scale, point(x, 0.0)));
            x += scaled.h_advance(id);
            previous = Some(id);
        }
        (glyphs, f64::from(x))
    }

    fn font(&self, face: Face) -> &FontRef<'static> {
        if face.bold { &self.bold } else { &self.regular }
    }

    /// Blends a label into RGB pixels of a figure's size.
    pub(crate) fn set(&self, pixels: &mut [u8], label: &Label) {
        let (glyphs, width) = self.lay_out(&label.text, label.face);
        let back = match label.anchor {
            Anchor::Left => 0.0,
            Anchor::Centre => width / 2.0,
            Anchor::Right => width,
        };
        let drop = CAPITALS * label.face.size / 2.0;
        let (x, y) = label.at;
        let origin = if label.upwards { (x + drop, y + back) } else { (x - back, y + drop) };
        let origin = (origin.0.round(), origin.1.round());
        let font = self.font(label.face);
        for outline in glyphs.into_iter().filter_map(|glyph| font.outline_glyph(glyph)) {
            let corner = outline.px_bounds().min;
            outline.draw(|dx, dy, cover| {
                let along = f64::from(corner.x) + f64::from(dx);
                let down = f64::from(corner.y) + f64::from(dy);
                let (x, y) = if label.upwards {
                    (origin.0 + down, origin.1 - along)
                } else {
                    (origin.0 + along, origin.1 + down)
                };
                blend(pixels, x, y, label.face.colour, f64::from(cover));
            });
        }
    }
}

fn blend(pixels: &mut [u8], x: f64, y: f64, colour: RGBColor, cover: f64) {
    if !(0.0..f64::from(WIDTH)).contains(&x) || !(0.0..f64::from(HEIGHT)).contains(&y) {
        return;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "inside the figure")]
    let index = (y as usize * WIDTH as usize + x as usize) * 3;
    let channels = pixels.get_mut(index..index + 3).unwrap_or_default();
    for (channel, ink) in channels.iter_mut().zip([colour.0, colour.1, colour.2]) {
        let paper = f64::from(*channel);
        let mixed = paper + (f64::from(ink) - paper) * cover.clamp(0.0, 1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between two bytes")]
        let mixed = mixed.round() as u8;
        *channel = mixed;
    }
}

fn narrow(size: f64) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "a font size")]
    let size = size as f32;
    size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_of_the_figures_is_in_both_fonts() {
        let fonts = Fonts::embedded().unwrap();
        for c in "abcxyzABCXYZ0123456789 %()/.,:;=+-−–×÷≥±_[]'".chars() {
            for font in [&fonts.regular, &fonts.bold] {
                assert_ne!(font.glyph_id(c).0, 0, "{c}");
            }
        }
    }

    #[test]
    fn wider_texts_are_wider_and_bold_is_wider_still() {
        let fonts = Fonts::embedded().unwrap();
        let face = Face::ink(20.0);
        assert!(fonts.width("rlox rlox", face) > 1.9 * fonts.width("rlox", face));
        assert!(fonts.width("rlox", face.bold()) > fonts.width("rlox", face));
        assert_eq!(fonts.width("", face), 0.0);
    }

    #[test]
    fn labels_outside_the_figure_are_cut_off() {
        let fonts = Fonts::embedded().unwrap();
        let mut pixels = vec![255; (WIDTH * HEIGHT * 3) as usize];
        for at in [(-1e9, 5.0), (1590.0, 995.0), (f64::NAN, f64::INFINITY)] {
            for upwards in [false, true] {
                let label =
                    Label { text: "rlox".into(), at, face: Face::ink(40.0), anchor: Anchor::Left, upwards };
                fonts.set(&mut pixels, &label);
            }
        }
        assert!(pixels.contains(&INK.0));
    }
}
