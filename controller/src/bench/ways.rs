//! Ways of grading: the service's own, and the three that trainers usually take.
//!
//! A way turns a program into steps, requests to the service, and says for each by what its outcome is rewarded.
//! The usual ways use the service as a container only: limits, launcher and bundle are the same for all, so that
//! they differ in how they judge and in nothing else. Steps are plain request bodies, as a client would send them.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::programs::{Exchange, Program};
use crate::api::VerifyRequest;
use crate::job::{Finished, random_id};
use crate::judge::{Verdict, same_output};
use crate::service::{Service, VerifyError};

/// What an in-process trainer consists of; the call of `main` is appended.
const IN_PROCESS: &str = include_str!("in_process.py");
/// Kept of a program's output where a way looks at it: the most that a request may ask for.
const KEPT: u64 = 1 << 20;
/// How long an in-process trainer may take beyond its own timers until it counts as hung.
const HUNG: Duration = Duration::from_secs(1);

/// A way of grading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    /// `POST /verify`.
    Verify,
    /// `exec` of program and tests in the process that decides the reward.
    InProcess,
    /// Program and tests as one file, rewarded for exit code 0.
    ExitCode,
    /// The same, and a random word printed after the last test has to be the end of the output.
    Nonce,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [Self::Verify, Self::InProcess, Self::ExitCode, Self::Nonce];

    /// Its name in tables.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Verify => "rlox: `/verify`",
            Self::InProcess => "`exec` in the trainer's process",
            Self::ExitCode => "subprocess, exit code 0",
            Self::Nonce => "subprocess, nonce at the end",
        }
    }
}

/// By what the outcome of a step is rewarded.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Rule {
    /// The service's own reward is 1.
    Rewarded,
    /// Exit code 0.
    ExitZero,
    /// Exit code 0, and the output ends with this word.
    EndsWith(String),
    /// The last line of the output that begins with this word goes on with 1.
    Says(String),
    /// Exit code 0, and the output is this.
    Prints(String),
}

impl Rule {
    /// The process that decides left no decision.
    fn undecided(&self, finished: &Finished) -> bool {
        match self {
            Self::Says(word) => said(finished, word).is_none(),
            Self::Rewarded | Self::ExitZero | Self::EndsWith(_) | Self::Prints(_) => false,
        }
    }

    fn holds(&self, finished: &Finished) -> bool {
        let left = finished.judged.exit_status == "Clean(0)";
        let printed = &finished.stdout;
        match self {
            Self::Rewarded => finished.judged.reward == Some(1.0),
            Self::ExitZero => left,
            Self::EndsWith(word) => left && printed.text.trim_end().ends_with(word.as_str()),
            Self::Says(word) => said(finished, word) == Some(" 1"),
            Self::Prints(wanted) => {
                left && !printed.truncated && same_output(printed.text.as_bytes(), wanted)
            }
        }
    }
}

/// What an in-process trainer decided; none where the program ended or hung it.
fn said<'a>(finished: &'a Finished, word: &str) -> Option<&'a str> {
    finished.stdout.text.lines().rev().find_map(|line| line.strip_prefix(word))
}

/// One request and what has to come of it.
struct Step {
    body: Value,
    rule: Rule,
}

/// What came of one program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Graded {
    pub(crate) rewarded: bool,
    /// How the last container that it took ended.
    pub(crate) verdict: Verdict,
    /// The process that decides was gone or hung.
    pub(crate) judge_lost: bool,
    /// The first message of a test that did not pass, where the way has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
}

/// A program could not be graded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GradeError {
    /// The kernel gave no random word.
    #[error("no random word: {reason}")]
    Random {
        /// Its word.
        reason: String,
    },
    /// The service does not take such a request.
    #[error("the request was refused: {reason}")]
    Refused {
        /// Why.
        reason: String,
    },
    /// The sandbox failed.
    #[error(transparent)]
    Verify(#[from] VerifyError),
}

/// Grades a program in one way; every step has to be rewarded.
pub(crate) async fn grade(
    service: &Service,
    way: Way,
    program: &Program,
    timeout: Duration,
) -> Result<Graded, GradeError> {
    let refused = |reason: String| GradeError::Refused { reason };
    let mut graded = Graded { rewarded: false, verdict: Verdict::Error, judge_lost: false, message: None };
    let word = random_id().map_err(|error| GradeError::Random { reason: error.to_string() })?;
    for step in steps(way, program, timeout, &word) {
        let request: VerifyRequest =
            serde_json::from_value(step.body).map_err(|error| refused(error.to_string()))?;
        let job =
            request.into_job(&service.config.ceilings).map_err(|problem| refused(format!("{problem:?}")))?;
        let finished = service.verify_batched(job).await?;
        graded = Graded {
            rewarded: step.rule.holds(&finished),
            verdict: finished.judged.verdict,
            judge_lost: step.rule.undecided(&finished),
            message: finished
                .judged
                .tests
                .into_iter()
                .find(|test| !test.passed)
                .and_then(|test| test.message),
        };
        if !graded.rewarded {
            break;
        }
    }
    Ok(graded)
}

/// The longest that a step of a program with so many parts may ask for.
pub(crate) fn longest(parts: u32, timeout: Duration) -> Duration {
    timeout * parts + HUNG
}

/// Loadings of a program: one for all statements, one for each input.
pub(crate) fn parts(program: &Program) -> u32 {
    u32::try_from(program.stdio.len()).unwrap_or(u32::MAX - 1) + u32::from(!program.tests.is_empty())
}

fn steps(way: Way, program: &Program, timeout: Duration, word: &str) -> Vec<Step> {
    let secs = timeout.as_secs_f64();
    match way {
        Way::Verify => {
            let stdio: Vec<_> = program.stdio.iter().map(exchange).collect();
            let mut body = json!({
                "code": program.code, "tests": program.tests, "stdio": stdio, "timeout_secs": secs,
            });
            if let Some(bytes) = program.output_bytes {
                body["output_bytes"] = json!(bytes);
            }
            vec![Step { body, rule: Rule::Rewarded }]
        }
        Way::InProcess => {
            let code = in_process(program, secs, word);
            let timeout_secs = longest(parts(program), timeout).as_secs_f64();
            let body = json!({ "code": code, "timeout_secs": timeout_secs, "output_bytes": KEPT });
            vec![Step { body, rule: Rule::Says(word.to_owned()) }]
        }
        Way::ExitCode => {
            let file = one_file(program, "");
            let body = json!({ "code": file, "timeout_secs": secs });
            with_stdio(program, secs, Step { body, rule: Rule::ExitZero })
        }
        Way::Nonce => {
            let file = one_file(program, &format!("print({word:?})\n"));
            let body = json!({ "code": file, "timeout_secs": secs, "output_bytes": KEPT });
            with_stdio(program, secs, Step { body, rule: Rule::EndsWith(word.to_owned()) })
        }
    }
}

fn exchange(given: &Exchange) -> Value {
    json!({ "stdin": given.stdin, "stdout": given.stdout })
}

/// The step for the statements, where there are any, and one for each input, whose output is compared.
fn with_stdio(program: &Program, secs: f64, statements: Step) -> Vec<Step> {
    let first = (!program.tests.is_empty()).then_some(statements);
    let others = program.stdio.iter().map(|given| Step {
        body: json!({
            "code": program.code, "stdio": [exchange(given)], "timeout_secs": secs, "output_bytes": KEPT,
        }),
        rule: Rule::Prints(given.stdout.clone()),
    });
    first.into_iter().chain(others).collect()
}

/// Program and tests as one file. Where a test imports the program by its name, the name leads to this file.
fn one_file(program: &Program, end: &str) -> String {
    let imported = program.tests.iter().any(|test| test.contains("solution"));
    let alias = "import sys\nsys.modules['solution'] = sys.modules['__main__']\n";
    let alias = if imported { alias } else { "" };
    format!("{}\n{alias}{}\n{end}", program.code, program.tests.join("\n"))
}

/// The in-process trainer with its arguments. What JSON writes of texts and lists is Python as well.
fn in_process(program: &Program, secs: f64, word: &str) -> String {
    let stdio: Vec<_> = program.stdio.iter().map(|given| [&given.stdin, &given.stdout]).collect();
    let arguments = json!([program.code, program.tests, stdio, secs, word]);
    let text = json!(arguments.to_string());
    format!("{IN_PROCESS}main(*json.loads({text}))\n")
}

#[cfg(test)]
mod tests {
    use crate::config::Granted;
    use crate::job::{Captured, Events, Usage};
    use crate::judge::Judged;

    use super::*;

    fn program(text: &str) -> Program {
        serde_json::from_str(text).unwrap()
    }

    fn finished(exit_status: &str, reward: Option<f64>, stdout: &str) -> Finished {
        Finished {
            job_id: String::new(),
            granted: Granted {
                timeout: Duration::ZERO,
                wall_factor: 1.0,
                memory_mb: 0,
                pids: 0,
                output_bytes: 0,
            },
            judged: Judged {
                verdict: Verdict::Completed,
                reward,
                exit_status: exit_status.into(),
                authenticated: true,
                tests: Vec::new(),
                tampering: Vec::new(),
            },
            usage: Usage::default(),
            events: Events::default(),
            stdout: Captured { text: stdout.into(), truncated: false },
            stderr: Captured::default(),
            ran: None,
        }
    }

    #[test]
    fn each_rule_takes_what_it_is_for_and_refuses_the_neighbour() {
        let word = || "w7".to_owned();
        for (rule, good, bad) in [
            (Rule::Rewarded, finished("Clean(0)", Some(1.0), ""), finished("Clean(0)", None, "")),
            (Rule::ExitZero, finished("Clean(0)", None, ""), finished("Clean(1)", None, "")),
            (
                Rule::EndsWith(word()),
                finished("Clean(0)", None, "x\nw7\n"),
                finished("Clean(0)", None, "w7\nx"),
            ),
            (
                Rule::Says(word()),
                finished("Timeout", None, "w7 0\nw7 1\nx"),
                finished("Clean(0)", None, "w7 1\nw7 0"),
            ),
            (
                Rule::Prints("a\nb\n".into()),
                finished("Clean(0)", None, "a \nb"),
                finished("Clean(1)", None, "a\nb"),
            ),
        ] {
            assert!(rule.holds(&good), "{rule:?}");
            assert!(!rule.holds(&bad), "{rule:?}");
        }
    }

    #[test]
    fn only_an_in_process_judge_can_be_lost_and_a_refusal_is_no_loss() {
        let says = Rule::Says("w7".into());
        assert!(says.undecided(&finished("Clean(0)", None, "w8 1")));
        assert!(!says.undecided(&finished("Clean(0)", None, "w7 0")));
        assert!(!Rule::ExitZero.undecided(&finished("Timeout", None, "")));
    }

    #[test]
    fn every_way_judges_statements_and_each_input() {
        let both = program(
            r#"{"id": "x", "code": "c", "tests": ["t1", "t2"],
                "stdio": [{"stdin": "i", "stdout": "o"}, {"stdin": "j", "stdout": "p"}]}"#,
        );
        let of = |way| steps(way, &both, Duration::from_secs(2), "w7");
        assert_eq!(Way::ALL.map(|way| of(way).len()), [1, 1, 3, 3]);
        assert_eq!(of(Way::ExitCode)[0].body["code"], "c\nt1\nt2\n");
        assert_eq!(of(Way::Nonce)[0].body["code"], "c\nt1\nt2\nprint(\"w7\")\n");
        assert_eq!(of(Way::Nonce)[2].rule, Rule::Prints("p".into()));
        assert_eq!(of(Way::InProcess)[0].body["timeout_secs"], 7.0);
        assert_eq!(parts(&both), 3);
    }

    #[test]
    fn what_a_test_imports_by_name_is_the_program() {
        let importing = program(r#"{"id": "x", "code": "c", "tests": ["from solution import f"]}"#);
        assert!(one_file(&importing, "").contains("sys.modules['solution']"));
    }

    #[test]
    fn arguments_of_the_in_process_trainer_survive_quoting() {
        let odd = program(r#"{"id": "x", "code": "a = '\"\\n\u0000\u2028é'\n", "tests": ["t"]}"#);
        let text = in_process(&odd, 2.0, "w7");
        let call = text.lines().last().unwrap();
        let quoted = call.strip_prefix("main(*json.loads(").and_then(|rest| rest.strip_suffix("))")).unwrap();
        let inner: String = serde_json::from_str(quoted).unwrap();
        let arguments: Value = serde_json::from_str(&inner).unwrap();
        assert_eq!(arguments[0], json!(odd.code));
        assert_eq!(arguments[4], "w7");
    }
}
