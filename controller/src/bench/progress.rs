//! The progress line of a long measurement: what is done, what the service got wrong so far, time left.

use std::time::Duration;

use super::ways::Way;
use crate::progress::{Progress, Shown, clock};

/// Without a terminal, a line for each of so many parts.
const PARTS: usize = 20;
/// Columns of the bar.
const BAR: usize = 24;

/// What is known of the measurement now.
#[derive(Debug, Default)]
pub(super) struct State {
    total: usize,
    done: usize,
    /// Wrong programs that the usual ways rewarded.
    fooled: usize,
    /// Programs that `/verify` judged wrongly.
    mistaken: usize,
    failed: usize,
}

impl State {
    pub(super) fn of(total: usize) -> Self {
        Self { total, ..Self::default() }
    }
}

impl Progress<State> {
    pub(super) fn graded(&self, way: Way, honest: bool, rewarded: bool) {
        self.done("", |state| {
            state.mistaken += usize::from(way == Way::Verify && honest != rewarded);
            state.fooled += usize::from(way != Way::Verify && !honest && rewarded);
        });
    }

    pub(super) fn failed(&self, why: &str) {
        self.done(&format!("{why}\n"), |state| state.failed += 1);
    }

    /// One more is done; a log gets a line for each part of the whole, and every failure.
    fn done(&self, event: &str, change: impl FnOnce(&mut State)) {
        self.change(|state, elapsed| {
            change(state);
            state.done += 1;
            let line = line(state, elapsed);
            let part = |done: usize| done * PARTS / state.total.max(1);
            let whole =
                if part(state.done) > part(state.done - 1) { format!("{line}\n") } else { String::new() };
            Shown { line, event: event.to_owned(), log: format!("{event}{whole}") }
        });
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
