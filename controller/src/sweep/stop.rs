//! Why a sweep that runs is to end. Set by whoever asks, read by everything that waits.

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
        self.0.fetch_or(why, Ordering::Relaxed);
    }

    /// Whether it is to end, for either reason.
    pub(crate) fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Whether the user asked; also where the controller ends before or after that.
    pub(crate) fn cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed) & CANCEL != 0
    }

    /// Whether the controller is about to end: what cannot be written now is left to the next start.
    pub(crate) fn leaving(&self) -> bool {
        self.0.load(Ordering::Relaxed) & LEAVE != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancel_counts_in_either_order_and_only_a_leave_is_one() {
        let stop = Stop::default();
        assert!(!stop.asked());
        stop.cancel();
        assert!(stop.asked() && stop.cancelled() && !stop.leaving());
        let stop = Stop::default();
        stop.leave();
        assert!(stop.asked() && !stop.cancelled());
        stop.cancel();
        assert!(stop.cancelled() && stop.leaving());
    }
}
