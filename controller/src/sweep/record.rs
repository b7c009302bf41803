//! From what was seen outside to a trial's `run_summary.json`. Pure but for the values given.
//!
//! Whether the trial survived, how it ended and how many steps it did come from outside the trainer. An exit
//! code of 0 before the last step is no survival: `sys.exit(0)` in a completion looks like that.

use rlox_protocol::Ending;
use rlox_report::{MetricsRow, TrialKey};
use serde_json::{Value, json};

use super::contagion::contagion;
use super::engine::Facts;
use super::outside::Reading;
use super::store::RECORDER;

/// Rewards of this many last steps make the final reward.
const FINAL_STEPS: usize = 5;

/// Why the controller ended a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    /// No step ended for too long.
    Stalled {
        /// The limit in seconds.
        secs: u64,
    },
    /// The output directory grew over its limit.
    Disk {
        /// The limit in MiB.
        limit_mb: u64,
    },
}

/// Everything seen of one trial.
pub(super) struct Seen<'a> {
    pub(super) key: TrialKey,
    pub(super) facts: &'a Facts,
    pub(super) stopped: Option<Stopped>,
    pub(super) rows: &'a [MetricsRow],
    /// The trainer's process, read from outside.
    pub(super) readings: &'a [Reading],
    pub(super) checkpoint: bool,
    pub(super) max_steps: u64,
}

/// The summary.
pub(super) fn summary(seen: &Seen<'_>) -> Value {
    let mut rows: Vec<&MetricsRow> = seen.rows.iter().collect();
    // A forked copy of the trainer writes steps again; the first of each number counts.
    rows.sort_by_key(|row| row.step);
    rows.dedup_by_key(|row| row.step);
    let steps = rows.iter().enumerate().take_while(|(index, row)| row.step == *index as u64 + 1).count();
    let duplicated = seen.rows.len() - rows.len();
    let rows = &rows[..steps];
    let steps = steps as u64;
    let clean_end = seen.facts.ending == Ending::Exited(0);
    let survived = clean_end && steps == seen.max_steps && seen.checkpoint && duplicated == 0;
    let contagion = contagion(rows, duplicated, seen.readings);
    let last = &rows[rows.len().saturating_sub(FINAL_STEPS)..];
    let final_reward = |value: fn(&MetricsRow) -> Option<f64>| {
        // Of a trial that did not reach its end there is no final reward.
        if steps < seen.max_steps { None } else { mean(last.iter().filter_map(|row| value(row))) }
    };
    let sum = |value: fn(&MetricsRow) -> Option<u64>| rows.iter().filter_map(|row| value(row)).sum::<u64>();
    let facts = seen.facts;
    json!({
        "condition": seen.key.condition.as_str(),
        "seed": seen.key.seed,
        "adversarial_fraction": seen.key.fraction.share(),
        "survived": survived,
        "exit_status": status(seen),
        "reason": reason(seen, steps, duplicated),
        "final_reward": final_reward(|row| row.reward),
        "final_reward_clean": final_reward(|row| row.reward_clean),
        "first_reward": rows.first().and_then(|row| row.reward),
        "first_reward_clean": rows.first().and_then(|row| row.reward_clean),
        "wall_secs": facts.wall_secs,
        "cpu_secs": facts.cpu_secs,
        "steps_completed": steps,
        "max_steps": seen.max_steps,
        "contagion_events": contagion.count,
        "contagion": contagion.kept,
        "injected_samples": sum(|row| row.injected),
        "forged_rewards": sum(|row| row.forged),
        "masked_samples": sum(|row| row.masked),
        "memory_peak_bytes": facts.counters.memory_peak_bytes,
        "pids_peak": facts.counters.pids_peak,
        "oom_kills": facts.counters.oom_kill,
        "leftovers": facts.leftovers,
        "recorded_by": RECORDER,
    })
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

fn status(seen: &Seen<'_>) -> String {
    match seen.stopped {
        Some(Stopped::Stalled { .. }) => "Timeout".into(),
        Some(Stopped::Disk { .. }) | None => seen.facts.exit_status.clone(),
    }
}

fn reason(seen: &Seen<'_>, steps: u64, duplicated: usize) -> Option<String> {
    match (seen.stopped, seen.facts.ending) {
        (Some(Stopped::Stalled { secs }), _) => Some(format!("no step ended for {secs} s")),
        (Some(Stopped::Disk { limit_mb }), _) => Some(format!("output directory over {limit_mb} MiB")),
        (None, Ending::Deadline | Ending::CpuLimit) => Some("wall-clock limit of the trial".into()),
        (None, _) if seen.facts.counters.oom_kill > 0 => {
            Some(format!("the kernel killed {} process(es) for memory", seen.facts.counters.oom_kill))
        }
        (None, Ending::Exited(0)) if steps < seen.max_steps => {
            Some(format!("ended with code 0 after {steps} of {} steps", seen.max_steps))
        }
        (None, Ending::Exited(0)) if duplicated > 0 => {
            Some("a forked copy of the trainer wrote steps too".into())
        }
        (None, Ending::Exited(0)) if !seen.checkpoint => Some("no checkpoint was written".into()),
        (None, Ending::Exited(0)) => None,
        (None, Ending::Exited(code)) => Some(format!("the trainer exited with code {code}")),
        (None, Ending::Signaled(signal)) => Some(format!("the trainer ended by signal {signal}")),
        (None, Ending::OutputFlood | Ending::Cancelled) => Some("ended by the controller".into()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use rlox_protocol::CgroupCounters;

    use super::*;

    fn facts(ending: Ending) -> Facts {
        Facts {
            ending,
            exit_status: "Clean(0)".into(),
            wall_secs: 1.0,
            cpu_secs: 1.0,
            counters: CgroupCounters::default(),
            leftovers: 0,
        }
    }

    fn rows(count: u64) -> Vec<MetricsRow> {
        (1..=count)
            .map(|step| MetricsRow {
                step,
                reward: Some(1.0),
                vm_rss_bytes: Some(100),
                open_fds: Some(10),
                ..MetricsRow::default()
            })
            .collect()
    }

    fn seen(ending: Ending, steps: u64, checkpoint: bool, stopped: Option<Stopped>) -> Value {
        let (facts, rows) = (facts(ending), rows(steps));
        let key = TrialKey::parse("in_loop_seed0_fraction5").unwrap();
        summary(&Seen { key, facts: &facts, stopped, rows: &rows, readings: &[], checkpoint, max_steps: 30 })
    }

    #[test]
    fn survival_takes_every_step_a_clean_end_and_a_checkpoint() {
        assert_eq!(seen(Ending::Exited(0), 30, true, None)["survived"], true);
        for (ending, steps, checkpoint) in [
            (Ending::Exited(0), 29, true),
            (Ending::Exited(0), 30, false),
            (Ending::Exited(1), 30, true),
            (Ending::Signaled(9), 30, true),
            (Ending::Deadline, 30, true),
        ] {
            let summary = seen(ending, steps, checkpoint, None);
            assert_eq!(summary["survived"], false, "{ending:?}");
            assert!(summary["reason"].is_string(), "{ending:?}");
        }
    }

    #[test]
    fn a_trial_that_did_not_finish_has_no_final_reward() {
        assert_eq!(seen(Ending::Exited(0), 30, true, None)["final_reward"], 1.0);
        assert_eq!(seen(Ending::Exited(0), 12, true, None)["final_reward"], Value::Null);
    }

    #[test]
    fn a_stall_is_a_timeout_with_its_reason() {
        let summary = seen(Ending::Cancelled, 3, false, Some(Stopped::Stalled { secs: 30 }));
        assert_eq!(summary["exit_status"], "Timeout");
        assert_eq!(summary["reason"], "no step ended for 30 s");
    }

    #[test]
    fn leaks_spikes_and_forked_trainers_are_contagion() {
        let mut all = rows(10);
        all[6].vm_rss_bytes = Some(200);
        all[7].open_fds = Some(12);
        all.push(all[3].clone());
        all[6].injected_ids = vec!["memory_bomb".into()];
        all[6].timestamp = Some("2026-11-30T09:00:00.000+00:00".into());
        let summary = summary_of(&all, &[]);
        assert_eq!(summary["contagion_events"], 3);
        assert_eq!(summary["survived"], false);
        assert_eq!(summary["steps_completed"], 10);
    }

    fn summary_of(rows: &[MetricsRow], readings: &[Reading]) -> Value {
        let facts = facts(Ending::Exited(0));
        let key = TrialKey::parse("in_loop_seed0_fraction5").unwrap();
        summary(&Seen { key, facts: &facts, stopped: None, rows, readings, checkpoint: true, max_steps: 10 })
    }

    #[test]
    fn a_trace_has_its_time_and_the_snippets_of_its_step() {
        let mut all = rows(10);
        all[6].vm_rss_bytes = Some(200);
        all[6].injected_ids = vec!["memory_bomb".into()];
        all[6].timestamp = Some("2026-11-30T09:00:00.000+00:00".into());
        let event = &summary_of(&all, &[])["contagion"][0];
        assert_eq!(
            (&event["kind"], &event["step"], &event["value"]),
            (&"vm_rss_spike".into(), &7.into(), &200.into())
        );
        assert_eq!(event["snippets"], json!(["memory_bomb"]));
        assert_eq!(event["time"], "2026-11-30T09:00:00.000+00:00");
    }

    #[test]
    fn a_trainer_cannot_make_its_summary_larger_than_what_is_read() {
        let mut all = rows(5000);
        for row in &mut all {
            (row.open_fds, row.threads) = (Some(row.step), Some(row.step));
            row.injected_ids = vec!["\"".repeat(128); 256];
            row.timestamp = Some("\u{1}".repeat(10_000));
        }
        let summary = summary_of(&all, &[]);
        // Two in each step but the first, which is what the others are more than.
        assert_eq!(summary["contagion_events"], 2 * 4999);
        let kept = summary["contagion"].as_array().unwrap();
        assert!(["open_fds", "threads"].iter().all(|kind| kept.iter().any(|event| event["kind"] == *kind)));
        assert_eq!(kept[0]["snippets_left_out"], 256 - 32);
        let text = serde_json::to_string_pretty(&summary).unwrap();
        assert!(text.len() < 1 << 20, "{}", text.len());
        let read = serde_json::from_str::<Value>(&text).unwrap();
        assert_eq!(read["contagion_events"], summary["contagion_events"]);
    }

    #[test]
    fn a_step_of_ten_times_the_usual_length_is_contagion() {
        let mut all = rows(10);
        all.iter_mut().for_each(|row| row.step_time_secs = Some(1.0));
        all[8].step_time_secs = Some(9.0);
        assert_eq!(summary_of(&all, &[])["contagion_events"], 0);
        all[8].step_time_secs = Some(11.0);
        assert_eq!(summary_of(&all, &[])["contagion"][0]["kind"], "step_time");
    }

    #[test]
    fn what_is_seen_from_outside_counts_where_the_trainer_says_nothing() {
        let reading = |second: u64| Reading {
            at: SystemTime::UNIX_EPOCH + Duration::from_secs(second),
            steps: second,
            vm_rss_bytes: 100,
            open_fds: 10,
            threads: 1,
            children: u64::from(second > 7),
        };
        let readings: Vec<_> = (0..15).map(reading).collect();
        let mut all = rows(10);
        all[8].injected_ids = vec!["fork".into()];
        let event = &summary_of(&all, &readings)["contagion"][0];
        assert_eq!(
            (&event["kind"], &event["step"], &event["seen_by"]),
            (&"children".into(), &9.into(), &"controller".into())
        );
        assert_eq!(
            (&event["time"], &event["snippets"]),
            (&"1970-01-01T00:00:08.000Z".into(), &json!(["fork"]))
        );
        // By its own account, too: the same kind is not counted twice.
        all.iter_mut().for_each(|row| row.children = Some(u64::from(row.step > 8)));
        let summary = summary_of(&all, &readings);
        assert_eq!(
            (&summary["contagion_events"], &summary["contagion"][0]["seen_by"]),
            (&1.into(), &"trainer".into())
        );
    }
}
