//! One container of a launcher: made, perhaps waiting for a while, run once, removed.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use oci_spec::runtime::PosixRlimitType;
use rlox_host::CgroupHome;
use rlox_protocol::{DescriptorRole, Outcome, SandboxRequest, Stdio};

use crate::bundles::Bundles;
use crate::capture::Capture;
use crate::cgroup::ContainerCgroup;
use crate::container::{Created, Streams};
use crate::error::RuntimeError;
use crate::handover::{self, Program};
use crate::launcher::check_id;
use crate::refused::Refusals;
use crate::spec::{Adaptation, IdMap, adapt, cpu_secs};
use crate::staging::Staging;
use crate::supervise::{Watch, Watched, watch};
use crate::sys;
use crate::warm::Zygote;
use crate::workload::Confined;

/// What containers are made with.
pub(crate) struct Workshop {
    pub(crate) home: CgroupHome,
    pub(crate) ids: IdMap,
    pub(crate) staging: Staging,
    pub(crate) bundles: Bundles,
    pub(crate) zygote: Option<Zygote>,
}

/// Descriptors of a request, by role.
#[derive(Default)]
pub(crate) struct Given {
    stdin: Option<OwnedFd>,
    log: Option<OwnedFd>,
    preserve: Vec<OwnedFd>,
}

/// A container that waits for its program.
pub(crate) struct Sandbox {
    /// What it was made for.
    pub(crate) shape: SandboxRequest,
    /// How long that took.
    pub(crate) setup: Duration,
    created: Created,
    cgroup: ContainerCgroup,
    socket: OwnedFd,
    stdout: Capture,
    stderr: Capture,
    refusals: Option<Refusals>,
    warm: bool,
    mounts: Option<File>,
}

/// What is still to be removed of a container that ended.
pub(crate) struct Remains {
    id: String,
    cgroup: ContainerCgroup,
    /// Its mount namespace: nobody who waits for the end of a process waits until that is taken apart.
    mounts: Option<File>,
}

/// A run, and whether somebody is left to hear of it.
pub(crate) struct Ran {
    pub(crate) outcome: Outcome,
    pub(crate) files: Vec<OwnedFd>,
    pub(crate) orphaned: bool,
}

impl Given {
    pub(crate) fn sort(roles: &[DescriptorRole], descriptors: Vec<OwnedFd>) -> Result<Self, RuntimeError> {
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
        Ok(given)
    }
}

impl Workshop {
    /// Makes a container up to its start; leaves nothing where that fails.
    pub(crate) fn create(
        &mut self,
        request: &SandboxRequest,
        given: &mut Given,
    ) -> Result<Sandbox, RuntimeError> {
        check_id(&request.id)?;
        let remains = Remains { id: request.id.clone(), cgroup: self.cgroup(&request.id), mounts: None };
        let made = self.build(request, given);
        if made.is_err() {
            self.remove(remains);
        }
        made
    }

    fn build(&mut self, request: &SandboxRequest, given: &mut Given) -> Result<Sandbox, RuntimeError> {
        let begun = Instant::now();
        let bundle = self.bundles.get(&request.bundle, request.count_refused)?;
        let adaptation = Adaptation {
            id: &request.id,
            home: &self.home,
            ids: self.ids,
            limits: Some(&request.limits),
            args: request.args.as_deref(),
            env: &request.env,
            mounts: &request.mounts,
        };
        let spec = adapt(bundle.spec.clone(), &adaptation)?;
        let directory = self.staging.write_bundle(&request.id, spec.clone())?;
        let (stdout, stderr, streams) = streams(request.stdio, given.log.take())?;
        let (socket, theirs) = handover::pair().map_err(RuntimeError::system("making a socket"))?;
        // A copy has the environment that the launcher was started with.
        let zygote = self.zygote.filter(|_| request.warm && request.env.is_empty());
        let program = Confined { filter: bundle.filter.clone(), handover: Some(theirs.as_raw_fd()), zygote };
        let state = self.staging.state();
        let cgroup = self.cgroup(&request.id);
        let create = || {
            cgroup
                .around(|| Created::create(&request.id, &directory, &state, streams, program), undo)
                .map_err(RuntimeError::system("entering the container's cgroup"))
        };
        let created = match zygote {
            Some(zygote) => zygote.around_fork(create)??,
            None => create()??,
        };
        drop(theirs);
        let created = created.checked(&spec, bundle.filter.is_some(), &cgroup)?;
        let notifies = bundle.filter.as_ref().is_some_and(|filter| filter.notifies);
        let listener = notifies.then(|| handover::receive_listener(socket.as_fd())).transpose();
        let listener = match listener {
            Ok(listener) => listener,
            Err(error) => {
                created.abandon();
                return Err(RuntimeError::system("taking over the filter's descriptor")(error));
            }
        };
        // Up to where it is given its program, nothing but our own code runs.
        let created = created.started(&spec)?;
        // An ordinary user may not hold it.
        let mounts = File::open(format!("/proc/{}/ns/mnt", created.pid)).ok();
        Ok(Sandbox {
            shape: request.clone(),
            setup: begun.elapsed(),
            created,
            cgroup,
            socket,
            stdout,
            stderr,
            refusals: listener.map(Refusals::of),
            warm: zygote.is_some(),
            mounts,
        })
    }

    fn cgroup(&self, id: &str) -> ContainerCgroup {
        ContainerCgroup::new(&self.home, id, self.staging.hierarchies())
    }

    /// Removes everything of a container that ended; returns what could not be, and processes that were left.
    pub(crate) fn remove(&self, remains: Remains) -> u64 {
        drop(remains.mounts);
        let leftovers = remains.cgroup.remove();
        self.staging.remove_bundle(&remains.id);
        leftovers
    }
}

impl Sandbox {
    /// The container's first process, on the host.
    pub(crate) fn pid(&self) -> i32 {
        self.created.pid.as_raw()
    }

    /// Whether it was killed while it waited.
    pub(crate) fn ended(&self) -> bool {
        let mut polled = [PollFd::new(self.created.pidfd.as_fd(), PollFlags::POLLIN)];
        !matches!(poll(&mut polled, PollTimeout::ZERO), Ok(0))
    }

    /// Ends a container that is of no use.
    pub(crate) fn abandon(self) -> Remains {
        self.created.abandon();
        self.remains()
    }

    fn remains(self) -> Remains {
        Remains { id: self.shape.id, cgroup: self.cgroup, mounts: self.mounts }
    }

    /// Starts the program and watches it until its end.
    pub(crate) fn run(
        mut self,
        control: BorrowedFd<'_>,
        request: &SandboxRequest,
        given: Given,
        begun: Instant,
        pooled: bool,
    ) -> (Result<Ran, RuntimeError>, Remains) {
        let started = self.begin(request, &given);
        let setup = begun.elapsed();
        // Ours must go, or nobody would ever see the end of the program's side.
        drop(given);
        let watched = started.and_then(|()| self.watch(control, request));
        let result = watched.and_then(|watched| self.ran(request, watched, setup, pooled));
        (result, self.remains())
    }

    /// Settles what was left open when the container was made, and lets the program go; kills it where that fails.
    fn begin(&mut self, request: &SandboxRequest, given: &Given) -> Result<(), RuntimeError> {
        self.settle(request, given).inspect_err(|_| self.created.abandon())
    }

    fn settle(&mut self, request: &SandboxRequest, given: &Given) -> Result<(), RuntimeError> {
        self.stdout.keep(request.limits.output_bytes);
        self.stderr.keep(request.limits.output_bytes);
        let seconds = cpu_secs(&request.limits);
        if seconds != cpu_secs(&self.shape.limits) {
            sys::prlimit(self.created.pid, PosixRlimitType::RlimitCpu, seconds, seconds)
                .map_err(RuntimeError::system("setting the limit on CPU seconds"))?;
        }
        let program = Program { args: request.args.clone(), stdin: given.stdin.is_some() };
        let descriptors: Vec<_> = given.stdin.iter().chain(&given.preserve).map(AsFd::as_fd).collect();
        handover::give(self.socket.as_fd(), &program, &descriptors)
            .map_err(|error| RuntimeError::Request { reason: error.to_string() })
    }

    fn watch(&mut self, control: BorrowedFd<'_>, request: &SandboxRequest) -> Result<Watched, RuntimeError> {
        let mut watching = Watch {
            control: Some(control),
            interrupt: None,
            stdout: &mut self.stdout,
            stderr: &mut self.stderr,
            limits: Some(&request.limits),
            cgroup: Some(&self.cgroup),
            refusals: self.refusals.as_mut(),
        };
        watch(&self.created, &mut watching)
    }

    fn ran(
        &mut self,
        request: &SandboxRequest,
        watched: Watched,
        setup: Duration,
        pooled: bool,
    ) -> Result<Ran, RuntimeError> {
        let take = |capture: &mut Capture| {
            let capture = std::mem::replace(capture, Capture::none());
            capture.finish().map_err(RuntimeError::system("taking a program's output"))
        };
        let (stdout, first) = take(&mut self.stdout)?;
        let (stderr, second) = take(&mut self.stderr)?;
        let (cgroup, cpu_secs) = self.cgroup.counters();
        let outcome = Outcome {
            id: request.id.clone(),
            ending: watched.ending,
            finished_early: watched.finished_early,
            stdout,
            stderr,
            pooled,
            warm: self.warm,
            setup_secs: setup.as_secs_f64(),
            wall_secs: watched.wall.as_secs_f64(),
            // What setting it up took is not the program's.
            cpu_secs: (cpu_secs - watched.before.as_secs_f64()).max(0.0),
            load: watched.load,
            cgroup,
            refused: self.refusals.take().map(Refusals::finish).unwrap_or_default(),
            leftovers: self.cgroup.processes(),
        };
        let files = first.into_iter().chain(second).collect();
        Ok(Ran { outcome, files, orphaned: watched.orphaned })
    }
}

/// A container that cannot stay.
pub(crate) fn undo(made: Result<Created, RuntimeError>) {
    if let Ok(created) = made {
        created.abandon();
    }
}

fn streams(stdio: Stdio, log: Option<OwnedFd>) -> Result<(Capture, Capture, Streams), RuntimeError> {
    let piped = || Capture::pipe().map_err(RuntimeError::system("making an output pipe"));
    let null = std::fs::File::open("/dev/null").map_err(RuntimeError::system("opening /dev/null"))?;
    let stdin = Some(OwnedFd::from(null));
    match stdio {
        Stdio::Capture => {
            let ((stdout, out), (stderr, err)) = (piped()?, piped()?);
            Ok((stdout, stderr, Streams { stdin, stdout: Some(out), stderr: Some(err) }))
        }
        Stdio::Log => {
            let log =
                log.ok_or_else(|| RuntimeError::Request { reason: "no descriptor with role log".into() })?;
            let copy = log.try_clone().map_err(RuntimeError::system("copying a descriptor"))?;
            Ok((Capture::none(), Capture::none(), Streams { stdin, stdout: Some(log), stderr: Some(copy) }))
        }
        Stdio::Inherit => {
            Ok((Capture::none(), Capture::none(), Streams { stdin, stdout: None, stderr: None }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_without_a_role_are_refused() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(Given::sort(&[], vec![file.into()]).is_err());
    }
}
