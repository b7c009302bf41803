//! Lines over steps, one a trial: shared by the figures of step time and utilisation.

use super::axes::Axes;
use super::canvas::{Canvas, Dash, Drawn, INK, Marker, Point};
use super::style::{Look, look};
use crate::metrics::MetricsRow;
use crate::model::{Sweep, Trial};
use crate::stats::to_f64;

/// More points than this a line only cost time.
const POINT_LIMIT: usize = 1500;

/// One trial's values over its steps.
pub(crate) struct Trace<'a> {
    pub(crate) trial: &'a Trial,
    pub(crate) look: Look,
    /// Step and value, ascending by step.
    pub(crate) points: Vec<(f64, f64)>,
    /// It ended before its last step.
    pub(crate) died: bool,
}

/// The lines of every trial that has values, baseline first.
pub(crate) fn traces(sweep: &Sweep, value: fn(&MetricsRow) -> Option<f64>) -> Vec<Trace<'_>> {
    sweep
        .trials
        .iter()
        .filter_map(|trial| {
            let mut points: Vec<(f64, f64)> = trial
                .metrics
                .rows
                .iter()
                .filter_map(|row| Some((step_number(row.step), value(row)?)))
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let stride = points.len().div_ceil(POINT_LIMIT).max(1);
            let last = points.last().copied()?;
            let mut points: Vec<_> = points.into_iter().step_by(stride).collect();
            if points.last() != Some(&last) {
                points.push(last);
            }
            let died = trial.finished().is_some_and(|run| !run.survived);
            Some(Trace { trial, look: look(trial.key.condition), points, died })
        })
        .collect()
}

fn step_number(step: u64) -> f64 {
    to_f64(usize::try_from(step).unwrap_or(usize::MAX))
}

/// Draws a line, a marker every few steps, and a cross where a dead run ends. The baseline, drawn first, is
/// wider, so that it shows under a treatment that takes the same course.
pub(crate) fn draw_trace(canvas: &Canvas<'_>, axes: &Axes, trace: &Trace<'_>, width: f64) -> Drawn {
    let points: Vec<Point> = trace.points.iter().map(|&(x, y)| axes.at(x, y)).collect();
    let (width, dash) = match (trace.look.dash, trace.trial.key.seed % 3) {
        (Dash::Solid, _) => (width, Dash::Solid),
        // Seeds differ in their pattern.
        (Dash::Pattern(on, off), 0) => (1.35 * width, Dash::Pattern(on, off)),
        (Dash::Pattern(on, off), 1) => (1.35 * width, Dash::Pattern(0.4 * on, 0.8 * off)),
        (Dash::Pattern(on, off), _) => (1.35 * width, Dash::Pattern(2.0 * on, off)),
    };
    canvas.line(&points, trace.look.colour, width, dash)?;
    let every = (points.len() / 6).max(1);
    for point in points.iter().skip(every / 2).step_by(every) {
        canvas.marker(*point, trace.look.marker, 2.0 + 1.4 * width, trace.look.colour, false)?;
    }
    Ok(())
}

/// The crosses of dead runs, over all lines.
pub(crate) fn draw_ends(canvas: &Canvas<'_>, axes: &Axes, traces: &[&Trace<'_>], radius: f64) -> Drawn {
    let ends = traces.iter().filter(|trace| trace.died).filter_map(|trace| trace.points.last());
    ends.into_iter().try_for_each(|&(x, y)| canvas.marker(axes.at(x, y), Marker::Cross, radius, INK, false))
}

/// First and last step of all lines, at least one step apart.
pub(crate) fn step_range(traces: &[Trace<'_>], sweep: &Sweep) -> (f64, f64) {
    let steps = traces.iter().flat_map(|trace| trace.points.iter().map(|point| point.0));
    let asked = sweep.trials.iter().filter_map(|trial| trial.finished()?.max_steps).map(step_number);
    let (low, high) = super::axes::extent(steps.clone()).unwrap_or((1.0, 2.0));
    // The steps asked for, unless a hostile record asks for absurdly many.
    let asked = asked.filter(|&asked| asked <= 10.0 * high.max(10.0)).fold(high, f64::max);
    (low, asked.max(low + 1.0))
}
