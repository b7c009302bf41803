//! Why a request about sweeps cannot be served.

use crate::corpus;
use crate::sweep::runner::SweepError;
use crate::sweep::store::StoreError;

/// A request about sweeps cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SweepsError {
    /// The plan makes no sense.
    #[error("{0}")]
    Plan(String),
    /// There is none such.
    #[error("there is no {what} {id}")]
    Unknown {
        /// `sweep` or `trial`.
        what: &'static str,
        /// The id asked for.
        id: String,
    },
    /// The sweep's state does not allow it.
    #[error("the sweep is {state}: there is nothing to {action}")]
    Conflict {
        /// Its state.
        state: &'static str,
        /// What was asked for.
        action: &'static str,
    },
    /// The sweep's end was asked for, and its trials are still being ended.
    #[error("the sweep is being ended: resume it when its state is no longer running")]
    Ending,
    /// Something else stands where the log was.
    #[error("the log of trial {id} is no regular file any more: its trainer replaced it")]
    NoLog {
        /// The trial.
        id: String,
    },
    /// The service is about to end.
    #[error("the service is stopping")]
    Closing,
    /// The corpus cannot be used.
    #[error(transparent)]
    Corpus(#[from] corpus::CorpusError),
    /// The state cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What a crash left cannot be ended, or a sweep cannot be begun.
    #[error(transparent)]
    Sweep(#[from] SweepError),
    /// Its files cannot be read.
    #[error(transparent)]
    Report(#[from] rlox_report::ReportError),
}
