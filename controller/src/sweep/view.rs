//! What is shown of a sweep: the same words over HTTP and with `--json`.
//!
//! These are copies of what the database holds, made for a reader; nothing is decided from them.

use rlox_report::{Condition, TrialKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::plan::Plan;
use super::states::{SweepState, TrialState};

/// One sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct SweepView {
    /// Sixteen hexadecimal digits.
    #[schema(example = "9f86d081884c7d65")]
    pub(crate) id: String,
    pub(crate) state: SweepState,
    /// What keeps it from going on, in words: a full disk, a missing environment. Null while all is well.
    pub(crate) problem: Option<String>,
    /// All settings, defaults filled in.
    pub(crate) plan: Plan,
    /// How many trials are in which state.
    pub(crate) trials: TrialCounts,
    /// Where the trials' directories are, on the server.
    pub(crate) directory: String,
    /// RFC 3339, UTC, as all times here.
    #[schema(example = "2026-11-30T09:00:00.000Z")]
    pub(crate) created_at: String,
    /// When its first trial was started; null before.
    pub(crate) started_at: Option<String>,
    /// Null while it is queued or runs.
    pub(crate) ended_at: Option<String>,
    /// The newest event's id: what a reader of this answer passes as `Last-Event-ID` to miss nothing.
    pub(crate) last_event_id: i64,
}

/// Trials by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct TrialCounts {
    pub(crate) total: u64,
    pub(crate) queued: u64,
    pub(crate) running: u64,
    pub(crate) finished: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    pub(crate) interrupted: u64,
    /// Of the finished ones, those that did all their steps and came to a clean end.
    pub(crate) survived: u64,
}

/// Sweeps, the newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct SweepList {
    pub(crate) sweeps: Vec<SweepView>,
}

/// One trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct TrialView {
    /// `SWEEP.NAME`, which names it in `/v1/trials/{id}/logs`.
    #[schema(example = "9f86d081884c7d65.rlox_seed0_fraction5")]
    pub(crate) id: String,
    pub(crate) sweep_id: String,
    /// The name of its directory.
    #[schema(example = "rlox_seed0_fraction5")]
    pub(crate) name: String,
    /// `in_loop` or `rlox`.
    pub(crate) condition: String,
    pub(crate) seed: u32,
    /// Hostile completions in percent.
    #[schema(example = "5")]
    pub(crate) percent: String,
    /// The same as a share.
    pub(crate) adversarial_fraction: f64,
    pub(crate) state: TrialState,
    /// How often it was begun. More than one: it was interrupted, or could not be run.
    pub(crate) attempts: u32,
    pub(crate) max_steps: u64,
    /// Steps that ended, of the attempt that runs or of the recorded one.
    pub(crate) steps_completed: Option<u64>,
    /// Null until it is finished, as everything below.
    pub(crate) survived: Option<bool>,
    /// `Clean(N)`, `Signaled(N)`, `Timeout`, `OomKilled`.
    pub(crate) exit_status: Option<String>,
    /// Why it did not survive, or could not be run.
    pub(crate) reason: Option<String>,
    pub(crate) final_reward: Option<f64>,
    pub(crate) wall_secs: Option<f64>,
    pub(crate) cpu_secs: Option<f64>,
    pub(crate) memory_peak_bytes: Option<u64>,
    pub(crate) pids_peak: Option<u64>,
    pub(crate) contagion_events: Option<u64>,
    pub(crate) started_at: Option<String>,
    pub(crate) ended_at: Option<String>,
    /// All of `run_summary.json`.
    #[schema(value_type = Option<Object>)]
    pub(crate) summary: Option<Value>,
}

/// The trials of a sweep, in the order of running.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct TrialList {
    pub(crate) sweep_id: String,
    pub(crate) trials: Vec<TrialView>,
}

/// One event. Over HTTP: `id: ID`, `event: KIND`, `data:` the whole object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Event {
    /// Grows with each event of this server, with gaps within one sweep.
    pub(crate) id: i64,
    pub(crate) at: String,
    pub(crate) sweep_id: String,
    #[serde(flatten)]
    pub(crate) what: Happening,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Happening {
    /// The sweep's state changed.
    Sweep { state: SweepState, reason: Option<String> },
    /// A trial's state changed.
    Trial {
        trial_id: String,
        name: String,
        attempt: u32,
        state: TrialState,
        survived: Option<bool>,
        exit_status: Option<String>,
        reason: Option<String>,
    },
    /// A step of a trial ended, by its own account.
    Step {
        trial_id: String,
        name: String,
        attempt: u32,
        step: u64,
        reward: Option<f64>,
        reward_clean: Option<f64>,
        entropy: Option<f64>,
        kl: Option<f64>,
        gpu_util: Option<f64>,
        step_time_secs: Option<f64>,
        verify_secs: Option<f64>,
        vm_rss_bytes: Option<u64>,
        open_fds: Option<u64>,
        threads: Option<u64>,
        children: Option<u64>,
        injected: Option<u64>,
        masked: Option<u64>,
        forged: Option<u64>,
    },
}

impl Happening {
    /// The word for `event:`.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Sweep { .. } => "sweep",
            Self::Trial { .. } => "trial",
            Self::Step { .. } => "step",
        }
    }
}

/// The id of a trial within a server.
pub(crate) fn trial_id(sweep: &str, name: &str) -> String {
    format!("{sweep}.{name}")
}

/// A trial's id taken apart. A fraction's name may hold a dot, a sweep's id does not.
pub(crate) fn parse_trial_id(id: &str) -> Option<(&str, TrialKey)> {
    let (sweep, name) = id.split_once('.')?;
    Some((sweep, TrialKey::parse(name)?))
}

/// The word for a condition.
pub(crate) fn condition(key: TrialKey) -> String {
    let condition: Condition = key.condition;
    condition.as_str().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_trials_come_apart_where_they_were_joined() {
        let id = trial_id("9f86d081884c7d65", "rlox_seed1_fraction0.5");
        let (sweep, key) = parse_trial_id(&id).unwrap();
        assert_eq!((sweep, key.to_string().as_str()), ("9f86d081884c7d65", "rlox_seed1_fraction0.5"));
        for bad in ["", "x", "x.", "x.rlox_seed1_fraction0.5/..", "x.../../etc/passwd"] {
            assert!(parse_trial_id(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn an_event_is_one_object_with_its_kind() {
        let what = Happening::Sweep { state: SweepState::Running, reason: None };
        let event = Event { id: 3, at: "t".into(), sweep_id: "s".into(), what };
        let value = serde_json::to_value(&event).unwrap();
        assert_eq!(
            (&value["kind"], &value["state"], &value["id"]),
            (&"sweep".into(), &"running".into(), &3.into())
        );
        assert_eq!(serde_json::from_value::<Event>(value).unwrap(), event);
    }
}
