//! What is wrong with a request about sweeps, as problem documents.

use crate::api::Problem;
use crate::sweep::{StoreError, SweepsError};

impl From<SweepsError> for Problem {
    fn from(error: SweepsError) -> Self {
        let detail = error.to_string();
        match error {
            SweepsError::Plan(_) | SweepsError::Store(StoreError::KeyTaken { .. }) => {
                Self::unprocessable(detail)
            }
            SweepsError::Unknown { .. } => Self::unknown(detail),
            SweepsError::Conflict { .. } | SweepsError::Ending | SweepsError::NoLog { .. } => {
                Self::conflict(detail)
            }
            SweepsError::Store(StoreError::State { .. }) => Self::conflict(detail),
            SweepsError::Store(ref store) if store.is_full() => Self::no_space(detail),
            SweepsError::Closing
            | SweepsError::Corpus(_)
            | SweepsError::Store(_)
            | SweepsError::Sweep(_)
            | SweepsError::Report(_) => {
                tracing::error!(error = detail, "a request about sweeps failed");
                Self::unavailable(detail)
            }
        }
    }
}
