//! How long a verification takes beside the usual ways to run a program, and how many a machine can do.
//!
//! Data flows one way: `ways` says how each is called, an `engine` runs batches of it, `run` orders the batches,
//! `results` turns samples into rows, `table` shows them. The programs are harmless and ours; they are the only ones
//! here that run outside of a sandbox.

mod engine;
mod meter;
mod progress;
mod results;
mod run;
mod spawner;
mod table;
mod ways;
mod workloads;
mod workspace;

use tokio::process::Command;

pub(crate) use run::{Plan, Speed};
pub(crate) use spawner::serve as serve_meter;
pub(crate) use ways::KEYS;

use super::client::ClientError;
use super::served::ServedError;
use meter::MeterError;
use workspace::WorkspaceError;

const PARENT: &str = include_str!("parent.py");

/// Speed could not be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpeedError {
    /// The files.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// The process that starts programs.
    #[error(transparent)]
    Meter(#[from] MeterError),
    /// The service.
    #[error(transparent)]
    Served(#[from] ServedError),
    /// The service's connection.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The system refused.
    #[error("cannot read this process's own times: {0}")]
    System(#[from] std::io::Error),
    /// Nothing to compare.
    #[error("no way works on this host: {reasons}")]
    Nothing {
        /// Why each does not.
        reasons: String,
    },
}

/// A Python that starts programs as trainers do.
fn parent(python: &str) -> Command {
    let mut command = Command::new(python);
    command.args(["-I", "-c", PARENT]);
    command
}
