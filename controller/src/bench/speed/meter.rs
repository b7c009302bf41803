//! A process that starts programs and times them: what it is asked, what it answers, and how to talk to it.
//!
//! Two such processes exist: this program itself (`spawner`), and a Python interpreter that calls `subprocess.run`
//! as trainers do (`parent.py`). Both read a line of JSON for each batch and answer with one. Their standard input
//! is their leash: where it ends, also because the measurement was killed, they finish what runs and leave.

use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Longest that a meter may take to leave: what it runs ends by itself, or is killed by it.
const LEAVE: Duration = Duration::from_secs(30);

/// What stands for a name that no other call has, in arguments.
pub(super) const UNIQUE: &str = "{id}";

/// Calls of one program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Batch {
    /// Program and arguments.
    pub(super) argv: Vec<String>,
    /// What removes a call that did not end well.
    pub(super) cleanup: Vec<String>,
    /// What has to come on standard output, with code 0.
    pub(super) expect: String,
    /// Calls at once.
    pub(super) clients: u32,
    /// How many calls; 0 for as many as begin within `secs`.
    pub(super) count: u32,
    pub(super) secs: f64,
}

/// What came of a batch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    /// Seconds of each call that ended well.
    pub(super) walls: Vec<f64>,
    /// Of all of it, until the last call ended.
    pub(super) elapsed: f64,
    /// CPU seconds of everything that the batch started, and of the one that started it.
    pub(super) cpu: f64,
    /// Calls that did not end as they have to.
    pub(super) failed: u32,
    /// What the first of them said.
    pub(super) why: String,
}

impl Measured {
    /// One call more that did not end well; the first one's reason is kept.
    pub(super) fn fail(&mut self, why: &str) {
        self.failed += 1;
        if self.why.is_empty() {
            why.clone_into(&mut self.why);
        }
    }
}

/// A meter cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MeterError {
    /// It cannot be started.
    #[error("cannot start {program}: {source}")]
    Spawn {
        /// What should run.
        program: String,
        /// The system's word.
        #[source]
        source: std::io::Error,
    },
    /// It is gone.
    #[error("the process that starts programs ended, or answered {answer:?}")]
    Ended {
        /// Its last words.
        answer: String,
    },
}

/// A running meter.
pub(super) struct Meter {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl Meter {
    /// Starts a program that speaks this protocol.
    pub(super) fn start(mut command: Command) -> Result<Self, MeterError> {
        let name = command.as_std().get_program().to_string_lossy().into_owned();
        let failed = |source| MeterError::Spawn { program: name.clone(), source };
        let mut child = command
            // Ctrl-C is for the measurement, which then lets the meters finish.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(failed)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or_else(|| failed(std::io::ErrorKind::BrokenPipe.into()))?;
        Ok(Self { child, input, output: BufReader::new(output).lines() })
    }

    /// This program as a meter.
    pub(super) fn spawner() -> Result<Self, MeterError> {
        let failed = |source| MeterError::Spawn { program: "this program".into(), source };
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(["bench", "meter"]);
        Self::start(command)
    }

    pub(super) async fn measure(&mut self, batch: &Batch) -> Result<Measured, MeterError> {
        let ended = |answer: String| MeterError::Ended { answer };
        let mut line = serde_json::to_string(batch).map_err(|error| ended(error.to_string()))?;
        line.push('\n');
        let input = self.input.as_mut().ok_or_else(|| ended(String::new()))?;
        input.write_all(line.as_bytes()).await.map_err(|error| ended(error.to_string()))?;
        let answer = self.output.next_line().await.map_err(|error| ended(error.to_string()))?;
        let answer = answer.unwrap_or_default();
        serde_json::from_str(&answer).map_err(|_| ended(answer))
    }

    /// Lets it finish and leave.
    pub(super) async fn stop(mut self) {
        drop(self.input.take());
        if tokio::time::timeout(LEAVE, self.child.wait()).await.is_err() {
            tracing::error!("a process that starts programs did not leave and is killed");
            if let Err(error) = self.child.kill().await {
                tracing::error!(%error, "cannot kill it");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(argv: &[&str], expect: &str, clients: u32, count: u32) -> Batch {
        let argv = argv.iter().map(|each| (*each).to_owned()).collect();
        Batch { argv, cleanup: Vec::new(), expect: expect.into(), clients, count, secs: 0.0 }
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn the_first_failure_is_the_one_that_is_told() {
        let mut measured = Measured::default();
        measured.fail("one");
        measured.fail("two");
        assert_eq!((measured.failed, measured.why.as_str()), (2, "one"));
    }

    #[test]
    fn the_python_parent_times_calls_and_names_the_one_that_failed() {
        runtime().block_on(async {
            let mut meter = Meter::start(super::super::parent("python3")).unwrap();
            let good = meter.measure(&batch(&["/bin/echo", "42"], "42\n", 1, 3)).await.unwrap();
            assert_eq!((good.walls.len(), good.failed), (3, 0), "{good:?}");
            assert!(good.cpu > 0.0 && good.elapsed > 0.0 && good.walls.iter().all(|wall| *wall > 0.0));
            let many = meter.measure(&batch(&["/bin/echo", "42"], "42\n", 4, 10)).await.unwrap();
            assert_eq!(many.walls.len(), 10);
            let line = "echo broken >&2; exit 3";
            let bad = meter.measure(&batch(&["/bin/sh", "-c", line], "42\n", 1, 2)).await.unwrap();
            assert_eq!((bad.walls.len(), bad.failed), (0, 2), "{bad:?}");
            assert!(bad.why.contains("code 3") && bad.why.contains("broken"), "{bad:?}");
            meter.stop().await;
        });
    }

    #[test]
    fn a_meter_that_is_no_meter_is_an_error() {
        runtime().block_on(async {
            let mut meter = Meter::start(Command::new("/bin/cat")).unwrap();
            // It answers with the question.
            assert!(meter.measure(&batch(&["x"], "", 1, 1)).await.is_err());
            meter.stop().await;
        });
    }
}
