//! The launcher: a single-threaded process that runs one container at a time for the controller.
//!
//! Its control socket is descriptor 0. End of file there means that the controller is gone: the container is
//! killed and removed, and the launcher ends. It holds no secret: what it knows is the request.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Instant;

use oci_spec::runtime::Spec;
use rlox_host::CgroupHome;
use rlox_protocol::{
    CgroupCounters, Command, DescriptorRole, Outcome, RefusedCalls, Reply, SandboxRequest, Stdio, WireError,
    receive, send,
};

use crate::capture::Capture;
use crate::cgroup::ContainerCgroup;
use crate::container::{Created, Streams};
use crate::error::RuntimeError;
use crate::refused::{Listener, Refusals, watch_calls};
use crate::spec::{Adaptation, IdMap, absolute, adapt};
use crate::staging::Staging;
use crate::supervise::{Watch, Watched, watch};
use crate::sys::ReservedNumbers;

const RESERVED: u8 = 4;

/// What a launcher is started with.
#[derive(Debug)]
pub struct Options {
    /// Which launcher of the controller this is; decides the range of host ids.
    pub slot: u16,
    /// A directory of this launcher's own, made and removed by the controller.
    pub directory: PathBuf,
    /// Where cgroups go.
    pub home: CgroupHome,
}

struct Launcher {
    options: Options,
    control: OwnedFd,
    numbers: ReservedNumbers,
    staging: Staging,
}

/// Serves requests until the control socket reaches its end.
pub fn serve(options: Options) -> Result<(), RuntimeError> {
    let numbers = ReservedNumbers::take(RESERVED).map_err(RuntimeError::system("reserving descriptors"))?;
    let control = numbers.adopt(0).map_err(RuntimeError::system("taking the control socket"))?;
    let null = std::fs::File::open("/dev/null").map_err(RuntimeError::system("opening /dev/null"))?;
    nix::unistd::dup2(null.as_raw_fd(), 0).map_err(|errno| RuntimeError::System {
        action: "clearing descriptor 0".into(),
        source: errno.into(),
    })?;
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    let staging = Staging::prepare(&options.directory)?;
    let mut launcher = Launcher { options, control, numbers, staging };
    loop {
        match receive::<Command>(launcher.control.as_fd()) {
            Ok((Command::Run(request), descriptors)) => {
                let (reply, orphaned) = match launcher.run(&request, descriptors) {
                    Ok((outcome, orphaned)) => (Reply::Outcome(Box::new(outcome)), orphaned),
                    Err(error) => (Reply::Fault(error.to_fault()), false),
                };
                if orphaned || !launcher.reply(&reply)? {
                    return Ok(());
                }
            }
            // Meant for a container that ended by itself in the meantime.
            Ok((Command::Finish { .. } | Command::Beside | Command::Kill, _)) => {}
            Err(WireError::Closed) => return Ok(()),
            Err(error) => return Err(RuntimeError::Request { reason: error.to_string() }),
        }
    }
}

impl Launcher {
    /// Whether the controller is still there to hear it.
    fn reply(&self, reply: &Reply) -> Result<bool, RuntimeError> {
        match send(self.control.as_fd(), reply, &[]) {
            Ok(()) => Ok(true),
            Err(WireError::Io { .. } | WireError::Closed) => Ok(false),
            Err(error) => Err(RuntimeError::Request { reason: error.to_string() }),
        }
    }

    fn run(
        &mut self,
        request: &SandboxRequest,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(Outcome, bool), RuntimeError> {
        let begun = Instant::now();
        check_id(&request.id)?;
        let given = Given::sort(&request.descriptors, descriptors)?;
        let mut spec = self.spec(request)?;
        let listener = self.listen(request, &mut spec)?;
        let bundle = self.staging.write_bundle(&request.id, spec.clone())?;
        let cgroup = ContainerCgroup::new(&self.options.home, &request.id);
        let result = self.run_bundle(request, &spec, &bundle, given, &cgroup, listener.as_ref(), begun);
        let (counters, cpu_secs) = cgroup.counters();
        let leftovers = cgroup.remove();
        self.staging.remove_bundle(&request.id);
        let (mut outcome, orphaned) = result?;
        outcome.cgroup = counters;
        outcome.cpu_secs = cpu_secs;
        outcome.leftovers = leftovers;
        Ok((outcome, orphaned))
    }

    fn spec(&self, request: &SandboxRequest) -> Result<Spec, RuntimeError> {
        let path = request.bundle.join("config.json");
        let spec = Spec::load(&path).map_err(|error| RuntimeError::Bundle {
            bundle: request.bundle.clone(),
            reason: format!("cannot load config.json: {error}"),
        })?;
        let adaptation = Adaptation {
            id: &request.id,
            home: &self.options.home,
            ids: IdMap::for_slot(self.options.slot),
            limits: Some(&request.limits),
            args: request.args.as_deref(),
            env: &request.env,
            mounts: &request.mounts,
        };
        adapt(absolute(spec, &request.bundle), &adaptation)
    }

    /// Where the filter asks about watched calls, if they are to be counted.
    fn listen(&self, request: &SandboxRequest, spec: &mut Spec) -> Result<Option<Listener>, RuntimeError> {
        let mut linux = spec.linux().clone().filter(|_| request.count_refused);
        let Some(mut seccomp) = linux.as_ref().and_then(|linux| linux.seccomp().clone()) else {
            return Ok(None);
        };
        let listener = Listener::bind(&self.staging.state(), &request.id)?;
        watch_calls(&mut seccomp, listener.path())?;
        if let Some(linux) = &mut linux {
            linux.set_seccomp(Some(seccomp));
        }
        spec.set_linux(linux);
        Ok(Some(listener))
    }

    #[expect(clippy::too_many_arguments, reason = "one container's parts, used once")]
    fn run_bundle(
        &self,
        request: &SandboxRequest,
        spec: &Spec,
        bundle: &std::path::Path,
        given: Given,
        cgroup: &ContainerCgroup,
        listener: Option<&Listener>,
        begun: Instant,
    ) -> Result<(Outcome, bool), RuntimeError> {
        let (mut stdout, mut stderr, streams) = streams(request, given.stdin, given.log)?;
        let preserved = i32::try_from(given.preserve.len()).unwrap_or(i32::from(RESERVED));
        let descriptors = RuntimeError::system("placing descriptors");
        self.numbers.place(&given.preserve).map_err(descriptors)?;
        let created = Created::create(&request.id, bundle, &self.staging.state(), streams, preserved);
        self.numbers.clear().map_err(RuntimeError::system("closing descriptors"))?;
        // Ours must go, or nobody would ever see the end of the program's side.
        drop(given.preserve);
        let created = created?.checked(spec, cgroup)?;
        let mut refusals = match listener.map(Listener::refusals).transpose() {
            Ok(refusals) => refusals,
            Err(error) => {
                created.abandon();
                return Err(error);
            }
        };
        if !self.reply(&Reply::Started { pid: created.pid.as_raw() })? {
            created.abandon();
            return Ok((ended_before_start(request), true));
        }
        let setup_secs = begun.elapsed().as_secs_f64();
        let created = created.started()?;
        let mut watching = Watch {
            control: Some(self.control.as_fd()),
            interrupt: None,
            stdout: &mut stdout,
            stderr: &mut stderr,
            limits: Some(&request.limits),
            cgroup: Some(cgroup),
            refusals: refusals.as_mut(),
        };
        let watched = watch(&created, &mut watching)?;
        let (mut outcome, orphaned) = outcome(request, watched, stdout, stderr, setup_secs);
        outcome.refused = refusals.map(Refusals::finish).unwrap_or_default();
        Ok((outcome, orphaned))
    }
}

fn outcome(
    request: &SandboxRequest,
    watched: Watched,
    stdout: Capture,
    stderr: Capture,
    setup_secs: f64,
) -> (Outcome, bool) {
    let outcome = Outcome {
        id: request.id.clone(),
        ending: watched.ending,
        finished_early: watched.finished_early,
        stdout: stdout.finish(),
        stderr: stderr.finish(),
        setup_secs,
        wall_secs: watched.wall.as_secs_f64(),
        cpu_secs: 0.0,
        load: watched.load,
        cgroup: CgroupCounters::default(),
        refused: RefusedCalls::default(),
        leftovers: 0,
    };
    (outcome, watched.orphaned)
}

fn ended_before_start(request: &SandboxRequest) -> Outcome {
    let watched = Watched {
        ending: rlox_protocol::Ending::Cancelled,
        wall: std::time::Duration::ZERO,
        load: rlox_protocol::Load::default(),
        finished_early: true,
        orphaned: true,
    };
    outcome(request, watched, Capture::none(), Capture::none(), 0.0).0
}

/// Descriptors of a request, by role.
#[derive(Default)]
struct Given {
    stdin: Option<OwnedFd>,
    log: Option<OwnedFd>,
    preserve: Vec<OwnedFd>,
}

impl Given {
    fn sort(roles: &[DescriptorRole], descriptors: Vec<OwnedFd>) -> Result<Self, RuntimeError> {
        if roles.len() != descriptors.len() {
            let reason = format!("{} descriptors came for {} roles", descriptors.len(), roles.len());
            return Err(RuntimeError::Request { reason });
        }
        let mut given = Self::default();
        for (role, descriptor) in roles.iter().zip(descriptors) {
            match role {
                DescriptorRole::Stdin => given.stdin = Some(descriptor),
                DescriptorRole::Log => given.log = Some(descriptor),
                DescriptorRole::Preserve => given.preserve.push(descriptor),
            }
        }
        if given.preserve.len() > usize::from(RESERVED) {
            let reason = format!("at most {RESERVED} preserved descriptors, {} came", given.preserve.len());
            return Err(RuntimeError::Request { reason });
        }
        Ok(given)
    }
}

fn streams(
    request: &SandboxRequest,
    stdin: Option<OwnedFd>,
    log: Option<OwnedFd>,
) -> Result<(Capture, Capture, Streams), RuntimeError> {
    let piped =
        || Capture::pipe(request.limits.output_bytes).map_err(RuntimeError::system("making an output pipe"));
    let null = || {
        std::fs::File::open("/dev/null").map(OwnedFd::from).map_err(RuntimeError::system("opening /dev/null"))
    };
    let stdin = Some(stdin.map_or_else(null, Ok)?);
    match request.stdio {
        Stdio::Capture => {
            let ((stdout, out), (stderr, err)) = (piped()?, piped()?);
            Ok((stdout, stderr, Streams { stdin, stdout: Some(out), stderr: Some(err) }))
        }
        Stdio::Log => {
            let log =
                log.ok_or_else(|| RuntimeError::Request { reason: "no descriptor with role log".into() })?;
            let copy = clone(log.as_fd())?;
            Ok((Capture::none(), Capture::none(), Streams { stdin, stdout: Some(log), stderr: Some(copy) }))
        }
        Stdio::Inherit => {
            Ok((Capture::none(), Capture::none(), Streams { stdin, stdout: None, stderr: None }))
        }
    }
}

fn clone(descriptor: BorrowedFd<'_>) -> Result<OwnedFd, RuntimeError> {
    descriptor.try_clone_to_owned().map_err(RuntimeError::system("copying a descriptor"))
}

/// The id becomes a directory and a cgroup name.
pub(crate) fn check_id(id: &str) -> Result<(), RuntimeError> {
    let valid = !id.is_empty()
        && id.len() <= 128
        && id.chars().all(|each| each.is_ascii_alphanumeric() || "-_.".contains(each))
        && !id.starts_with('.');
    if valid {
        return Ok(());
    }
    let reason =
        format!("container id {id:?}: use 1 to 128 letters, digits, '-', '_', '.', not starting with '.'");
    Err(RuntimeError::Request { reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_could_leave_their_directory_are_refused() {
        for bad in ["", ".", "..", "a/b", "../x", "a b", "é"] {
            assert!(check_id(bad).is_err(), "{bad:?}");
        }
        assert!(check_id("12.34-0-1").is_ok());
    }

    #[test]
    fn descriptors_without_a_role_are_refused() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(Given::sort(&[], vec![file.into()]).is_err());
    }
}
