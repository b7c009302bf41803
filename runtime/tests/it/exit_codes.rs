//! Exit codes: the program's own by the rule of the shells, and the runtime's own for its own failures.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::host::patience;
use crate::support::{RUNTIME, bundle, code, printed, python, ready, run, stderr};

#[test]
fn a_program_keeps_its_own_code() {
    if !ready() {
        return;
    }
    for wanted in [0, 1, 7, 64, 70, 255] {
        assert_eq!(code(&mut python(&format!("raise SystemExit({wanted})"))), wanted);
    }
    assert_eq!(code(&mut python("raise ValueError('on purpose')")), 1);
}

#[test]
fn a_signal_that_ends_a_child_reaches_the_shell_as_128_and_the_number() {
    if !ready() {
        return;
    }
    for (signal, wanted) in [("KILL", 137), ("TERM", 143), ("SEGV", 139), ("USR1", 138)] {
        let script = format!("/bin/sh -c 'kill -{signal} $$'; exit $?");
        assert_eq!(code(&mut run(&[], &["/bin/sh", "-c", &script])), wanted, "{signal}");
    }
}

#[test]
fn a_signal_that_ends_the_program_itself_is_128_and_the_number() {
    if !ready() {
        return;
    }
    // A fault that the kernel raises ends even process 1.
    assert_eq!(code(&mut python("import ctypes; ctypes.string_at(0)")), 128 + 11);
}

#[test]
fn process_1_cannot_kill_itself_and_says_so_by_going_on() {
    if !ready() {
        return;
    }
    assert_eq!(code(&mut python("import os; os.kill(os.getpid(), 9); raise SystemExit(5)")), 5);
    assert_eq!(code(&mut run(&[], &["/bin/sh", "-c", "kill -KILL $$; exit 6"])), 6);
}

#[test]
fn the_standard_streams_are_the_callers() {
    if !ready() {
        return;
    }
    let mut child = run(&[], &[]).stdin(Stdio::piped()).spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"import sys\nprint(6 * 7)\nprint('down', file=sys.stderr)\n")
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "42\n");
    assert_eq!((stderr(&output).as_str(), output.status.code()), ("down\n", Some(0)));
}

#[test]
fn the_oci_form_runs_under_the_callers_id() {
    if !ready() {
        return;
    }
    let id = format!("it-{}", std::process::id());
    let mut command = Command::new(RUNTIME);
    command.args(["run", "--bundle"]).arg(bundle()).args([&id, "--", "/bin/sh", "-c", "exit 3"]);
    assert_eq!(code(&mut command), 3);
}

#[test]
fn a_deadline_kills_a_loop_and_nothing_else() {
    if !ready() {
        return;
    }
    let begun = Instant::now();
    let mut command = Command::new(RUNTIME);
    command.args(["run", "--timeout-secs", "0.5"]).arg(bundle()).args([
        "--",
        "/usr/bin/python3",
        "-I",
        "-S",
        "-c",
    ]);
    let output = command.arg("while True: pass").output().unwrap();
    assert_eq!(output.status.code(), Some(137));
    assert!(stderr(&output).contains("deadline"), "{}", stderr(&output));
    let took = begun.elapsed();
    assert!((Duration::from_millis(500)..Duration::from_secs(20) * patience()).contains(&took), "{took:?}");
    assert_eq!(printed("print('in time')"), "in time");
}

#[test]
fn a_bundle_that_cannot_be_used_is_65() {
    let directory = tempfile::tempdir().unwrap();
    let run = |path: &std::path::Path| {
        let output = Command::new(RUNTIME).arg("run").arg(path).args(["--", "/bin/true"]).output().unwrap();
        (output.status.code(), stderr(&output))
    };
    let (code, text) = run(&directory.path().join("absent"));
    assert_eq!(code, Some(65), "{text}");
    assert!(text.contains("absent"), "{text}");
    let (code, text) = run(directory.path());
    assert_eq!(code, Some(65), "{text}");
    assert!(text.contains("config.json"), "{text}");
    std::fs::write(directory.path().join("config.json"), "{").unwrap();
    assert_eq!(run(directory.path()).0, Some(65));
    // Complete, but without a root file system: the message says what to do.
    std::fs::copy(bundle().join("config.json"), directory.path().join("config.json")).unwrap();
    let (code, text) = run(directory.path());
    assert_eq!(code, Some(65), "{text}");
    assert!(text.contains("rlox-runtime bundle prepare"), "{text}");
}

#[test]
fn an_id_that_could_leave_its_directory_is_64() {
    for id in ["../x", "a/b", ".", "a b"] {
        let mut command = Command::new(RUNTIME);
        command.args(["run", "--bundle"]).arg(bundle()).args([id, "--", "/bin/true"]);
        assert_eq!(code(&mut command), 64, "{id:?}");
    }
}

/// The help promises it: 64 usage.
#[test]
fn a_command_line_that_makes_no_sense_is_64() {
    for arguments in
        [&["run"][..], &["run", "--timeout-secs", "0", "x"], &["run", "--no-such-flag"], &["no-such"]]
    {
        let output = Command::new(RUNTIME).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn help_and_version_are_no_failures() {
    for arguments in [&["--help"][..], &["--version"], &["run", "--help"], &["bundle", "prepare", "--help"]] {
        let output = Command::new(RUNTIME).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{arguments:?}");
    }
}

/// By the rule of the shells: 127 for a program that is not there.
#[test]
fn a_program_that_is_not_there_is_127() {
    if !ready() {
        return;
    }
    let output = run(&[], &["/usr/bin/no-such-program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127), "{}", stderr(&output));
}

#[test]
fn output_to_dev_null_is_no_error() {
    if !ready() {
        return;
    }
    let mut command = python("import sys\nprint('x', flush=True)\nprint('y', file=sys.stderr, flush=True)");
    assert_eq!(command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().code(), Some(0));
}
