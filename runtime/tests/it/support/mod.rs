//! Starting the runtime from a test, and reading what its program printed.

pub(crate) mod host;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

pub(crate) const RUNTIME: &str = env!("CARGO_BIN_EXE_rlox-runtime");
/// Longest that any container of a test lives.
const LIFETIME_SECS: u32 = 60;

pub(crate) fn bundle() -> PathBuf {
    host::checkout().join("bundles/snippet")
}

/// Whether this host can contain a program; call it first in every test that needs a container.
pub(crate) fn ready() -> bool {
    host::containers_work(Path::new(RUNTIME))
}

/// `rlox-runtime run BUNDLE [options] -- args`, not started yet.
pub(crate) fn run(options: &[&str], args: &[&str]) -> Command {
    let mut command = Command::new(RUNTIME);
    let lifetime = (LIFETIME_SECS * host::patience()).to_string();
    command.args(["run", "--timeout-secs", &lifetime]).args(options).arg(bundle());
    if !args.is_empty() {
        command.arg("--").args(args);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).env_remove("RLOX_LOG");
    command
}

/// A Python program in a container.
pub(crate) fn python(code: &str) -> Command {
    run(&[], &["/usr/bin/python3", "-I", "-S", "-c", code])
}

/// Runs a Python program that has to end with 0; returns what it printed.
#[track_caller]
pub(crate) fn printed(code: &str) -> String {
    let output = python(code).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "stdout: {text}\nstderr: {}", stderr(&output));
    text.trim_end().to_owned()
}

/// Runs a Python program that prints one JSON value.
#[track_caller]
pub(crate) fn json(code: &str) -> serde_json::Value {
    let text = printed(code);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Whether this is an ordinary user, with one user namespace and a delegated cgroup to offer.
pub(crate) fn rootless() -> bool {
    !nix::unistd::geteuid().is_root()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The exit code of a command whose output nobody reads.
#[track_caller]
pub(crate) fn code(command: &mut Command) -> i32 {
    let output = command.output().unwrap();
    output.status.code().unwrap_or_else(|| panic!("the runtime itself was killed: {}", stderr(&output)))
}

/// Waits for a started runtime, at most so long.
#[track_caller]
pub(crate) fn end_within(child: &mut Child, limit: Duration) -> Option<i32> {
    let mut status = None;
    host::wait_until("the runtime's end", limit, || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.and_then(|status| status.code())
}

/// A container's Python that has a call table of libc and names for what it is not meant to do.
pub(crate) const LIBC: &str = "import ctypes, errno, json, os\n\
    libc = ctypes.CDLL(None, use_errno=True)\n\
    def refused(call, *args):\n\
    \x20   ctypes.set_errno(0)\n\
    \x20   result = call(*args)\n\
    \x20   return errno.errorcode.get(ctypes.get_errno(), 'none') if result == -1 else 'allowed'\n";
