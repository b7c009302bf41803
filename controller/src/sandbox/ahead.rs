//! Containers made ahead of the requests that they serve: how many wait, how often one did, what making them takes.
//!
//! Each launcher of snippets holds some, in the shape that was asked for last: one at first, and twice as many with each
//! request of that shape, up to its share of the pool. One is made at once where none waits, and the others when there
//! was nothing to do for a moment: a burst of requests meets containers that are ready, and shares the cores with
//! nothing else. A container serves one request and is removed; no other launcher knows of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rlox_protocol::Interpreter;

/// Counters of one service.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    waiting: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    made: AtomicU64,
    made_micros: AtomicU64,
    failed: AtomicU64,
    /// Found while a container was removed, when its answer was given.
    late_leftovers: AtomicU64,
    interpreter: Mutex<Option<Interpreter>>,
}

/// What `/health` and `/metrics` say of it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AheadState {
    pub(crate) waiting: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) made: u64,
    pub(crate) made_secs: f64,
    pub(crate) failed: u64,
    pub(crate) late_leftovers: u64,
}

impl Ahead {
    /// A container was made.
    pub(super) fn made(&self, took: Duration) {
        self.made.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.made_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// One could not be made.
    pub(super) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// So many wait in a launcher, after so many before.
    pub(super) fn waiting(&self, before: u16, now: u16) {
        self.waiting.fetch_add(u64::from(now), Ordering::Relaxed);
        self.waiting.fetch_sub(u64::from(before), Ordering::Relaxed);
    }

    /// A request met one that waited, or had to wait for its own.
    pub(super) fn served(&self, waited: bool) {
        let counter = if waited { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn removed(&self, leftovers: u64) {
        self.late_leftovers.fetch_add(leftovers, Ordering::Relaxed);
    }

    /// A launcher says what it runs programs with.
    pub(super) fn interpreter_is(&self, interpreter: Interpreter) {
        let mut known = self.interpreter.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref() == Some(&interpreter) {
            return;
        }
        match &interpreter {
            Interpreter::Warm { version, missing } => {
                tracing::info!(version, ?missing, "launchers hold a warm interpreter");
            }
            Interpreter::Exec { reason } if reason.is_empty() => {}
            Interpreter::Exec { reason } => {
                tracing::warn!(reason, "no warm interpreter; each container executes its own");
            }
        }
        *known = Some(interpreter);
    }

    /// What the launchers of snippets said last.
    pub(crate) fn interpreter(&self) -> Option<Interpreter> {
        self.interpreter.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn state(&self) -> AheadState {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        AheadState {
            waiting: read(&self.waiting),
            hits: read(&self.hits),
            misses: read(&self.misses),
            made: read(&self.made),
            made_secs: Duration::from_micros(read(&self.made_micros)).as_secs_f64(),
            failed: read(&self.failed),
            late_leftovers: read(&self.late_leftovers),
        }
    }
}
