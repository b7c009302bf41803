//! The files of `dist/`: each is what its program accepts, and holds what it is there for.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::host::checkout;
use crate::support::stderr;

fn dist(name: &str) -> PathBuf {
    checkout().join("dist").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(dist(name)).unwrap()
}

/// These files serve hosts that have the program; one that lacks it loses nothing, but shall say so.
fn unchecked(program: &str) {
    let line = format!("not checked on this host, which has no {program}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// The lines that are no comments.
fn settings(name: &str) -> Vec<String> {
    text(name).lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn the_user_unit_delegates_and_limits() {
    let lines = settings("systemd/rlox-verify.service");
    let has = |start: &str| lines.iter().any(|line| line.starts_with(start));
    assert!(has("Delegate=yes") && has("TasksMax=") && has("MemoryMax=") && has("OOMPolicy=continue"));
    assert!(settings("systemd/user-delegate.conf").contains(&"Delegate=cpu memory pids".to_owned()));
}

#[test]
fn systemd_takes_the_unit_and_notices_a_wrong_one() {
    let scratch = tempfile::tempdir().unwrap();
    let verify = |path: &Path| -> Option<Output> {
        let mut command = Command::new("systemd-analyze");
        command.args(["verify", "--user"]).arg(path).env("XDG_RUNTIME_DIR", scratch.path());
        command.output().ok()
    };
    let Some(output) = verify(&dist("systemd/rlox-verify.service")) else {
        return unchecked("systemd-analyze");
    };
    assert!(output.status.success() && output.stderr.is_empty(), "{}", stderr(&output));
    let wrong = scratch.path().join("wrong.service");
    let text = text("systemd/rlox-verify.service").replace("TasksMax=16384", "TasksMax=lots");
    std::fs::write(&wrong, text).unwrap();
    let output = verify(&wrong).unwrap();
    assert!(stderr(&output).contains("lots"), "{}", stderr(&output));
}

#[test]
fn podman_takes_the_drop_in() {
    let script = "import json, sys, tomllib; print(json.dumps(tomllib.load(open(sys.argv[1], 'rb'))))";
    let output =
        Command::new("python3").args(["-c", script]).arg(dist("containers/rlox.conf")).output().unwrap();
    let read: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(read["engine"]["runtimes"]["rlox-runtime"][0], "/usr/local/bin/rlox-runtime", "{read}");
    let supports = read["engine"]["runtime_supports_json"].as_array().unwrap();
    assert!(supports.iter().any(|name| name == "rlox-runtime") && supports.len() > 5, "{read}");
}

/// A parser of version 4 or newer, which knows `userns`, and the flags with which it looks only.
fn apparmor_parser() -> Option<(String, String)> {
    let parser = std::env::var("RLOX_APPARMOR_PARSER").unwrap_or_else(|_| "apparmor_parser".into());
    let base = std::env::var("RLOX_APPARMOR_BASE").unwrap_or_else(|_| "/etc/apparmor.d".into());
    let output = Command::new(&parser).arg("--version").output().ok()?;
    let version = String::from_utf8_lossy(&output.stdout).into_owned();
    let major: u32 = version.split("version ").nth(1)?.split('.').next()?.parse().ok()?;
    (major >= 4).then(|| (parser, format!("--skip-kernel-load --skip-cache --skip-read-cache --base {base}")))
}

#[test]
fn apparmor_takes_the_profile_as_installed_and_refuses_a_wrong_rule() {
    let lines = settings("apparmor/rlox-runtime");
    assert!(lines.iter().any(|line| line.contains("flags=(unconfined)")));
    assert!(lines.iter().any(|line| line.trim() == "userns,"));
    let Some((parser, flags)) = apparmor_parser() else { return unchecked("apparmor_parser 4 or newer") };
    let scratch = tempfile::tempdir().unwrap();
    let install = |script: &Path| {
        let mut command = Command::new("bash");
        command.arg(script).env("APPARMOR_DIR", scratch.path());
        command.env("APPARMOR_PARSER", &parser).env("APPARMOR_FLAGS", &flags).output().unwrap()
    };
    let output = install(&dist("apparmor/install.sh"));
    assert!(output.status.success(), "{}", stderr(&output));
    let installed = std::fs::read_to_string(scratch.path().join("rlox-runtime")).unwrap();
    assert!(installed.contains("userns,") && installed.contains(" /usr/local/bin"), "{installed}");
    // A copy with a rule that there is not: refused, and nothing takes the place of what was installed.
    let copy = scratch.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    std::fs::copy(dist("apparmor/install.sh"), copy.join("install.sh")).unwrap();
    std::fs::write(copy.join("rlox-runtime"), text("apparmor/rlox-runtime").replace("userns,", "nonsense,"))
        .unwrap();
    assert!(!install(&copy.join("install.sh")).status.success());
    assert_eq!(std::fs::read_to_string(scratch.path().join("rlox-runtime")).unwrap(), installed);
}
