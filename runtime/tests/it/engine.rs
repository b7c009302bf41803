//! What the tests of every engine share: a daemon of the test's own, names that no other test has, output.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::oci::support::{cgroups_named, texts};

/// Whether every one of these programs is on this host.
pub(crate) fn installed(tools: &[&str]) -> bool {
    tools.iter().all(|tool| {
        Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    })
}

/// A name for the cgroups of the engine whose files are in `directory`.
pub(crate) fn parent(directory: &TempDir) -> String {
    let name = directory.path().file_name().unwrap().to_string_lossy().replace('.', "-");
    format!("rlox-{}-{name}", std::process::id())
}

/// What a command answers, by way of files in `directory`: what outlives the command keeps a pipe open.
pub(crate) fn captured(command: &mut Command, directory: &Path) -> Output {
    let (out, err) = (directory.join("out"), directory.join("err"));
    let status = command
        .stdin(Stdio::null())
        .stdout(fs::File::create(&out).unwrap())
        .stderr(fs::File::create(&err).unwrap())
        .status()
        .unwrap();
    Output { status, stdout: fs::read(out).unwrap(), stderr: fs::read(err).unwrap() }
}

/// The standard output of a command that has to succeed.
#[track_caller]
pub(crate) fn succeeded(tool: &str, args: &[&str], output: &Output) -> String {
    let (out, err) = texts(output);
    assert_eq!(output.status.code(), Some(0), "{tool} {args:?}: {out}{err}");
    out
}

/// The daemon of an engine, in the foreground, with its log in a file.
pub(crate) struct Daemon(Child);

impl Daemon {
    pub(crate) fn start(command: &mut Command, directory: &Path) -> Self {
        let log = fs::File::create(directory.join("log")).unwrap();
        let command = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        Self(command.spawn().unwrap())
    }

    /// Ends the daemon, and removes the cgroups that it leaves.
    pub(crate) fn stop(&mut self, parent: &str) {
        kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), Signal::SIGTERM).unwrap();
        self.0.wait().unwrap();
        for directory in cgroups_named(parent) {
            fs::remove_dir(directory).ok();
        }
    }
}
