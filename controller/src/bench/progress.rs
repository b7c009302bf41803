//! The progress line of a long measurement: what is done, what the service got wrong so far, time left.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::ways::Way;
use crate::sweep::clock;

/// Without a terminal, a line for each of so many parts.
const PARTS: usize = 20;
/// Columns of the bar.
const BAR: usize = 24;

#[derive(Debug, Default)]
struct State {
    total: usize,
    done: usize,
    /// Wrong programs that the usual ways rewarded.
    fooled: usize,
    /// Programs that `/verify` judged wrongly.
    mistaken: usize,
    failed: usize,
}

/// Prints progress to standard error: one line that changes on a terminal, 20 lines elsewhere.
#[derive(Debug)]
pub(super) struct Progress {
    state: Mutex<State>,
    begun: Instant,
    terminal: bool,
}

impl Progress {
    pub(super) fn new(total: usize) -> Self {
        let state = Mutex::new(State { total, ..State::default() });
        Self { state, begun: Instant::now(), terminal: std::io::stderr().is_terminal() }
    }

    pub(super) fn graded(&self, way: Way, honest: bool, rewarded: bool) {
        self.change(None, |state| {
            state.mistaken += usize::from(way == Way::Verify && honest != rewarded);
            state.fooled += usize::from(way != Way::Verify && !honest && rewarded);
        });
    }

    pub(super) fn failed(&self, why: &str) {
        self.change(Some(why), |state| state.failed += 1);
    }

    fn change(&self, event: Option<&str>, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        state.done += 1;
        let line = line(&state, self.begun.elapsed());
        let part = |done: usize| done * PARTS / state.total.max(1);
        let event = event.map(|event| format!("{event}\n")).unwrap_or_default();
        let text = if self.terminal {
            format!("\r\x1b[K{event}{line}")
        } else if part(state.done) > part(state.done - 1) {
            format!("{event}{line}\n")
        } else {
            event
        };
        // Progress that cannot be shown is no reason to stop.
        std::io::stderr().write_all(text.as_bytes()).unwrap_or_default();
    }

    /// Ends the changing line.
    pub(super) fn finish(&self) {
        if self.terminal {
            std::io::stderr().write_all(b"\n").unwrap_or_default();
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of programs")]
fn line(state: &State, elapsed: Duration) -> String {
    let full = state.done * BAR / state.total.max(1);
    let left = elapsed.as_secs_f64() / state.done.max(1) as f64 * (state.total - state.done) as f64;
    let failed =
        if state.failed == 0 { String::new() } else { format!(", {} without a verdict", state.failed) };
    format!(
        "[{}{}] {}/{} gradings, usual ways fooled {} times, /verify wrong {} times{failed}, {} left",
        "#".repeat(full),
        ".".repeat(BAR - full),
        state.done,
        state.total,
        state.fooled,
        state.mistaken,
        clock(left)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_how_far_it_is_and_what_went_wrong() {
        let mut state = State { total: 400, done: 100, fooled: 70, ..State::default() };
        let text = line(&state, Duration::from_secs(30));
        assert_eq!(
            text,
            "[######..................] 100/400 gradings, usual ways fooled 70 times, /verify wrong 0 times, 1:30 left"
        );
        state.failed = 2;
        assert!(line(&state, Duration::from_secs(30)).contains("2 without a verdict"));
    }
}
