//! The only part that starts processes: launchers, and through them containers.

mod ahead;
mod environment;
mod grader;
mod launcher;
mod memfd;
mod plan;
mod pool;
mod queue;
mod reporting;
mod reports;
mod worker;

pub(crate) use ahead::AheadState;
pub(crate) use environment::{Environment, EnvironmentError};
pub(crate) use launcher::Launcher;
pub(crate) use plan::FETCH_BYTES;
pub(crate) use pool::{Pool, PoolState, Queued, SubmitError};

/// The sandbox failed; nothing is known about the program. Never a reward of 0.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum SandboxError {
    /// A launcher could not be started.
    #[error("cannot start a launcher: {reason}")]
    Spawn {
        /// The system's word.
        reason: String,
    },
    /// A launcher ended or broke the protocol.
    #[error("launcher {slot} failed: {reason}")]
    Launcher {
        /// Which launcher.
        slot: u16,
        /// What it did.
        reason: String,
    },
    /// A launcher did not answer in time.
    #[error("launcher {slot} did not answer within {seconds:.1} s of the deadline")]
    Stuck {
        /// Which launcher.
        slot: u16,
        /// How long it was waited for.
        seconds: f64,
    },
    /// The launcher reports that it could not contain the program.
    #[error("{message}")]
    Fault {
        /// The launcher's report.
        message: String,
    },
    /// The grader gave no valid report.
    #[error("grader: {reason}")]
    Grader {
        /// What was missing or wrong.
        reason: String,
    },
    /// No worker was free while there was time for an answer.
    #[error("no worker was free in time")]
    Late,
    /// A system call of ours failed.
    #[error("{action}: {reason}")]
    System {
        /// What was being done.
        action: &'static str,
        /// The system's word.
        reason: String,
    },
}

impl SandboxError {
    /// Wraps any error with what was being done.
    fn system<E: std::fmt::Display>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::System { action, reason: error.to_string() }
    }
}
