//! Why a sweep that runs is to end. Set once by whoever asks, read by everything that waits.

use std::sync::atomic::{AtomicU8, Ordering};

/// The request.
#[derive(Debug, Default)]
pub(crate) struct Stop(AtomicU8);

const CANCEL: u8 = 1;
const LEAVE: u8 = 2;

impl Stop {
    /// The user does not want it any more.
    pub(crate) fn cancel(&self) {
        self.ask(CANCEL);
    }

    /// The controller is about to end; the sweep goes on later.
    pub(crate) fn leave(&self) {
        self.ask(LEAVE);
    }

    fn ask(&self, why: u8) {
        // The first reason stays.
        self.0.compare_exchange(0, why, Ordering::Relaxed, Ordering::Relaxed).map(drop).unwrap_or_default();
    }

    /// Whether it is to end, for either reason.
    pub(crate) fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Whether the user asked.
    pub(crate) fn cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed) == CANCEL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_stays() {
        let stop = Stop::default();
        assert!(!stop.asked());
        stop.leave();
        stop.cancel();
        assert!(stop.asked() && !stop.cancelled());
    }
}
