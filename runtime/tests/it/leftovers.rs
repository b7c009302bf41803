//! Nothing is left: no mount, no cgroup, no run directory, no process, however the container ended.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::host::{processes, traces, wait_until};
use crate::support::{RUNTIME, bundle, end_within, python, ready};

const SOON: Duration = Duration::from_secs(20);

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap())
}

#[track_caller]
fn nothing_left(pid: u32) {
    assert_eq!(traces(pid), Vec::<String>::new(), "left by process {pid}");
}

/// Starts a program that never ends by itself and waits until it runs.
fn sleeper() -> Child {
    use std::io::Read;
    let program = "import os, signal, time\n\
        for number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)\n\
        if os.fork() == 0: os.setsid()\n\
        print('up', flush=True)\n\
        while True: time.sleep(60)";
    let mut child = python(program).spawn().unwrap();
    let mut word = [0u8; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut word).unwrap();
    assert_eq!(&word, b"up\nup\n");
    child
}

#[test]
fn after_any_end_of_the_program() {
    if !ready() {
        return;
    }
    for program in [
        "pass",
        "raise SystemExit(9)",
        "import ctypes; ctypes.string_at(0)",
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(60)\n    os._exit(0)",
        "held = []\nwhile True: held.append(b'x' * (16 << 20))",
    ] {
        let mut child = python(program).spawn().unwrap();
        end_within(&mut child, SOON);
        nothing_left(child.id());
    }
}

#[test]
fn while_it_runs_the_traces_are_there() {
    if !ready() {
        return;
    }
    // The other tests would pass with a search that finds nothing.
    let mut child = sleeper();
    let found = traces(child.id());
    for kind in ["cgroup ", "directory ", "process "] {
        assert!(found.iter().any(|trace| trace.starts_with(kind)), "no {kind}in {found:?}");
    }
    // What the runtime mounts is in a namespace of its own.
    assert!(!found.iter().any(|trace| trace.starts_with("mount ")), "{found:?}");
    kill(pid_of(&child), Signal::SIGTERM).unwrap();
    end_within(&mut child, SOON);
    nothing_left(child.id());
}

#[test]
fn after_ctrl_c() {
    if !ready() {
        return;
    }
    let mut child = sleeper();
    kill(pid_of(&child), Signal::SIGINT).unwrap();
    assert_eq!(end_within(&mut child, SOON), Some(130));
    nothing_left(child.id());
}

#[test]
fn after_a_request_to_terminate() {
    if !ready() {
        return;
    }
    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        let mut child = sleeper();
        kill(pid_of(&child), signal).unwrap();
        assert_eq!(end_within(&mut child, SOON), Some(128 + signal as i32), "{signal}");
        nothing_left(child.id());
    }
}

#[test]
fn after_ctrl_c_while_the_container_is_made() {
    if !ready() {
        return;
    }
    for _ in 0..5 {
        let mut child = python("import time; time.sleep(60)").spawn().unwrap();
        let (pid, token) = (child.id(), format!("rlox-{}.", child.id()));
        // The first sign of the container; its program does not run yet.
        wait_until("a container in the making", SOON, || !processes(&token).is_empty());
        kill(pid_of(&child), Signal::SIGINT).unwrap();
        let ended = end_within(&mut child, SOON);
        let left = traces(pid);
        for process in processes(&token) {
            kill(Pid::from_raw(process), Signal::SIGKILL).unwrap();
        }
        assert!(left.is_empty(), "the runtime ended with {ended:?} and left {left:?}");
    }
}

#[test]
fn after_a_deadline() {
    if !ready() {
        return;
    }
    let mut command = Command::new(RUNTIME);
    command.args(["run", "--timeout-secs", "0.3"]).arg(bundle()).args([
        "--",
        "/bin/sh",
        "-c",
        "sleep 60 & sleep 60",
    ]);
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    assert_eq!(end_within(&mut child, SOON), Some(137));
    nothing_left(child.id());
}

#[test]
fn after_a_refused_start() {
    let mut child =
        Command::new(RUNTIME).args(["run", "/nonexistent"]).stderr(Stdio::null()).spawn().unwrap();
    assert_eq!(end_within(&mut child, SOON), Some(65));
    nothing_left(child.id());
}
