//! The progress line: which batch runs, and how long the rest may take.

use std::time::Duration;

use crate::progress::{Progress, Shown, clock};

/// Without a terminal, a line for each of so many parts.
const PARTS: usize = 10;
/// Columns of the bar.
const BAR: usize = 24;

/// What is known of the measurement now.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) total: usize,
    pub(super) done: usize,
}

impl Progress<State> {
    /// A batch begins.
    pub(super) fn begins(&self, what: &str) {
        self.change(|state, elapsed| Shown {
            line: line(state, what, elapsed),
            event: String::new(),
            log: String::new(),
        });
    }

    /// It is over; a log gets a line for each part of the whole.
    pub(super) fn ends(&self, what: &str) {
        self.change(|state, elapsed| {
            state.done += 1;
            let part = |done: usize| done * PARTS / state.total.max(1);
            let (line, whole) = (line(state, what, elapsed), part(state.done) > part(state.done - 1));
            let log = if whole { format!("{line}\n") } else { String::new() };
            Shown { line, event: String::new(), log }
        });
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of batches")]
fn line(state: &State, what: &str, elapsed: Duration) -> String {
    let full = state.done * BAR / state.total.max(1);
    let left = elapsed.as_secs_f64() / state.done.max(1) as f64 * (state.total - state.done) as f64;
    let left = if state.done == 0 { String::new() } else { format!(", about {} left", clock(left)) };
    let bar = "#".repeat(full) + &".".repeat(BAR - full);
    format!("[{bar}] {}/{} batches, {what}{left}", state.done, state.total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_which_batch_and_how_long() {
        let mut state = State { total: 40, done: 0 };
        let of = |state: &State| line(state, "runc, 8 clients", Duration::from_secs(30));
        assert_eq!(of(&state), "[........................] 0/40 batches, runc, 8 clients");
        state.done = 10;
        assert_eq!(of(&state), "[######..................] 10/40 batches, runc, 8 clients, about 1:30 left");
    }
}
