//! How a condition looks, in every figure alike: colours of Okabe and Ito that differ in lightness too, a
//! marker and a line pattern, so that a figure reads without colour.

use plotters::style::RGBColor;

use super::axes::TICK;
use super::canvas::{Canvas, Dash, Drawn, INK, Marker};
use super::text::Anchor;
use crate::model::Condition;

const ORANGE: RGBColor = RGBColor(230, 159, 0);
const BLUE: RGBColor = RGBColor(0, 114, 178);

/// The look of one condition.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    pub(crate) colour: RGBColor,
    pub(crate) marker: Marker,
    pub(crate) dash: Dash,
    pub(crate) name: &'static str,
}

pub(crate) fn look(condition: Condition) -> Look {
    match condition {
        Condition::InLoop => Look {
            colour: ORANGE,
            marker: Marker::Circle,
            dash: Dash::Pattern(14.0, 7.0),
            name: "in_loop (baseline)",
        },
        Condition::Rlox => {
            Look { colour: BLUE, marker: Marker::Square, dash: Dash::Solid, name: "rlox (sandbox)" }
        }
    }
}

/// What stands before a legend's text.
pub(crate) enum Key {
    Patch(RGBColor),
    Line(RGBColor, Dash),
    Dot(Marker, RGBColor, bool),
    /// A line with a marker on it.
    LineDot(Look),
    Whisker,
}

/// A row of keys above the data.
pub(crate) fn legend(canvas: &Canvas<'_>, entries: &[(Key, &str)]) -> Drawn {
    let (mut x, y) = (40.0, 156.0);
    for (key, text) in entries {
        let middle = (x + 24.0, y);
        match *key {
            Key::Patch(colour) => canvas.rectangle((x + 6.0, y - 14.0), (x + 42.0, y + 14.0), colour)?,
            Key::Line(colour, dash) => canvas.line(&[(x, y), (x + 48.0, y)], colour, 4.0, dash)?,
            Key::Dot(marker, colour, hollow) => canvas.marker(middle, marker, 11.0, colour, hollow)?,
            Key::LineDot(look) => {
                canvas.line(&[(x, y), (x + 48.0, y)], look.colour, 4.0, look.dash)?;
                canvas.marker(middle, look.marker, 9.0, look.colour, false)?;
            }
            Key::Whisker => whisker(canvas, middle.0, y - 15.0, y + 15.0)?,
        }
        canvas.text(text, (x + 60.0, y), TICK, Anchor::Left);
        x += 60.0 + canvas.text_width(text, TICK) + 42.0;
    }
    Ok(())
}

/// An interval's line with caps.
pub(crate) fn whisker(canvas: &Canvas<'_>, x: f64, top: f64, bottom: f64) -> Drawn {
    canvas.line(&[(x, top), (x, bottom)], INK, 2.6, Dash::Solid)?;
    for y in [top, bottom] {
        canvas.line(&[(x - 9.0, y), (x + 9.0, y)], INK, 2.6, Dash::Solid)?;
    }
    Ok(())
}
