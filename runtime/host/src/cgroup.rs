//! Where containers' cgroups go: a delegated v2 subtree, or v1 as real root, or nowhere.
//!
//! `libcontainer` returns success with every limit on an empty cgroup when the caller sits outside the
//! delegated subtree, and kills the caller's own cgroup when given an empty path. So the place is decided here,
//! once, always absolute and never empty, and the launcher reads back where each process really is.

use std::io;
use std::path::{Path, PathBuf};

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use serde::{Deserialize, Serialize};

use crate::files::{read_bounded, write_file};
use crate::owner::Owner;

/// Where cgroup hierarchies are mounted.
pub const CGROUP_ROOT: &str = "/sys/fs/cgroup";
const NEEDED: [&str; 3] = ["memory", "pids", "cpu"];
const SERVICE_LEAF: &str = "rlox-service";
const PREFIX: &str = "rlox-";

/// Where containers' cgroups go on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "version", rename_all = "snake_case")]
pub enum CgroupHome {
    /// A v2 directory below which we may create cgroups with memory, pids and cpu controllers.
    V2 {
        /// Path below the mount point, absolute, e.g. `/user.slice/…/rlox.scope`.
        base: PathBuf,
    },
    /// v1 hierarchies as real root; containers sit directly below each controller's root.
    V1,
    /// No limits can be enforced by cgroups.
    None {
        /// Why, and what would help.
        reason: String,
    },
}

/// Preparing the place failed.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// A kernel file could not be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl CgroupHome {
    /// `v2`, `v1` or `none`, as `/health` shows it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::V2 { .. } => "v2",
            Self::V1 => "v1",
            Self::None { .. } => "none",
        }
    }

    /// The absolute cgroup path (below the mount point) of a container.
    pub fn container_path(&self, id: &str) -> PathBuf {
        let leaf = format!("{PREFIX}{id}");
        match self {
            Self::V2 { base } => base.join(leaf),
            Self::V1 | Self::None { .. } => Path::new("/").join(leaf),
        }
    }
}

/// v1 controllers that carry a limit or a counter of ours.
pub fn v1_controllers() -> [&'static str; 4] {
    ["memory", "pids", "cpu", "cpuacct"]
}

/// Finds the place and, on v2, makes it usable: this process moves into a leaf and the controllers are enabled.
/// Never an error for a host that lacks cgroups: that is [`CgroupHome::None`] with its reason.
pub fn prepare() -> Result<CgroupHome, CgroupError> {
    let root = Path::new(CGROUP_ROOT);
    let real_root = nix::unistd::geteuid().is_root() && is_initial_user_namespace();
    if statfs(root).is_ok_and(|stat| stat.filesystem_type() == CGROUP2_SUPER_MAGIC) {
        return prepare_v2(root, real_root);
    }
    if !real_root {
        let reason = "only cgroup v1 is mounted and this is not real root; boot with cgroup v2 \
                      (systemd.unified_cgroup_hierarchy=1) and start the service in a delegated scope";
        return Ok(CgroupHome::None { reason: reason.into() });
    }
    let absent: Vec<_> =
        v1_controllers().into_iter().filter(|name| !root.join(name).join("cgroup.procs").exists()).collect();
    if absent.is_empty() {
        return Ok(CgroupHome::V1);
    }
    let reason = format!("cgroup v1 controllers not mounted under {CGROUP_ROOT}: {}", absent.join(", "));
    Ok(CgroupHome::None { reason })
}

fn is_initial_user_namespace() -> bool {
    read_bounded(Path::new("/proc/self/uid_map"))
        .is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
}

fn prepare_v2(mount: &Path, real_root: bool) -> Result<CgroupHome, CgroupError> {
    let own = read_bounded(Path::new("/proc/self/cgroup"))?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    // A process started by a service that already moved into the leaf belongs to the leaf's parent.
    let own = own.strip_suffix(&format!("/{SERVICE_LEAF}")).unwrap_or(own);
    let base = if real_root || own.is_empty() { "/" } else { own };
    let directory = mount.join(base.trim_start_matches('/'));
    let available = read_bounded(&directory.join("cgroup.controllers"))?;
    let absent: Vec<_> = NEEDED.into_iter().filter(|name| !has_word(&available, name)).collect();
    if !absent.is_empty() {
        let reason = format!(
            "controllers not delegated to {}: {}; start in a scope of your own: systemd-run --user --scope \
             -p Delegate=yes COMMAND, and delegate them to your user manager (user@.service, Delegate=cpu memory pids)",
            directory.display(),
            absent.join(", ")
        );
        return Ok(CgroupHome::None { reason });
    }
    match enable(&directory) {
        Ok(()) => Ok(CgroupHome::V2 { base: PathBuf::from(base) }),
        Err(error) => Ok(CgroupHome::None {
            reason: format!(
                "{error}; start the service in a delegated scope: systemd-run --user --scope -p Delegate=yes COMMAND"
            ),
        }),
    }
}

/// Enables the controllers for children. A cgroup that holds processes may not have such children, so where the
/// kernel says so, the processes of this scope move into a leaf first.
fn enable(directory: &Path) -> io::Result<()> {
    let control = directory.join("cgroup.subtree_control");
    let enabled = read_bounded(&control)?;
    if NEEDED.iter().all(|name| has_word(&enabled, name)) && !holds_this_process(directory)? {
        return Ok(());
    }
    let wanted = NEEDED.map(|name| format!("+{name}")).join(" ");
    match write_file(&control, &wanted) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
        Err(error) => return Err(error),
    }
    let leaf = directory.join(SERVICE_LEAF);
    match std::fs::create_dir(&leaf) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(io::Error::new(error.kind(), format!("cannot create {}: {error}", leaf.display())));
        }
        Ok(()) | Err(_) => {}
    }
    for pid in read_bounded(&directory.join("cgroup.procs"))?.lines() {
        tracing::info!(pid, leaf = %leaf.display(), "moving a process of this scope into a leaf cgroup");
        write_file(&leaf.join("cgroup.procs"), pid)?;
    }
    write_file(&control, &wanted)
}

fn holds_this_process(directory: &Path) -> io::Result<bool> {
    let own = std::process::id().to_string();
    Ok(read_bounded(&directory.join("cgroup.procs"))?.lines().any(|line| line == own))
}

fn has_word(text: &str, word: &str) -> bool {
    text.split_whitespace().any(|each| each == word)
}

/// Kills and removes container cgroups whose owner is dead; returns how many directories went.
pub fn remove_stale(home: &CgroupHome) -> usize {
    remove_matching(home, |name| owner_of(name).is_some_and(|owner| !owner.alive()))
}

/// Kills and removes the container cgroups of one launcher that had to be killed itself.
pub fn remove_of_slot(home: &CgroupHome, id_prefix: &str) -> usize {
    let prefix = format!("{PREFIX}{id_prefix}");
    remove_matching(home, |name| name.starts_with(&prefix))
}

/// Whether a container's cgroup holds a process, in any hierarchy.
pub fn container_runs(home: &CgroupHome, id: &str) -> bool {
    let name = format!("{PREFIX}{id}");
    let processes = |parent: &PathBuf| read_bounded(&parent.join(&name).join("cgroup.procs"));
    parents(home).iter().any(|parent| processes(parent).is_ok_and(|text| !text.trim().is_empty()))
}

/// The directories that hold containers' cgroups.
fn parents(home: &CgroupHome) -> Vec<PathBuf> {
    match home {
        CgroupHome::V2 { base } => vec![Path::new(CGROUP_ROOT).join(base.strip_prefix("/").unwrap_or(base))],
        CgroupHome::V1 => std::fs::read_dir(CGROUP_ROOT)
            .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default(),
        CgroupHome::None { .. } => Vec::new(),
    }
}

fn remove_matching(home: &CgroupHome, matches: impl Fn(&str) -> bool) -> usize {
    let parents = parents(home);
    let entries = parents.iter().flat_map(std::fs::read_dir).flatten().flatten();
    entries
        .filter(|entry| matches(&entry.file_name().to_string_lossy()))
        .filter(|entry| remove(&entry.path()))
        .count()
}

/// Kills what is in a cgroup until it can be removed; bounded.
fn remove(directory: &Path) -> bool {
    for _ in 0..100 {
        for pid in read_bounded(&directory.join("cgroup.procs")).unwrap_or_default().lines() {
            if let Ok(pid) = pid.parse() {
                kill_quietly(pid);
            }
        }
        match std::fs::remove_dir(directory) {
            Ok(()) => return true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return false,
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(10)),
        }
    }
    tracing::error!(directory = %directory.display(), "cannot remove a cgroup that a dead owner left");
    false
}

/// Kills a process; one that is gone already is what was wanted.
pub fn kill_quietly(pid: i32) {
    use nix::sys::signal::{Signal, kill};
    match kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL) {
        Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
        Err(errno) => tracing::warn!(pid, %errno, "cannot kill a process in a container's cgroup"),
    }
}

/// `rlox-<pid>.<start>-…`
fn owner_of(name: &str) -> Option<Owner> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_absolute_and_never_empty() {
        let v2 = CgroupHome::V2 { base: "/user.slice/x.scope".into() };
        assert_eq!(v2.container_path("1.2-0-7"), Path::new("/user.slice/x.scope/rlox-1.2-0-7"));
        assert_eq!(CgroupHome::V1.container_path("a"), Path::new("/rlox-a"));
    }

    #[test]
    fn owner_is_read_from_a_container_cgroup_name_only() {
        assert!(owner_of("rlox-12.34-0-1").is_some());
        assert!(owner_of("rlox-service").is_none());
        assert!(owner_of("system.slice").is_none());
    }
}
