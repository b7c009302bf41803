//! What tests of both crates need from the host: the checkout, prepared bundles, skips that are heard, waiting
//! for conditions, and the traces that a process of ours left.

use std::fs::{self, File};
use std::io::Write;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

/// The root of the checkout that these tests were built from.
pub(crate) fn checkout() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap()
}

/// Says aloud that a test is skipped; fails it where skips are forbidden. Returns whether to go on.
#[track_caller]
pub(crate) fn need(present: bool, capability: &str) -> bool {
    if present {
        return true;
    }
    let thread = std::thread::current();
    let test = match thread.name() {
        Some(name) if name != "main" => name.to_owned(),
        Some(_) | None => Location::caller().to_string(),
    };
    let line = format!("SKIPPED {test}: needs {capability}\n");
    // Not eprintln: the test harness would swallow it.
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    assert!(std::env::var_os("RLOX_FORBID_SKIPS").is_none_or(|value| value != "1"), "{line}");
    false
}

/// By how much this host is slower than the tests expect: the emulated one is, the more so on a busy machine.
pub(crate) fn patience() -> u32 {
    std::env::var("RLOX_TESTS_PATIENCE").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Polls a condition; fails the test where it does not come true in time.
#[track_caller]
pub(crate) fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let limit = limit * patience();
    let end = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < end, "waited {limit:?} in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Prepares the bundles once for all test processes; what is up to date stays as it is.
fn prepare_bundles(runtime: &Path) {
    // In the virtual machine they come prepared, and there is nothing to prepare them from.
    if std::env::var_os("RLOX_TESTS_PREPARED").is_some() {
        return;
    }
    let lock = File::create(std::env::temp_dir().join("rlox-tests-prepare.lock")).unwrap();
    let lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, errno)| errno).unwrap();
    let bundles = checkout().join("bundles");
    let prepare = |names: &[&str], python: Option<&Path>| {
        let mut command = Command::new(runtime);
        command.args(["bundle", "prepare"]).args(names.iter().map(|name| bundles.join(name)));
        if let Some(python) = python {
            command.arg("--python").arg(python);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "bundle prepare: {}", String::from_utf8_lossy(&output.stderr));
    };
    prepare(&["snippet", "grader"], None);
    // The trainer's container has to hold the interpreter that its environment was made with.
    if let Ok(python) = fs::canonicalize(checkout().join("harness/.venv/bin/python")) {
        prepare(&["trainer"], Some(&python));
    }
    drop(lock);
}

/// Whether this host can contain a program at all; skips aloud where the runtime says that it cannot.
#[track_caller]
pub(crate) fn containers_work(runtime: &Path) -> bool {
    static PROBE: OnceLock<Result<(), String>> = OnceLock::new();
    let probe = PROBE.get_or_init(|| {
        prepare_bundles(runtime);
        let output = Command::new(runtime)
            .arg("run")
            .arg(checkout().join("bundles/snippet"))
            .args(["--", "/usr/bin/true"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        match output.status.code() {
            Some(0) => Ok(()),
            // The runtime's own word for a host that lacks a layer.
            Some(69) => Err(text),
            other => panic!("the runtime cannot run /usr/bin/true: {other:?}: {text}"),
        }
    });
    match probe {
        Ok(()) => true,
        Err(reason) => need(false, &format!("a host that can contain programs ({reason})")),
    }
}

/// Everything on this host that carries a process's name `rlox-PID.START`: cgroups, run directories, mounts and
/// the processes in them. Other tests and other services do not disturb this.
pub(crate) fn traces(pid: u32) -> Vec<String> {
    let token = format!("rlox-{pid}.");
    let mut found = Vec::new();
    cgroups(Path::new("/sys/fs/cgroup"), &token, 0, &mut found);
    for parent in run_parents() {
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        found.extend(
            entries
                .filter(|entry| named(&entry.file_name(), &token))
                .map(|entry| format!("directory {}", entry.path().display())),
        );
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    found.extend(mounts.lines().filter(|line| line.contains(&token)).map(|line| format!("mount {line}")));
    found.extend(processes(&token).into_iter().map(|pid| format!("process {pid}")));
    found
}

/// Processes that are in a cgroup with this in its name, or that were started with it on their command line.
pub(crate) fn processes(token: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter(|entry| {
            let holds = |file: &str| {
                let bytes = fs::read(entry.path().join(file)).unwrap_or_default();
                String::from_utf8_lossy(&bytes).contains(token)
            };
            holds("cgroup") || holds("cmdline")
        })
        .filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()))
        .collect()
}

fn named(name: &std::ffi::OsStr, token: &str) -> bool {
    name.to_string_lossy().starts_with(token)
}

fn cgroups(directory: &Path, token: &str, depth: u32, found: &mut Vec<String>) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        if named(&entry.file_name(), token) {
            found.push(format!("cgroup {}", entry.path().display()));
        }
        if depth < 8 {
            cgroups(&entry.path(), token, depth + 1, found);
        }
    }
}

fn run_parents() -> Vec<PathBuf> {
    let user = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    [Some("/run".into()), user, Some(std::env::temp_dir())].into_iter().flatten().collect()
}
