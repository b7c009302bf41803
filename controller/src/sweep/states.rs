//! The states of sweeps and trials, and the ways between them.
//!
//! ```text
//!            start              record
//! queued ───────────► running ───────────► finished
//!    ▲                 │ │ │
//!    │                 │ │ └─ could not be run ──► failed
//!    │                 │ └─── cancel ────────────► cancelled
//!    │                 └───── controller died, stopped, or the disk was full ─► interrupted
//!    └──────────────── resume, or the next start ◄─ failed, cancelled, interrupted
//! ```
//!
//! A trial is **finished** once its summary is committed to the database: that moment decides, and nothing leaves
//! that state. Everything before it is an attempt, which may be lost and is made again. A sweep has the same states;
//! it is **failed** where some of its trials could not be run.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The words of a state, in the database and in JSON; trials and sweeps have the same.
macro_rules! words {
    ($state:ident) => {
        impl $state {
            /// All of them.
            pub(crate) const ALL: [Self; 6] = [
                Self::Queued,
                Self::Running,
                Self::Finished,
                Self::Failed,
                Self::Cancelled,
                Self::Interrupted,
            ];

            /// The word in the database and in JSON.
            pub(crate) fn word(self) -> &'static str {
                match self {
                    Self::Queued => "queued",
                    Self::Running => "running",
                    Self::Finished => "finished",
                    Self::Failed => "failed",
                    Self::Cancelled => "cancelled",
                    Self::Interrupted => "interrupted",
                }
            }

            /// From the word.
            pub(crate) fn parse(word: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|state| state.word() == word)
            }
        }
    };
}

words!(TrialState);
words!(SweepState);

/// Where a trial is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TrialState {
    /// Waits for its turn.
    Queued,
    /// An attempt runs.
    Running,
    /// Recorded, whether it survived or not. Final.
    Finished,
    /// It could not be run, by a fault of ours or of its set-up; says nothing about the trainer.
    Failed,
    /// Ended on request.
    Cancelled,
    /// Its controller died or stopped, or the disk was full, while it ran.
    Interrupted,
}

impl TrialState {
    /// Whether the state may change from this to that. The database is asked to change nothing else.
    pub(crate) fn may_become(self, next: Self) -> bool {
        match self {
            Self::Queued => matches!(next, Self::Running | Self::Cancelled),
            Self::Running => !matches!(next, Self::Queued | Self::Running),
            Self::Finished => false,
            Self::Failed | Self::Cancelled | Self::Interrupted => next == Self::Queued,
        }
    }
}

/// Where a sweep is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SweepState {
    /// Waits for the sweeps before it.
    Queued,
    /// Its trials are run.
    Running,
    /// Every trial is finished.
    Finished,
    /// Some trials could not be run, or the sweep itself could not.
    Failed,
    /// Ended on request; finished trials are kept.
    Cancelled,
    /// Its controller died or was stopped; a server goes on with it when it starts again.
    Interrupted,
}

impl SweepState {
    /// Whether it neither waits nor runs.
    pub(crate) fn over(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_json() {
        for state in TrialState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.word());
            assert_eq!(TrialState::parse(state.word()), Some(state));
        }
        for state in SweepState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.word());
            assert_eq!(SweepState::parse(state.word()), Some(state));
        }
    }

    #[test]
    fn nothing_leaves_finished_and_only_a_running_trial_gets_there() {
        for state in TrialState::ALL {
            assert!(!TrialState::Finished.may_become(state), "{state:?}");
            assert_eq!(state.may_become(TrialState::Finished), state == TrialState::Running, "{state:?}");
        }
    }
}
