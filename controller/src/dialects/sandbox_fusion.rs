//! SandboxFusion's `POST /run_code`, as verl's and its own Python client send and read it.
//!
//! Those clients take a program for right where `status` is `Success`, and compare standard output. So `Success` says
//! that the program came to its own end with code 0 and that all of its output is there. Everything else is `Failed`
//! with a return code that is not 0; only a failure of ours is `SandboxError`, which verl counts as no result.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rlox_protocol::Ending;
use serde::{Deserialize, Serialize};

use super::languages::{self, Language};
use super::limits::{OUTPUT_BYTES, RESERVE, SLACK, seconds};
use super::{Refusal, Server, Terms, Undecided, files};
use crate::job::{Finished, Job, random_id};
use crate::judge::Verdict;
use crate::script::{Fetched, Script};

/// The request body. Fields that are not here are ignored, as the original does.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct RunCodeRequest {
    pub(crate) code: String,
    pub(crate) language: String,
    #[serde(default = "ten")]
    pub(crate) compile_timeout: f64,
    #[serde(default = "ten")]
    pub(crate) run_timeout: f64,
    #[serde(default = "unlimited", rename = "memory_limit_MB")]
    pub(crate) memory_limit_mb: Option<i64>,
    #[serde(default)]
    pub(crate) stdin: Option<String>,
    #[serde(default)]
    pub(crate) files: BTreeMap<String, Option<String>>,
    #[serde(default)]
    pub(crate) fetch_files: Vec<String>,
}

fn ten() -> f64 {
    10.0
}

fn unlimited() -> Option<i64> {
    Some(-1)
}

/// A decoded request.
#[derive(Debug, Clone)]
pub(crate) struct Decoded {
    pub(crate) job: Job,
    pub(crate) frame: Frame,
}

/// What is needed to answer it.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) terms: Terms,
    pub(crate) answer_by: Instant,
    /// The paths of `fetch_files` as the client wrote them.
    fetch_files: Vec<String>,
}

impl Decoded {
    pub(crate) fn split(self) -> (Job, Frame) {
        (self.job, self.frame)
    }
}

impl RunCodeRequest {
    /// A program with its input and default limits.
    pub(crate) fn of(language: &Language, code: String, stdin: String, run_timeout: f64) -> Self {
        Self {
            code,
            language: language.sandbox_fusion.to_owned(),
            compile_timeout: ten(),
            run_timeout,
            memory_limit_mb: unlimited(),
            stdin: Some(stdin),
            files: BTreeMap::new(),
            fetch_files: Vec::new(),
        }
    }

    /// The job. The client waits for both timeouts and ten seconds more.
    pub(crate) fn decode(self, server: &Server, received: Instant) -> Result<Decoded, Refusal> {
        let language = languages::of_sandbox_fusion(&self.language)?;
        let timeout = seconds("run_timeout", self.run_timeout)?;
        let compile = Duration::try_from_secs_f64(self.compile_timeout).unwrap_or_default();
        let patience = (timeout + compile.min(Duration::from_secs(600)) + SLACK).saturating_sub(RESERVE);
        // Not positive is no limit there; here it is the server's own.
        let memory_mb = match self.memory_limit_mb {
            Some(asked) => u64::try_from(asked).ok().filter(|asked| *asked > 0),
            None => None,
        };
        let answer_by = received + patience;
        let terms = Terms::lowered(server, timeout, memory_mb.unwrap_or(server.ceilings.memory_mb), patience);
        let named = self.files.into_iter().filter_map(|(name, content)| Some((name, content?)));
        let decoded = named.map(|(name, content)| Ok((files::from_base64(&name, &content)?, name)));
        let decoded: Vec<_> = decoded.collect::<Result<_, Refusal>>()?;
        let stdin = self.stdin.unwrap_or_default();
        let script = Script {
            name: language.file.to_owned(),
            arguments: Vec::new(),
            exits: server.exits(&stdin),
            stdin,
            files: files::placed(decoded.into_iter().map(|(content, name)| (name, content)))?,
            wanted: files::wanted(&self.fetch_files)?,
            cpu: None,
            answer_by,
        };
        let job = Job {
            id: random_id().map_err(|error| Refusal::Fault(error.to_string()))?,
            code: self.code,
            tests: Vec::new(),
            stdio: Vec::new(),
            early_stop: false,
            granted: terms.granted(),
            script: Some(script),
        };
        Ok(Decoded { job, frame: Frame { terms, answer_by, fetch_files: self.fetch_files } })
    }
}

/// The load of the machine had the program's time: no answer says anything of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overloaded;

/// The top-level words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum RunStatus {
    Success,
    Failed,
    SandboxError,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum CommandStatus {
    Finished,
    TimeLimitExceeded,
}

/// Of one command; a program that was run has strings for its output, whatever became of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct CommandResult {
    status: CommandStatus,
    execution_time: f64,
    cpu_time: f64,
    return_code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// The response body.
#[derive(Debug, Clone, PartialEq, Serialize)]
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

    /// Encodes a finished job; an error where the answer is that the server is overloaded.
    pub(crate) fn new(finished: Finished, frame: &Frame) -> Result<Self, Overloaded> {
        let terms = &frame.terms;
        match super::decided(&finished, terms) {
            Ok(()) => {}
            Err(Undecided::Overloaded) => return Err(Overloaded),
            Err(Undecided::Lowered(why)) => return Ok(Self::sandbox_error(why)),
        }
        let Some(ran) = &finished.ran else { return Ok(Self::sandbox_error("nothing is known of the run")) };
        let mut notes: Vec<String> = Some(super::reason(&finished, terms)).into_iter().collect();
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
    let kinds = super::tampering(finished);
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
    use super::super::testing::{finished, server};
    use super::*;
    use crate::script::{Exits, Ran, Told};
    use crate::tampering::{Kind, Tampering};

    fn decode(text: &str) -> Result<Decoded, String> {
        let request: RunCodeRequest = serde_json::from_str(text).map_err(|error| error.to_string())?;
        request.decode(&server(), Instant::now()).map_err(|error| error.to_string())
    }

    fn plain() -> Decoded {
        decode(r#"{"code": "x", "language": "python", "memory_limit_MB": 1024}"#).unwrap()
    }

    fn encode(finished: Finished, decoded: &Decoded) -> serde_json::Value {
        serde_json::to_value(RunCodeResponse::new(finished, &decoded.frame).unwrap()).unwrap()
    }

    #[test]
    fn verls_request_is_taken_as_it_is() {
        let decoded = decode(
            r#"{"compile_timeout": 10, "run_timeout": 10, "code": "print(1)", "stdin": "3\n", "memory_limit_MB": 1024,
            "language": "python", "files": {}, "fetch_files": []}"#,
        )
        .unwrap();
        let (granted, script) = (decoded.job.granted, decoded.job.script.unwrap());
        assert_eq!((granted.timeout, granted.memory_mb), (Duration::from_secs(10), 1024));
        assert_eq!((script.stdin.as_str(), script.exits), ("3\n", Exits::Anywhere));
        let waits = script.answer_by - Instant::now();
        assert!(waits > Duration::from_secs(27) && waits <= Duration::from_secs(28), "{waits:?}");
    }

    #[test]
    fn defaults_null_and_unknown_fields_are_as_in_the_original() {
        let decoded = decode(
            r#"{"code": "x", "language": "python", "stdin": null, "files": {"skipped": null, "d/a": "AA=="}, "args": []}"#,
        )
        .unwrap();
        assert_eq!(
            (decoded.job.granted.timeout, decoded.job.granted.memory_mb),
            (Duration::from_secs(10), 2048)
        );
        let script = decoded.job.script.unwrap();
        assert_eq!((script.stdin.as_str(), script.exits), ("", Exits::Last));
        assert_eq!(script.files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["d/a"]);
    }

    #[test]
    fn wrong_requests_are_refused_with_a_reason() {
        for (bad, why) in [
            (r#"{"language": "python"}"#, "code"),
            (r#"{"code": "x"}"#, "language"),
            (r#"{"code": "x", "language": "cpp"}"#, "this server runs: python"),
            (r#"{"code": "x", "language": "python", "run_timeout": 0}"#, "run_timeout"),
            (r#"{"code": "x", "language": "python", "files": {"../a": ""}}"#, "leads out"),
            (r#"{"code": "x", "language": "python", "files": {"a": "%"}}"#, "not base64"),
            (r#"{"code": "x", "language": "python", "fetch_files": ["/etc/passwd"]}"#, "absolute"),
        ] {
            let error = decode(bad).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
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
        let decoded = decode(r#"{"code": "x", "language": "python", "fetch_files": ["a", "b"]}"#).unwrap();
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
        let lowered = decode(r#"{"code": "x", "language": "python", "run_timeout": 60}"#).unwrap();
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
