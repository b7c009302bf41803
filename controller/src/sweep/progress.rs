//! The progress line: trials done, running, survived, time left.

use std::time::Duration;

use rlox_report::TrialKey;

use crate::progress::{Progress, Shown, clock};

/// What is known of the sweep now.
#[derive(Debug)]
pub(super) struct State {
    total: usize,
    done: usize,
    earlier: usize,
    survived: usize,
    running: Vec<TrialKey>,
    parallel: usize,
}

impl State {
    pub(super) fn of(total: usize, earlier: usize, survived: usize, parallel: usize) -> Self {
        Self { total, done: earlier, earlier, survived, running: Vec::new(), parallel }
    }
}

/// Tells what happens: to somebody who watches, or to the log.
#[derive(Debug)]
pub(super) struct Teller(Option<Progress<State>>);

impl Teller {
    /// Progress on standard error.
    pub(super) fn shown(state: State) -> Self {
        Self(Some(Progress::new(state)))
    }

    /// Only the log: a service has nobody at its terminal.
    pub(super) fn logged() -> Self {
        Self(None)
    }

    pub(super) fn started(&self, key: TrialKey) {
        self.happened(&format!("{key} started"), |state| state.running.push(key));
    }

    pub(super) fn ended(&self, key: TrialKey, survived: bool) {
        let how = if survived { "survived" } else { "did not finish" };
        self.happened(&format!("{key} {how}"), |state| {
            state.running.retain(|running| *running != key);
            state.done += 1;
            state.survived += usize::from(survived);
        });
    }

    pub(super) fn abandoned(&self, key: TrialKey, why: &str) {
        self.happened(&format!("{key} {why}"), |state| state.running.retain(|running| *running != key));
    }

    /// Ends the changing line.
    pub(super) fn finish(&self) {
        if let Some(progress) = &self.0 {
            progress.finish();
        }
    }

    fn happened(&self, event: &str, change: impl FnOnce(&mut State)) {
        let Some(progress) = &self.0 else {
            tracing::info!("{event}");
            return;
        };
        progress.change(|state, elapsed| {
            change(state);
            let line = line(state, elapsed);
            let log = format!("{line}  {event}\n");
            Shown { line, event: format!("{event}\n"), log }
        });
    }
}

fn line(state: &State, elapsed: Duration) -> String {
    let fresh = state.done - state.earlier;
    let left = if fresh == 0 {
        "time left unknown".into()
    } else {
        let waiting = state.total - state.done;
        let each = elapsed.as_secs_f64() / float(fresh);
        // Trials in flight are half done on average.
        let rest = (float(waiting) - float(state.running.len().min(state.parallel)) / 2.0).max(0.0);
        format!("about {} left", clock(each * rest))
    };
    format!(
        "[{}] [{}] {}/{} trials done, {} running, {} survived, {left}",
        clock(elapsed.as_secs_f64()),
        bar(state.done, state.total),
        state.done,
        state.total,
        state.running.len(),
        state.survived
    )
}

/// How much is done, at a glance.
fn bar(done: usize, total: usize) -> String {
    const WIDTH: usize = 24;
    let filled = (done * WIDTH).checked_div(total).unwrap_or(WIDTH).min(WIDTH);
    format!("{}{}", "#".repeat(filled), ".".repeat(WIDTH - filled))
}

#[expect(clippy::cast_precision_loss, reason = "a count of trials")]
fn float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_done_running_survived_and_time_left() {
        let key = TrialKey::parse("rlox_seed0_fraction0").unwrap();
        let state =
            State { total: 24, done: 6, earlier: 2, survived: 5, running: vec![key, key], parallel: 2 };
        let text = line(&state, Duration::from_secs(120));
        assert_eq!(
            text,
            "[2:00] [######..................] 6/24 trials done, 2 running, 5 survived, about 8:30 left"
        );
    }
}
