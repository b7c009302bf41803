//! Reading a container's cgroup: is the process in it, are the limits in force, what did it count.
//!
//! Read-back is not ceremony. libcontainer reports success with every limit on an empty cgroup when the caller
//! is outside its delegated subtree; only `/proc/PID/cgroup` tells.

pub(crate) mod devices;
pub(crate) mod group;
pub(crate) mod hierarchies;
pub(crate) mod limits;
mod stats;
pub(crate) mod usage;

use std::path::{Path, PathBuf};
use std::rc::Rc;

use hierarchies::Hierarchies;
use limits::{Setting, v1};
use nix::unistd::Pid;
use oci_spec::runtime::{LinuxResources, Spec};
use rlox_host::{CGROUP_ROOT, CgroupHome, read_bounded, v1_controllers, write_file};
use rlox_protocol::CgroupCounters;

/// Limits that have to read back; `None` where the spec asks for none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    memory: Option<i64>,
    /// Swap beyond the memory limit is allowed.
    swap: bool,
    pids: Option<i64>,
    /// Quota and period in microseconds.
    cpu: Option<(i64, u64)>,
}

/// Limits that [`Wanted`] reads back.
const READ_BACK: [&str; 4] = ["memory.limit", "memory.swap", "pids.limit", "cpu.quota"];

impl Wanted {
    /// The limits that a spec asks for.
    pub(crate) fn of(spec: &Spec) -> Self {
        let resources = spec.linux().as_ref().and_then(|linux| linux.resources().as_ref());
        let Some(resources) = resources else { return Self::default() };
        let memory = resources.memory().as_ref();
        let cpu = resources.cpu().as_ref().and_then(|cpu| cpu.quota().zip(cpu.period()));
        Self {
            memory: memory.and_then(|memory| memory.limit()).filter(|limit| *limit > 0),
            swap: memory.is_none_or(|memory| memory.swap().is_none() || memory.swap() != memory.limit()),
            pids: resources.pids().as_ref().map(|pids| pids.limit()).filter(|limit| *limit > 0),
            cpu: cpu.filter(|(quota, _)| *quota > 0),
        }
    }
}

/// The cgroup of one container.
pub(crate) struct ContainerCgroup {
    home: CgroupHome,
    path: PathBuf,
    hierarchies: Rc<Hierarchies>,
}

impl ContainerCgroup {
    pub(crate) fn new(home: &CgroupHome, id: &str, hierarchies: &Rc<Hierarchies>) -> Self {
        Self { home: home.clone(), path: home.container_path(id), hierarchies: Rc::clone(hierarchies) }
    }

    fn relative(&self) -> &Path {
        self.path.strip_prefix("/").unwrap_or(&self.path)
    }

    /// Makes a container, whose processes are in this cgroup from the first on.
    pub(crate) fn around<T>(&self, make: impl FnOnce() -> T, undo: impl FnOnce(T)) -> std::io::Result<T> {
        self.hierarchies.within(self.relative(), make, undo)
    }

    /// The directory of one controller, or of all of them on v2.
    fn directory(&self, controller: &str) -> PathBuf {
        match self.home {
            CgroupHome::V2 { .. } => Path::new(CGROUP_ROOT).join(self.relative()),
            CgroupHome::V1 | CgroupHome::None { .. } => {
                self.hierarchies.root().join(controller).join(self.relative())
            }
        }
    }

    fn directories(&self) -> Vec<PathBuf> {
        match self.home {
            CgroupHome::V2 { .. } => vec![self.directory("")],
            CgroupHome::V1 if self.hierarchies.are_joined() => self.hierarchies.directories(self.relative()),
            // libcontainer joins every mounted hierarchy, also those that carry no limit.
            CgroupHome::V1 => std::fs::read_dir(CGROUP_ROOT)
                .map(|entries| {
                    entries
                        .flatten()
                        .map(|entry| entry.path().join(self.relative()))
                        .filter(|path| path.exists())
                        .collect()
                })
                .unwrap_or_default(),
            CgroupHome::None { .. } => Vec::new(),
        }
    }

    /// Sets what libcontainer leaves out: on v2 it takes a swap limit of 0 for none at all, and of hierarchies that
    /// it does not see it knows nothing.
    pub(crate) fn complete(&self, wanted: &Wanted, resources: Option<&LinuxResources>) -> Result<(), String> {
        if let (CgroupHome::V1, true, Some(resources)) =
            (&self.home, self.hierarchies.are_joined(), resources)
        {
            return self.limit(resources);
        }
        let file = self.directory("").join("memory.swap.max");
        let without_swap =
            matches!(self.home, CgroupHome::V2 { .. }) && wanted.memory.is_some() && !wanted.swap;
        if without_swap && file.exists() {
            return rlox_host::write_file(&file, "0").map_err(|error| error.to_string());
        }
        Ok(())
    }

    /// Writes every limit, and reads back those that [`Wanted`] has no word for.
    fn limit(&self, resources: &LinuxResources) -> Result<(), String> {
        let file = |setting: &Setting| self.directory(&setting.controller).join(&setting.file);
        let write = |setting: &Setting| {
            write_file(&file(setting), &setting.value)
                .map_err(|error| format!("limit {}: {error}", setting.name))
        };
        let settings = v1(resources)?;
        // Hosts without swap accounting have no such file, and no swap that it would limit.
        let settings: Vec<_> =
            settings.iter().filter(|setting| !setting.swap || file(setting).exists()).collect();
        settings.iter().try_for_each(|setting| write(setting))?;
        devices::enforce_v1(&self.directory("devices"), resources.devices().as_deref().unwrap_or_default())?;
        for setting in settings.iter().filter(|setting| !READ_BACK.contains(&setting.name)) {
            let found = read_bounded(&file(setting)).map_err(|error| error.to_string())?;
            if !setting.holds(&found) {
                let wanted = &setting.value;
                return Err(format!("limit {} is {:?}, wanted {wanted:?}", setting.name, found.trim()));
            }
        }
        Ok(())
    }

    /// Checks that `pid` is in this cgroup and that each limit reads back as asked; says which one is not.
    pub(crate) fn verify(&self, pid: Pid, wanted: &Wanted) -> Result<(), String> {
        let membership =
            read_bounded(Path::new(&format!("/proc/{pid}/cgroup"))).map_err(|error| error.to_string())?;
        let path = self.path.to_string_lossy();
        match &self.home {
            CgroupHome::None { .. } => return Ok(()),
            CgroupHome::V2 { .. } => check_membership(&membership, "", &path)?,
            CgroupHome::V1 => {
                for controller in v1_controllers() {
                    check_membership(&membership, controller, &path)?;
                }
            }
        }
        let swap = wanted.memory.filter(|_| !wanted.swap).map(|_| "0".to_owned());
        let memory_and_swap = wanted.memory.filter(|_| !wanted.swap).map(|bytes| bytes.to_string());
        let checks = match &self.home {
            CgroupHome::V2 { .. } => vec![
                ("", "memory.max", wanted.memory.map(|bytes| bytes.to_string()), true),
                ("", "memory.swap.max", swap, false),
                ("", "pids.max", wanted.pids.map(|count| count.to_string()), true),
                ("", "cpu.max", wanted.cpu.map(|(quota, period)| format!("{quota} {period}")), true),
            ],
            CgroupHome::V1 => vec![
                ("memory", "memory.limit_in_bytes", wanted.memory.map(|bytes| bytes.to_string()), true),
                ("memory", "memory.memsw.limit_in_bytes", memory_and_swap, false),
                ("pids", "pids.max", wanted.pids.map(|count| count.to_string()), true),
                ("cpu", "cpu.cfs_quota_us", wanted.cpu.map(|(quota, _)| quota.to_string()), true),
            ],
            CgroupHome::None { .. } => Vec::new(),
        };
        for (controller, file, value, required) in checks {
            let Some(value) = value else { continue };
            // Hosts without swap accounting have no such file, and no swap that it would limit.
            if required || self.directory(controller).join(file).exists() {
                self.equals(controller, file, &value)?;
            }
        }
        Ok(())
    }

    fn equals(&self, controller: &str, file: &str, wanted: &str) -> Result<(), String> {
        let path = self.directory(controller).join(file);
        let found = read_bounded(&path).map_err(|error| error.to_string())?;
        let page_rounded = file.starts_with("memory")
            && matches!((found.trim().parse::<u64>(), wanted.parse::<u64>()),
                (Ok(found), Ok(wanted)) if found <= wanted && wanted - found < 4096);
        if found.trim() == wanted || page_rounded {
            return Ok(());
        }
        Err(format!("{} is {:?}, wanted {wanted:?}", path.display(), found.trim()))
    }

    /// Counters, to be read after the end and before removal.
    pub(crate) fn counters(&self) -> (CgroupCounters, f64) {
        let (counters, cpu_secs) = match self.home {
            CgroupHome::V2 { .. } => (
                CgroupCounters {
                    oom_kill: self.keyed("", "memory.events", "oom_kill"),
                    pids_max: self.keyed("", "pids.events", "max"),
                    memory_peak_bytes: self.number("", "memory.peak"),
                    pids_peak: self.number("", "pids.peak"),
                    cpu_throttled: self.keyed("", "cpu.stat", "nr_throttled"),
                },
                seconds(self.keyed("", "cpu.stat", "usage_usec"), 1e6),
            ),
            CgroupHome::V1 => (
                CgroupCounters {
                    oom_kill: self.keyed("memory", "memory.oom_control", "oom_kill"),
                    pids_max: self.keyed("pids", "pids.events", "max"),
                    memory_peak_bytes: self.number("memory", "memory.max_usage_in_bytes"),
                    pids_peak: self.number("pids", "pids.peak"),
                    cpu_throttled: self.keyed("cpu", "cpu.stat", "nr_throttled"),
                },
                seconds(self.number("cpuacct", "cpuacct.usage"), 1e9),
            ),
            CgroupHome::None { .. } => (CgroupCounters::default(), 0.0),
        };
        (counters, cpu_secs)
    }

    fn number(&self, controller: &str, file: &str) -> u64 {
        read_bounded(&self.directory(controller).join(file))
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or_default()
    }

    fn keyed(&self, controller: &str, file: &str, key: &str) -> u64 {
        let text = read_bounded(&self.directory(controller).join(file)).unwrap_or_default();
        text.lines()
            .find_map(|line| line.split_once(' ').filter(|(name, _)| *name == key))
            .and_then(|(_, value)| value.trim().parse().ok())
            .unwrap_or_default()
    }

    /// Processes that are in it now.
    pub(crate) fn processes(&self) -> u64 {
        let controller = if matches!(self.home, CgroupHome::V1) { "pids" } else { "" };
        if matches!(self.home, CgroupHome::None { .. }) {
            return 0;
        }
        let text = read_bounded(&self.directory(controller).join("cgroup.procs")).unwrap_or_default();
        text.lines().count() as u64
    }

    /// Kills what is still in it and removes it; returns how many processes or directories were left.
    pub(crate) fn remove(&self) -> u64 {
        let mut leftovers = 0;
        for directory in self.directories() {
            if std::fs::remove_dir(&directory).is_ok() {
                continue;
            }
            for attempt in 0..100 {
                let pids = read_bounded(&directory.join("cgroup.procs")).unwrap_or_default();
                if attempt == 0 {
                    leftovers += pids.lines().count() as u64;
                }
                let own = std::process::id().cast_signed();
                for pid in pids.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid != own) {
                    rlox_host::kill_quietly(pid);
                }
                match std::fs::remove_dir(&directory) {
                    Ok(()) => break,
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => break,
                    Err(error) if attempt == 99 => {
                        tracing::error!(directory = %directory.display(), %error, "cannot remove a container's cgroup");
                        leftovers += 1;
                    }
                    Err(_) => std::thread::sleep(std::time::Duration::from_millis(5)),
                }
            }
        }
        leftovers
    }
}

#[expect(clippy::cast_precision_loss, reason = "52 bits of nanoseconds are 52 days of CPU")]
fn seconds(value: u64, per_second: f64) -> f64 {
    value as f64 / per_second
}

/// The cgroup of a process by its `cgroup` file; `controller` is empty for v2.
fn path_of<'a>(membership: &'a str, controller: &str) -> Option<&'a str> {
    membership.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|each| each == controller).then_some(path)
    })
}

/// `controller` is empty for v2.
fn check_membership(membership: &str, controller: &str, wanted: &str) -> Result<(), String> {
    match path_of(membership, controller) {
        Some(path) if path == wanted => Ok(()),
        Some(path) => {
            Err(format!("cgroup membership {controller:?}: the process is in {path}, wanted {wanted}"))
        }
        None => Err(format!("cgroup membership {controller:?}: no such hierarchy for the process")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn membership_outside_the_wanted_cgroup_is_refused() {
        let v1 = "4:memory:/rlox-a\n1:cpu,cpuacct:/\n0::/\n";
        assert!(check_membership(v1, "memory", "/rlox-a").is_ok());
        assert!(check_membership(v1, "cpuacct", "/rlox-a").unwrap_err().contains("is in /"));
        assert!(check_membership(v1, "pids", "/rlox-a").is_err());
        assert!(check_membership("0::/user.slice/s/rlox-a\n", "", "/user.slice/s/rlox-a").is_ok());
        let membership = "7:cpu,cpuacct:/a\n4:memory:/b/c\n1:name=systemd:/d\n0::/e\n";
        assert_eq!(path_of(membership, "cpuacct"), Some("/a"));
        assert_eq!(path_of(membership, "memory"), Some("/b/c"));
        assert_eq!(path_of(membership, "pids"), None);
    }
}
