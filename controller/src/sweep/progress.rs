//! The progress line: trials done, running, survived, time left.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rlox_report::TrialKey;

/// What is known of the sweep now.
#[derive(Debug)]
struct State {
    total: usize,
    done: usize,
    earlier: usize,
    survived: usize,
    running: Vec<TrialKey>,
    parallel: usize,
}

/// Prints progress to standard error: one line that changes on a terminal, a line per event elsewhere.
#[derive(Debug)]
pub(super) struct Progress {
    state: Mutex<State>,
    begun: Instant,
    terminal: bool,
}

impl Progress {
    pub(super) fn new(total: usize, earlier: usize, survived: usize, parallel: usize) -> Self {
        let state = State { total, done: earlier, earlier, survived, running: Vec::new(), parallel };
        Self { state: Mutex::new(state), begun: Instant::now(), terminal: std::io::stderr().is_terminal() }
    }

    pub(super) fn started(&self, key: TrialKey) {
        self.change(&format!("{key} started"), |state| state.running.push(key));
    }

    pub(super) fn ended(&self, key: TrialKey, how: &str, survived: bool) {
        self.change(&format!("{key} {how}"), |state| {
            state.running.retain(|running| *running != key);
            state.done += 1;
            state.survived += usize::from(survived);
        });
    }

    pub(super) fn abandoned(&self, key: TrialKey, why: &str) {
        self.change(&format!("{key} {why}"), |state| state.running.retain(|running| *running != key));
    }

    fn change(&self, event: &str, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        let line = line(&state, self.begun.elapsed());
        let text =
            if self.terminal { format!("\r\x1b[K{event}\n{line}") } else { format!("{line}  {event}\n") };
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
        "[{}] {}/{} trials done, {} running, {} survived, {left}",
        clock(elapsed.as_secs_f64()),
        state.done,
        state.total,
        state.running.len(),
        state.survived
    )
}

#[expect(clippy::cast_precision_loss, reason = "a count of trials")]
fn float(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a sweep")]
/// Minutes and seconds.
pub(crate) fn clock(secs: f64) -> String {
    let secs = secs.max(0.0).round() as u64;
    format!("{}:{:02}", secs / 60, secs % 60)
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
        assert_eq!(text, "[2:00] 6/24 trials done, 2 running, 5 survived, about 8:30 left");
    }
}
