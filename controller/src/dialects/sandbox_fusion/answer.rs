//! From a finished job to an answer.

use std::collections::BTreeMap;

use rlox_protocol::Ending;
use serde::Serialize;
use utoipa::ToSchema;

use super::request::Frame;
use crate::dialects::limits::OUTPUT_BYTES;
use crate::dialects::{Undecided, decided, files, reason, tampering};
use crate::job::Finished;
use crate::judge::Verdict;
use crate::script::Fetched;

/// The load of the machine had the program's time: no answer says anything of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overloaded;

/// The top-level words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) enum RunStatus {
    Success,
    Failed,
    SandboxError,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = RunCodeCommandStatus)]
enum CommandStatus {
    Finished,
    TimeLimitExceeded,
}

/// Of one command; a program that was run has strings for its output, whatever became of it.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = RunCodeCommandResult)]
struct CommandResult {
    status: CommandStatus,
    execution_time: f64,
    cpu_time: f64,
    return_code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// The response body.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct RunCodeResponse {
    pub(crate) status: RunStatus,
    message: String,
    /// Python is not compiled: null, as with the original.
    compile_result: Option<CommandResult>,
    run_result: Option<CommandResult>,
    executor_pod_name: Option<String>,
    files: BTreeMap<String, String>,
}

impl RunCodeResponse {
    /// A failure of ours: verl's client counts it as no result, SandboxFusion's own raises.
    pub(crate) fn sandbox_error(message: impl Into<String>) -> Self {
        Self {
            status: RunStatus::SandboxError,
            message: message.into(),
            compile_result: None,
            run_result: None,
            executor_pod_name: None,
            files: BTreeMap::new(),
        }
    }

    /// Why there is no result, where there is none.
    pub(crate) fn fault(&self) -> Option<&str> {
        (self.status == RunStatus::SandboxError).then_some(self.message.as_str())
    }

    /// Standard output of the run.
    pub(crate) fn stdout(&self) -> &str {
        self.run_result.as_ref().map_or("", |result| result.stdout.as_str())
    }

    /// With so many bytes of each stream at most.
    pub(crate) fn shortened(mut self, most: usize) -> Self {
        for stream in self.run_result.iter_mut().flat_map(|result| [&mut result.stdout, &mut result.stderr]) {
            stream.truncate(stream.floor_char_boundary(most));
            stream.shrink_to_fit();
        }
        self
    }

    /// Encodes a finished job; an error where the answer is that the server is overloaded.
    pub(crate) fn new(finished: Finished, frame: &Frame) -> Result<Self, Overloaded> {
        let terms = &frame.terms;
        match decided(&finished, terms) {
            Ok(()) => {}
            Err(Undecided::Overloaded) => return Err(Overloaded),
            Err(Undecided::Lowered(why)) => return Ok(Self::sandbox_error(why)),
        }
        let Some(ran) = &finished.ran else { return Ok(Self::sandbox_error("nothing is known of the run")) };
        let mut notes: Vec<String> = Some(reason(&finished, terms)).into_iter().collect();
        let cut = finished.stdout.truncated || finished.stderr.truncated;
        if cut {
            let (out, err) = (ran.stdout_bytes, ran.stderr_bytes);
            notes.push(format!(
                "output was cut: {out} and {err} bytes were written, {OUTPUT_BYTES} of each are kept"
            ));
        }
        let found = frame.fetch_files.iter().zip(&ran.fetched);
        let missing: Vec<_> =
            found.clone().filter_map(|(path, found)| files::not_fetched(path, found)).collect();
        let complete = missing.is_empty();
        notes.extend(missing.into_iter().map(|why| format!("fetch_files: {why}")));
        let files = found.filter_map(|(path, found)| match found {
            Fetched::Content(bytes) => Some((path.clone(), files::to_base64(bytes))),
            Fetched::Missing | Fetched::TooLarge | Fetched::NotRead => None,
        });
        let files = files.collect();
        // What is compared has to be whole; what is only looked at need not be.
        let (status, code) = status_and_code(finished.judged.verdict, ran.ending, finished.stdout.truncated);
        let good = code == Some(0) && complete;
        notes.extend(seen(&finished));
        notes.retain(|note| !note.is_empty());
        Ok(Self {
            status: if good { RunStatus::Success } else { RunStatus::Failed },
            message: notes.join("; "),
            compile_result: None,
            run_result: Some(CommandResult {
                status,
                execution_time: ran.wall_secs,
                cpu_time: ran.cpu_secs,
                return_code: code,
                stdout: finished.stdout.text,
                stderr: finished.stderr.text,
            }),
            executor_pod_name: None,
            files,
        })
    }
}

fn seen(finished: &Finished) -> Option<String> {
    let kinds = tampering(finished);
    (!kinds.is_empty()).then(|| format!("seen: {}", kinds.join(", ")))
}

/// The command's status and return code. 0 is for completed programs alone, whose output is whole.
fn status_and_code(verdict: Verdict, ending: Ending, cut: bool) -> (CommandStatus, Option<i32>) {
    let code = match (verdict, ending) {
        (Verdict::Timeout, _) => return (CommandStatus::TimeLimitExceeded, None),
        (Verdict::Completed, _) if !cut => 0,
        // Python's way to tell a signal.
        (_, Ending::Signaled(signal)) => -signal,
        (Verdict::OomKilled | Verdict::OutputLimit, _) => -9,
        (_, Ending::Exited(code)) if code != 0 => code,
        _ => 1,
    };
    (CommandStatus::Finished, Some(code))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::dialects::sandbox_fusion::{Decoded, RunCodeRequest};
    use crate::dialects::testing::{finished, server};
    use crate::script::{Ran, Told};
    use crate::tampering::{Kind, Tampering};

    fn decode(text: &str) -> Decoded {
        let request: RunCodeRequest = serde_json::from_str(text).unwrap();
        request.decode(&server(), Instant::now()).unwrap()
    }

    fn plain() -> Decoded {
        decode(r#"{"code": "x", "language": "python", "memory_limit_MB": 1024}"#)
    }

    fn encode(finished: Finished, decoded: &Decoded) -> serde_json::Value {
        serde_json::to_value(RunCodeResponse::new(finished, &decoded.frame).unwrap()).unwrap()
    }

    #[test]
    fn success_is_a_completed_program_and_strings_are_never_null() {
        let body = encode(finished(Verdict::Completed, Ending::Exited(0)), &plain());
        assert_eq!((&body["status"], &body["message"]), (&"Success".into(), &"".into()));
        let run = &body["run_result"];
        assert_eq!((&run["status"], &run["return_code"]), (&"Finished".into(), &0.into()));
        assert!(run["stdout"].is_string() && run["stderr"].is_string() && body["compile_result"].is_null());
    }

    #[test]
    fn everything_else_is_failed_with_a_code_that_is_not_0() {
        for (verdict, ending, status, code) in [
            (Verdict::Error, Ending::Exited(0), "Finished", Some(1)),
            (Verdict::Error, Ending::Exited(3), "Finished", Some(3)),
            (Verdict::Killed, Ending::Signaled(11), "Finished", Some(-11)),
            (Verdict::OomKilled, Ending::Exited(0), "Finished", Some(-9)),
            (Verdict::OutputLimit, Ending::OutputFlood, "Finished", Some(-9)),
            (Verdict::Timeout, Ending::CpuLimit, "TimeLimitExceeded", None),
        ] {
            let body = encode(finished(verdict, ending), &plain());
            assert_eq!(body["status"], "Failed", "{verdict:?}");
            let run = &body["run_result"];
            assert_eq!((&run["status"], &run["return_code"]), (&status.into(), &code.into()), "{verdict:?}");
            assert!(run["stdout"].is_string() && run["stderr"].is_string(), "{verdict:?}");
        }
    }

    #[test]
    fn cut_output_and_missing_files_are_no_success_and_said() {
        let mut cut = finished(Verdict::Completed, Ending::Exited(0));
        cut.stdout.truncated = true;
        let body = encode(cut, &plain());
        assert_eq!((&body["status"], &body["run_result"]["return_code"]), (&"Failed".into(), &1.into()));
        assert!(body["message"].as_str().unwrap().contains("output was cut"), "{body}");
        let mut cut = finished(Verdict::Completed, Ending::Exited(0));
        cut.stderr.truncated = true;
        let body = encode(cut, &plain());
        assert_eq!(body["status"], "Success", "what is compared is whole");
        assert!(body["message"].as_str().unwrap().contains("output was cut"), "{body}");
        let decoded = decode(r#"{"code": "x", "language": "python", "fetch_files": ["a", "b"]}"#);
        let mut some = finished(Verdict::Completed, Ending::Exited(0));
        some.ran.as_mut().unwrap().fetched = vec![Fetched::Content(b"hi".to_vec()), Fetched::Missing];
        let body = encode(some, &decoded);
        assert_eq!(
            (&body["status"], &body["files"]),
            (&"Failed".into(), &serde_json::json!({ "a": "aGk=" }))
        );
        assert_eq!(body["message"], "fetch_files: \"b\" is missing");
    }

    #[test]
    fn an_early_end_says_where_and_what_was_seen() {
        let mut early = finished(Verdict::Error, Ending::Exited(0));
        early.ran.as_mut().unwrap().told = Told::Exit(4);
        let detail = "left by SystemExit at line 4, before its own end".to_owned();
        early.judged.tampering = vec![Tampering { kind: Kind::ExitBeforeEnd, detail }];
        let body = encode(early, &plain());
        let said = "left by SystemExit at line 4, before its own end; seen: exit_before_end";
        assert_eq!((&body["status"], &body["message"]), (&"Failed".into(), &said.into()));
    }

    #[test]
    fn a_limit_of_ours_and_the_load_decide_nothing() {
        let lowered = decode(r#"{"code": "x", "language": "python", "run_timeout": 60}"#);
        let body = encode(finished(Verdict::Timeout, Ending::Deadline), &lowered);
        assert_eq!((&body["status"], body["run_result"].is_null()), (&"SandboxError".into(), true), "{body}");
        let body = encode(finished(Verdict::Completed, Ending::Exited(0)), &lowered);
        assert_eq!(body["status"], "Success");
        let mut pressed = finished(Verdict::Timeout, Ending::Deadline);
        pressed.events.pressure = true;
        assert!(RunCodeResponse::new(pressed, &plain().frame).is_err());
    }

    #[test]
    fn a_run_of_which_nothing_is_known_is_no_success() {
        let mut unknown = finished(Verdict::Completed, Ending::Exited(0));
        unknown.ran = None::<Ran>;
        assert_eq!(encode(unknown, &plain())["status"], "SandboxError");
    }
}
