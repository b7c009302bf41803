//! The cgroup v1 hierarchies of a runtime that makes one container at a time, out of libcontainer's sight.
//!
//! libcontainer looks every v1 controller up by itself, through some thirty system calls each, and moves a process into
//! each hierarchy by `cgroup.procs`, which waits until all forks and exits in flight on the machine are through: for
//! half a minute beside a fork bomb of large processes. A single thread that moves only itself need not wait, and what
//! it forks is born where it is. So the hierarchies are moved to a place of our own in a private mount namespace, this
//! process goes into the container's cgroups while the container is made, and libcontainer finds nothing to do.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use rlox_host::{CGROUP_ROOT, read_bounded, write_file};

/// Controllers of v1 that carry a limit or a counter of ours, or that libcontainer insists on.
pub(crate) const CONTROLLERS: [&str; 5] = ["memory", "pids", "cpu", "cpuacct", "devices"];
/// Moves the thread that writes, and nobody else.
const TASKS: &str = "tasks";
const MYSELF: &str = "0";

/// Where hierarchies are mounted, and which of them this process joins itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hierarchies {
    root: Option<PathBuf>,
    joined: Vec<Hierarchy>,
}

#[derive(Debug, Clone)]
struct Hierarchy {
    directory: PathBuf,
    /// Where this process belongs.
    own: PathBuf,
}

impl Hierarchies {
    /// Moves the hierarchies below `directory`. The mount namespace has to be this process' own.
    pub(crate) fn take_over(directory: &Path) -> io::Result<Self> {
        let membership = read_bounded(Path::new("/proc/self/cgroup"))?;
        fs::create_dir(directory)?;
        let mut joined: Vec<(PathBuf, Hierarchy)> = Vec::new();
        for controller in CONTROLLERS {
            let Ok(source) = fs::canonicalize(Path::new(CGROUP_ROOT).join(controller)) else { continue };
            let target = directory.join(controller);
            if let Some((_, known)) = joined.iter().find(|(path, _)| *path == source) {
                // Two controllers of one hierarchy.
                symlink(&known.directory, &target)?;
                continue;
            }
            fs::create_dir(&target)?;
            bind(&source, &target)?;
            let own = super::path_of(&membership, controller)
                .ok_or_else(|| io::Error::other(format!("/proc/self/cgroup has no line for {controller}")))?;
            let own = target.join(own.trim_start_matches('/')).join(TASKS);
            joined.push((source, Hierarchy { directory: target, own }));
        }
        conceal(directory)?;
        let joined = joined.into_iter().map(|(_, hierarchy)| hierarchy).collect();
        let hierarchies = Self { root: Some(directory.to_owned()), joined };
        // Nothing is entered where there is no way back, as below a mount that shows a part of a hierarchy.
        hierarchies.leave()?;
        Ok(hierarchies)
    }

    /// The directory that holds one for each controller.
    pub(crate) fn root(&self) -> &Path {
        self.root.as_deref().unwrap_or(Path::new(CGROUP_ROOT))
    }

    /// Whether containers are born in their cgroups; otherwise libcontainer moves them there.
    pub(crate) fn are_joined(&self) -> bool {
        self.root.is_some()
    }

    /// The directories of a cgroup, each once.
    pub(crate) fn directories(&self, relative: &Path) -> Vec<PathBuf> {
        self.joined.iter().map(|hierarchy| hierarchy.directory.join(relative)).collect()
    }

    /// Does something while this process is in a new cgroup, which its children do not leave. Where this process cannot
    /// leave it either, what was made is undone.
    pub(crate) fn within<T>(
        &self,
        relative: &Path,
        make: impl FnOnce() -> T,
        undo: impl FnOnce(T),
    ) -> io::Result<T> {
        let directories = self.directories(relative);
        let entered = directories.iter().try_for_each(|directory| {
            fs::create_dir(directory).map_err(|error| {
                io::Error::new(error.kind(), format!("cannot create {}: {error}", directory.display()))
            })?;
            write_file(&directory.join(TASKS), MYSELF)
        });
        let made = entered.map(|()| make());
        match (self.leave(), made) {
            (Ok(()), made) => made,
            (Err(error), Ok(made)) => {
                undo(made);
                Err(error)
            }
            (Err(error), Err(_)) => Err(error),
        }
    }

    /// Out of every one, also where one cannot be left.
    fn leave(&self) -> io::Result<()> {
        let left = self.joined.iter().map(|hierarchy| write_file(&hierarchy.own, MYSELF));
        left.fold(Ok(()), io::Result::and)
    }
}

/// Puts something in libcontainer's way that takes every process and does nothing: a unified hierarchy whose lists of
/// processes lead nowhere. Where the host has mounted it, that mount: a new one would change the options of all.
fn conceal(directory: &Path) -> io::Result<()> {
    let mounts = read_bounded(Path::new("/proc/self/mountinfo"))?;
    let kept = directory.join("unified");
    fs::create_dir(&kept)?;
    let unified = mounts.lines().find_map(unified).map(Path::new);
    unified.map_or(Ok(()), |place| bind(place, &kept))?;
    match umount2(CGROUP_ROOT, MntFlags::MNT_DETACH) {
        Ok(()) | Err(Errno::EINVAL) => {}
        Err(errno) => return Err(action("unmounting /sys/fs/cgroup", errno)),
    }
    match unified {
        Some(_) => bind(&kept, Path::new(CGROUP_ROOT))?,
        None => {
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
            mount(Some("cgroup2"), CGROUP_ROOT, Some("cgroup2"), flags, None::<&str>)
                .map_err(|errno| action("mounting cgroup2", errno))?;
        }
    }
    for file in ["cgroup.procs", "cgroup.kill"] {
        let target = Path::new(CGROUP_ROOT).join(file);
        if target.exists() {
            bind(Path::new("/dev/null"), &target)?;
        }
    }
    Ok(())
}

/// The mount point of a line of mountinfo that is the unified hierarchy.
fn unified(line: &str) -> Option<&str> {
    mounted(line).filter(|(_, kind, _)| *kind == "cgroup2").map(|(place, _, _)| place)
}

/// Mount point, type and the file system's own options of a line of mountinfo.
pub(crate) fn mounted(line: &str) -> Option<(&str, &str, &str)> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut file_system = file_system.split(' ');
    Some((mount.split(' ').nth(4)?, file_system.next()?, file_system.nth(1)?))
}

fn bind(source: &Path, target: &Path) -> io::Result<()> {
    mount(Some(source), target, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .map_err(|errno| action(&format!("binding {} to {}", source.display(), target.display()), errno))
}

fn action(what: &str, errno: Errno) -> io::Error {
    let error = io::Error::from(errno);
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_unified_hierarchy_is_found() {
        let line = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate";
        assert_eq!(unified(line), Some("/sys/fs/cgroup/unified"));
        assert_eq!(unified("35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"), None);
    }

    #[test]
    fn without_hierarchies_of_our_own_nothing_is_entered() {
        let usual = Hierarchies::default();
        assert_eq!(usual.root(), Path::new(CGROUP_ROOT));
        assert!(!usual.are_joined() && usual.directories(Path::new("x")).is_empty());
        assert_eq!(usual.within(Path::new("x"), || 7, drop).unwrap(), 7);
    }
}
