//! Seconds a step at one injected fraction, a line a trial, with a cross where a run died.

use super::axes::{Axes, Captions, Scale, tick_label};
use super::canvas::{Canvas, Dash, Drawn, INK, Marker, Point, RULE};
use super::style::{Key, legend, look};
use super::text::{Anchor, Face};
use super::traces::{Trace, draw_ends, draw_trace, step_range, traces};
use crate::model::{Condition, Fraction, Sweep};
use crate::stats::to_f64;
use crate::summary::Summary;

const END: Face = Face::ink(19.0);
/// Least distance of two labels.
const END_GAP: f64 = 26.0;
/// More rows of labels than this would leave no room for data.
const ROW_LIMIT: usize = 6;

pub(super) fn draw(canvas: &Canvas<'_>, sweep: &Sweep, summary: &Summary) -> Drawn {
    let fraction = shown_fraction(sweep);
    let mut traces = traces(sweep, |row| row.step_time_secs.filter(|secs| *secs > 0.0));
    traces.retain(|trace| Some(trace.trial.key.fraction) == fraction);
    let (first, last) = step_range(&traces, sweep);
    let mut axes = Axes {
        right: 1330.0,
        ..Axes::standard(
            Scale::linear(first, last),
            Scale::log_around(traces.iter().flat_map(|trace| trace.points.iter().map(|point| point.1))),
        )
    };
    let (deaths, rows) = lay_out_deaths(canvas, &axes, &traces);
    axes.top += END_GAP * to_f64(rows);
    if traces.is_empty() {
        axes.draw_empty(canvas, "no step was timed in this sweep");
    } else {
        axes.draw_y(canvas, &axes.y.ticks(0), |secs| format!("{} s", tick_label(secs)))?;
        axes.draw_steps(canvas, 6)?;
    }
    draw_deaths(canvas, &axes, &deaths)?;
    for trace in &traces {
        draw_trace(canvas, &axes, trace, 3.2)?;
    }
    label_survivors(canvas, &axes, &traces)?;
    draw_ends(canvas, &axes, &traces.iter().collect::<Vec<_>>(), 11.0)?;
    let [baseline, treatment] = Condition::ALL.map(look);
    legend(
        canvas,
        &[
            (Key::LineDot(baseline), baseline.name),
            (Key::LineDot(treatment), treatment.name),
            (Key::Dot(Marker::Cross, INK, false), "last completed step of a run that died"),
        ],
    )?;
    let title = fraction.map_or("Time per training step".to_owned(), |fraction| {
        format!("Time per training step at {fraction} % adversarial code")
    });
    let ratio = summary.step_time_ratio.iter().find(|r| r.fraction.is_some() && r.fraction == fraction);
    let times = |value: Option<f64>| value.map_or("–".to_owned(), |v| format!("{v:.1}×"));
    let subtitle = ratio.filter(|ratio| ratio.median.is_some()).map_or(
        "One line a seed; both conditions are needed for a ratio".to_owned(),
        |ratio| {
            format!(
                "One line a seed; in_loop takes {} the time of rlox in the median, {} in the 99th percentile",
                times(ratio.median),
                times(ratio.p99)
            )
        },
    );
    Captions {
        title: &title,
        subtitle: &subtitle,
        x: "Training step",
        y: "Wall-clock time per step (log)",
        note: &format!(
            "The step in which a run hung or died was never completed and is not drawn, so the baseline's stalls are \
             understated.{}",
            died_at_once(sweep, fraction)
        ),
    }
    .draw(canvas, &axes);
    Ok(())
}

/// 5 % as in the tutorial; else the nearest fraction that has attacks; else 0 %.
fn shown_fraction(sweep: &Sweep) -> Option<Fraction> {
    sweep.fractions().into_iter().min_by(|a, b| {
        let rank = |f: &Fraction| (*f == Fraction::ZERO, (f.percent() - 5.0).abs());
        rank(a).partial_cmp(&rank(b)).unwrap_or(std::cmp::Ordering::Equal)
    })
}

/// Runs that have no line, because they died before they had completed a step.
fn died_at_once(sweep: &Sweep, fraction: Option<Fraction>) -> String {
    let runs = sweep.trials.iter().filter(|trial| {
        Some(trial.key.fraction) == fraction
            && trial.finished().is_some_and(|run| !run.survived)
            && trial.metrics.rows.iter().all(|row| row.step_time_secs.is_none())
    });
    match runs.count() {
        0 => String::new(),
        count => format!(" Without a line, since no step was completed: {count}."),
    }
}

/// The label of a dead run, above the data.
struct Death {
    /// Of its last completed step.
    end: (f64, f64),
    text: String,
    /// Where the label's middle is.
    x: f64,
    row: usize,
}

/// Puts each dead run's label above its end, in the first row where it overlaps no other.
fn lay_out_deaths(canvas: &Canvas<'_>, axes: &Axes, traces: &[Trace<'_>]) -> (Vec<Death>, usize) {
    let mut rows: Vec<Vec<(f64, f64)>> = Vec::new();
    let mut deaths = Vec::new();
    for trace in traces.iter().filter(|trace| trace.died) {
        let (Some(&end), Some(run)) = (trace.points.last(), trace.trial.finished()) else { continue };
        let exit: String = run.exit_status.to_string().chars().take(16).collect();
        let text = format!("{} seed {}: {exit}", trace.trial.key.condition, trace.trial.key.seed);
        let half = canvas.text_width(&text, END) / 2.0 + 8.0;
        let x = axes.at_x(end.0).max(axes.left + half).min(axes.right - half);
        let free = |taken: &Vec<(f64, f64)>| taken.iter().all(|&(from, to)| x + half < from || to < x - half);
        let row = rows.iter().position(free).unwrap_or(rows.len());
        if row == ROW_LIMIT {
            continue;
        }
        if row == rows.len() {
            rows.push(Vec::new());
        }
        if let Some(taken) = rows.get_mut(row) {
            taken.push((x - half, x + half));
        }
        deaths.push(Death { end, text, x, row });
    }
    (deaths, rows.len())
}

fn draw_deaths(canvas: &Canvas<'_>, axes: &Axes, deaths: &[Death]) -> Drawn {
    for death in deaths {
        let (x, y) = axes.at(death.end.0, death.end.1);
        canvas.line(&[(x, y), (x, axes.top - 8.0)], RULE, 1.6, Dash::Pattern(4.0, 4.0))?;
        let at = (death.x, axes.top - 22.0 - END_GAP * to_f64(death.row));
        canvas.text(&death.text, at, END, Anchor::Centre);
    }
    Ok(())
}

/// Names each line that reaches the end beside it.
fn label_survivors(canvas: &Canvas<'_>, axes: &Axes, traces: &[Trace<'_>]) -> Drawn {
    let mut survivors: Vec<(Point, String)> = traces
        .iter()
        .filter(|trace| !trace.died)
        .filter_map(|trace| {
            let &(step, secs) = trace.points.last()?;
            let key = trace.trial.key;
            Some((axes.at(step, secs), format!("{} seed {}", key.condition, key.seed)))
        })
        .collect();
    survivors.sort_by(|((_, a), _), ((_, b), _)| a.total_cmp(b));
    let heights: Vec<f64> = survivors.iter().map(|((_, y), _)| *y).collect();
    for ((end, text), y) in survivors.into_iter().zip(spread(&heights, axes.top, axes.bottom)) {
        let leader = [(end.0 + 6.0, end.1), (axes.right + 24.0, y)];
        canvas.line(&leader, RULE, 1.6, Dash::Solid)?;
        canvas.text(&text, (axes.right + 30.0, y), END, Anchor::Left);
    }
    Ok(())
}

/// Moves ascending heights apart to the least distance, as little as possible and within bounds.
fn spread(heights: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    // Blocks of touching labels: the middle of each and how many it holds.
    let mut blocks: Vec<(f64, f64)> = Vec::new();
    for &height in heights {
        let (mut middle, mut count) = (height, 1.0);
        while let Some(&(before, held)) = blocks.last() {
            if middle - before >= END_GAP * (count + held) / 2.0 {
                break;
            }
            middle = (middle * count + before * held) / (count + held);
            count += held;
            blocks.pop();
        }
        blocks.push((middle, count));
    }
    let mut spread = Vec::with_capacity(heights.len());
    for (middle, count) in blocks {
        let first = middle - END_GAP * (count - 1.0) / 2.0;
        let first = first.min(bottom - END_GAP * (count - 1.0)).max(top);
        spread.extend((0..heights.len()).map(to_f64).take_while(|n| *n < count).map(|n| first + n * END_GAP));
    }
    spread
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_move_apart_around_their_lines() {
        assert_eq!(spread(&[100.0, 300.0], 0.0, 500.0), [100.0, 300.0]);
        assert_eq!(spread(&[200.0, 200.0, 200.0], 0.0, 500.0), [174.0, 200.0, 226.0]);
        assert_eq!(spread(&[499.0, 500.0], 0.0, 500.0), [474.0, 500.0]);
        assert!(spread(&[], 0.0, 500.0).is_empty());
    }
}
