//! The progress line of a soak: how far it is, what was wrong so far, time left.

use std::time::Duration;

use crate::progress::{Progress, Shown, clock};

/// Without a terminal, a line for each of so many parts.
const PARTS: u64 = 20;

/// What is known now.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) total: u64,
    pub(super) done: u64,
    pub(super) wrong: u64,
}

impl Progress<State> {
    /// One more was answered, wrongly if there is a complaint.
    pub(super) fn answered(&self, complaint: Option<&str>) {
        self.change(|state, elapsed| {
            state.done += 1;
            state.wrong += u64::from(complaint.is_some());
            let event = complaint.map(|text| format!("{text}\n")).unwrap_or_default();
            let part = |done: u64| done * PARTS / state.total.max(1);
            let line = line(state, elapsed);
            let whole = part(state.done) > part(state.done - 1);
            let log = if whole { format!("{event}{line}\n") } else { event.clone() };
            Shown { line, event, log }
        });
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of verifications")]
fn line(state: &State, elapsed: Duration) -> String {
    let secs = elapsed.as_secs_f64();
    let left = secs / state.done.max(1) as f64 * (state.total - state.done) as f64;
    format!(
        "{}/{} verifications, {:.1} a second, {} wrong, {} left",
        state.done,
        state.total,
        state.done as f64 / secs.max(0.001),
        state.wrong,
        clock(left)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_how_far_it_is_and_what_was_wrong() {
        let state = State { total: 400, done: 100, wrong: 1 };
        let text = line(&state, Duration::from_secs(50));
        assert_eq!(text, "100/400 verifications, 2.0 a second, 1 wrong, 2:30 left");
    }
}
