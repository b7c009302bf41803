//! GPU utilisation over steps, a panel a fraction. Where no GPU was sampled the figure says so and shows the
//! trainer's resident memory, which is what was measured.

use super::axes::{Axes, Captions, Scale, TICK, extent, tick_label};
use super::canvas::{Canvas, Drawn, INK, Marker};
use super::style::{Key, legend, look};
use super::text::Anchor;
use super::traces::{Trace, draw_ends, draw_trace, step_range, traces};
use crate::model::{Condition, Fraction, Sweep};
use crate::stats::to_f64;
use crate::summary::Summary;

const MIB: f64 = 1024.0 * 1024.0;
/// More panels than this would be too small to read.
const PANEL_LIMIT: usize = 9;

pub(super) fn draw(canvas: &Canvas<'_>, sweep: &Sweep, summary: &Summary) -> Drawn {
    let sampled = summary.gpu.iter().any(|gpu| gpu.samples > 0);
    let lines = if sampled {
        traces(sweep, |row| row.gpu_util)
    } else {
        traces(sweep, |row| row.vm_rss_bytes.filter(|bytes| *bytes > 0).map(|bytes| bytes as f64 / MIB))
    };
    let y = if sampled { Scale::linear(0.0, 104.0) } else { memory_scale(&lines) };
    let (first, last) = step_range(&lines, sweep);
    let whole = Axes::standard(Scale::linear(first, last), y);
    if lines.is_empty() {
        whole.draw_empty(canvas, "no resident memory was sampled either");
    } else {
        panels(canvas, sweep, &whole, &lines)?;
    }
    let [baseline, treatment] = Condition::ALL.map(look);
    legend(
        canvas,
        &[
            (Key::LineDot(baseline), baseline.name),
            (Key::LineDot(treatment), treatment.name),
            (Key::Dot(Marker::Cross, INK, false), "last completed step of a run that died"),
        ],
    )?;
    let means =
        summary.gpu.iter().filter_map(|gpu| Some(format!("{} {:.0} %", gpu.condition, gpu.mean_percent?)));
    let mean = means.collect::<Vec<_>>().join(", ");
    let (title, subtitle, label, note) = if sampled {
        (
            "GPU utilisation over training",
            format!("Mean over all steps: {mean}; one line a seed, a panel a share of adversarial code"),
            "GPU utilisation (%)",
            "Utilisation is the driver's share of time with a kernel running, sampled in each step.",
        )
    } else {
        (
            "No GPU sampled in this sweep: trainer's resident memory instead",
            "One line a seed, a panel a share of adversarial code".to_owned(),
            "Resident memory (MiB)",
            "Resident set of the trainer's process (VmRSS) at the end of each step. A spike that ends a run inside a \
             step is not seen.",
        )
    };
    Captions { title, subtitle: &subtitle, x: "Training step", y: label, note }.draw(canvas, &whole);
    Ok(())
}

fn panels(canvas: &Canvas<'_>, sweep: &Sweep, whole: &Axes, lines: &[Trace<'_>]) -> Drawn {
    let fractions: Vec<Fraction> = sweep.fractions().into_iter().take(PANEL_LIMIT).collect();
    let columns = (1..=3).find(|n| n * n >= fractions.len()).unwrap_or(3);
    let rows = fractions.len().div_ceil(columns);
    let (gap_x, gap_y) = (64.0, 52.0);
    let width = (whole.right - whole.left + gap_x) / to_f64(columns);
    let height = (whole.bottom - whole.top + gap_y) / to_f64(rows);
    for (index, fraction) in fractions.iter().enumerate() {
        let (row, column) = (index / columns, index % columns);
        let left = whole.left + width * to_f64(column);
        let top = whole.top + height * to_f64(row);
        let axes = Axes {
            left,
            top: top + 24.0,
            right: left + width - gap_x,
            bottom: top + height - gap_y,
            ..*whole
        };
        let label = |value| if column == 0 { tick_label(value) } else { String::new() };
        axes.draw_y(canvas, &axes.y.ticks(4), label)?;
        // Below the lowest panel of each column only.
        if index + columns >= fractions.len() {
            axes.draw_steps(canvas, 4)?;
        }
        canvas.text(&format!("{fraction} % adversarial"), (left, top + 2.0), TICK.bold(), Anchor::Left);
        let shown: Vec<_> = lines.iter().filter(|line| line.trial.key.fraction == *fraction).collect();
        for line in &shown {
            draw_trace(canvas, &axes, line, 2.4)?;
        }
        draw_ends(canvas, &axes, &shown, 9.0)?;
    }
    Ok(())
}

/// Linear from 0 unless a memory bomb dwarfs the rest.
fn memory_scale(lines: &[Trace<'_>]) -> Scale {
    let values = || lines.iter().flat_map(|line| line.points.iter().map(|point| point.1));
    match extent(values()) {
        Some((low, high)) if high > 8.0 * low => Scale::log_around(values()),
        Some((_, high)) => Scale::linear(0.0, 1.12 * high),
        None => Scale::linear(0.0, 1.0),
    }
}
