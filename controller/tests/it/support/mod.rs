//! Binaries under test, and what a service left.

pub(crate) mod disk;
#[path = "../../../../runtime/tests/it/support/host.rs"]
pub(crate) mod host;
pub(crate) mod http;
pub(crate) mod service;
pub(crate) mod tiny;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub(crate) use service::Service;

pub(crate) const CONTROLLER: &str = env!("CARGO_BIN_EXE_rlox-controller");
pub(crate) const VERIFY_SERVER: &str = env!("CARGO_BIN_EXE_rlox-verify-server");
/// Generous: the machine may be busy with other tests.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// `rlox-runtime`, which cargo builds beside the controller where it builds the workspace.
pub(crate) fn runtime() -> PathBuf {
    let path = std::env::var_os("RLOX_RUNTIME")
        .map_or_else(|| Path::new(CONTROLLER).with_file_name("rlox-runtime"), PathBuf::from);
    assert!(path.is_file(), "{} is missing; build the workspace: cargo build --release", path.display());
    path
}

/// Whether this host can contain a program; call it first in every test that starts a service.
#[track_caller]
pub(crate) fn ready() -> bool {
    host::containers_work(&runtime())
}

/// A program of this crate in this checkout, its temporary files in `scratch`.
pub(crate) fn program(path: &str, scratch: &Path) -> Command {
    let mut command = Command::new(path);
    command
        .env("RLOX_HOME", host::checkout())
        .env("RLOX_RUNTIME", runtime())
        .env("TMPDIR", scratch)
        // Made only by a service that is asked for a sweep.
        .env("RLOX_STATE_DIR", scratch.join("state"))
        .env("NO_COLOR", "1")
        .env_remove("RLOX_LOG")
        .stdin(Stdio::null());
    command
}

pub(crate) fn controller(scratch: &Path, arguments: &[&str]) -> Command {
    let mut command = program(CONTROLLER, scratch);
    command.args(arguments);
    command
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a command to its end; one that does not end in time is asked to stop, and fails the test.
#[track_caller]
pub(crate) fn output_within(command: &mut Command, limit: Duration) -> (u32, Output) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let end = Instant::now() + limit;
    let mut late = false;
    // Output is a few lines and fits into the pipes.
    while child.try_wait().unwrap().is_none() {
        if Instant::now() >= end {
            late = true;
            kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGTERM).unwrap();
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    assert!(!late, "{command:?} still ran after {limit:?}: {}", stderr(&output));
    (pid, output)
}

/// Fails where a process of ours that ended left anything behind. At once: a service that another test starts
/// cleans up after dead ones.
#[track_caller]
pub(crate) fn nothing_left(pid: u32, scratch: &Path) {
    assert_eq!(host::traces(pid), Vec::<String>::new(), "left by process {pid}");
    let files: Vec<_> = std::fs::read_dir(scratch).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(files.is_empty(), "temporary files: {files:?}");
}
