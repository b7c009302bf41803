//! The command line: exit codes, what is printed, and that each command ends clean.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::{
    CONTROLLER, SOON, VERIFY_SERVER, controller, host, nothing_left, output_within, program, ready, stderr,
    stdout,
};

/// Runs `rlox-controller` to its end and checks that nothing is left; returns code, output and messages.
#[track_caller]
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let scratch = tempfile::tempdir().unwrap();
    let (pid, output) = output_within(&mut controller(scratch.path(), arguments), SOON);
    nothing_left(pid, scratch.path());
    (output.status.code(), stdout(&output), stderr(&output))
}

#[test]
fn every_command_explains_itself() {
    for (path, arguments) in [
        (CONTROLLER, &[][..]),
        (CONTROLLER, &["serve"]),
        (CONTROLLER, &["verify"]),
        (CONTROLLER, &["doctor"]),
        (CONTROLLER, &["corpus"]),
        (CONTROLLER, &["corpus", "check"]),
        (CONTROLLER, &["bench"]),
        (CONTROLLER, &["bench", "integrity"]),
        (CONTROLLER, &["bench", "cost"]),
        (CONTROLLER, &["sweep"]),
        (CONTROLLER, &["sweep", "plan"]),
        (CONTROLLER, &["sweep", "run"]),
        (CONTROLLER, &["sweep", "resume"]),
        (CONTROLLER, &["sweep", "status"]),
        (CONTROLLER, &["sweep", "cancel"]),
        (CONTROLLER, &["sweep", "aggregate"]),
        (CONTROLLER, &["sweep", "plot"]),
        (VERIFY_SERVER, &[]),
    ] {
        let scratch = tempfile::tempdir().unwrap();
        let output = program(path, scratch.path()).args(arguments).arg("--help").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(
            stdout(&output).contains("Usage:") && output.stderr.is_empty(),
            "{arguments:?}: {}",
            stdout(&output)
        );
    }
}

#[test]
fn versions_and_usage_errors() {
    let scratch = tempfile::tempdir().unwrap();
    for path in [CONTROLLER, VERIFY_SERVER] {
        let output = program(path, scratch.path()).arg("--version").output().unwrap();
        assert!(stdout(&output).trim_end().ends_with(env!("CARGO_PKG_VERSION")), "{}", stdout(&output));
        let output = program(path, scratch.path()).arg("--no-such-flag").output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    }
}

#[test]
fn the_committed_corpus_is_the_pinned_one() {
    let (code, out, err) = run(&["corpus", "check"]);
    assert_eq!(code, Some(0), "{err}");
    let sums = std::fs::read_to_string(host::checkout().join("corpus/SHA256SUMS")).unwrap();
    assert!(sums.lines().all(|line| out.contains(line)) && out.contains("verified"), "{out}");
}

#[test]
fn a_changed_corpus_is_named_with_both_digests() {
    let directory = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(host::checkout().join("corpus")).unwrap().flatten() {
        std::fs::copy(entry.path(), directory.path().join(entry.file_name())).unwrap();
    }
    let dir = directory.path().to_str().unwrap();
    assert_eq!(run(&["corpus", "check", "--dir", dir]).0, Some(0));
    let path = directory.path().join("honest_v1.json");
    std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"\n").unwrap();
    let (code, _, err) = run(&["corpus", "check", "--dir", dir]);
    assert_eq!(code, Some(1));
    let digests = err.split(|each: char| !each.is_ascii_hexdigit()).filter(|word| word.len() == 64).count();
    assert!(digests == 2 && err.contains("honest_v1.json"), "{err}");
    assert_eq!(run(&["corpus", "check", "--dir", "/nonexistent"]).0, Some(1));
}

/// A file, its verdict, and nothing left.
#[track_caller]
fn verify(code: &str, arguments: &[&str]) -> (Option<i32>, Value) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), code).unwrap();
    let (status, out, err) =
        run(&[&["verify", file.path().to_str().unwrap(), "--workers", "1"], arguments].concat());
    (status, serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}\n{err}")))
}

#[test]
fn a_file_is_verified_and_the_exit_code_says_whether_it_is_good() {
    if !ready() {
        return;
    }
    let add = "def add(a, b):\n    return a + b\n";
    let (code, got) = verify(add, &["--test", "assert add(1, 2) == 3", "--test", "assert add(0, 0) == 0"]);
    assert_eq!((code, &got["verdict"], &got["reward"]), (Some(0), &json!("passed"), &json!(1.0)), "{got}");
    let (code, got) = verify(add, &["--test", "assert add(1, 2) == 4"]);
    assert_eq!((code, &got["verdict"], &got["reward"]), (Some(1), &json!("failed"), &json!(0.0)), "{got}");
    let (code, got) = verify("print('hello')", &[]);
    assert_eq!(
        (code, &got["verdict"], &got["stdout"]),
        (Some(0), &json!("completed"), &json!("hello\n")),
        "{got}"
    );
    let (code, got) = verify("raise SystemExit(3)", &[]);
    assert_eq!(
        (code, &got["verdict"], &got["exit_status"]),
        (Some(1), &json!("error"), &json!("Clean(3)")),
        "{got}"
    );
    let (code, got) = verify("while True: pass", &["--timeout-secs", "0.5"]);
    assert_eq!((code, &got["verdict"]), (Some(1), &json!("timeout")), "{got}");
}

#[test]
fn tests_may_come_from_a_file_and_the_program_from_standard_input() {
    if !ready() {
        return;
    }
    let tests = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(tests.path(), "def check(candidate):\n    assert candidate(2) == 4\ncheck(double)\n")
        .unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let mut command = controller(
        scratch.path(),
        &["verify", "-", "--workers", "1", "--tests-file", tests.path().to_str().unwrap()],
    );
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"def double(x):\n    return 2 * x\n").unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    nothing_left(pid, scratch.path());
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let (code, _, err) = run(&["verify", "/nonexistent/program.py"]);
    assert_eq!(code, Some(1));
    assert!(err.contains("/nonexistent/program.py"), "{err}");
}

#[test]
fn a_checkout_without_bundles_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = controller(scratch.path(), &["serve", "--port", "0", "--workers", "1"]);
        let (_, output) = output_within(command.env("RLOX_HOME", directory.path()), SOON);
        assert_eq!(output.status.code(), Some(1));
        stderr(&output)
    };
    let text = start();
    assert!(text.contains("RLOX_HOME"), "{text}");
    for name in ["snippet", "grader"] {
        let bundle = directory.path().join("bundles").join(name);
        std::fs::create_dir_all(&bundle).unwrap();
        std::fs::copy(
            host::checkout().join("bundles").join(name).join("config.json"),
            bundle.join("config.json"),
        )
        .unwrap();
    }
    let text = start();
    assert!(text.contains("bundle prepare"), "{text}");
}
