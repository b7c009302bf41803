//! The durable state of sweeps: one directory, one controller that writes, every change one transaction.
//!
//! A change of state is checked against [`TrialState::may_become`] in the transaction that makes it, and its event is
//! part of that transaction: what an event tells is committed, and what is committed has its event. A summary's file
//! is put in place before its trial is committed as finished; a crash in between makes the trial run again.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use rlox_report::TrialKey;
use rusqlite::{Connection, OptionalExtension, Transaction, params};
use serde_json::Value;
use tokio::sync::watch;

use super::database::{self, Database, DatabaseError};
use super::engine::Handle;
use super::files::{self, FileError, Folder, Manifest};
use super::plan::Plan;
use super::queries;
use super::states::{SweepState, TrialState};
use super::view::{Event, Happening, SweepView, TrialView, trial_id};
use crate::corpus::Pinned;
use crate::job::random_id;

const LOCK: &str = ".lock";
/// Marks a summary that was written from outside the trainer.
pub(crate) const RECORDER: &str = "rlox-controller";
/// Sweeps of one store; a list stays readable and a disk is not filled with plans.
const MAX_SWEEPS: i64 = 10_000;

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
        match root.join(LOCK).is_file().then(|| lock(root)) {
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

    /// Adds a sweep with a directory of its own.
    pub(crate) fn add(
        &self,
        plan: &Plan,
        keys: &[TrialKey],
        corpus: &[Pinned],
        request: Option<RequestKey<'_>>,
    ) -> Result<Added, StoreError> {
        let id = random_id().map_err(StoreError::Random)?;
        let manifest = manifest(plan, corpus);
        let added = self.insert(&id, &id, &manifest, keys, request)?;
        if !added.again {
            Folder::new(self.root.join(&id)).prepare(&manifest)?;
        }
        Ok(added)
    }

    /// The one sweep whose directory is the store's own; trials that were recorded earlier stay.
    pub(crate) fn adopt(
        &self,
        plan: &Plan,
        keys: &[TrialKey],
        corpus: &[Pinned],
        fresh: bool,
    ) -> Result<String, StoreError> {
        let folder = Folder::new(self.root.clone());
        let manifest = manifest(plan, corpus);
        if fresh {
            self.write(|transaction| transaction.execute("DELETE FROM sweeps", []).map(Ok))?;
            folder.clear()?;
        }
        let known = self.database.read(queries::own_sweep)?;
        let found = match &known {
            Some((_, found)) => serde_json::from_str(found).ok(),
            None => files::read_manifest(&self.root)?,
        };
        if let Some(found) = &found {
            let what = if found.corpus == manifest.corpus { "the plan" } else { "the corpus" };
            if found.corpus != manifest.corpus || !found.plan.same_trials(plan) {
                return Err(StoreError::Other { path: self.root.clone(), what });
            }
        }
        if let Some((id, _)) = known {
            let text = serde_json::to_string(plan)?;
            let update = "UPDATE sweeps SET plan = ?2 WHERE id = ?1 AND plan <> ?2";
            self.write(|transaction| transaction.execute(update, [&id, &text]).map(Ok))?;
            return Ok(id);
        }
        folder.prepare(&manifest)?;
        let id = random_id().map_err(StoreError::Random)?;
        let recorded: Vec<_> = keys.iter().filter_map(|key| Some((*key, folder.receipted(*key)?))).collect();
        self.insert(&id, ".", &manifest, keys, None)?;
        for (key, summary) in recorded {
            // Recorded by a controller that had no database.
            self.begin_trial(&id, key, None)?;
            self.finish_trial(&id, key, &summary)?;
        }
        Ok(id)
    }

    fn insert(
        &self,
        id: &str,
        directory: &str,
        manifest: &Manifest,
        keys: &[TrialKey],
        request: Option<RequestKey<'_>>,
    ) -> Result<Added, StoreError> {
        let (plan, corpus) =
            (serde_json::to_string(&manifest.plan)?, serde_json::to_string(&manifest.corpus)?);
        self.write(|transaction| {
            if let Some(request) = request {
                let known: Option<(String, String)> = transaction
                    .query_row(
                        "SELECT id, request_digest FROM sweeps WHERE request_key = ?1",
                        [request.key],
                        |row| Ok((row.get(0)?, row.get(1)?)),
                    )
                    .optional()?;
                match known {
                    Some((id, digest)) if digest == request.digest => return Ok(Ok(Added { id, again: true })),
                    Some(_) => return Ok(Err(StoreError::KeyTaken { key: request.key.to_owned() })),
                    None => {}
                }
            }
            let count: i64 = transaction.query_row("SELECT count(*) FROM sweeps", [], |row| row.get(0))?;
            if count >= MAX_SWEEPS {
                return Ok(Err(StoreError::TooMany { path: self.root.clone() }));
            }
            transaction.execute(
                "INSERT INTO sweeps (id, state, plan, corpus, directory, request_key, request_digest, created_at)
                 VALUES (?1, 'queued', ?2, ?3, ?4, ?5, ?6, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))",
                params![
                    id,
                    plan,
                    corpus,
                    directory,
                    request.map(|request| request.key),
                    request.map(|request| request.digest)
                ],
            )?;
            let number = transaction.last_insert_rowid();
            for (position, key) in (0i64..).zip(keys) {
                transaction.execute(
                    "INSERT INTO trials (sweep, position, name, state) VALUES (?1, ?2, ?3, 'queued')",
                    params![number, position, key.to_string()],
                )?;
            }
            let happening = Happening::Sweep { state: SweepState::Queued, reason: None };
            queries::tell(transaction, number, &happening)?;
            Ok(Ok(Added { id: id.to_owned(), again: false }))
        })
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

    /// Changes a sweep's state.
    pub(crate) fn set_sweep(
        &self,
        id: &str,
        next: SweepState,
        reason: Option<&str>,
    ) -> Result<(), StoreError> {
        self.write(|transaction| {
            let (number, state) = queries::sweep_state(transaction, id)?;
            let allowed = match next {
                SweepState::Queued => state.over(),
                SweepState::Running => state == SweepState::Queued,
                SweepState::Finished
                | SweepState::Failed
                | SweepState::Cancelled
                | SweepState::Interrupted => !state.over(),
            };
            if !allowed {
                return Ok(Err(refused(id, state.word(), next.word())));
            }
            let times = match next {
                SweepState::Queued => ", ended_at = NULL",
                SweepState::Running => {
                    ", started_at = coalesce(started_at, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))"
                }
                SweepState::Finished
                | SweepState::Failed
                | SweepState::Cancelled
                | SweepState::Interrupted => ", ended_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')",
            };
            transaction.execute(
                &format!("UPDATE sweeps SET state = ?2, reason = ?3{times} WHERE number = ?1"),
                params![number, next.word(), reason],
            )?;
            if next == SweepState::Cancelled {
                for key in queries::keys_in(transaction, number, TrialState::Queued)? {
                    let set = queries::set_trial(transaction, number, id, key, TrialState::Cancelled, None)?;
                    if let Err(error) = set {
                        return Ok(Err(error));
                    }
                }
            }
            let reason = reason.map(str::to_owned);
            queries::tell(transaction, number, &Happening::Sweep { state: next, reason })?;
            Ok(Ok(()))
        })
    }

    /// Puts trials that were not finished back into the queue; returns how many.
    pub(crate) fn requeue(&self, id: &str, from: &[TrialState]) -> Result<usize, StoreError> {
        self.write(|transaction| {
            let (number, _) = queries::sweep_state(transaction, id)?;
            let mut count = 0;
            for &state in from {
                for key in queries::keys_in(transaction, number, state)? {
                    if let Err(error) =
                        queries::set_trial(transaction, number, id, key, TrialState::Queued, None)?
                    {
                        return Ok(Err(error));
                    }
                    count += 1;
                }
            }
            Ok(Ok(count))
        })
    }

    /// Puts one trial back into the queue.
    pub(crate) fn requeue_one(&self, id: &str, key: TrialKey) -> Result<(), StoreError> {
        self.write(|transaction| {
            let (number, _) = queries::sweep_state(transaction, id)?;
            queries::set_trial(transaction, number, id, key, TrialState::Queued, None)
        })
    }

    /// Trials that wait, in the order of running.
    pub(crate) fn queued(&self, id: &str) -> Result<Vec<TrialKey>, StoreError> {
        Ok(self.database.read(|connection| {
            let (number, _) = queries::sweep_state(connection, id)?;
            queries::keys_in(connection, number, TrialState::Queued)
        })?)
    }

    /// An attempt is about to be made. Its handle is durable before anything of it exists.
    pub(crate) fn begin_trial(
        &self,
        id: &str,
        key: TrialKey,
        handle: Option<&Handle>,
    ) -> Result<u32, StoreError> {
        let handle = handle.map(serde_json::to_string).transpose()?;
        self.write(|transaction| {
            let (number, _) = queries::sweep_state(transaction, id)?;
            transaction.execute(
                "UPDATE trials SET attempts = attempts + 1, handle = ?3, steps = NULL, reason = NULL,
                 started_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), ended_at = NULL
                 WHERE sweep = ?1 AND name = ?2 AND state = 'queued'",
                params![number, key.to_string(), handle],
            )?;
            let set = queries::set_trial(transaction, number, id, key, TrialState::Running, None)?;
            if let Err(error) = set {
                return Ok(Err(error));
            }
            Ok(Ok(queries::attempts(transaction, number, key)?))
        })
    }

    /// A step of the running attempt ended.
    pub(crate) fn step(
        &self,
        id: &str,
        key: TrialKey,
        happening: &Happening,
        step: u64,
    ) -> Result<(), StoreError> {
        self.write(|transaction| {
            let (number, _) = queries::sweep_state(transaction, id)?;
            transaction.execute(
                "UPDATE trials SET steps = ?3 WHERE sweep = ?1 AND name = ?2 AND state = 'running'",
                params![number, key.to_string(), i64::try_from(step).unwrap_or(i64::MAX)],
            )?;
            queries::tell(transaction, number, happening)?;
            Ok(Ok(()))
        })
    }

    /// Records a trial: the summary's file first, then the state that makes it count.
    pub(crate) fn record(
        &self,
        id: &str,
        folder: &Folder,
        key: TrialKey,
        summary: &Value,
    ) -> Result<(), StoreError> {
        let mut text = serde_json::to_string_pretty(summary)?;
        text.push('\n');
        folder.put_summary(key, &text)?;
        self.finish_trial(id, key, &text)
    }

    fn finish_trial(&self, id: &str, key: TrialKey, summary: &str) -> Result<(), StoreError> {
        let value: Value = serde_json::from_str(summary)?;
        self.write(|transaction| {
            let (number, _) = queries::sweep_state(transaction, id)?;
            transaction.execute(
                "UPDATE trials SET summary = ?3, survived = ?4, reason = ?5,
                 steps = coalesce(?6, steps) WHERE sweep = ?1 AND name = ?2 AND state = 'running'",
                params![
                    number,
                    key.to_string(),
                    summary,
                    value["survived"].as_bool().unwrap_or(false),
                    value["reason"].as_str(),
                    value["steps_completed"].as_i64()
                ],
            )?;
            queries::set_trial(transaction, number, id, key, TrialState::Finished, Some(&value))
        })
    }

    /// Ends an attempt without a record.
    pub(crate) fn leave(
        &self,
        id: &str,
        key: TrialKey,
        next: TrialState,
        reason: &str,
    ) -> Result<(), StoreError> {
        self.write(|transaction| {
            let (number, _) = queries::sweep_state(transaction, id)?;
            transaction.execute(
                "UPDATE trials SET reason = ?3 WHERE sweep = ?1 AND name = ?2 AND state = 'running'",
                params![number, key.to_string(), reason],
            )?;
            queries::set_trial(transaction, number, id, key, next, None)
        })
    }

    /// Whether the corpus is the one that the sweep was made with.
    pub(crate) fn made_with(&self, job: &Job, corpus: &[Pinned]) -> Result<bool, StoreError> {
        let made = self.database.read(|connection| queries::corpus(connection, &job.id))?;
        Ok(made == manifest(&job.plan, corpus).corpus)
    }

    /// Puts the files of recorded summaries back that are missing or changed.
    pub(crate) fn restore(&self, job: &Job) -> Result<(), StoreError> {
        let recorded = self.database.read(|connection| queries::recorded(connection, &job.id))?;
        for (key, summary) in recorded {
            job.folder.restore_summary(key, &summary)?;
        }
        Ok(())
    }

    /// Sweeps that were running or were interrupted, the oldest first.
    pub(crate) fn unfinished(&self) -> Result<Vec<String>, StoreError> {
        Ok(self.database.read(queries::unfinished)?)
    }
}

fn manifest(plan: &Plan, corpus: &[Pinned]) -> Manifest {
    let corpus = corpus.iter().map(|pin| (pin.name.clone(), pin.digest.clone())).collect();
    Manifest { plan: plan.clone(), corpus }
}

/// A change that the state machine does not have.
pub(super) fn refused(what: &str, state: &str, next: &'static str) -> StoreError {
    StoreError::State { what: what.to_owned(), state: state.to_owned(), next }
}

/// How a trial is called in messages and events.
pub(super) fn named(id: &str, key: TrialKey) -> String {
    trial_id(id, &key.to_string())
}

fn lock(root: &Path) -> Result<Flock<File>, StoreError> {
    let path = root.join(LOCK);
    let open = File::options().create(true).truncate(false).read(true).write(true).open(&path);
    let file = open.map_err(FileError::of("open", &path))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => {
            let write = || -> std::io::Result<()> {
                lock.set_len(0)?;
                (&*lock).write_all(std::process::id().to_string().as_bytes())
            };
            write().map_err(FileError::of("write", &path))?;
            Ok(lock)
        }
        Err(_) => {
            let pid = std::fs::read_to_string(&path).unwrap_or_default();
            Err(StoreError::Busy { path: root.to_owned(), pid })
        }
    }
}

#[cfg(test)]
mod tests;
