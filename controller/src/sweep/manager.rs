//! The sweeps of a service: one runs, the others wait their turn; what a crash broke off goes on at the next start.
//!
//! The store is opened when there is one, or when the first sweep is asked for: a service that nobody asks for sweeps
//! makes no files. All calls but [`Sweeps::run`] may block for a moment.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rlox_report::TrialKey;
use tokio::sync::{Notify, watch};

use super::files;
use super::plan::Plan;
use super::runner::{ALL_BUT_FINISHED, Runner};
use super::states::{SweepState, TrialState};
use super::stop::Stop;
use super::store::{RequestKey, Store};
use super::view::{Event, SweepView, TrialView, parse_trial_id};
use crate::corpus;
use crate::home::Home;
use crate::service::Service;

mod errors;
mod turns;

pub(crate) use errors::SweepsError;

/// The sweep that runs now.
struct Current {
    id: String,
    stop: Arc<Stop>,
    problem: Option<String>,
}

/// A piece of a log.
#[derive(Debug)]
pub(crate) struct LogPiece {
    pub(crate) bytes: Vec<u8>,
    /// Of the whole file now.
    pub(crate) length: u64,
    /// The trial will print nothing more.
    pub(crate) over: bool,
}

/// All sweeps of a service.
pub(crate) struct Sweeps {
    root: PathBuf,
    home: Home,
    runner: Runner,
    store: Mutex<Option<Arc<Store>>>,
    current: Mutex<Option<Current>>,
    wake: Notify,
    closing: watch::Sender<bool>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sweeps {
    /// The sweeps kept in a directory, run by a service.
    pub(crate) fn new(service: Arc<Service>, root: PathBuf) -> Arc<Self> {
        let home = service.environment.home.clone();
        Arc::new(Self {
            root,
            home,
            runner: Runner::new(service),
            store: Mutex::new(None),
            current: Mutex::new(None),
            wake: Notify::new(),
            closing: watch::Sender::new(false),
        })
    }

    /// Becomes true when the service is about to end: nobody waits for events any more.
    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    /// The store, where there is one.
    fn existing(&self) -> Result<Option<Arc<Store>>, SweepsError> {
        let mut store = held(&self.store);
        if store.is_none() && Store::exists(&self.root) {
            *store = Some(self.open()?);
        }
        Ok(store.clone())
    }

    /// The store, made where there is none.
    fn made(&self) -> Result<Arc<Store>, SweepsError> {
        let mut store = held(&self.store);
        if let Some(store) = &*store {
            return Ok(Arc::clone(store));
        }
        let opened = self.open()?;
        *store = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Opens the store, ends what a crash left, and queues what it broke off.
    fn open(&self) -> Result<Arc<Store>, SweepsError> {
        let store = Arc::new(Store::open(&self.root)?);
        let ended = self.runner.recover(&store)?;
        store.cancel_asked()?;
        for id in store.unfinished()? {
            tracing::warn!(sweep = id, trials = ended, "going on with a sweep that was broken off");
            self.runner.again(&store, &id, &[TrialState::Interrupted])?;
        }
        Ok(store)
    }

    /// Adds a sweep to the queue. The same key with the same body is the same sweep, told by `true`.
    pub(crate) fn create(
        &self,
        plan: &Plan,
        request: Option<RequestKey<'_>>,
    ) -> Result<(SweepView, bool), SweepsError> {
        if *self.closing.borrow() {
            return Err(SweepsError::Closing);
        }
        let keys = plan.check().map_err(SweepsError::Plan)?;
        let pins = corpus::check(&self.home.corpus())?;
        check_tasks(plan, &pins)?;
        let store = self.made()?;
        let added = store.add(plan, &keys, &pins, request)?;
        self.wake.notify_one();
        Ok((self.get(&added.id)?, added.again))
    }

    fn known(&self, id: &str) -> Result<(Arc<Store>, SweepView), SweepsError> {
        let unknown = || SweepsError::Unknown { what: "sweep", id: id.to_owned() };
        let store = self.existing()?.ok_or_else(unknown)?;
        let view = store.sweep(id)?.ok_or_else(unknown)?;
        Ok((store, self.with_problem(view)))
    }

    fn with_problem(&self, mut view: SweepView) -> SweepView {
        if let Some(current) = held(&self.current).as_ref().filter(|current| current.id == view.id) {
            view.problem.clone_from(&current.problem);
        }
        view
    }

    /// One sweep.
    pub(crate) fn get(&self, id: &str) -> Result<SweepView, SweepsError> {
        Ok(self.known(id)?.1)
    }

    /// The newest sweeps.
    pub(crate) fn list(&self, limit: u32) -> Result<Vec<SweepView>, SweepsError> {
        let Some(store) = self.existing()? else { return Ok(Vec::new()) };
        Ok(store.sweeps(limit.into())?.into_iter().map(|view| self.with_problem(view)).collect())
    }

    /// The trials of a sweep.
    pub(crate) fn trials(&self, id: &str) -> Result<Vec<TrialView>, SweepsError> {
        let (store, view) = self.known(id)?;
        Ok(store.trials(&view)?)
    }

    /// Events of a sweep after one, and what tells of newer ones.
    pub(crate) fn events(&self, id: &str, after: i64, limit: u16) -> Result<Vec<Event>, SweepsError> {
        let (store, _) = self.known(id)?;
        Ok(store.events(id, after, limit.into())?)
    }

    /// Tells of events.
    pub(crate) fn newest(&self, id: &str) -> Result<watch::Receiver<i64>, SweepsError> {
        Ok(self.known(id)?.0.newest())
    }

    /// The directory of a trial, whether or not it was begun, and the trial's state.
    fn trial(&self, id: &str, key: TrialKey) -> Result<(PathBuf, TrialView), SweepsError> {
        let (store, view) = self.known(id)?;
        let name = key.to_string();
        let trial = store.trials(&view)?.into_iter().find(|trial| trial.name == name);
        let job = store.job(id)?;
        match (trial, job) {
            (Some(trial), Some(job)) => Ok((job.folder.trial(key), trial)),
            (_, _) => Err(SweepsError::Unknown { what: "trial", id: format!("{id}.{name}") }),
        }
    }

    /// A piece of what a trial's trainer printed.
    pub(crate) fn log(&self, trial_id: &str, offset: u64, most: u64) -> Result<LogPiece, SweepsError> {
        let unknown = || SweepsError::Unknown { what: "trial", id: trial_id.to_owned() };
        let (sweep, key) = parse_trial_id(trial_id).ok_or_else(unknown)?;
        let (directory, trial) = self.trial(sweep, key)?;
        let over = !matches!(trial.state, TrialState::Queued | TrialState::Running);
        match files::read_log(&directory, offset, most) {
            Ok((bytes, length)) => Ok(LogPiece { bytes, length, over }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(LogPiece { bytes: Vec::new(), length: 0, over })
            }
            Err(_) => Err(SweepsError::NoLog { id: trial_id.to_owned() }),
        }
    }

    /// What the finished trials say so far.
    pub(crate) fn summary(&self, id: &str) -> Result<rlox_report::Summary, SweepsError> {
        let (store, _) = self.known(id)?;
        let unknown = || SweepsError::Unknown { what: "sweep", id: id.to_owned() };
        let job = store.job(id)?.ok_or_else(unknown)?;
        let keys = job.plan.trials().map_err(SweepsError::Plan)?;
        let root = job.folder.root();
        let sweep = if root.is_dir() { rlox_report::load(root)? } else { rlox_report::Sweep::default() };
        Ok(rlox_report::summarise(&sweep.with_plan(keys)))
    }

    /// Ends a sweep; what is recorded stays. Once this returns, nothing but a resume makes the sweep go on.
    pub(crate) fn cancel(&self, id: &str) -> Result<SweepView, SweepsError> {
        let (store, _) = self.known(id)?;
        {
            // Held, so that a sweep that waits cannot begin meanwhile.
            let current = held(&self.current);
            match self.state(&store, id)? {
                SweepState::Cancelled => {}
                SweepState::Queued | SweepState::Running => {
                    store.ask_to_cancel(id)?;
                    match current.as_ref().filter(|current| current.id == id) {
                        Some(current) => current.stop.cancel(),
                        None => store.cancel_asked_of(id)?,
                    }
                }
                state @ (SweepState::Finished | SweepState::Failed | SweepState::Interrupted) => {
                    return Err(SweepsError::Conflict { state: state.word(), action: "cancel" });
                }
            }
        }
        self.get(id)
    }

    /// Runs what a sweep has not recorded yet. The database decides: a sweep that just ended may still be the current
    /// one for a moment, and one that is not may be said to run, where its end could not be written.
    pub(crate) fn resume(&self, id: &str) -> Result<SweepView, SweepsError> {
        if *self.closing.borrow() {
            return Err(SweepsError::Closing);
        }
        let (store, _) = self.known(id)?;
        {
            let current = held(&self.current);
            let current = current.as_ref().filter(|current| current.id == id);
            match (self.state(&store, id)?, current) {
                (SweepState::Queued | SweepState::Running, Some(current)) => {
                    if current.stop.asked() {
                        return Err(SweepsError::Ending);
                    }
                }
                (SweepState::Queued, None) => {}
                (SweepState::Finished, _) => {
                    let state = SweepState::Finished.word();
                    return Err(SweepsError::Conflict { state, action: "resume" });
                }
                (SweepState::Running, None)
                | (SweepState::Failed | SweepState::Cancelled | SweepState::Interrupted, _) => {
                    self.runner.again(&store, id, &ALL_BUT_FINISHED)?;
                }
            }
        }
        self.wake.notify_one();
        self.get(id)
    }

    fn state(&self, store: &Store, id: &str) -> Result<SweepState, SweepsError> {
        let unknown = || SweepsError::Unknown { what: "sweep", id: id.to_owned() };
        Ok(store.sweep(id)?.ok_or_else(unknown)?.state)
    }
}

/// A task set has to be pinned with the corpus: what is graded is part of what is measured.
pub(crate) fn check_tasks(plan: &Plan, pins: &[corpus::Pinned]) -> Result<(), SweepsError> {
    let file = plan.tasks_file();
    if pins.iter().any(|pin| pin.name == file) {
        return Ok(());
    }
    Err(SweepsError::Plan(format!("{file} is not in the corpus, or not pinned in corpus/SHA256SUMS")))
}
