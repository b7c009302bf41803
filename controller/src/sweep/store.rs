//! The durable state of sweeps: one directory, one controller that writes, every change one transaction.
//!
//! A change of state is checked against [`TrialState::may_become`] in the transaction that makes it, and its event is
//! part of that transaction: what an event tells is committed, and what is committed has its event. A summary's file
//! is put in place before its trial is committed as finished; a crash in between makes the trial run again.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use rlox_report::TrialKey;
use rusqlite::{Connection, Transaction};
use tokio::sync::watch;

use super::database::{self, Database};
use super::engine::Handle;
use super::files::{self, FileError, Folder, Manifest};
use super::plan::Plan;
use super::queries;
use super::states::{SweepState, TrialState};
use super::view::{Event, SweepView, TrialView, trial_id};
use crate::corpus::Pinned;

mod changes;
mod creation;
mod errors;

pub(crate) use changes::CANCELLED;
pub(crate) use errors::StoreError;

const LOCK: &str = ".lock";
/// How often a directory that is taken is tried, and the time between.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(20);
/// Marks a summary that was written from outside the trainer.
pub(crate) const RECORDER: &str = "rlox-controller";
/// Sweeps of one store; a list stays readable and a disk is not filled with plans.
const MAX_SWEEPS: i64 = 10_000;

/// A client's name for its request, so that it can be sent again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestKey<'a> {
    pub(crate) key: &'a str,
    /// Of the body.
    pub(crate) digest: &'a str,
}

/// A sweep that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Added {
    pub(crate) id: String,
    /// It was asked for before.
    pub(crate) again: bool,
}

/// A sweep to run.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) plan: Plan,
    pub(crate) folder: Folder,
}

/// A directory of sweeps, locked.
#[derive(Debug)]
pub(crate) struct Store {
    root: PathBuf,
    database: Database,
    newest: watch::Sender<i64>,
    _lock: Flock<File>,
}

impl Store {
    /// Opens or makes the store of a directory.
    pub(crate) fn open(root: &Path) -> Result<Self, StoreError> {
        std::fs::create_dir_all(root).map_err(FileError::of("create", root))?;
        let lock = lock(root)?;
        let database = Database::open(root)?;
        let newest = database.read(queries::newest_event)?;
        Ok(Self { root: root.to_owned(), database, newest: watch::Sender::new(newest), _lock: lock })
    }

    /// Whether a directory holds a store.
    pub(crate) fn exists(root: &Path) -> bool {
        root.join(database::FILE).is_file()
    }

    /// The process that uses a directory now.
    pub(crate) fn running(root: &Path) -> Option<i32> {
        match root.join(LOCK).is_file().then(|| take(root)) {
            Some(Err(StoreError::Busy { pid, .. })) => pid.parse().ok(),
            Some(Ok(_) | Err(_)) | None => None,
        }
    }

    /// The plan of the sweep whose directory this is.
    pub(crate) fn plan(root: &Path) -> Result<Option<Plan>, StoreError> {
        Ok(files::read_manifest(root)?.map(|manifest| manifest.plan))
    }

    /// The sweeps of a directory whose controller may run, with their trials.
    pub(crate) fn peek(root: &Path) -> Result<Vec<(SweepView, Vec<TrialView>)>, StoreError> {
        let read = |connection: &Connection| {
            let sweeps = queries::sweeps(connection, root, MAX_SWEEPS)?;
            sweeps
                .into_iter()
                .map(|sweep| {
                    let trials = queries::trials(connection, &sweep)?;
                    Ok((sweep, trials))
                })
                .collect()
        };
        Ok(database::peek(root, read)?.unwrap_or_default())
    }

    /// Tells the id of the newest event, whenever there is a new one.
    pub(crate) fn newest(&self) -> watch::Receiver<i64> {
        self.newest.subscribe()
    }

    /// Changes something and tells of the events that came with it.
    fn write<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let (value, newest) = self.database.write(|transaction| match work(transaction)? {
            Ok(value) => Ok(Ok((value, queries::newest_event(transaction)?))),
            Err(error) => Ok(Err(error)),
        })??;
        self.newest.send_if_modified(|known| {
            let new = newest > *known;
            *known = newest.max(*known);
            new
        });
        Ok(value)
    }

    /// The sweep that runs next: the oldest that waits.
    pub(crate) fn next_sweep(&self) -> Result<Option<Job>, StoreError> {
        Ok(self.database.read(|connection| queries::next_sweep(connection, &self.root))?)
    }

    /// A sweep to run.
    pub(crate) fn job(&self, id: &str) -> Result<Option<Job>, StoreError> {
        Ok(self.database.read(|connection| queries::job(connection, &self.root, id))?)
    }

    /// The newest sweeps.
    pub(crate) fn sweeps(&self, limit: i64) -> Result<Vec<SweepView>, StoreError> {
        Ok(self.database.read(|connection| queries::sweeps(connection, &self.root, limit))?)
    }

    /// One sweep.
    pub(crate) fn sweep(&self, id: &str) -> Result<Option<SweepView>, StoreError> {
        Ok(self.database.read(|connection| queries::sweep(connection, &self.root, id))?)
    }

    /// The trials of a sweep.
    pub(crate) fn trials(&self, sweep: &SweepView) -> Result<Vec<TrialView>, StoreError> {
        Ok(self.database.read(|connection| queries::trials(connection, sweep))?)
    }

    /// A sweep's events after one, oldest first.
    pub(crate) fn events(&self, id: &str, after: i64, limit: i64) -> Result<Vec<Event>, StoreError> {
        Ok(self.database.read(|connection| queries::events(connection, id, after, limit))?)
    }

    /// Trials of a sweep that run, by the database, with their handles and what else is known of each.
    pub(crate) fn running_trials(&self) -> Result<Vec<(String, TrialKey, Option<Handle>)>, StoreError> {
        Ok(self.database.read(queries::running_trials)?)
    }

    /// Whether the corpus is the one that the sweep was made with.
    pub(crate) fn made_with(&self, job: &Job, corpus: &[Pinned]) -> Result<bool, StoreError> {
        let made = self.database.read(|connection| queries::corpus(connection, &job.id))?;
        Ok(made == manifest(&job.plan, corpus).corpus)
    }

    /// Makes a sweep's directory, where it is not there yet.
    pub(crate) fn prepare(&self, job: &Job) -> Result<(), StoreError> {
        let corpus = self.database.read(|connection| queries::corpus(connection, &job.id))?;
        Ok(job.folder.prepare(&Manifest { plan: job.plan.clone(), corpus })?)
    }

    /// Puts the files of recorded summaries back that are missing or changed.
    pub(crate) fn restore(&self, job: &Job) -> Result<(), StoreError> {
        let recorded = self.database.read(|connection| queries::recorded(connection, &job.id))?;
        for (key, summary) in recorded {
            job.folder.restore_summary(key, &summary)?;
        }
        Ok(())
    }

    /// Ends the sweeps whose cancel was asked for and that did not come to their end. None of them may run.
    pub(crate) fn cancel_asked(&self) -> Result<(), StoreError> {
        self.database.read(queries::to_cancel)?.iter().try_for_each(|id| self.cancel_asked_of(id))
    }

    /// Ends one such sweep.
    pub(crate) fn cancel_asked_of(&self, id: &str) -> Result<(), StoreError> {
        self.leave_running(id, TrialState::Cancelled, CANCELLED)?;
        self.set_sweep(id, SweepState::Cancelled, Some(CANCELLED))
    }

    /// Sweeps that run, by the database.
    pub(crate) fn said_to_run(&self) -> Result<Vec<String>, StoreError> {
        Ok(self.database.read(queries::running)?)
    }

    /// Sweeps that were running or were interrupted, the oldest first.
    pub(crate) fn unfinished(&self) -> Result<Vec<String>, StoreError> {
        Ok(self.database.read(queries::unfinished)?)
    }
}

/// A change that the state machine does not have.
pub(super) fn refused(what: &str, state: &str, next: &'static str) -> StoreError {
    StoreError::State { what: what.to_owned(), state: state.to_owned(), next }
}

fn manifest(plan: &Plan, corpus: &[Pinned]) -> Manifest {
    let corpus = corpus.iter().map(|pin| (pin.name.clone(), pin.digest.clone())).collect();
    Manifest { plan: plan.clone(), corpus }
}

/// How a trial is called in messages and events.
pub(super) fn named(id: &str, key: TrialKey) -> String {
    trial_id(id, &key.to_string())
}

/// Takes the directory, and leaves this process's id for those who find it taken.
fn lock(root: &Path) -> Result<Flock<File>, StoreError> {
    let path = root.join(LOCK);
    let lock = take(root)?;
    let write = || -> std::io::Result<()> {
        lock.set_len(0)?;
        (&*lock).write_all(std::process::id().to_string().as_bytes())
    };
    write().map_err(FileError::of("write", &path))?;
    Ok(lock)
}

/// Tries a few times: whoever asks whether it is taken holds it for a moment.
fn take(root: &Path) -> Result<Flock<File>, StoreError> {
    let path = root.join(LOCK);
    for _ in 0..TRIES {
        let open = File::options().create(true).truncate(false).read(true).write(true).open(&path);
        let file = open.map_err(FileError::of("open", &path))?;
        if let Ok(lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            return Ok(lock);
        }
        std::thread::sleep(PAUSE);
    }
    let pid = std::fs::read_to_string(&path).unwrap_or_default();
    Err(StoreError::Busy { path: root.to_owned(), pid })
}

#[cfg(test)]
mod tests;
