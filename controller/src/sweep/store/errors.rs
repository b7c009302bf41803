//! What can be wrong with a store.

use std::path::PathBuf;

use super::MAX_SWEEPS;
use crate::sweep::database::DatabaseError;
use crate::sweep::files::FileError;

/// The state cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// A file of it.
    #[error(transparent)]
    File(#[from] FileError),
    /// The database.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// Another controller uses the directory.
    #[error(
        "{path} is in use by another sweep (process {pid}); wait for it, cancel it with: rlox-controller sweep cancel, or choose another --sweep-dir"
    )]
    Busy {
        /// The directory.
        path: PathBuf,
        /// The process named in the lock.
        pid: String,
    },
    /// The directory holds trials of another plan or corpus.
    #[error(
        "{path} holds a sweep with other settings ({what} differs); choose another --sweep-dir, or remove it with --fresh"
    )]
    Other {
        /// The directory.
        path: PathBuf,
        /// What differs.
        what: &'static str,
    },
    /// The key was used for another request.
    #[error("the key {key:?} belongs to a sweep that was asked for with another body")]
    KeyTaken {
        /// The client's key.
        key: String,
    },
    /// There are too many.
    #[error("{MAX_SWEEPS} sweeps are recorded in {path}; move it away")]
    TooMany {
        /// The directory.
        path: PathBuf,
    },
    /// A change that the state machine does not have.
    #[error("{what} is {state} and cannot become {next}")]
    State {
        /// The trial or sweep.
        what: String,
        /// Its state; empty where there is none such.
        state: String,
        /// The state asked for.
        next: &'static str,
    },
    /// No identifier could be drawn.
    #[error("no random number: {0}")]
    Random(getrandom::Error),
    /// A value cannot be written as JSON.
    #[error("cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl StoreError {
    /// There is no room on the disk: nothing was changed, and it can be tried again.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Self::File(error) => error.is_full(),
            Self::Database(error) => matches!(error, DatabaseError::Full { .. }),
            Self::Busy { .. }
            | Self::Other { .. }
            | Self::KeyTaken { .. }
            | Self::TooMany { .. }
            | Self::State { .. }
            | Self::Random(_)
            | Self::Json(_) => false,
        }
    }
}
