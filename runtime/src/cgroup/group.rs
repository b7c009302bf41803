//! The cgroup of an OCI container: where it goes, its creation with every limit, its members, its end.
//!
//! It is made and limited before the container exists, so that not one instruction of it runs unlimited, and
//! `libcontainer` only has to join it. Its path is written to the state directory first: whatever dies, the next
//! command finds what to kill and remove.

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rlox_host::{CGROUP_ROOT, CgroupHome, read_bounded, write_file};
use serde::{Deserialize, Serialize};

use super::limits::Setting;

/// How long the members of a cgroup may take to die or to freeze.
const PATIENCE: Duration = Duration::from_secs(10);
/// Controllers enabled for a container where they are to be had, so that a later `update` finds them.
const USEFUL: [&str; 7] = ["memory", "pids", "cpu", "cpuset", "io", "hugetlb", "rdma"];

/// The cgroup of one container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Group {
    /// Unified hierarchy or v1 hierarchies.
    v2: bool,
    /// Absolute, below the mount point or mount points.
    path: PathBuf,
}

impl Group {
    /// Refuses a `cgroupsPath` that names no cgroup of the container's own.
    pub(crate) fn check(wanted: &Path) -> Result<(), String> {
        if wanted.components().any(|part| matches!(part, Component::ParentDir)) {
            return Err(format!("linux.cgroupsPath {}: has a component \"..\"", wanted.display()));
        }
        // "." is the place below which containers go.
        let named = wanted.components().any(|part| matches!(part, Component::Normal(_)));
        if !wanted.as_os_str().is_empty() && !named {
            return Err(format!("linux.cgroupsPath {}: is no cgroup of its own", wanted.display()));
        }
        Ok(())
    }

    /// Refuses what a damaged record may name: everything in it would be killed.
    pub(crate) fn check_own(&self) -> Result<(), String> {
        if !self.path.is_absolute() {
            return Err(format!("cgroup {}: is not absolute", self.path.display()));
        }
        Self::check(&self.path).map_err(|reason| format!("cgroup: {reason}"))
    }

    /// The place for a container: as `cgroupsPath` says, else one of our own. `Err` where this host has none.
    pub(crate) fn place(wanted: Option<&Path>, id: &str) -> Result<Self, String> {
        let wanted = wanted.filter(|path| !path.as_os_str().is_empty());
        if let Some(path) = wanted.filter(|path| path.is_absolute())
            && is_v2()
            && !own_path()?.starts_with(path.parent().unwrap_or(path))
            && !path.starts_with(own_path()?)
        {
            // Somewhere else than where we are: nothing of ours has to move for it.
            return Ok(Self { v2: true, path: path.to_owned() });
        }
        let home = rlox_host::prepare().map_err(|error| error.to_string())?;
        let base = match &home {
            CgroupHome::V2 { base } => base.clone(),
            CgroupHome::V1 => PathBuf::from("/"),
            CgroupHome::None { reason } => return Err(reason.clone()),
        };
        let path = match wanted {
            Some(path) if path.is_absolute() => path.to_owned(),
            Some(path) => base.join(path),
            None => home.container_path(id),
        };
        Ok(Self { v2: matches!(home, CgroupHome::V2 { .. }), path })
    }

    /// A cgroup of v2 that somebody else made.
    pub(crate) fn existing(path: PathBuf) -> Self {
        Self { v2: true, path }
    }

    pub(crate) fn is_v2(&self) -> bool {
        self.v2
    }

    /// Path below the mount point.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of a controller; all controllers share one on v2.
    pub(crate) fn directory(&self, controller: &str) -> PathBuf {
        let relative = self.path.strip_prefix("/").unwrap_or(&self.path);
        if self.v2 {
            return Path::new(CGROUP_ROOT).join(relative);
        }
        Path::new(CGROUP_ROOT).join(controller).join(relative)
    }

    /// Every directory that is this cgroup, each once.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        if self.v2 {
            return vec![self.directory("")];
        }
        let relative = self.path.strip_prefix("/").unwrap_or(&self.path);
        let found = hierarchies().into_iter().map(|hierarchy| hierarchy.join(relative));
        found.filter(|directory| directory.join("cgroup.procs").exists()).collect()
    }

    /// Refuses a cgroup in which somebody else's processes are.
    pub(crate) fn refuse_used(&self) -> Result<(), String> {
        match self.members().len() {
            0 => Ok(()),
            held => Err(format!("{}: holds {held} processes already", self.path.display())),
        }
    }

    /// Makes the cgroup, which holds nobody.
    pub(crate) fn create(&self) -> Result<(), String> {
        if self.v2 {
            self.create_v2()?;
        } else {
            for hierarchy in hierarchies() {
                self.create_v1(&hierarchy)?;
            }
        }
        Ok(())
    }

    fn create_v2(&self) -> Result<(), String> {
        let mut directory = PathBuf::from(CGROUP_ROOT);
        let relative = self.path.strip_prefix("/").unwrap_or(&self.path);
        for part in relative {
            enable(&directory);
            directory.push(part);
            make(&directory)?;
        }
        Ok(())
    }

    fn create_v1(&self, root: &Path) -> Result<(), String> {
        let mut directory = root.to_owned();
        for part in self.path.strip_prefix("/").unwrap_or(&self.path) {
            let parent = directory.clone();
            directory.push(part);
            make(&directory)?;
            if directory.join("cpuset.cpus").exists() {
                // A new cpuset is empty, and an empty one takes no process.
                for file in ["cpuset.cpus", "cpuset.mems"] {
                    let own = read_bounded(&directory.join(file)).unwrap_or_default();
                    if own.trim().is_empty() {
                        let inherited =
                            read_bounded(&parent.join(file)).map_err(|error| error.to_string())?;
                        write_file(&directory.join(file), inherited.trim())
                            .map_err(|error| error.to_string())?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes the limits; names the one that this host cannot give.
    pub(crate) fn apply(&self, settings: &[Setting]) -> Result<(), String> {
        let mut deferred = Vec::new();
        for setting in settings {
            if self.trivial(setting) {
                continue;
            }
            // Raising memory and memory+swap has the opposite order of lowering them.
            if self.write(setting).is_err() {
                deferred.push(setting);
            }
        }
        deferred.into_iter().try_for_each(|setting| self.write(setting))
    }

    fn write(&self, setting: &Setting) -> Result<(), String> {
        let file = self.directory(&setting.controller).join(&setting.file);
        if !file.exists() {
            return Err(format!(
                "limit {} = {}: controller {} is not available in {}; delegate it (systemd: Delegate=yes) or drop the limit",
                setting.name,
                setting.value,
                setting.controller,
                self.path.display()
            ));
        }
        write_file(&file, &setting.value).map_err(|error| format!("limit {}: {error}", setting.name))
    }

    /// A limit of swap on a host without any.
    fn trivial(&self, setting: &Setting) -> bool {
        setting.swap
            && !self.directory(&setting.controller).join(&setting.file).exists()
            && read_bounded(Path::new("/proc/swaps")).is_ok_and(|swaps| swaps.lines().count() <= 1)
    }

    /// Checks that each limit reads back as asked.
    pub(crate) fn verify(&self, settings: &[Setting]) -> Result<(), String> {
        for setting in settings.iter().filter(|setting| !self.trivial(setting)) {
            let file = self.directory(&setting.controller).join(&setting.file);
            let found = if setting.check == super::limits::Check::Written {
                String::new()
            } else {
                read_bounded(&file).map_err(|error| format!("limit {}: {error}", setting.name))?
            };
            if !setting.holds(&found) {
                return Err(format!(
                    "limit {}: {} is {:?}, wanted {:?}",
                    setting.name,
                    file.display(),
                    found.trim(),
                    setting.value
                ));
            }
        }
        Ok(())
    }

    /// Checks that the process is here, in every hierarchy that carries a limit.
    pub(crate) fn holds(&self, pid: Pid, settings: &[Setting]) -> Result<(), String> {
        let membership =
            read_bounded(Path::new(&format!("/proc/{pid}/cgroup"))).map_err(|error| error.to_string())?;
        let path = self.path.to_string_lossy();
        if self.v2 {
            let below = format!("0::{path}/");
            // Below is within: what limits a group limits its children.
            if membership.lines().any(|line| line.starts_with(&below)) {
                return Ok(());
            }
            return super::check_membership(&membership, "", &path);
        }
        let mut controllers: BTreeSet<&str> =
            settings.iter().map(|setting| setting.controller.as_str()).collect();
        controllers.extend(["memory", "pids", "cpu"]);
        controllers.into_iter().try_for_each(|each| super::check_membership(&membership, each, &path))
    }

    /// Moves a process in, beside `first`, the container's own first process.
    pub(crate) fn join(&self, pid: Pid, first: Pid) -> io::Result<()> {
        for directory in self.directories() {
            match write_file(&directory.join("cgroup.procs"), &pid.to_string()) {
                // The container has made groups of its own; processes are in those alone then.
                Err(error) if self.v2 && error.kind() == io::ErrorKind::ResourceBusy => {
                    let membership = read_bounded(Path::new(&format!("/proc/{first}/cgroup")))?;
                    let path =
                        membership.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
                    write_file(&Path::new(CGROUP_ROOT).join(path).join("cgroup.procs"), &pid.to_string())?;
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// All processes in it and below it.
    pub(crate) fn members(&self) -> Vec<Pid> {
        let directory = if self.v2 { self.directory("") } else { self.directory("memory") };
        let mut found = BTreeSet::new();
        collect(&directory, &mut found);
        found.into_iter().map(Pid::from_raw).collect()
    }

    /// Whether it is still there.
    pub(crate) fn exists(&self) -> bool {
        !self.directories().is_empty() && self.directories().iter().any(|directory| directory.exists())
    }

    /// Sends a signal to every member; new members cannot escape it.
    pub(crate) fn signal(&self, signal: i32) -> Result<(), String> {
        let kill_file = self.directory("").join("cgroup.kill");
        if self.v2 && signal == libc::SIGKILL && kill_file.exists() {
            return write_file(&kill_file, "1").map_err(|error| error.to_string());
        }
        let frozen = self.frozen();
        if !frozen {
            self.freeze(true)?;
        }
        for pid in self.members() {
            crate::sys::kill_number(pid, signal).map_err(|error| format!("signal to {pid}: {error}"))?;
        }
        // Killed processes die only when thawed.
        if !frozen || (signal == libc::SIGKILL && !self.v2) {
            self.freeze(false)?;
        }
        Ok(())
    }

    fn freezer(&self) -> PathBuf {
        if self.v2 {
            self.directory("").join("cgroup.freeze")
        } else {
            self.directory("freezer").join("freezer.state")
        }
    }

    /// Whether its members are stopped by the freezer.
    pub(crate) fn frozen(&self) -> bool {
        let state = read_bounded(&self.freezer()).unwrap_or_default();
        matches!(state.trim(), "1" | "FROZEN" | "FREEZING")
    }

    /// Stops or continues all members; returns when they have.
    pub(crate) fn freeze(&self, freeze: bool) -> Result<(), String> {
        let file = self.freezer();
        let value = match (self.v2, freeze) {
            (true, true) => "1",
            (true, false) => "0",
            (false, true) => "FROZEN",
            (false, false) => "THAWED",
        };
        let end = Instant::now() + PATIENCE;
        loop {
            write_file(&file, value).map_err(|error| error.to_string())?;
            if self.settled(value) {
                return Ok(());
            }
            if Instant::now() >= end {
                return Err(format!("{}: not {value} after {PATIENCE:?}", file.display()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn settled(&self, value: &str) -> bool {
        if !self.v2 {
            return read_bounded(&self.freezer()).is_ok_and(|state| state.trim() == value);
        }
        let events = read_bounded(&self.directory("").join("cgroup.events")).unwrap_or_default();
        events.lines().any(|line| line.strip_prefix("frozen ").is_some_and(|state| state == value))
    }

    /// Kills what is in it and removes it.
    pub(crate) fn remove(&self) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let directories: Vec<_> =
                self.directories().into_iter().filter(|directory| directory.exists()).collect();
            if directories.is_empty() {
                return Ok(());
            }
            let kill_file = self.directory("").join("cgroup.kill");
            if !(self.v2 && write_file(&kill_file, "1").is_ok()) {
                if !self.v2 && self.frozen() {
                    self.freeze(false)?;
                }
                for pid in self.members() {
                    match kill(pid, Signal::SIGKILL) {
                        Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
                        Err(errno) => return Err(format!("killing {pid}: {errno}")),
                    }
                }
            }
            let failed: Vec<_> =
                directories.iter().filter_map(|directory| remove_tree(directory).err()).collect();
            let Some(error) = failed.first() else { return Ok(()) };
            if Instant::now() >= end {
                return Err(format!("cgroup {} cannot be removed: {error}", self.path.display()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The mounted hierarchies of v1, each once: cpu and cpuacct are links to one. Those without a controller are not
/// joined: they carry no limit, and systemd's is its own.
fn hierarchies() -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir(CGROUP_ROOT).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| std::fs::canonicalize(entry.path()).ok())
        .filter(|hierarchy| hierarchy.join("cgroup.procs").exists())
        .filter(|hierarchy| !hierarchy.ends_with("unified") && !hierarchy.ends_with("systemd"))
        .collect()
}

fn is_v2() -> bool {
    Path::new(CGROUP_ROOT).join("cgroup.controllers").exists()
}

fn own_path() -> Result<PathBuf, String> {
    let own = read_bounded(Path::new("/proc/self/cgroup")).map_err(|error| error.to_string())?;
    Ok(own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/").into())
}

fn make(directory: &Path) -> Result<(), String> {
    match std::fs::create_dir(directory) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(format!("cannot create cgroup {}: {error}", directory.display())),
    }
}

/// Enables what can be enabled for the children of a cgroup. What is missing afterwards shows when its limit is
/// written.
fn enable(directory: &Path) {
    let available = read_bounded(&directory.join("cgroup.controllers")).unwrap_or_default();
    let control = directory.join("cgroup.subtree_control");
    let enabled = read_bounded(&control).unwrap_or_default();
    let has = |text: &str, name: &str| text.split_whitespace().any(|each| each == name);
    for name in USEFUL {
        if has(&available, name)
            && !has(&enabled, name)
            && let Err(error) = write_file(&control, &format!("+{name}"))
        {
            tracing::debug!(%error, name, "a controller cannot be enabled");
        }
    }
}

fn collect(directory: &Path, found: &mut BTreeSet<i32>) {
    let procs = read_bounded(&directory.join("cgroup.procs")).unwrap_or_default();
    found.extend(procs.lines().filter_map(|line| line.parse::<i32>().ok()));
    for child in children(directory) {
        collect(&child, found);
    }
}

fn children(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

fn remove_tree(directory: &Path) -> io::Result<()> {
    for child in children(directory) {
        remove_tree(&child)?;
    }
    match std::fs::remove_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(io::Error::new(error.kind(), format!("{}: {error}", directory.display())))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_climbs_is_refused() {
        assert!(Group::check(Path::new("/a/../../b")).unwrap_err().contains("\"..\""));
        for whole in ["/", "//", "/.", ".", "./", "././"] {
            assert!(Group::check(Path::new(whole)).is_err(), "{whole}");
        }
        assert!(Group::check(Path::new("/a/b")).is_ok() && Group::check(Path::new("")).is_ok());
    }

    #[test]
    fn each_controller_of_v1_has_a_directory_of_its_own() {
        let group = Group { v2: false, path: "/rlox/x".into() };
        assert_eq!(group.directory("pids"), Path::new("/sys/fs/cgroup/pids/rlox/x"));
        let group = Group { v2: true, path: "/rlox/x".into() };
        assert_eq!(group.directory("pids"), Path::new("/sys/fs/cgroup/rlox/x"));
    }
}
