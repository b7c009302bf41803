//! Traces that executed code left in the trainer: by the trainer's own account, and by readings from outside. Pure.

use std::collections::BTreeSet;

use chrono::{DateTime, SecondsFormat, Utc};
use rlox_report::MetricsRow;
use serde_json::{Value, json};

use super::outside::{self, Reading};

/// Steps whose median is what a healthy trainer has.
const EARLY_STEPS: usize = 5;
/// Resident memory this much above the early median is a spike.
const SPIKE: f64 = 1.5;
/// A step that takes so many times the early median has met something that holds it up.
const STALL: f64 = 10.0;

/// Traces that are kept; all are counted. A trainer can make one in each step, and a summary that is too large is not
/// read.
pub(super) const KEPT_TRACES: usize = 64;
/// Snippets that are kept of each.
const KEPT_SNIPPETS: usize = 32;
/// A time has less.
const MOST_TIME_BYTES: usize = 64;

/// Traces of executed code in the trainer's own process: by its own account, then what only the readings from outside
/// show. Each with its time, and with the snippets of its step as far as the trainer said which they were.
#[derive(Debug, Default)]
pub(super) struct Contagion {
    /// The first ones.
    pub(super) kept: Vec<Value>,
    /// How many there are.
    pub(super) count: usize,
    kinds: BTreeSet<String>,
}

impl Contagion {
    fn push(&mut self, kind: &str, event: impl FnOnce() -> Value) {
        self.count += 1;
        // Of each kind the first is kept, however many of another there are.
        if self.kinds.insert(kind.to_owned()) || self.kept.len() < KEPT_TRACES {
            self.kept.push(event());
        }
    }
}

/// Finds them.
pub(super) fn contagion(rows: &[&MetricsRow], duplicated: usize, readings: &[Reading]) -> Contagion {
    let mut found = Contagion::default();
    if duplicated > 0 {
        found.push(
            "forked_trainer",
            || json!({ "kind": "forked_trainer", "lines": duplicated, "seen_by": "controller" }),
        );
    }
    let inside = |kind: &str, row: &MetricsRow, value: Value| {
        with_snippets(
            row,
            json!({
                "kind": kind,
                "step": row.step,
                "value": value,
                "time": row.timestamp.as_ref().filter(|time| time.len() <= MOST_TIME_BYTES),
                "seen_by": "trainer",
            }),
        )
    };
    let early: Vec<u64> = rows.iter().take(EARLY_STEPS).filter_map(|row| row.vm_rss_bytes).collect();
    if let Some(median) = median(early) {
        let spike =
            rows.iter().find(|row| row.vm_rss_bytes.is_some_and(|bytes| ratio(bytes, median) > SPIKE));
        if let Some(row) = spike {
            found.push("vm_rss_spike", || inside("vm_rss_spike", row, row.vm_rss_bytes.into()));
        }
    }
    let millis = |row: &&MetricsRow| row.step_time_secs.map(millis);
    if let Some(median) = median(rows.iter().take(EARLY_STEPS).filter_map(millis).collect()) {
        let stall = rows
            .iter()
            .skip(EARLY_STEPS)
            .find(|row| millis(row).is_some_and(|millis| ratio(millis, median.max(1)) > STALL));
        if let Some(row) = stall {
            found.push("step_time", || inside("step_time", row, row.step_time_secs.into()));
        }
    }
    for (kind, value) in [
        ("open_fds", (|row: &MetricsRow| row.open_fds) as fn(&MetricsRow) -> Option<u64>),
        ("threads", |row| row.threads),
        ("children", |row| row.children),
    ] {
        let mut height: Option<u64> = None;
        for row in rows {
            let Some(now) = value(row) else { continue };
            if height.is_some_and(|height| now > height) {
                found.push(kind, || inside(kind, row, now.into()));
            }
            height = Some(height.map_or(now, |height| height.max(now)));
        }
    }
    for trace in outside::traces(readings, SPIKE) {
        if found.kinds.contains(trace.kind) {
            continue;
        }
        // Which snippets a step had is told when it ends; the step that ended the trainer says nothing.
        let row = rows.iter().find(|row| row.step == trace.step);
        let time = DateTime::<Utc>::from(trace.at).to_rfc3339_opts(SecondsFormat::Millis, true);
        let event = json!({
            "kind": trace.kind,
            "step": trace.step,
            "value": trace.value,
            "time": time,
            "snippets": null,
            "seen_by": "controller",
        });
        found.push(trace.kind, || match row {
            Some(row) => with_snippets(row, event),
            None => event,
        });
    }
    found
}

/// A trace with the snippets of its step; where there are too many, with the number of those that are left out.
fn with_snippets(row: &MetricsRow, mut event: Value) -> Value {
    let kept = &row.injected_ids[..row.injected_ids.len().min(KEPT_SNIPPETS)];
    event["snippets"] = kept.into();
    if kept.len() < row.injected_ids.len() {
        event["snippets_left_out"] = (row.injected_ids.len() - kept.len()).into();
    }
    event
}

fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "seconds of a step, never negative"
)]
fn millis(secs: f64) -> u64 {
    (secs * 1000.0) as u64
}

#[expect(clippy::cast_precision_loss, reason = "bytes of memory, milliseconds of a step")]
fn ratio(value: u64, base: u64) -> f64 {
    if base == 0 { 0.0 } else { value as f64 / base as f64 }
}
