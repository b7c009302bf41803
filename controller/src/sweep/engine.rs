//! What runs a trial. An engine starts one, watches it, ends it, and knows what of it is left after a crash.
//!
//! All engines report the same facts, seen from outside the trainer: how it ended, its memory, tasks and times. What
//! they mean is decided in `record`. The first engine is this project's own runtime.

mod runtime;

use std::path::Path;
use std::time::Instant;

use rlox_protocol::{CgroupCounters, Ending, Outcome};
use rlox_report::TrialKey;
use serde::{Deserialize, Serialize};

use super::plan::{EngineKind, Plan};
use crate::judge::exit_status;
use crate::sandbox::SandboxError;
pub(super) use runtime::RuntimeEngine;

/// An engine failed; says nothing about the trainer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    /// The sandbox failed.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The system refused.
    #[error("{action} failed: {source}")]
    System {
        /// What was being done.
        action: String,
        /// The system's word.
        #[source]
        source: std::io::Error,
    },
    /// A trial of another process that lives: it is not ours to end.
    #[error("container {id} belongs to process {pid}, which runs")]
    Alive {
        /// The container.
        id: String,
        /// Its owner.
        pid: u32,
    },
    /// A trial from before a crash could not be ended.
    #[error("container {id} from before a crash could not be ended")]
    Remains {
        /// The container.
        id: String,
    },
}

/// The name of one attempt, known before it exists, so that it is found after a crash at any moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Handle {
    pub(super) engine: EngineKind,
    /// Unique on the host, also over restarts.
    pub(super) id: String,
}

/// What is to be started.
#[derive(Debug)]
pub(super) struct Order<'a> {
    pub(super) handle: &'a Handle,
    pub(super) plan: &'a Plan,
    pub(super) key: TrialKey,
    /// The trial's empty directory.
    pub(super) directory: &'a Path,
    /// Which of the trials at once this is.
    pub(super) lane: u16,
}

/// How an attempt ended, and what it took. The same from every engine.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Facts {
    pub(super) ending: Ending,
    /// In the tutorial's words.
    pub(super) exit_status: String,
    pub(super) wall_secs: f64,
    pub(super) cpu_secs: f64,
    /// Out-of-memory kills, peaks of memory and tasks.
    pub(super) counters: CgroupCounters,
    /// What could not be removed.
    pub(super) leftovers: u64,
}

impl From<&Outcome> for Facts {
    fn from(outcome: &Outcome) -> Self {
        Self {
            ending: outcome.ending,
            exit_status: exit_status(outcome),
            wall_secs: outcome.wall_secs,
            cpu_secs: outcome.cpu_secs,
            counters: outcome.cgroup,
            leftovers: outcome.leftovers,
        }
    }
}

/// What a look at an attempt shows.
#[derive(Debug)]
pub(super) enum Look {
    /// Nothing new.
    Running,
    /// Its program began.
    Started,
    /// It is over, and everything of it was removed.
    Ended(Box<Facts>),
}

/// Runs trials.
pub(super) trait Engine: Send + Sync {
    /// Names an attempt that does not exist yet.
    fn name(&self, lane: u16) -> Handle;

    /// Starts it.
    fn start(&self, order: &Order<'_>) -> Result<Box<dyn Attempt>, EngineError>;

    /// Whether anything of an attempt still runs.
    fn find(&self, handle: &Handle) -> bool;

    /// Ends an attempt of a controller that died. When this returns without an error, nothing of it runs and nothing
    /// of it writes to its directory.
    fn end(&self, handle: &Handle) -> Result<(), EngineError>;
}

/// An attempt that runs. Dropping it ends it.
pub(super) trait Attempt {
    /// Waits for news until then.
    fn look(&mut self, until: Instant) -> Result<Look, EngineError>;

    /// Asks for its end; `Ended` follows.
    fn end(&mut self) -> Result<(), EngineError>;

    /// The main process, as this host numbers it, once it began; none where it runs elsewhere.
    fn process(&self) -> Option<i32>;
}
