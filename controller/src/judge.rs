//! From facts to a verdict. Pure: no clock, no I/O, every rule testable.
//!
//! A reward of 1 takes an authenticated report in which every test statement ran to its end and passed and the
//! program still answered afterwards. Nothing that the snippet's container says about itself is believed: not
//! its exit code, not its output.

use rlox_protocol::{Ending, Outcome};
use serde::{Deserialize, Serialize};

use crate::script::{Exits, Told};
use crate::tampering::{Kind, Tampering};

/// The contract's verdict words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Passed,
    Failed,
    Error,
    Timeout,
    OomKilled,
    Killed,
    OutputLimit,
    Completed,
}

impl Verdict {
    pub(crate) const ALL: [Self; 8] = [
        Self::Passed,
        Self::Failed,
        Self::Error,
        Self::Timeout,
        Self::OomKilled,
        Self::Killed,
        Self::OutputLimit,
        Self::Completed,
    ];

    /// The word on the wire.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::OomKilled => "oom_killed",
            Self::Killed => "killed",
            Self::OutputLimit => "output_limit",
            Self::Completed => "completed",
        }
    }
}

/// One test's result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct TestResult {
    pub(crate) index: usize,
    pub(crate) passed: bool,
    pub(crate) message: Option<String>,
}

/// The verdict with everything that it rests on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Judged {
    pub(crate) verdict: Verdict,
    pub(crate) reward: Option<f64>,
    pub(crate) exit_status: String,
    pub(crate) authenticated: bool,
    pub(crate) tests: Vec<TestResult>,
    pub(crate) tampering: Vec<Tampering>,
}

/// The grader's report on one program, already authenticated.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Report {
    /// The program was executed without an exception.
    pub(crate) loaded: bool,
    /// Every statement was run and the program answered afterwards.
    pub(crate) complete: bool,
    /// Why the conversation ended early.
    pub(crate) ended: Option<String>,
    /// One entry a statement.
    pub(crate) results: Vec<(bool, Option<String>)>,
    /// What the grader saw of attempts to cheat.
    pub(crate) tampering: Vec<(Kind, String)>,
}

/// One run of a program that is judged by its output.
#[derive(Debug)]
pub(crate) struct StdioRun<'a> {
    pub(crate) outcome: Outcome,
    pub(crate) expected: &'a str,
    /// The program came to its own end: it neither left early nor became another program.
    pub(crate) ended: bool,
}

/// Share of the wall clock that was lost to others from which on a timeout may be the load's doing.
const LOST_SHARE: f64 = 0.1;
/// The same by the host's own count, for programs that computed at all: of their tasks that have ended nobody knows
/// how long they waited.
const HOST_SHARE: f64 = 0.5;
const USED_SHARE: f64 = 0.05;
/// What is said of a test after the first failure, where the request wanted no more.
const NOT_RUN: &str = "not run: early stop";

/// Whether the load of the machine may have cost a program its time, which the wall clock then ended. A program that
/// used all its CPU time had it, whatever the load.
pub(crate) fn under_pressure(outcome: &Outcome) -> bool {
    let lost = outcome.load.cpu_wait_secs >= LOST_SHARE * outcome.wall_secs;
    let computed = outcome.cpu_secs >= USED_SHARE * outcome.wall_secs;
    outcome.ending == Ending::Deadline && (lost || computed && outcome.load.host_share >= HOST_SHARE)
}

impl Judged {
    /// Adds the entries of tests that were not run, up to `wanted` in all.
    pub(crate) fn leave_out_rest(&mut self, wanted: usize) {
        let left_out = |index| TestResult { index, passed: false, message: Some(NOT_RUN.to_owned()) };
        self.tests.extend((self.tests.len()..wanted).map(left_out));
    }
}

/// Runs that were all left out: another part of the job has decided.
pub(crate) fn not_run(wanted: usize) -> Judged {
    let mut judged = Judged {
        verdict: Verdict::Failed,
        reward: Some(0.0),
        exit_status: String::new(),
        authenticated: true,
        tests: Vec::new(),
        tampering: Vec::new(),
    };
    judged.leave_out_rest(wanted);
    judged
}

/// The tutorial's words for an ending.
pub(crate) fn exit_status(outcome: &Outcome) -> String {
    match outcome.ending {
        Ending::Deadline | Ending::CpuLimit => "Timeout".into(),
        Ending::Exited(0) => "Clean(0)".into(),
        Ending::Exited(_) | Ending::Signaled(_) if outcome.cgroup.oom_kill > 0 => "OomKilled".into(),
        Ending::Exited(code) => format!("Clean({code})"),
        Ending::Signaled(signal) => format!("Signaled({signal})"),
        Ending::OutputFlood | Ending::Cancelled => "Signaled(9)".into(),
    }
}

/// The verdict where the sandbox itself ended the program or the kernel acted; `None` where it did not.
fn from_outside(outcome: &Outcome) -> Option<Verdict> {
    match outcome.ending {
        Ending::OutputFlood => Some(Verdict::OutputLimit),
        Ending::Deadline | Ending::CpuLimit => Some(Verdict::Timeout),
        Ending::Exited(_) | Ending::Signaled(_) | Ending::Cancelled if outcome.cgroup.oom_kill > 0 => {
            Some(Verdict::OomKilled)
        }
        Ending::Signaled(_) => Some(Verdict::Killed),
        Ending::Exited(_) | Ending::Cancelled => None,
    }
}

/// A program judged by test statements.
pub(crate) fn tests(outcome: &Outcome, report: &Report, wanted: usize) -> Judged {
    let results: Vec<_> = report
        .results
        .iter()
        .enumerate()
        .map(|(index, (passed, message))| TestResult { index, passed: *passed, message: message.clone() })
        .collect();
    let all = results.len() == wanted && wanted > 0 && results.iter().all(|test| test.passed);
    let proven = report.loaded && report.complete && report.ended.is_none();
    // A program that the launcher or the kernel ended did not leave by itself.
    let left =
        matches!(outcome.ending, Ending::Exited(_) | Ending::Signaled(_)) && outcome.cgroup.oom_kill == 0;
    let seen = report.tampering.iter().filter(|(kind, _)| left || !kind.is_exit());
    let tampering = seen.map(|(kind, detail)| Tampering { kind: *kind, detail: detail.clone() });
    let verdict = if all && proven {
        Verdict::Passed
    } else if proven {
        // The statements ran to their end: what the container did afterwards is not the program's fault.
        match from_outside(outcome) {
            Some(Verdict::OomKilled) => Verdict::OomKilled,
            Some(_) | None => Verdict::Failed,
        }
    } else {
        from_outside(outcome).unwrap_or(Verdict::Error)
    };
    let exit_status = if verdict == Verdict::Passed && outcome.finished_early {
        "Clean(0)".into()
    } else {
        exit_status(outcome)
    };
    Judged {
        verdict,
        reward: Some(if verdict == Verdict::Passed { 1.0 } else { 0.0 }),
        exit_status,
        authenticated: true,
        tests: results,
        tampering: tampering.collect(),
    }
}

/// A program whose report is missing or does not authenticate: never a pass, and a verdict only where the sandbox
/// or the kernel ended the program.
pub(crate) fn without_report(outcome: &Outcome, wanted: usize, why: &str) -> Option<Judged> {
    let verdict = from_outside(outcome)?;
    let missing = |index| TestResult { index, passed: false, message: Some(why.to_owned()) };
    Some(Judged {
        verdict,
        reward: Some(0.0),
        exit_status: exit_status(outcome),
        authenticated: false,
        tests: (0..wanted).map(missing).collect(),
        tampering: vec![Tampering { kind: Kind::NoReport, detail: why.to_owned() }],
    })
}

/// A program judged by its output for given inputs.
pub(crate) fn stdio(runs: &[StdioRun<'_>]) -> Judged {
    let judged: Vec<(Verdict, TestResult)> =
        runs.iter().enumerate().map(|(i, run)| stdio_run(i, run)).collect();
    let verdict = judged.iter().map(|(verdict, _)| *verdict).find(|verdict| *verdict != Verdict::Passed);
    let verdict = verdict.unwrap_or(Verdict::Passed);
    let last = runs.last().map(|run| exit_status(&run.outcome)).unwrap_or_default();
    let early = runs.iter().filter(|run| run.outcome.ending == Ending::Exited(0) && !run.ended);
    let tampering = early.map(|_| Tampering {
        kind: Kind::ExitBeforeEnd,
        detail: "left with code 0 before its own end".to_owned(),
    });
    Judged {
        verdict,
        reward: Some(if verdict == Verdict::Passed { 1.0 } else { 0.0 }),
        exit_status: last,
        authenticated: true,
        tampering: tampering.take(1).collect(),
        tests: judged.into_iter().map(|(_, test)| test).collect(),
    }
}

fn stdio_run(index: usize, run: &StdioRun<'_>) -> (Verdict, TestResult) {
    let outcome = &run.outcome;
    let verdict = from_outside(outcome).unwrap_or(match outcome.ending {
        Ending::Exited(0) if !run.ended => Verdict::Error,
        Ending::Exited(0) if outcome.stdout.truncated() => Verdict::Failed,
        Ending::Exited(0) if same_output(&outcome.stdout.bytes, run.expected) => Verdict::Passed,
        Ending::Exited(0) => Verdict::Failed,
        Ending::Exited(_)
        | Ending::Signaled(_)
        | Ending::Deadline
        | Ending::CpuLimit
        | Ending::OutputFlood
        | Ending::Cancelled => Verdict::Error,
    });
    let message = if verdict == Verdict::Passed {
        None
    } else if outcome.ending == Ending::Exited(0) && verdict == Verdict::Error {
        Some("left before its own end (Clean(0))".to_owned())
    } else if verdict != Verdict::Failed {
        Some(format!("{} ({})", verdict.word(), exit_status(outcome)))
    } else if outcome.stdout.truncated() {
        Some("output is much longer than the expected one".to_owned())
    } else {
        Some("output differs".to_owned())
    };
    (verdict, TestResult { index, passed: verdict == Verdict::Passed, message })
}

/// A program that is only run.
pub(crate) fn run_only(outcome: &Outcome) -> Judged {
    let verdict = from_outside(outcome).unwrap_or(match outcome.ending {
        Ending::Exited(0) => Verdict::Completed,
        Ending::Exited(_)
        | Ending::Signaled(_)
        | Ending::Deadline
        | Ending::CpuLimit
        | Ending::OutputFlood
        | Ending::Cancelled => Verdict::Error,
    });
    Judged {
        verdict,
        reward: None,
        exit_status: exit_status(outcome),
        authenticated: true,
        tests: Vec::new(),
        tampering: Vec::new(),
    }
}

/// A program that is run for a client which judges its output itself: code 0 counts where it came to its own end.
pub(crate) fn script(outcome: &Outcome, told: Told, exits: Exits) -> Judged {
    let early = outcome.ending == Ending::Exited(0) && told != Told::End;
    let judged = run_only(outcome);
    let counts = !early || exits == Exits::Any;
    let verdict =
        if judged.verdict == Verdict::Completed && !counts { Verdict::Error } else { judged.verdict };
    let detail = match told {
        Told::Exit(line) => format!("left by SystemExit at line {line}, before its own end"),
        Told::End | Told::Nothing => "left with code 0 before its own end".to_owned(),
    };
    let tampering = early.then_some(Tampering { kind: Kind::ExitBeforeEnd, detail });
    Judged { verdict, tampering: tampering.into_iter().collect(), ..judged }
}

/// Statements and stdio runs of one job together: the first that is not a pass decides.
pub(crate) fn both(first: Judged, second: Judged) -> Judged {
    let offset = first.tests.len();
    let mut tests = first.tests;
    tests.extend(second.tests.into_iter().map(|test| TestResult { index: test.index + offset, ..test }));
    let decisive_first = first.verdict != Verdict::Passed;
    let (verdict, reward, exit_status) = if decisive_first {
        (first.verdict, first.reward, first.exit_status)
    } else {
        (second.verdict, second.reward, second.exit_status)
    };
    let tampering = first.tampering.into_iter().chain(second.tampering).collect();
    let authenticated = first.authenticated && second.authenticated;
    Judged { verdict, reward, exit_status, authenticated, tests, tampering }
}

/// Whether the output is the expected one, white space at the ends of lines and of the text left aside.
pub(crate) fn same_output(got: &[u8], expected: &str) -> bool {
    let Ok(got) = std::str::from_utf8(got) else { return false };
    let lines =
        |text: &str| text.trim_end().lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
    lines(got) == lines(expected)
}

#[cfg(test)]
mod tests_of_rules {
    use rlox_protocol::{CgroupCounters, Output};

    use super::*;

    fn outcome(ending: Ending, oom_kill: u64) -> Outcome {
        Outcome {
            id: "x".into(),
            ending,
            finished_early: false,
            stdout: Output::default(),
            stderr: Output::default(),
            pooled: false,
            warm: false,
            setup_secs: 0.0,
            wall_secs: 0.0,
            cpu_secs: 0.0,
            load: rlox_protocol::Load::default(),
            cgroup: CgroupCounters { oom_kill, ..CgroupCounters::default() },
            refused: rlox_protocol::RefusedCalls::default(),
            leftovers: 0,
        }
    }

    fn report(passed: &[bool]) -> Report {
        Report {
            loaded: true,
            complete: true,
            ended: None,
            results: passed.iter().map(|passed| (*passed, None)).collect(),
            tampering: Vec::new(),
        }
    }

    fn ran(outcome: Outcome, expected: &str) -> [StdioRun<'_>; 1] {
        [StdioRun { outcome, expected, ended: true }]
    }

    #[test]
    fn only_a_complete_report_with_every_test_passed_is_rewarded() {
        let clean = outcome(Ending::Exited(0), 0);
        assert_eq!(tests(&clean, &report(&[true, true]), 2).reward, Some(1.0));
        assert_eq!(tests(&clean, &report(&[true, false]), 2).verdict, Verdict::Failed);
        // Fewer results than tests, no tests at all, an early end, an unloaded program.
        assert_eq!(tests(&clean, &report(&[true]), 2).reward, Some(0.0));
        assert_eq!(tests(&clean, &report(&[]), 0).reward, Some(0.0));
        let early = Report { ended: Some("its process ended".into()), ..report(&[true, true]) };
        assert_eq!(tests(&clean, &early, 2).verdict, Verdict::Error);
        let unloaded = Report { loaded: false, ..report(&[true, true]) };
        assert_eq!(tests(&clean, &unloaded, 2).reward, Some(0.0));
        let incomplete = Report { complete: false, ..report(&[true, true]) };
        assert_eq!(tests(&clean, &incomplete, 2).reward, Some(0.0));
    }

    #[test]
    fn the_end_from_outside_names_the_verdict_of_an_unfinished_program() {
        let ended = Report { complete: false, ended: Some("its process ended".into()), ..report(&[false]) };
        for (ending, oom, verdict) in [
            (Ending::Deadline, 0, Verdict::Timeout),
            (Ending::CpuLimit, 0, Verdict::Timeout),
            (Ending::OutputFlood, 0, Verdict::OutputLimit),
            (Ending::Signaled(11), 0, Verdict::Killed),
            (Ending::Signaled(9), 1, Verdict::OomKilled),
            (Ending::Exited(0), 1, Verdict::OomKilled),
            (Ending::Exited(0), 0, Verdict::Error),
            (Ending::Exited(3), 0, Verdict::Error),
        ] {
            assert_eq!(tests(&outcome(ending, oom), &ended, 1).verdict, verdict, "{ending:?}");
        }
    }

    #[test]
    fn only_a_wall_clock_under_load_is_pressure() {
        let of = |ending, wait: f64, host: f64, cpu: f64| {
            let load = rlox_protocol::Load { cpu_wait_secs: wait, host_share: host };
            under_pressure(&Outcome { wall_secs: 10.0, cpu_secs: cpu, load, ..outcome(ending, 0) })
        };
        assert!(of(Ending::Deadline, 2.0, 0.0, 0.0), "it waited itself");
        assert!(of(Ending::Deadline, 0.0, 0.9, 1.0), "its children may have waited");
        assert!(!of(Ending::Deadline, 0.0, 0.9, 0.1), "a sleeper on a busy host");
        assert!(!of(Ending::Deadline, 0.1, 0.1, 8.0), "a quiet host");
        assert!(!of(Ending::CpuLimit, 5.0, 1.0, 5.0), "it had its CPU time");
        assert!(!of(Ending::Exited(1), 5.0, 1.0, 5.0));
    }

    #[test]
    fn tests_that_an_early_stop_left_out_are_there_and_are_no_pass() {
        let mut judged = stdio(&ran(outcome(Ending::Exited(1), 0), "3"));
        judged.leave_out_rest(3);
        let said: Vec<_> = judged.tests.iter().map(|test| (test.index, test.passed)).collect();
        assert_eq!(said, [(0, false), (1, false), (2, false)]);
        assert_eq!(judged.tests[2].message.as_deref(), Some(NOT_RUN));
        let first = tests(&outcome(Ending::Exited(0), 0), &report(&[true, false]), 2);
        let all = both(first, not_run(2));
        assert_eq!((all.verdict, all.reward, all.tests.len()), (Verdict::Failed, Some(0.0), 4));
        assert_eq!(all.exit_status, "Clean(0)");
    }

    #[test]
    fn without_a_report_nothing_is_rewarded_and_an_outside_end_decides() {
        let judged = without_report(&outcome(Ending::Deadline, 0), 2, "no report").unwrap();
        assert_eq!(
            (judged.verdict, judged.reward, judged.authenticated),
            (Verdict::Timeout, Some(0.0), false)
        );
        assert!(without_report(&outcome(Ending::Exited(0), 0), 2, "no report").is_none());
    }

    #[test]
    fn what_the_grader_saw_is_reported_but_no_exit_of_a_program_that_was_ended() {
        let seen = vec![
            (Kind::MalformedFrame, "protocol: unknown tag".to_owned()),
            (Kind::ExitInCall, "its process ended".to_owned()),
        ];
        let broken = Report {
            complete: false,
            ended: Some("its process ended".into()),
            tampering: seen,
            ..report(&[false])
        };
        let judged = tests(&outcome(Ending::Exited(0), 0), &broken, 1);
        assert_eq!((judged.reward, judged.tampering.len()), (Some(0.0), 2));
        let judged = tests(&outcome(Ending::Deadline, 0), &broken, 1);
        assert_eq!((judged.verdict, judged.tampering.len()), (Verdict::Timeout, 1));
        let judged = tests(&outcome(Ending::Signaled(9), 1), &broken, 1);
        assert_eq!((judged.verdict, judged.tampering.len()), (Verdict::OomKilled, 1));
    }

    #[test]
    fn right_output_of_a_program_that_left_before_its_end_is_an_error() {
        let mut good = outcome(Ending::Exited(0), 0);
        good.stdout = Output { bytes: b"3\n".to_vec(), total: 2, ..Output::default() };
        let judged = stdio(&[StdioRun { outcome: good.clone(), expected: "3", ended: false }]);
        assert_eq!((judged.verdict, judged.reward), (Verdict::Error, Some(0.0)));
        assert_eq!(judged.tampering.first().map(|each| each.kind), Some(Kind::ExitBeforeEnd));
        assert!(stdio(&ran(good, "3")).tampering.is_empty());
    }

    #[test]
    fn output_is_compared_without_trailing_space_and_never_when_cut() {
        let mut good = outcome(Ending::Exited(0), 0);
        good.stdout = Output { bytes: b"3 \n\n".to_vec(), total: 4, ..Output::default() };
        assert_eq!(stdio(&ran(good.clone(), "3\n")).verdict, Verdict::Passed);
        assert_eq!(stdio(&ran(good.clone(), "4\n")).verdict, Verdict::Failed);
        good.stdout.total = 5;
        assert_eq!(stdio(&ran(good, "3\n")).verdict, Verdict::Failed);
        let crashed = outcome(Ending::Exited(1), 0);
        assert_eq!(stdio(&ran(crashed, "")).verdict, Verdict::Error);
    }

    #[test]
    fn a_script_that_leaves_early_completes_only_where_every_exit_counts() {
        let clean = outcome(Ending::Exited(0), 0);
        for (told, exits, verdict, seen) in [
            (Told::End, Exits::Last, Verdict::Completed, 0),
            (Told::Exit(3), Exits::Last, Verdict::Error, 1),
            (Told::Nothing, Exits::Last, Verdict::Error, 1),
            (Told::Nothing, Exits::Anywhere, Verdict::Error, 1),
            (Told::Nothing, Exits::Any, Verdict::Completed, 1),
        ] {
            let judged = script(&clean, told, exits);
            assert_eq!(
                (judged.verdict, judged.tampering.len(), judged.reward),
                (verdict, seen, None),
                "{told:?}"
            );
        }
        for (ending, oom, verdict) in [
            (Ending::Exited(3), 0, Verdict::Error),
            (Ending::Exited(0), 1, Verdict::OomKilled),
            (Ending::Signaled(11), 0, Verdict::Killed),
            (Ending::CpuLimit, 0, Verdict::Timeout),
            (Ending::OutputFlood, 0, Verdict::OutputLimit),
        ] {
            assert_eq!(script(&outcome(ending, oom), Told::End, Exits::Any).verdict, verdict, "{ending:?}");
        }
    }

    #[test]
    fn a_program_that_is_only_run_has_no_reward() {
        assert_eq!(run_only(&outcome(Ending::Exited(0), 0)).verdict, Verdict::Completed);
        assert_eq!(run_only(&outcome(Ending::Exited(0), 0)).reward, None);
        assert_eq!(run_only(&outcome(Ending::Exited(2), 0)).verdict, Verdict::Error);
    }
}
