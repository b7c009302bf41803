//! How long work shows where it is: on a terminal one line that changes, elsewhere lines that stay.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What is known of the work, and since when; `S` says which work it is and what its line says.
#[derive(Debug)]
pub(crate) struct Progress<S> {
    state: Mutex<S>,
    begun: Instant,
    terminal: bool,
}

/// What a change is worth on standard error.
#[derive(Debug)]
pub(crate) struct Shown {
    /// Where the work is now, on a terminal: it replaces the line before.
    pub(crate) line: String,
    /// What happened, on a terminal: whole lines that stay above.
    pub(crate) event: String,
    /// What stands in a log instead of both.
    pub(crate) log: String,
}

impl<S> Progress<S> {
    pub(crate) fn new(state: S) -> Self {
        Self { state: Mutex::new(state), begun: Instant::now(), terminal: std::io::stderr().is_terminal() }
    }

    /// Changes what is known, and shows it.
    pub(crate) fn change(&self, change: impl FnOnce(&mut S, Duration) -> Shown) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Shown { line, event, log } = change(&mut state, self.begun.elapsed());
        let text = if self.terminal { format!("\r\x1b[K{event}{line}") } else { log };
        // Progress that cannot be shown is no reason to stop.
        std::io::stderr().write_all(text.as_bytes()).unwrap_or_default();
    }

    /// Ends the changing line.
    pub(crate) fn finish(&self) {
        if self.terminal {
            std::io::stderr().write_all(b"\n").unwrap_or_default();
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a run")]
/// Minutes and seconds.
pub(crate) fn clock(secs: f64) -> String {
    let secs = secs.max(0.0).round() as u64;
    format!("{}:{:02}", secs / 60, secs % 60)
}
