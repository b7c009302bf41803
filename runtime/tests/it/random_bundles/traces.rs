//! What of a case can be seen on the host: everything that has its token in its name, and what lies in its world.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::oci::support::World;
use crate::support::host::patience;

/// How long the processes of a killed runtime may take to end: its hooks are the operator's own, and end by themselves.
const SOON: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Traces {
    token: String,
    world: std::path::PathBuf,
    found: BTreeSet<String>,
}

impl Traces {
    pub(crate) fn find(world: &World, token: &str) -> Self {
        let directory = world.directory.path().to_owned();
        Self { token: token.to_owned(), found: search(&directory, token), world: directory }
    }

    /// Says what is there now and was not before. What a killed command left of its own to be swept by a later one is
    /// no leftover: a state directory in removal, and the socket for a terminal.
    pub(crate) fn since(mut self, before: &Self, killed: bool) -> Result<(), String> {
        let end = Instant::now() + SOON * patience();
        loop {
            let swept =
                |trace: &&String| killed && (trace.contains("/.gone-") || trace.contains("/rlox-console-"));
            let left: Vec<_> = self.found.difference(&before.found).filter(|trace| !swept(trace)).collect();
            if left.is_empty() {
                return Ok(());
            }
            if !killed || Instant::now() >= end {
                return Err(format!("left: {left:?}"));
            }
            std::thread::sleep(Duration::from_millis(20));
            self.found = search(&self.world, &self.token);
        }
    }
}

fn search(world: &Path, token: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let name = world.file_name().unwrap().to_string_lossy().into_owned();
    let words = [token.as_bytes(), name.as_bytes()];
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let own =
            entry.file_name().to_string_lossy().parse::<u32>().is_ok_and(|pid| pid != std::process::id());
        // Whatever the runtime starts inherits its environment, or is in the container's cgroup.
        let holds = |file: &str| {
            let bytes = fs::read(entry.path().join(file)).unwrap_or_default();
            words.iter().any(|word| bytes.windows(word.len()).any(|window| window == *word))
        };
        if own && (holds("environ") || holds("cmdline") || holds("cgroup")) {
            let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            found.insert(format!("process {} {command}", entry.file_name().to_string_lossy()));
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let ours = |line: &&str| line.contains(token) || line.contains(&name) || line.contains("oci-rootfs");
    found.extend(mounts.lines().filter(ours).map(|line| format!("mount {line}")));
    cgroups(Path::new("/sys/fs/cgroup"), token, 0, &mut found);
    for parent in ["/run", "/run/rlox", "/tmp", "/dev/shm"] {
        list(Path::new(parent), "directory", &mut found, |entry| contains(entry, token));
    }
    list(&world.join("state"), "state", &mut found, |_| true);
    list(&world.join("tmp"), "file", &mut found, |_| true);
    list(&world.join("bundle"), "file", &mut found, |_| true);
    list(world, "file", &mut found, |_| true);
    found
}

fn contains(name: &std::ffi::OsStr, token: &str) -> bool {
    name.as_bytes().windows(token.len()).any(|window| window == token.as_bytes())
}

fn list(
    directory: &Path,
    kind: &str,
    found: &mut BTreeSet<String>,
    wanted: impl Fn(&std::ffi::OsStr) -> bool,
) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let entries = entries.filter(|entry| wanted(&entry.file_name()));
    found.extend(entries.map(|entry| format!("{kind} {}", entry.path().display())));
}

fn cgroups(directory: &Path, token: &str, depth: u32, found: &mut BTreeSet<String>) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        if contains(&entry.file_name(), token) {
            found.insert(format!("cgroup {}", entry.path().display()));
        }
        if depth < 8 {
            cgroups(&entry.path(), token, depth + 1, found);
        }
    }
}
