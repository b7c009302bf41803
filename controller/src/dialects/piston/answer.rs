//! From a finished job to an answer.

use rlox_protocol::Ending;
use serde::Serialize;
use utoipa::ToSchema;

use super::request::Frame;
use crate::dialects::languages::{LANGUAGES, Language};
use crate::dialects::{Undecided, decided, reason, tampering};
use crate::job::Finished;
use crate::judge::Verdict;

/// Text by which open-r1's client knows an overloaded server: it then tries again, up to six times in all.
const OVERLOADED: &str = "Resource temporarily unavailable";
const NOT_OVERLOADED: &str = "Resource temporarily-unavailable";

/// One stage of the answer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, ToSchema)]
#[schema(as = PistonStage)]
struct Stage {
    stdout: String,
    stderr: String,
    output: String,
    code: Option<i32>,
    signal: Option<String>,
    message: Option<String>,
    status: Option<&'static str>,
    cpu_time: f64,
    wall_time: f64,
    memory: u64,
}

/// The response body.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = PistonResponse)]
pub(crate) struct ExecuteResponse {
    language: &'static str,
    version: String,
    run: Stage,
    /// There for interpreted languages as well: open-r1 reads its code.
    compile: Stage,
}

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoResult {
    pub(crate) message: String,
    pub(crate) overloaded: bool,
}

impl ExecuteResponse {
    /// Whether the client takes it for a success.
    pub(crate) fn good(&self) -> bool {
        self.run.code == Some(0)
    }

    /// Encodes a finished job.
    pub(crate) fn new(finished: Finished, frame: &Frame) -> Result<Self, NoResult> {
        decided(&finished, &frame.terms).map_err(|undecided| match undecided {
            Undecided::Overloaded => NoResult {
                message: "the server is overloaded: others had the program's time".into(),
                overloaded: true,
            },
            Undecided::Lowered(message) => NoResult { message, overloaded: false },
        })?;
        let Some(ran) = &finished.ran else {
            return Err(NoResult { message: "nothing is known of the run".into(), overloaded: false });
        };
        let (code, signal, status) = end(&finished, ran.ending);
        let mut notes = vec![reason(&finished, &frame.terms)];
        match status {
            Some("OL") if finished.judged.verdict != Verdict::OutputLimit => {
                notes.push("stdout length exceeded".into());
            }
            Some("EL") => notes.push("stderr length exceeded".into()),
            _ => {}
        }
        if notes.iter().all(String::is_empty) {
            match (code, &signal) {
                (Some(code), _) if code != 0 => notes.push(format!("Exited with error status {code}")),
                (_, Some(signal)) => notes.push(format!("Caught fatal signal {signal}")),
                _ => {}
            }
        }
        let kinds = tampering(&finished);
        if !kinds.is_empty() {
            notes.push(format!("seen: {}", kinds.join(", ")));
        }
        notes.retain(|note| !note.is_empty());
        let stderr = finished.stderr.text.replace(OVERLOADED, NOT_OVERLOADED);
        let output = format!("{}{stderr}", finished.stdout.text);
        let run = Stage {
            output,
            stdout: finished.stdout.text,
            stderr,
            code,
            signal,
            message: (!notes.is_empty()).then(|| notes.join("; ")),
            status,
            cpu_time: ran.cpu_secs * 1000.0,
            wall_time: ran.wall_secs * 1000.0,
            memory: finished.usage.memory_peak_bytes,
        };
        let compile = Stage { code: Some(0), ..Stage::default() };
        Ok(Self { language: frame.language, version: frame.version.clone(), run, compile })
    }
}

/// Code, signal and status. Code 0 is for completed programs alone, whose output is whole.
fn end(finished: &Finished, ending: Ending) -> (Option<i32>, Option<String>, Option<&'static str>) {
    let killed = |status| (None, Some("SIGKILL".to_owned()), Some(status));
    match (finished.judged.verdict, ending) {
        (Verdict::Timeout, _) => killed("TO"),
        (Verdict::OutputLimit, _) => killed("OL"),
        (Verdict::OomKilled, _) => killed("SG"),
        (Verdict::Completed, _) if finished.stdout.truncated => killed("OL"),
        (Verdict::Completed, _) if finished.stderr.truncated => killed("EL"),
        (Verdict::Completed, _) => (Some(0), None, None),
        (_, Ending::Signaled(signal)) => (None, Some(signal_name(signal)), Some("SG")),
        (_, Ending::Exited(code)) if code != 0 => (Some(code), None, Some("RE")),
        _ => (Some(1), None, Some("RE")),
    }
}

fn signal_name(number: i32) -> String {
    let signal = nix::sys::signal::Signal::try_from(number);
    signal.map_or_else(|_| format!("SIG{number}"), |signal| signal.as_str().to_owned())
}

/// An entry of `GET /api/v2/runtimes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = PistonRuntime)]
pub(crate) struct Runtime {
    language: &'static str,
    version: String,
    aliases: &'static [&'static str],
}

/// All of them.
pub(crate) fn runtimes(version: &str) -> Vec<Runtime> {
    let runtime = |each: &Language| Runtime {
        language: each.piston,
        version: version.to_owned(),
        aliases: each.aliases,
    };
    LANGUAGES.iter().map(runtime).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::dialects::piston::ExecuteRequest;
    use crate::dialects::testing::{finished, server};

    fn frame() -> Frame {
        let body =
            serde_json::json!({"language": "python", "version": "*", "files": [{"content": "print(1)"}]});
        let request: ExecuteRequest = serde_json::from_value(body).unwrap();
        request.decode(&server(), "3.11.2", Instant::now()).unwrap().frame
    }

    fn encode(finished: Finished) -> serde_json::Value {
        serde_json::to_value(ExecuteResponse::new(finished, &frame()).unwrap()).unwrap()
    }

    #[test]
    fn code_0_is_a_completed_program_alone() {
        let body = encode(finished(Verdict::Completed, Ending::Exited(0)));
        assert_eq!((&body["run"]["code"], &body["compile"]["code"]), (&0.into(), &0.into()));
        assert_eq!((&body["run"]["output"], &body["run"]["memory"]), (&"out\nerr\n".into(), &4096.into()));
        assert_eq!((&body["run"]["cpu_time"], &body["run"]["wall_time"]), (&125.0.into(), &250.0.into()));
        for (verdict, ending, code, signal, status) in [
            (Verdict::Error, Ending::Exited(0), Some(1), None, "RE"),
            (Verdict::Error, Ending::Exited(7), Some(7), None, "RE"),
            (Verdict::Killed, Ending::Signaled(11), None, Some("SIGSEGV"), "SG"),
            (Verdict::OomKilled, Ending::Exited(0), None, Some("SIGKILL"), "SG"),
            (Verdict::Timeout, Ending::Deadline, None, Some("SIGKILL"), "TO"),
            (Verdict::OutputLimit, Ending::OutputFlood, None, Some("SIGKILL"), "OL"),
        ] {
            let run = &encode(finished(verdict, ending))["run"];
            let wanted = (&code.into(), &signal.into(), &status.into());
            assert_eq!((&run["code"], &run["signal"], &run["status"]), wanted, "{verdict:?}");
        }
        let mut cut = finished(Verdict::Completed, Ending::Exited(0));
        cut.stderr.truncated = true;
        let run = &encode(cut)["run"];
        assert_eq!((run["code"].is_null(), &run["status"]), (true, &"EL".into()));
    }

    #[test]
    fn a_program_cannot_make_the_client_try_again() {
        let mut tricky = finished(Verdict::Error, Ending::Exited(1));
        tricky.stderr.text =
            "Resource Resource temporarily unavailableResource temporarily unavailable".into();
        let body = encode(tricky);
        for field in ["stderr", "output"] {
            assert!(!body["run"][field].as_str().unwrap().contains(OVERLOADED), "{body}");
        }
        assert!(!NOT_OVERLOADED.contains(OVERLOADED));
    }

    #[test]
    fn without_a_result_there_is_a_reason() {
        let mut pressed = finished(Verdict::Timeout, Ending::Deadline);
        pressed.events.pressure = true;
        assert!(ExecuteResponse::new(pressed, &frame()).unwrap_err().overloaded);
        let mut unknown = finished(Verdict::Completed, Ending::Exited(0));
        unknown.ran = None;
        assert!(!ExecuteResponse::new(unknown, &frame()).unwrap_err().overloaded);
    }
}
