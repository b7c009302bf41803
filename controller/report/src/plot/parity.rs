//! Final reward by injected fraction: mean with interval, each seed as a point, and step 1 for reference.

use super::axes::{Axes, Captions, Scale, extent, tick_label};
use super::canvas::{Canvas, Dash, Drawn, GREY, Marker};
use super::style::{Key, legend, look, whisker};
use super::text::{Anchor, Face};
use crate::model::{Condition, Fraction, Sweep};
use crate::stats::to_f64;
use crate::summary::{RewardCell, Summary};

pub(super) fn draw(canvas: &Canvas<'_>, _: &Sweep, summary: &Summary) -> Drawn {
    let fractions: Vec<Fraction> = summary.p3_headline.in_loop.iter().map(|(f, _)| *f).collect();
    let groups = Scale::linear(-0.5, to_f64(fractions.len().max(1)) - 0.5);
    let axes = Axes::standard(groups, reward_scale(&summary.rewards));
    let ticks = axes.y.ticks(6);
    // As many decimals on every tick as the finest needs.
    let decimals =
        ticks.iter().filter_map(|tick| tick_label(*tick).split_once('.').map(|(_, d)| d.len())).max();
    axes.draw_y(canvas, &ticks, |tick| match decimals {
        Some(decimals) => format!("{tick:.decimals$}"),
        None => tick_label(tick),
    })?;
    axes.draw_groups(canvas, &fractions, 32.0);
    if fractions.is_empty() {
        axes.draw_empty(canvas, "no trial in this sweep");
    }
    for cell in &summary.rewards {
        if let Some(group) = fractions.iter().position(|f| *f == cell.fraction) {
            draw_cell(canvas, &axes, to_f64(group), cell)?;
        }
    }
    legend(
        canvas,
        &[
            (
                Key::Dot(look(Condition::InLoop).marker, look(Condition::InLoop).colour, false),
                "in_loop, mean",
            ),
            (Key::Dot(look(Condition::Rlox).marker, look(Condition::Rlox).colour, false), "rlox, mean"),
            (Key::Whisker, "95 % bootstrap interval"),
            (Key::Dot(Marker::Circle, GREY, true), "one seed"),
            (Key::Line(GREY, Dash::Pattern(5.0, 5.0)), "mean at step 1"),
        ],
    )?;
    let parity = &summary.parity;
    let difference = match (parity.mean_difference, parity.difference_interval) {
        (Some(mean), Some(interval)) => {
            format!(
                "; rlox less in_loop, paired: {mean:+.3} [{:+.3}, {:+.3}]",
                interval.low + 0.0,
                interval.high + 0.0
            )
        }
        (Some(mean), None) => format!("; rlox less in_loop, one pair: {mean:+.3}"),
        (None, _) => String::new(),
    };
    Captions {
        title: "Final reward of the runs that survived",
        subtitle: &format!(
            "Parity guardrail at 0 %: {}{difference}",
            summary.quality_parity_guardrail.status.as_str().replace('_', " ")
        ),
        x: "Completions replaced by adversarial code",
        y: "Mean reward, all samples",
        note: "Survivors only: where in_loop lost runs, its mean is over the lucky ones. All samples includes the \
               adversarial ones. No interval for fewer than two survivors.",
    }
    .draw(canvas, &axes);
    Ok(())
}

fn draw_cell(canvas: &Canvas<'_>, axes: &Axes, group: f64, cell: &RewardCell) -> Drawn {
    let look = look(cell.condition);
    let x = axes.at_x(group + offset(cell.condition));
    if let Some(first) = cell.first_reward {
        let y = axes.at_y(first);
        canvas.line(&[(x - 40.0, y), (x + 90.0, y)], look.colour, 3.4, Dash::Pattern(5.0, 5.0))?;
    }
    let Some(mean) = cell.final_reward else {
        canvas.marker((x + 20.0, axes.bottom - 44.0), Marker::Cross, 9.0, look.colour, false)?;
        let at = (x + 20.0, axes.bottom - 18.0);
        canvas.text("no survivor", at, Face::new(19.0, GREY), Anchor::Centre);
        return Ok(());
    };
    // Mean, then interval, then seeds, side by side: over one another they would hide each other.
    canvas.marker((x - 22.0, axes.at_y(mean)), look.marker, 11.0, look.colour, false)?;
    if let Some(interval) = cell.final_reward_interval {
        whisker(canvas, x + 6.0, axes.at_y(interval.high), axes.at_y(interval.low))?;
    }
    for (index, &reward) in cell.final_rewards.iter().enumerate() {
        let shift = 32.0 + 16.0 * to_f64(index % 4);
        canvas.marker((x + shift, axes.at_y(reward)), look.marker, 7.5, look.colour, true)?;
    }
    let top = extent(cell.final_rewards.iter().copied()).map_or(mean, |(_, high)| high);
    let at = (x + 20.0, axes.at_y(top) - 30.0);
    canvas.text(&format!("{mean:.3}"), at, Face::ink(20.0), Anchor::Centre);
    Ok(())
}

/// Up to 1 where rewards are shares, as the tasks' are, from a round value below all of them.
fn reward_scale(cells: &[RewardCell]) -> Scale {
    let intervals = cells.iter().filter_map(|c| c.final_reward_interval).flat_map(|i| [i.low, i.high]);
    let firsts = cells.iter().filter_map(|c| c.first_reward);
    let finals = cells.iter().flat_map(|c| c.final_rewards.iter().copied());
    let (low, high) = extent(finals.chain(intervals).chain(firsts)).unwrap_or((0.0, 1.0));
    if low >= 0.0 && high <= 1.0 {
        return Scale::linear(((low - 0.06) * 10.0).floor().max(0.0) / 10.0, 1.06);
    }
    let room = 0.1 * (high - low);
    Scale::linear(low - room, high + room)
}

fn offset(condition: Condition) -> f64 {
    match condition {
        Condition::InLoop => -0.26,
        Condition::Rlox => 0.14,
    }
}
