//! Trials as containers of `rlox-runtime`: bundle `trainer`, no network, a socket to the service.
//!
//! A container does not outlive its launcher, which ends when its controller does; the kernel ends the container's
//! first process with the launcher, too. So after a crash there is most often nothing left but a cgroup. What is
//! left all the same, say a launcher that is stopped, is found by the owner in its command line and ended.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rlox_host::Owner;
use rlox_protocol::{BindMount, Command, DescriptorRole, Limits, Reply, SandboxRequest, Stdio};
use rlox_report::Condition;

use super::{Attempt, Engine, EngineError, Facts, Handle, Look, Order};
use crate::sandbox::{Environment, Launcher, SandboxError};
use crate::sweep::files::LOG;
use crate::sweep::plan::{CORPUS, EngineKind};
use crate::sweep::tree;

/// Where a trial finds things in its container.
const OUTPUT: &str = "/opt/rlox/out";
const SOCKET: &str = "unix:/opt/rlox/run/verify.sock";
const LIBRARY: &str = "librlox_rl_ops_ffi.so";
/// A launcher without a controller leaves within a moment; after this it is killed.
const LEAVE: Duration = Duration::from_secs(5);

/// What every trial shares.
pub(in crate::sweep) struct RuntimeEngine {
    environment: Arc<Environment>,
    first_slot: u16,
    /// Directory with the service's socket.
    socket: PathBuf,
    /// Directory with the advantages' library.
    library: PathBuf,
}

fn system(action: impl Into<String>) -> impl FnOnce(io::Error) -> EngineError {
    let action = action.into();
    move |source| EngineError::System { action, source }
}

impl RuntimeEngine {
    /// Trials of a service, in launchers beside the ones of its pool.
    pub(in crate::sweep) fn new(environment: &Arc<Environment>, first_slot: u16) -> Self {
        // Below a directory that only its owner may search: other users of the host must not reach the service.
        let socket = environment.path("private").join("run");
        let library = environment.path("lib");
        Self { environment: Arc::clone(environment), first_slot, socket, library }
    }

    /// Makes the shared directories, where they are not there yet: the socket's, and a copy of the library.
    pub(in crate::sweep) fn prepare(&self) -> io::Result<()> {
        if !self.socket.is_dir() {
            let private = self.environment.private_subdirectory("private")?;
            fs::DirBuilder::new().mode(0o711).create(private.join("run"))?;
        }
        self.environment.subdirectory("lib")?;
        let built = self.environment.home.runtime.with_file_name(LIBRARY);
        fs::copy(&built, self.library.join(LIBRARY)).map(drop).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("{}: {error}; build it with: cargo build --release", built.display()),
            )
        })
    }

    /// The socket that the service has to listen on.
    pub(in crate::sweep) fn socket_file(&self) -> PathBuf {
        self.socket.join("verify.sock")
    }

    fn request(&self, order: &Order<'_>) -> Result<SandboxRequest, SandboxError> {
        let bind = |source: &Path, destination: &str, writable: bool| BindMount {
            source: source.to_owned(),
            destination: destination.into(),
            writable,
        };
        let limits = order.plan.limits;
        let script = ["/opt/rlox/venv/bin/python", "-E", "-s", "-B", "/opt/rlox/harness/trl_grpo_run.py"];
        let mut args: Vec<String> = script.map(str::to_owned).to_vec();
        args.extend(order.plan.arguments(order.key, SOCKET, OUTPUT, CORPUS));
        let bundle = self.environment.home.bundle("trainer");
        let mut mounts =
            vec![bind(order.directory, OUTPUT, true), bind(&self.library, "/opt/rlox/lib", false)];
        if order.key.condition == Condition::Rlox {
            // The baseline has no business with the service: code that took the trainer over would find it there.
            mounts.push(bind(&self.socket, "/opt/rlox/run", false));
        }
        Ok(SandboxRequest {
            id: order.handle.id.clone(),
            bundle: bundle.map_err(|error| SandboxError::Fault { message: error.to_string() })?,
            args: Some(args),
            env: vec![format!("RLOX_RL_OPS_LIB=/opt/rlox/lib/{LIBRARY}")],
            mounts,
            warm: false,
            limits: Limits {
                cpu_ms: u64::MAX,
                wall_ms: limits.wall_secs * 1000,
                wall_most_ms: limits.wall_secs * 1000,
                memory_bytes: limits.memory_mb << 20,
                pids: limits.pids,
                cpu_millis: 2000,
                output_bytes: 0,
                flood_bytes: u64::MAX,
                file_bytes: limits.disk_mb << 20,
                open_files: 1024,
            },
            count_refused: false,
            stdio: Stdio::Log,
            descriptors: vec![DescriptorRole::Log],
        })
    }
}

impl Engine for RuntimeEngine {
    fn name(&self, lane: u16) -> Handle {
        Handle { engine: EngineKind::Runtime, id: self.environment.container_id(self.first_slot + lane) }
    }

    fn start(&self, order: &Order<'_>) -> Result<Box<dyn Attempt>, EngineError> {
        let log = open_log(order.directory)?;
        let slot = self.first_slot + order.lane;
        let launcher = Launcher::start(&self.environment, slot)?;
        give(order.directory, rlox_host::container_ids(slot, 1000))?;
        launcher.run(self.request(order)?, &[log.as_fd()])?;
        let directory = order.directory.to_owned();
        // Its own limit of time ends it; this is for a launcher that does not answer.
        let latest =
            Instant::now() + Duration::from_secs(order.plan.limits.wall_secs) + Duration::from_secs(120);
        Ok(Box::new(Running { launcher: Some(launcher), directory, process: None, latest }))
    }

    fn find(&self, handle: &Handle) -> bool {
        let Some((owner, slot)) = owner_and_slot(&handle.id) else { return false };
        !launchers(owner, slot).is_empty() || rlox_host::container_runs(&self.environment.cgroups, &handle.id)
    }

    fn end(&self, handle: &Handle) -> Result<(), EngineError> {
        let Some((owner, slot)) = owner_and_slot(&handle.id) else { return Ok(()) };
        if owner.running() {
            return Err(EngineError::Alive { id: handle.id.clone(), pid: owner.pid() });
        }
        let patience = Instant::now() + LEAVE;
        loop {
            let left = launchers(owner, slot);
            if left.is_empty() {
                break;
            }
            if Instant::now() > patience + LEAVE {
                return Err(EngineError::Remains { id: handle.id.clone() });
            }
            if Instant::now() > patience {
                tracing::warn!(
                    ?left,
                    container = handle.id,
                    "killing a launcher that a dead controller left"
                );
                left.into_iter().for_each(rlox_host::kill_quietly);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // What a killed launcher left; its own way out removes everything.
        rlox_host::remove_of_slot(&self.environment.cgroups, &handle.id);
        if rlox_host::container_runs(&self.environment.cgroups, &handle.id) {
            return Err(EngineError::Remains { id: handle.id.clone() });
        }
        Ok(())
    }
}

/// From `PID.START-SLOT-NUMBER`.
fn owner_and_slot(id: &str) -> Option<(Owner, u16)> {
    let mut parts = id.split('-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The launchers of one slot of a controller, by their own directory on the command line.
fn launchers(owner: Owner, slot: u16) -> Vec<i32> {
    let ending = format!("/rlox-{owner}/launcher-{slot}");
    let is_launcher = |pid: i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        words.any(|word| word == b"launcher") && words.any(|word| word.ends_with(ending.as_bytes()))
    };
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| is_launcher(*pid))
        .collect()
}

/// A container that runs.
struct Running {
    launcher: Option<Launcher>,
    directory: PathBuf,
    process: Option<i32>,
    latest: Instant,
}

impl Running {
    fn launcher(&self) -> Result<&Launcher, EngineError> {
        let ended = || SandboxError::Spawn { reason: "the launcher was ended".into() };
        Ok(self.launcher.as_ref().ok_or_else(ended)?)
    }

    /// Ends the launcher, and makes everything in the directory ours again.
    fn close(&mut self) {
        if self.launcher.take().is_none() {
            return;
        }
        self.process = None;
        if nix::unistd::geteuid().is_root()
            && let Err(error) = tree::own(&self.directory)
        {
            // Whose they are is a convenience; how the trial ended is not to be lost for it.
            tracing::warn!(directory = %self.directory.display(), %error, "a trial's files stay the container user's");
        }
    }
}

impl Attempt for Running {
    fn look(&mut self, until: Instant) -> Result<Look, EngineError> {
        match self.launcher()?.wait_reply(until)? {
            Some(Reply::Started { pid }) => {
                self.process = Some(pid);
                Ok(Look::Started)
            }
            Some(Reply::Outcome(outcome)) => {
                self.close();
                Ok(Look::Ended(Box::new(Facts::from(&*outcome))))
            }
            Some(Reply::Fault(fault)) => Err(SandboxError::Fault { message: fault.message }.into()),
            Some(_) | None if Instant::now() > self.latest => {
                Err(SandboxError::Stuck { slot: self.launcher()?.slot(), seconds: 120.0 }.into())
            }
            Some(_) | None => Ok(Look::Running),
        }
    }

    fn end(&mut self) -> Result<(), EngineError> {
        Ok(self.launcher()?.tell(&Command::Kill, &[])?)
    }

    fn process(&self) -> Option<i32> {
        self.process
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.close();
    }
}

fn open_log(directory: &Path) -> Result<File, EngineError> {
    let path = directory.join(LOG);
    File::options()
        .create_new(true)
        .append(true)
        .custom_flags(nix::libc::O_NOFOLLOW)
        .open(&path)
        .map_err(system(format!("opening {}", path.display())))
}

/// Makes the trial's directory the container user's.
fn give(directory: &Path, ids: Option<(u32, u32)>) -> Result<(), EngineError> {
    let Some((uid, gid)) = ids else { return Ok(()) };
    lchown(directory, Some(uid), Some(gid)).map_err(system(format!("handing over {}", directory.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_id_names_its_owner_and_slot() {
        let (owner, slot) = owner_and_slot("12.345-7-0").unwrap();
        assert_eq!((owner.to_string().as_str(), slot), ("12.345", 7));
        for bad in ["", "12-7-0", "12.345", "x.y-1-2", "12.345-99999-0"] {
            assert!(owner_and_slot(bad).is_none(), "{bad}");
        }
    }
}
