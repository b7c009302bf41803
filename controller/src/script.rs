//! A program that is run as a script for a client which judges its output itself: what it gets, and how it ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rlox_protocol::Ending;
use tokio::sync::OwnedSemaphorePermit;

/// What a script is run with, beside its text.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    /// The name of its file.
    pub(crate) name: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) stdin: String,
    /// Files beside it.
    pub(crate) files: Vec<Placed>,
    /// Paths to be read after its end.
    pub(crate) wanted: Vec<String>,
    pub(crate) exits: Exits,
    /// CPU time, where it is less than the wall clock's limit.
    pub(crate) cpu: Option<Duration>,
    /// After this nobody waits for the answer any more.
    pub(crate) answer_by: Instant,
    /// What its request was granted of the memory for large ones; a job that nobody waits for any more holds it too.
    pub(crate) room: Option<Arc<OwnedSemaphorePermit>>,
}

impl Script {
    /// Whether a run that begins now, and may take as long as `timeout`, would end too late.
    pub(crate) fn too_late(&self, timeout: Duration) -> bool {
        Instant::now() + timeout > self.answer_by
    }
}

/// A file beside a script. Its path was checked: relative, without `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) path: String,
    pub(crate) content: Vec<u8>,
}

/// Which ends with code 0 are the program's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exits {
    /// The end of its text, or a `SystemExit` out of its last statement that passed no assertion.
    Last,
    /// The end of its text, or any `SystemExit` that nothing caught and that left no assertion out.
    Anywhere,
    /// All of them.
    Any,
}

/// How a script ended, as far as a client wants to know more than the verdict.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ran {
    pub(crate) ending: Ending,
    pub(crate) told: Told,
    pub(crate) wall_secs: f64,
    pub(crate) cpu_secs: f64,
    /// One for each path that was wanted.
    pub(crate) fetched: Vec<Fetched>,
    /// Bytes of each stream in all.
    pub(crate) stdout_bytes: u64,
    pub(crate) stderr_bytes: u64,
}

/// What the driver said of the program's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// Its own.
    End,
    /// `SystemExit` at this line of the text, too early.
    Exit(u64),
    /// Nothing: it became another program, or left past the interpreter.
    Nothing,
}

/// A file that was to be read after the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fetched {
    Content(Vec<u8>),
    /// No such regular file.
    Missing,
    /// There was no room for it.
    TooLarge,
    /// The program did not come to an end at which it could be read.
    NotRead,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_ends_after_the_answer_is_due_is_too_late() {
        let due = |secs| Script {
            name: "main.py".into(),
            arguments: Vec::new(),
            stdin: String::new(),
            files: Vec::new(),
            wanted: Vec::new(),
            exits: Exits::Last,
            cpu: None,
            answer_by: Instant::now() + Duration::from_secs(secs),
            room: None,
        };
        assert!(!due(100).too_late(Duration::from_secs(10)));
        assert!(due(100).too_late(Duration::from_secs(101)));
        assert!(due(0).too_late(Duration::from_millis(1)));
    }
}
