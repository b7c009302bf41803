//! What a service holds while it is idle: memory, descriptors, processes, mounts, cgroups, with all that it started.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use serde::Serialize;

use super::processes::Processes;

/// Deepest directory in which a cgroup of ours is looked for.
const DEPTH: u32 = 8;

/// How much of each there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Footprint {
    pub(super) resident_kib: u64,
    pub(super) descriptors: u64,
    pub(super) processes: u64,
    /// In all mount namespaces of these processes.
    pub(super) mounts: u64,
    pub(super) cgroups: u64,
}

impl Footprint {
    /// Of a controller and its descendants, now.
    pub(super) fn of(controller: u32) -> io::Result<Self> {
        let tree = Processes::read()?.tree(controller);
        let mut found = Self {
            resident_kib: tree.iter().map(|pid| resident_kib(*pid)).sum(),
            descriptors: tree.iter().map(|pid| entries(&format!("/proc/{pid}/fd"))).sum(),
            processes: count(tree.len()),
            mounts: 0,
            cgroups: cgroups(Path::new("/sys/fs/cgroup"), &format!("rlox-{controller}."), 0),
        };
        let mut seen = BTreeSet::new();
        for pid in tree {
            let Ok(namespace) = std::fs::read_link(format!("/proc/{pid}/ns/mnt")) else { continue };
            if seen.insert(namespace) {
                let mounts = std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
                found.mounts += count(mounts.lines().count());
            }
        }
        Ok(found)
    }

    /// The same without memory, which never stays quite the same.
    pub(super) fn counts(self) -> [(&'static str, u64); 4] {
        [
            ("descriptors", self.descriptors),
            ("processes", self.processes),
            ("mounts", self.mounts),
            ("cgroups", self.cgroups),
        ]
    }
}

/// Of a process that is gone, or that is not ours to see, nothing is known.
fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let size =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
    size.unwrap_or(0)
}

fn entries(path: &str) -> u64 {
    std::fs::read_dir(path).map_or(0, |entries| count(entries.count()))
}

fn cgroups(directory: &Path, prefix: &str, depth: u32) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found = 0;
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        found += u64::from(entry.file_name().to_string_lossy().starts_with(prefix));
        if depth < DEPTH {
            found += cgroups(&entry.path(), prefix, depth + 1);
        }
    }
    found
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_descriptors_and_mounts() {
        let found = Footprint::of(std::process::id()).unwrap();
        assert!(found.resident_kib > 100 && found.descriptors >= 3, "{found:?}");
        assert!(found.processes >= 1 && found.mounts >= 1 && found.cgroups == 0, "{found:?}");
        assert_eq!(Footprint::of(u32::MAX).unwrap().processes, 0);
    }

    #[test]
    fn directories_with_the_owners_name_are_counted_at_any_depth() {
        let root = tempfile::tempdir().unwrap();
        for path in ["cpu/rlox-7.1-1-0", "memory/a/b/rlox-7.1-2-0", "memory/rlox-71.1-0-0"] {
            std::fs::create_dir_all(root.path().join(path)).unwrap();
        }
        assert_eq!(cgroups(root.path(), "rlox-7.", 0), 2);
    }
}
