//! The only user of `libcontainer`: create, check, start, remove.

pub(crate) mod executor;
pub(crate) mod tenant;

use std::os::fd::OwnedFd;
use std::path::Path;

use libcontainer::container::Container;
use libcontainer::container::builder::ContainerBuilder;
use libcontainer::notify_socket::{NOTIFY_FILE, NotifySocket};
use libcontainer::syscall::syscall::SyscallType;
use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use oci_spec::runtime::{Capabilities, Capability, Spec};
use rlox_host::read_bounded;

use crate::cgroup::{ContainerCgroup, Wanted};
use crate::error::{RuntimeError, chain};
use crate::oci::CAPABILITIES;
use crate::sys;
use crate::workload::Confined;

/// Standard streams of the program; an absent one is inherited.
#[derive(Default)]
pub(crate) struct Streams {
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
}

const OOM_SCORE: &str = "/proc/self/oom_score_adj";

/// How an OCI container is made.
pub(crate) struct Making<'a> {
    pub(crate) console_socket: Option<&'a Path>,
    pub(crate) preserved: i32,
    pub(crate) no_pivot: bool,
    pub(crate) program: executor::Program,
}

/// A created container: its init waits, everything but `exec` is done.
pub(crate) struct Created {
    container: Container,
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
}

impl Created {
    /// Builds the container. The init process is our child, also when this fails: then it is reaped here.
    pub(crate) fn create(
        id: &str,
        bundle: &Path,
        state: &Path,
        streams: Streams,
        program: Confined,
    ) -> Result<Self, RuntimeError> {
        let failed = |error: &dyn std::error::Error| {
            reap_all();
            RuntimeError::Create { id: id.to_owned(), reason: chain(error) }
        };
        let mut builder = ContainerBuilder::new(id.to_owned(), SyscallType::default())
            .with_root_path(state)
            .map_err(|error| failed(&error))?
            .with_executor(program);
        if let Some(stdin) = streams.stdin {
            builder = builder.with_stdin(stdin);
        }
        if let Some(stdout) = streams.stdout {
            builder = builder.with_stdout(stdout);
        }
        if let Some(stderr) = streams.stderr {
            builder = builder.with_stderr(stderr);
        }
        let container =
            builder.as_init(bundle).with_systemd(false).build().map_err(|error| failed(&error))?;
        Self::of(container, id)
    }

    /// Builds the container of an OCI bundle that was adapted, with its state below `state`.
    pub(crate) fn make(
        id: &str,
        bundle: &Path,
        state: &Path,
        making: Making<'_>,
    ) -> Result<Self, RuntimeError> {
        let failed =
            |error: &dyn std::error::Error| RuntimeError::Create { id: id.to_owned(), reason: chain(error) };
        let builder = ContainerBuilder::new(id.to_owned(), SyscallType::default())
            .with_root_path(state)
            .map_err(|error| failed(&error))?
            .with_preserved_fds(making.preserved)
            .with_console_socket(making.console_socket)
            .with_executor(making.program);
        let builder =
            builder.as_init(bundle).with_systemd(false).with_detach(true).with_no_pivot(making.no_pivot);
        let score = std::fs::read_to_string(OOM_SCORE).unwrap_or_default();
        let built = builder.build().map_err(|error| failed(&error));
        // libcontainer leaves us with the container's score, and so that /proc of this process is closed to its user.
        nix::sys::prctl::set_dumpable(true).map_err(|errno| RuntimeError::system("prctl")(errno.into()))?;
        if let Err(error) = std::fs::write(OOM_SCORE, score.trim()) {
            tracing::debug!(%error, "the runtime keeps the container's OOM score");
        }
        let container = built?;
        Self::of(container, id)
    }

    fn of(container: Container, id: &str) -> Result<Self, RuntimeError> {
        let pid = container.pid().ok_or_else(|| RuntimeError::Create {
            id: id.to_owned(),
            reason: "libcontainer reported no process".into(),
        })?;
        // libcontainer uses its own version of nix; the number is the process.
        let pid = Pid::from_raw(pid.as_raw());
        let pidfd = sys::pidfd_open(pid).map_err(RuntimeError::system("opening a pidfd of the container"))?;
        Ok(Self { container, pid, pidfd })
    }

    /// Reads back from the kernel that the layers asked for are in force in the waiting process.
    pub(crate) fn verify(&self, spec: &Spec, filtered: bool) -> Result<(), String> {
        let path = format!("/proc/{}/status", self.pid);
        let status = read_bounded(Path::new(&path)).map_err(|error| error.to_string())?;
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim).to_owned()
        };
        let expect = |name: &str, wanted: &str| {
            let found = field(name);
            if found == wanted { Ok(()) } else { Err(format!("{name} is {found:?}, wanted {wanted:?}")) }
        };
        let process = spec.process().as_ref().ok_or("no process section")?;
        if process.no_new_privileges() == Some(true) {
            // libcontainer discards a failure of this call.
            expect("NoNewPrivs:", "1")?;
        }
        if filtered || spec.linux().as_ref().is_some_and(|linux| linux.seccomp().is_some()) {
            expect("Seccomp:", "2")?;
        }
        if let Some(sets) = process.capabilities() {
            for (name, wanted) in [
                ("CapInh:", sets.inheritable()),
                ("CapPrm:", sets.permitted()),
                ("CapEff:", sets.effective()),
                ("CapBnd:", sets.bounding()),
                ("CapAmb:", sets.ambient()),
            ] {
                let found = field(name);
                let mask =
                    u64::from_str_radix(&found, 16).map_err(|error| format!("{name} {found:?}: {error}"))?;
                let more = mask & !capability_mask(wanted.as_ref());
                if more != 0 {
                    return Err(format!("{name} is {found}, which has {more:016x} more than was asked for"));
                }
            }
        }
        Ok(())
    }

    /// This container, if every layer and limit that was asked for is in force; otherwise it is killed.
    /// `filtered`: besides a filter in the spec, one of ours was to be loaded.
    pub(crate) fn checked(
        self,
        spec: &Spec,
        filtered: bool,
        cgroup: &ContainerCgroup,
    ) -> Result<Self, RuntimeError> {
        let wanted = Wanted::of(spec);
        let resources = spec.linux().as_ref().and_then(|linux| linux.resources().as_ref());
        let result = self
            .verify(spec, filtered)
            .and_then(|()| cgroup.complete(&wanted, resources))
            .and_then(|()| cgroup.verify(self.pid, &wanted));
        match result {
            Ok(()) => Ok(self),
            Err(reason) => {
                self.abandon();
                Err(RuntimeError::Verify { id: self.container.id().to_owned(), reason })
            }
        }
    }

    /// Lets the program run; kills the container where that fails. What libcontainer does besides is hooks, and notes
    /// for those who look a container up by its name later: nobody does.
    pub(crate) fn started(mut self, spec: &Spec) -> Result<Self, RuntimeError> {
        let started = if spec.hooks().is_some() {
            self.container.start().map_err(|error| chain(&error))
        } else {
            let mut socket = NotifySocket::new(self.container.root.join(NOTIFY_FILE));
            socket.notify_container_start().map_err(|error| chain(&error))
        };
        match started {
            Ok(()) => Ok(self),
            Err(reason) => {
                self.abandon();
                let reason = format!("start: {reason}");
                Err(RuntimeError::Create { id: self.container.id().to_owned(), reason })
            }
        }
    }

    /// Waits for the init process, which has ended or was killed.
    pub(crate) fn reap(&self) -> Result<WaitStatus, RuntimeError> {
        loop {
            match waitpid(self.pid, None) {
                Err(Errno::EINTR) => {}
                Ok(status) => return Ok(status),
                Err(errno) => {
                    return Err(RuntimeError::System {
                        action: format!("waiting for process {}", self.pid),
                        source: errno.into(),
                    });
                }
            }
        }
    }

    /// Kills and reaps a container that nobody watches any longer.
    pub(crate) fn abandon(&self) {
        use std::os::fd::AsFd;
        if let Err(error) = sys::pidfd_kill(self.pidfd.as_fd()) {
            tracing::error!(%error, pid = %self.pid, "cannot kill an abandoned container");
        }
        if let Err(error) = self.reap() {
            tracing::error!(%error, "cannot reap an abandoned container");
        }
    }
}

/// The kernel's bits for a set of capabilities.
fn capability_mask(set: Option<&Capabilities>) -> u64 {
    let bit = |capability: &Capability| {
        let name = serde_json::to_value(capability).ok()?;
        CAPABILITIES.iter().position(|known| Some(*known) == name.as_str())
    };
    set.into_iter().flatten().filter_map(bit).fold(0, |mask, bit| mask | 1 << bit)
}

/// Tells the init of a created OCI container to go on; says what prevented it.
pub(crate) fn release(state: &Path, id: &str) -> Result<(), String> {
    let mut container = Container::load(state.join(id)).map_err(|error| chain(&error))?;
    container.start().map_err(|error| chain(&error))
}

/// Reaps every child that a failed build left: killed children end soon, so wait for a bounded time.
pub(crate) fn reap_all() {
    for _ in 0..200 {
        match waitpid(None, Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL)) {
            Ok(WaitStatus::StillAlive) => std::thread::sleep(std::time::Duration::from_millis(5)),
            Err(Errno::ECHILD) => return,
            Ok(_) | Err(_) => {}
        }
    }
    tracing::error!("a child of a failed container creation is still alive after a second");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_have_the_kernels_numbers() {
        let set: Capabilities =
            serde_json::from_str(r#"["CAP_CHOWN", "CAP_NET_BIND_SERVICE", "CAP_CHECKPOINT_RESTORE"]"#)
                .unwrap();
        assert_eq!(capability_mask(Some(&set)), 1 | 1 << 10 | 1 << 40);
        assert_eq!(capability_mask(None), 0);
    }
}
