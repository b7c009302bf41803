//! Survival by injected fraction: bars with Wilson intervals, the published result as hollow markers.

use super::axes::{Axes, Captions, Scale};
use super::canvas::{Canvas, Drawn, GREY, INK, Marker};
use super::style::{Key, legend, look, whisker};
use super::text::{Anchor, Face};
use crate::model::{Condition, Fraction, Sweep};
use crate::stats::to_f64;
use crate::summary::{Summary, SurvivalCell};

const BAR: f64 = 0.30;

pub(super) fn draw(canvas: &Canvas<'_>, _: &Sweep, summary: &Summary) -> Drawn {
    let fractions: Vec<Fraction> = summary.p3_headline.in_loop.iter().map(|(f, _)| *f).collect();
    let groups = Scale::linear(-0.5, to_f64(fractions.len().max(1)) - 0.5);
    let axes = Axes { bottom: 785.0, ..Axes::standard(groups, Scale::linear(0.0, 1.04)) };
    axes.draw_y(canvas, &[0.0, 0.25, 0.5, 0.75, 1.0], |share| format!("{:.0} %", 100.0 * share))?;
    axes.draw_groups(canvas, &fractions, 62.0);
    if fractions.is_empty() {
        axes.draw_empty(canvas, "no trial in this sweep");
    }
    for cell in &summary.survival {
        if let Some(group) = fractions.iter().position(|f| Some(*f) == cell.fraction) {
            draw_cell(canvas, &axes, to_f64(group), cell, summary)?;
        }
    }
    legend(
        canvas,
        &[
            (Key::Patch(look(Condition::InLoop).colour), look(Condition::InLoop).name),
            (Key::Patch(look(Condition::Rlox).colour), look(Condition::Rlox).name),
            (Key::Whisker, "95 % Wilson interval"),
            (Key::Dot(Marker::Diamond, INK, true), "published, not measured here"),
        ],
    )?;
    let missing = match summary.missing_trials.len() {
        0 => String::new(),
        1 => "; 1 trial missing or unfinished, in no bar".to_owned(),
        count => format!("; {count} trials missing or unfinished, in no bar"),
    };
    let all = |condition| {
        let whole = summary.survival.iter().find(|c| c.condition == condition && c.fraction.is_none());
        let [survived, total] = whole.map_or([0, 0], |c| [c.survived, c.total]);
        format!("{condition} {survived} of {total}")
    };
    let published = &summary.published;
    Captions {
        title: "Training runs that survive adversarial code",
        subtitle: &format!("Measured: {}, {}{missing}", all(Condition::InLoop), all(Condition::Rlox)),
        x: "Completions replaced by adversarial code",
        y: "Runs survived",
        note: &format!(
            "Below the bars: runs survived / runs judged. A run survives if it does all of its steps and exits with \
             code 0. Published: {}, {} steps, {} seeds.",
            published.hardware, published.steps, published.seeds
        ),
    }
    .draw(canvas, &axes);
    Ok(())
}

fn draw_cell(canvas: &Canvas<'_>, axes: &Axes, group: f64, cell: &SurvivalCell, summary: &Summary) -> Drawn {
    let centre = group + offset(cell.condition);
    let (x, below) = (axes.at_x(centre), axes.bottom + 24.0);
    let half = (axes.at_x(centre + BAR / 2.0) - x) * 0.97;
    if cell.total == 0 {
        canvas.text("no data", (x, below), Face::new(20.0, GREY), Anchor::Centre);
    } else {
        let share = f64::from(cell.survived) / f64::from(cell.total);
        if cell.survived > 0 {
            let top = (x - half, axes.at_y(share));
            canvas.rectangle(top, (x + half, axes.bottom - 1.0), look(cell.condition).colour)?;
        }
        let count = format!("{}/{}", cell.survived, cell.total);
        canvas.text(&count, (x, below), Face::ink(24.0).bold(), Anchor::Centre);
    }
    if let Some(interval) = cell.interval {
        whisker(canvas, x - half * 0.35, axes.at_y(interval.high), axes.at_y(interval.low))?;
    }
    let published = cell.fraction.and_then(|f| summary.published.cell(cell.condition, &f.to_string()));
    published.map_or(Ok(()), |[survived, total]| {
        let y = axes.at_y(f64::from(survived) / f64::from(total));
        canvas.marker((x + half * 0.45, y), Marker::Diamond, 12.0, INK, true)
    })
}

fn offset(condition: Condition) -> f64 {
    match condition {
        Condition::InLoop => -0.17,
        Condition::Rlox => 0.17,
    }
}
