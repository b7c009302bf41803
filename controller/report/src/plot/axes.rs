//! Scales, ticks and the frame that all figures share.

use super::canvas::{Canvas, Dash, Drawn, GREY, GRID, INK, Point};
use super::text::{Anchor, Face};
use crate::model::Fraction;
use crate::stats::to_f64;

pub(crate) const TITLE: Face = Face::ink(34.0).bold();
pub(crate) const SUBTITLE: Face = Face::new(24.0, GREY);
pub(crate) const LABEL: Face = Face::ink(25.0);
pub(crate) const TICK: Face = Face::ink(23.0);
pub(crate) const NOTE: Face = Face::new(19.0, GREY);

/// From values to a length.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    log: bool,
}

impl Scale {
    /// Linear; an empty range is widened.
    pub(crate) fn linear(low: f64, high: f64) -> Self {
        if high - low > f64::EPSILON * low.abs().max(high.abs()) {
            Self { low, high, log: false }
        } else {
            let half = low.abs().max(1.0) / 2.0;
            Self { low: low - half, high: high + half, log: false }
        }
    }

    /// Logarithmic, around positive values with room at both ends. Nothing below a picounit is drawn: a
    /// hostile 1e-300 would leave no room for the rest.
    pub(crate) fn log_around(values: impl IntoIterator<Item = f64>) -> Self {
        let positive = values.into_iter().filter(|value| *value > 0.0).map(|value| value.max(1e-12));
        let (low, high) = extent(positive).unwrap_or((0.1, 10.0));
        let room = (high / low).powf(0.08).max(1.6);
        Self { low: low / room, high: high * room, log: true }
    }

    /// Where a value lies, 0 at the low end and 1 at the high end.
    pub(crate) fn position(self, value: f64) -> f64 {
        if self.log {
            (value.max(1e-12) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    /// Round values inside, about `wanted` of them.
    pub(crate) fn ticks(self, wanted: u32) -> Vec<f64> {
        if self.log { self.log_ticks() } else { self.linear_ticks(wanted) }
    }

    fn linear_ticks(self, wanted: u32) -> Vec<f64> {
        let rough = (self.high - self.low) / f64::from(wanted.max(1));
        let power = 10_f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 2.5, 5.0].into_iter().map(|m| m * power).find(|s| *s >= rough).unwrap_or(10.0 * power);
        let first = (self.low / step).ceil();
        (0..=2 * wanted)
            .map(|n| (first + f64::from(n)) * step)
            .take_while(|tick| *tick <= self.high + step * 1e-9)
            .collect()
    }

    fn log_ticks(self) -> Vec<f64> {
        let (low, high) = (self.low.log10(), self.high.log10());
        let decades = high - low;
        let within: &[f64] = match decades {
            d if d < 1.2 => &[1.0, 2.0, 3.0, 5.0],
            d if d < 2.5 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let every = (decades / 8.0).ceil().max(1.0);
        let mut ticks: Vec<f64> = (0..64)
            .map(|n| low.floor() + f64::from(n))
            .take_while(|exponent| *exponent <= high)
            .filter(|exponent| exponent.rem_euclid(every) == 0.0)
            .flat_map(|exponent| within.iter().map(move |m| m * 10_f64.powf(exponent)))
            .collect();
        ticks.retain(|tick| (self.low..=self.high).contains(tick));
        ticks
    }
}

/// Smallest and largest of finite values.
pub(crate) fn extent(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values.into_iter().filter(|v| v.is_finite()).fold(None, |range, v| {
        let (low, high) = range.unwrap_or((v, v));
        Some((low.min(v), high.max(v)))
    })
}

/// A number as a tick shows it, without noise of binary fractions.
pub(crate) fn tick_label(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if !(1e-4..1e6).contains(&value.abs()) {
        return format!("{value:.0e}");
    }
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The rectangle that data are drawn in, with its scales.
#[derive(Clone, Copy)]
pub(crate) struct Axes {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) right: f64,
    pub(crate) bottom: f64,
    pub(crate) x: Scale,
    pub(crate) y: Scale,
}

impl Axes {
    /// The usual place below title and legend, above axis label and note.
    pub(crate) fn standard(x: Scale, y: Scale) -> Self {
        Self { left: 150.0, top: 215.0, right: 1550.0, bottom: 800.0, x, y }
    }

    pub(crate) fn at(&self, x: f64, y: f64) -> Point {
        (self.at_x(x), self.at_y(y))
    }

    pub(crate) fn at_x(&self, x: f64) -> f64 {
        self.left + self.x.position(x) * (self.right - self.left)
    }

    pub(crate) fn at_y(&self, y: f64) -> f64 {
        self.bottom - self.y.position(y) * (self.bottom - self.top)
    }

    /// Horizontal grid, its labels and the base line.
    pub(crate) fn draw_y(&self, canvas: &Canvas<'_>, ticks: &[f64], label: impl Fn(f64) -> String) -> Drawn {
        for &tick in ticks {
            let y = self.at_y(tick);
            canvas.line(&[(self.left, y), (self.right, y)], GRID, 1.4, Dash::Solid)?;
            canvas.text(&label(tick), (self.left - 14.0, y), TICK, Anchor::Right);
        }
        canvas.line(&[(self.left, self.bottom), (self.right, self.bottom)], INK, 2.0, Dash::Solid)
    }

    /// Marks and labels of steps below the base line: round ones, and the first.
    pub(crate) fn draw_steps(&self, canvas: &Canvas<'_>, wanted: u32) -> Drawn {
        let mut ticks = self.x.ticks(wanted);
        ticks.retain(|tick| tick.fract() == 0.0);
        let apart = ticks.get(1).zip(ticks.first()).map_or(0.0, |(second, first)| second - first);
        if ticks.first().is_some_and(|first| first - self.x.low > 0.5 * apart) {
            ticks.insert(0, self.x.low);
        }
        for tick in ticks {
            let x = self.at_x(tick);
            canvas.line(&[(x, self.bottom), (x, self.bottom + 8.0)], INK, 2.0, Dash::Solid)?;
            canvas.text(&tick_label(tick), (x, self.bottom + 26.0), TICK, Anchor::Centre);
        }
        Ok(())
    }

    /// One label for each fraction, at 0, 1, 2, …
    pub(crate) fn draw_groups(&self, canvas: &Canvas<'_>, fractions: &[Fraction], below: f64) {
        for (index, fraction) in fractions.iter().enumerate() {
            let at = (self.at_x(to_f64(index)), self.bottom + below);
            canvas.text(&format!("{fraction} %"), at, LABEL, Anchor::Centre);
        }
    }

    /// What is said where there are no data.
    pub(crate) fn draw_empty(&self, canvas: &Canvas<'_>, text: &str) {
        let middle = ((self.left + self.right) / 2.0, (self.top + self.bottom) / 2.0);
        canvas.text(text, middle, LABEL, Anchor::Centre);
    }
}

/// Title, subtitle, axis titles and note.
pub(crate) struct Captions<'a> {
    pub(crate) title: &'a str,
    pub(crate) subtitle: &'a str,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    pub(crate) note: &'a str,
}

impl Captions<'_> {
    pub(crate) fn draw(&self, canvas: &Canvas<'_>, axes: &Axes) {
        canvas.text(self.title, (40.0, 48.0), TITLE, Anchor::Left);
        canvas.text(self.subtitle, (40.0, 98.0), SUBTITLE, Anchor::Left);
        canvas.text(self.x, ((axes.left + axes.right) / 2.0, 884.0), LABEL, Anchor::Centre);
        canvas.text_upwards(self.y, (44.0, (axes.top + axes.bottom) / 2.0), LABEL);
        canvas.paragraph(self.note, (40.0, 938.0), 1520.0, NOTE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(Scale::linear(0.0, 1.0).ticks(5), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(Scale::linear(1.0, 30.0).ticks(6), [5.0, 10.0, 15.0, 20.0, 25.0, 30.0]);
        assert_eq!(Scale { low: 0.05, high: 400.0, log: true }.ticks(0).len(), 4);
        for (low, high) in [(0.0, 0.0), (5.0, 5.0), (-1e15, 1e15), (1e-300, 2e-300)] {
            let scale = Scale::linear(low, high);
            let ticks = scale.ticks(6);
            assert!(!ticks.is_empty() && ticks.len() <= 13, "{low} {high}: {ticks:?}");
        }
        for values in [vec![], vec![0.0, -1.0], vec![1e-300, 1e15], vec![3.0]] {
            let ticks = Scale::log_around(values).ticks(0);
            assert!(!ticks.is_empty() && ticks.len() < 64, "{ticks:?}");
        }
    }

    #[test]
    fn labels_have_no_binary_noise() {
        assert_eq!(tick_label(0.1 + 0.2), "0.3");
        assert_eq!(
            (tick_label(20.0), tick_label(1e9), tick_label(-0.5)),
            ("20".into(), "1e9".into(), "-0.5".into())
        );
    }

    #[test]
    fn positions_run_from_0_to_1() {
        assert_eq!(Scale::linear(2.0, 4.0).position(3.0), 0.5);
        let log = Scale { low: 0.1, high: 10.0, log: true };
        assert!((log.position(1.0) - 0.5).abs() < 1e-12 && log.position(0.0).is_finite());
    }
}
