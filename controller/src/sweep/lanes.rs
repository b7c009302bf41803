//! Runs the trials that wait, some at a time. One failed trial never stops the others, and a full disk stops none for
//! good: what ended is kept in memory until it can be recorded, what the disk broke off runs again.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rlox_report::TrialKey;

use super::engine::Engine;
use super::files::{self, free_bytes};
use super::progress::Teller;
use super::states::TrialState;
use super::stop::Stop;
use super::store::{Job, Store, StoreError};
use super::trial::{Ended, TrialError, Watch};

/// How often it is looked whether there is room again.
const AGAIN: Duration = Duration::from_millis(500);
/// A trial begins where this much is free, or what it may write at most, if that is less.
const ROOM_MB: u64 = 64;
/// And this much more for the database and the summaries.
const MARGIN: u64 = 4 << 20;
/// A trial that meets a full disk so often is not tried again: it may be what fills it.
const SQUEEZES: usize = 5;

/// What runs a sweep's trials.
pub(super) struct Lanes<'a> {
    pub(super) engine: &'a dyn Engine,
    pub(super) store: &'a Store,
    pub(super) job: &'a Job,
    pub(super) stop: &'a Stop,
    pub(super) teller: &'a Teller,
    /// What keeps the sweep from going on.
    pub(super) problem: &'a (dyn Fn(Option<String>) + Sync),
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<TrialKey>,
    /// Trials that met a full disk, once for each time.
    squeezed: Vec<TrialKey>,
}

impl<'a> Lanes<'a> {
    pub(super) fn new(
        engine: &'a dyn Engine,
        store: &'a Store,
        job: &'a Job,
        stop: &'a Stop,
        teller: &'a Teller,
        problem: &'a (dyn Fn(Option<String>) + Sync),
    ) -> Result<Self, StoreError> {
        let waiting = store.queued(&job.id)?.into();
        let queue = Mutex::new(Queue { waiting, squeezed: Vec::new() });
        Ok(Self { engine, store, job, stop, teller, problem, queue })
    }

    /// Runs until nothing waits, or until it is to end.
    pub(super) fn run(&self) {
        std::thread::scope(|scope| {
            for lane in 0..self.job.plan.at_once() {
                scope.spawn(move || self.lane(lane));
            }
        });
    }

    fn lane(&self, lane: u16) {
        while let Some(key) = self.next() {
            if !self.room() {
                return;
            }
            self.teller.started(key);
            let watch =
                Watch { engine: self.engine, store: self.store, job: self.job, stop: self.stop, key, lane };
            let recorded = watch.run().and_then(|ended| self.record(key, &ended).map(|()| ended.survived));
            match recorded {
                Ok(survived) => self.teller.ended(key, survived),
                Err(error) => self.broken(key, &error),
            }
        }
    }

    fn next(&self) -> Option<TrialKey> {
        if self.stop.asked() {
            return None;
        }
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).waiting.pop_front()
    }

    /// Waits until a trial's files fit on the disk; whether to go on.
    fn room(&self) -> bool {
        let root = self.job.folder.root();
        let needed = (self.job.plan.limits.disk_mb.min(ROOM_MB) << 20) + MARGIN;
        let enough = || free_bytes(root).is_none_or(|free| free >= needed);
        if enough() {
            return true;
        }
        let megabytes = needed >> 20;
        self.tell_full(&format!("a trial begins when {megabytes} MiB are free in {}", root.display()));
        while !enough() {
            if self.stop.asked() {
                return false;
            }
            std::thread::sleep(AGAIN);
        }
        self.tell_room();
        true
    }

    fn record(&self, key: TrialKey, ended: &Ended) -> Result<(), TrialError> {
        let (store, job) = (self.store, self.job);
        Ok(self.when_there_is_room(|| store.record(&job.id, &job.folder, key, &ended.summary))?)
    }

    /// Tries again while the disk is full. A cancel is no reason to give up: it, too, is to be written. Where the
    /// controller ends, the next start finds what is left.
    fn when_there_is_room(&self, mut work: impl FnMut() -> Result<(), StoreError>) -> Result<(), StoreError> {
        let mut told = false;
        loop {
            match work() {
                Err(error) if error.is_full() && !self.stop.leaving() => {
                    if !told {
                        self.tell_full(&error.to_string());
                    }
                    told = true;
                    std::thread::sleep(AGAIN);
                }
                done => {
                    if told {
                        self.tell_room();
                    }
                    return done;
                }
            }
        }
    }

    fn tell_full(&self, detail: &str) {
        let text = format!("the disk is full: {detail}; free some space, nothing is lost meanwhile");
        tracing::error!("{text}");
        (self.problem)(Some(text));
    }

    fn tell_room(&self) {
        tracing::info!("there is room on the disk again");
        (self.problem)(None);
    }

    /// An attempt without a record.
    fn broken(&self, key: TrialKey, error: &TrialError) {
        // Whatever fails on a full disk fails because of it.
        let full =
            error.is_full() || (!matches!(error, TrialError::Stopped) && files::full(self.job.folder.root()));
        if full && !self.stop.asked() {
            self.squeezed(key, error);
            return;
        }
        let crowded = full || files::full(self.job.folder.root());
        if crowded && let Err(error) = self.job.folder.discard(key) {
            // Its own files may be what leaves no room to write how it ended.
            tracing::error!(trial = %key, %error, "an attempt's files cannot be removed");
        }
        let stopped = matches!(error, TrialError::Stopped | TrialError::DiskFull);
        let (next, why) = match (stopped || full, self.stop.cancelled()) {
            (true, true) => (TrialState::Cancelled, "cancelled"),
            (true, false) => (TrialState::Interrupted, "interrupted"),
            (false, _) => (TrialState::Failed, "could not be run"),
        };
        if !stopped {
            tracing::error!(trial = %key, %error, "a trial could not be run");
        }
        self.leave(key, next, &error.to_string());
        self.teller.abandoned(key, why);
    }

    /// The disk was full, which says nothing about the trial: it runs again when there is room.
    fn squeezed(&self, key: TrialKey, error: &TrialError) {
        // First the room that it took itself: the change of its state needs a little.
        if let Err(error) = self.job.folder.discard(key) {
            tracing::error!(trial = %key, %error, "an attempt's files cannot be removed");
        }
        let times = {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.squeezed.push(key);
            queue.squeezed.iter().filter(|each| **each == key).count()
        };
        if times >= SQUEEZES {
            self.leave(key, TrialState::Failed, &format!("the disk was full in {times} attempts"));
            self.teller.abandoned(key, "met a full disk too often");
            return;
        }
        tracing::error!(trial = %key, %error, free = ?free_bytes(self.job.folder.root()), full = files::full(self.job.folder.root()), "the disk was full; the trial runs again");
        self.leave(key, TrialState::Interrupted, "the disk was full");
        let (store, job) = (self.store, self.job);
        let requeued = self.when_there_is_room(|| store.requeue_one(&job.id, key));
        if let Err(error) = requeued {
            tracing::error!(trial = %key, %error, "a trial cannot be put back");
            return;
        }
        self.teller.abandoned(key, "broken off by a full disk");
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).waiting.push_front(key);
    }

    fn leave(&self, key: TrialKey, next: TrialState, reason: &str) {
        let (store, job) = (self.store, self.job);
        let reason: String = reason.chars().take(2000).collect();
        match self.when_there_is_room(|| store.leave(&job.id, key, next, &reason)) {
            // It never came to run: there is nothing to leave.
            Ok(()) | Err(StoreError::State { .. }) => {}
            Err(error) => tracing::error!(trial = %key, %error, "a trial's state cannot be written"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::sweep::database::DatabaseError;
    use crate::sweep::engine::{Attempt, EngineError, Handle, Order};
    use crate::sweep::plan::{Plan, Profile};

    struct NoEngine;

    impl Engine for NoEngine {
        fn name(&self, _: u16) -> Handle {
            unreachable!("nothing is run")
        }
        fn start(&self, _: &Order<'_>) -> Result<Box<dyn Attempt>, EngineError> {
            unreachable!("nothing is run")
        }
        fn find(&self, _: &Handle) -> bool {
            false
        }
        fn end(&self, _: &Handle) -> Result<(), EngineError> {
            Ok(())
        }
    }

    #[test]
    fn a_cancel_waits_for_room_and_the_end_of_the_controller_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let plan = Plan::of(Profile::Smoke);
        let store = Store::open(directory.path()).unwrap();
        let id = store.adopt(&plan, &plan.check().unwrap(), &[], false).unwrap();
        let job = store.job(&id).unwrap().unwrap();
        let (stop, teller) = (Stop::default(), Teller::logged());
        let lanes = Lanes::new(&NoEngine, &store, &job, &stop, &teller, &|_| ()).unwrap();
        let tries = AtomicU32::new(0);
        let full_once = || {
            let source = rusqlite::Error::QueryReturnedNoRows;
            match tries.fetch_add(1, Ordering::Relaxed) % 2 {
                0 => Err(StoreError::Database(DatabaseError::Full { path: "x".into(), source })),
                _ => Ok(()),
            }
        };
        stop.cancel();
        lanes.when_there_is_room(full_once).unwrap();
        assert_eq!(tries.load(Ordering::Relaxed), 2);
        stop.leave();
        assert!(lanes.when_there_is_room(full_once).unwrap_err().is_full());
        assert_eq!(tries.load(Ordering::Relaxed), 3);
    }
}
