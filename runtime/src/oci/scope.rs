//! `--systemd-cgroup`: the container's cgroup as a transient scope of the service manager, over D-Bus.
//!
//! systemd makes a scope only around a process and removes it with the last one, so a helper of ours holds it open
//! until the container's first process is in it. Limits are set as properties of the unit, which systemd keeps over a
//! reload, and written and read back in the cgroup itself like any other.

use std::path::{Path, PathBuf};

use libcgroups::common::{CgroupManager, ControllerOpt};
use libcgroups::systemd::manager::Manager;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use oci_spec::runtime::LinuxResources;
use rlox_host::{CGROUP_ROOT, read_bounded};

use super::store::real_root;
use crate::cgroup::group::Group;
use crate::sys::{self, Forked};

/// How long systemd may take to move a process.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// `SLICE:PREFIX:NAME`.
pub(crate) struct Scope {
    path: String,
    id: String,
}

/// Keeps a scope in existence; ends with its process.
pub(crate) struct Holder {
    pid: Pid,
}

impl Drop for Holder {
    fn drop(&mut self) {
        let ended = sys::kill_number(self.pid, libc::SIGKILL)
            .and_then(|()| waitpid(self.pid, None).map(drop).map_err(std::io::Error::from));
        if let Err(error) = ended {
            tracing::error!(%error, "the process that held a scope cannot be ended");
        }
    }
}

impl Scope {
    /// Reads `linux.cgroupsPath`.
    pub(crate) fn parse(path: Option<&Path>, id: &str) -> Result<Self, String> {
        let slice = if real_root() { "system.slice" } else { "user.slice" };
        let path = match path.filter(|path| !path.as_os_str().is_empty()) {
            None => format!("{slice}:rlox:{id}"),
            Some(path) => path.to_str().ok_or("linux.cgroupsPath is not UTF-8")?.to_owned(),
        };
        let parts: Vec<_> = path.split(':').collect();
        let [parent, prefix, name] = parts.as_slice() else {
            return Err(format!(
                "linux.cgroupsPath {path:?}: with --systemd-cgroup it has to be SLICE:PREFIX:NAME"
            ));
        };
        if name.is_empty() || path.contains('/') {
            return Err(format!("linux.cgroupsPath {path:?}: not a unit of systemd"));
        }
        let parent = if parent.is_empty() { slice } else { parent };
        Ok(Self { path: format!("{parent}:{prefix}:{name}"), id: id.to_owned() })
    }

    /// As it is kept in the record.
    pub(crate) fn unit(&self) -> String {
        self.path.clone()
    }

    fn manager(&self) -> Result<Manager, String> {
        if !libcgroups::systemd::booted() {
            return Err("--systemd-cgroup: this host was not booted with systemd".into());
        }
        if !Path::new(CGROUP_ROOT).join("cgroup.controllers").exists() {
            return Err("--systemd-cgroup: needs cgroup v2; leave it out on this host".into());
        }
        Manager::new(CGROUP_ROOT.into(), PathBuf::from(&self.path), self.id.clone(), real_root(), PATIENCE)
            .map_err(|error| format!("--systemd-cgroup: {error}"))
    }

    /// Makes the scope, with the limits as its properties.
    pub(crate) fn start(&self, resources: Option<&LinuxResources>) -> Result<(Group, Holder), String> {
        let manager = self.manager()?;
        let holder = hold().map_err(|error| format!("fork: {error}"))?;
        manager.add_task(holder.pid).map_err(|error| format!("--systemd-cgroup: {error}"))?;
        let membership = read_bounded(Path::new(&format!("/proc/{}/cgroup", holder.pid)))
            .map_err(|error| error.to_string())?;
        let path = membership.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
        if !path.ends_with(".scope") && !path.ends_with(".slice") {
            return Err(format!("--systemd-cgroup: systemd put the process into {path}"));
        }
        if let Some(resources) = resources {
            apply(&manager, resources)?;
        }
        Ok((Group::existing(path.into()), holder))
    }
}

/// Sets memory, tasks and CPU time as properties, so that systemd keeps them when it looks over its units. Sets of
/// processors stay with the cgroup alone: libcgroups 0.7 sends them in a form that systemd refuses, and dies of large
/// numbers.
fn apply(manager: &Manager, resources: &LinuxResources) -> Result<(), String> {
    let mut known = LinuxResources::default();
    let cpu = resources.cpu().clone().map(|mut cpu| {
        cpu.set_cpus(None).set_mems(None);
        cpu
    });
    let memory = resources.memory().map(|mut memory| {
        // Swap is a property of its own only beside a limit.
        let paired = memory.limit().is_some_and(|limit| limit > 0);
        let swap = memory.swap().filter(|swap| *swap != 0 && paired);
        memory.set_swap(swap);
        memory
    });
    known.set_memory(memory).set_pids(*resources.pids()).set_cpu(cpu);
    let options = ControllerOpt {
        resources: &known,
        disable_oom_killer: false,
        oom_score_adj: None,
        freezer_state: None,
    };
    manager.apply(&options).map_err(|error| format!("limits as properties of the scope: {error}"))
}

/// A child that does nothing, and not longer than we live.
fn hold() -> std::io::Result<Holder> {
    match sys::fork(false)? {
        Forked::Parent(pid) => Ok(Holder { pid }),
        Forked::Child => {
            let bound = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
            while bound.is_ok() {
                nix::unistd::pause();
            }
            sys::exit_child(1)
        }
    }
}

/// Changes the limits of a scope that exists.
pub(crate) fn limit(unit: &str, id: &str, resources: &LinuxResources) -> Result<(), String> {
    let scope = Scope { path: unit.to_owned(), id: id.to_owned() };
    apply(&scope.manager()?, resources)
}

/// Has systemd forget the unit. It goes by itself with its last process; a failed one stays.
pub(crate) fn forget(unit: &str) {
    let scope = Scope { path: unit.to_owned(), id: String::new() };
    let removed = scope.manager().and_then(|manager| manager.remove().map_err(|error| error.to_string()));
    if let Err(reason) = removed {
        tracing::debug!(reason, unit, "systemd does not know the unit any longer");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_slice_prefix_and_name() {
        let of = |path: &str| Scope::parse(Some(Path::new(path)), "id");
        assert_eq!(of("user.slice:libpod:x").unwrap().unit(), "user.slice:libpod:x");
        assert!(of(":libpod:x").unwrap().unit().ends_with(".slice:libpod:x"));
        assert!(Scope::parse(None, "id").unwrap().unit().ends_with(":rlox:id"));
        for bad in ["/a/b", "a:b", "a:b:", "a:b:c:d", "a:b:c/d"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
