//! The launcher: a single-threaded process that runs one container at a time for the controller.
//!
//! Its control socket is descriptor 0. End of file there means that the controller is gone: the container is
//! killed and removed, and the launcher ends. It holds no secret, and nothing of a program's: what it knows is the
//! request. A container that it makes ahead waits here for its one program.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Instant;

use nix::fcntl::{FcntlArg, fcntl};
use rlox_host::CgroupHome;
use rlox_protocol::{Command, Interpreter, Reply, SandboxRequest, WireError, receive, send};

use crate::bundles::Bundles;
use crate::error::RuntimeError;
use crate::sandbox::{Given, Sandbox, Workshop};
use crate::spec::IdMap;
use crate::staging::{Joining, Staging};
use crate::warm::Zygote;
use crate::{sealed, sys};

/// What a launcher is started with.
#[derive(Debug)]
pub struct Options {
    /// Which launcher of the controller this is; decides the range of host ids.
    pub slot: u16,
    /// A directory of this launcher's own, made and removed by the controller.
    pub directory: PathBuf,
    /// Where cgroups go.
    pub home: CgroupHome,
    /// The bundle whose interpreter is started here, to be copied.
    pub warm: Option<PathBuf>,
    /// Modules that it imports.
    pub preload: Vec<String>,
}

struct Launcher {
    control: OwnedFd,
    workshop: Workshop,
    waiting: Vec<Sandbox>,
}

/// Above any deadline that a controller allows.
const LONGEST_MS: u64 = 24 * 3600 * 1000;

/// Whether the launcher goes on.
type Go = bool;

/// Serves requests until the control socket reaches its end.
pub fn serve(options: Options) -> Result<(), RuntimeError> {
    if options.warm.is_some() && !nix::unistd::geteuid().is_root() {
        sealed::ensure()?;
    }
    let control = take_control()?;
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    let staging = Staging::prepare(&options.directory, &options.home, Joining::Born)?;
    let (zygote, interpreter) = interpreter(&options);
    let workshop = Workshop {
        home: options.home,
        ids: IdMap::for_slot(options.slot),
        staging,
        bundles: Bundles::default(),
        zygote,
    };
    let mut launcher = Launcher { control, workshop, waiting: Vec::new() };
    let result = launcher.serve(&Reply::Ready(interpreter));
    launcher.discard();
    result
}

/// Moves the control socket from descriptor 0, which programs take for their input.
fn take_control() -> Result<OwnedFd, RuntimeError> {
    let control = fcntl(0, FcntlArg::F_DUPFD_CLOEXEC(3))
        .map(sys::own)
        .map_err(|errno| RuntimeError::system("taking the control socket")(errno.into()))?;
    let null = std::fs::File::open("/dev/null").map_err(RuntimeError::system("opening /dev/null"))?;
    nix::unistd::dup2(null.as_raw_fd(), 0)
        .map_err(|errno| RuntimeError::system("clearing descriptor 0")(errno.into()))?;
    Ok(control)
}

fn interpreter(options: &Options) -> (Option<Zygote>, Interpreter) {
    let Some(bundle) = &options.warm else {
        return (None, Interpreter::Exec { reason: String::new() });
    };
    match Zygote::start(bundle, &options.preload) {
        Ok((zygote, report)) => (Some(zygote), report),
        Err(reason) => (None, Interpreter::Exec { reason }),
    }
}

impl Launcher {
    fn serve(&mut self, first: &Reply) -> Result<(), RuntimeError> {
        let mut go = self.reply(first, &[])?;
        while go {
            go = match receive::<Command>(self.control.as_fd()) {
                Ok((Command::Run(request), descriptors)) => self.run(&request, descriptors)?,
                Ok((Command::Prepare(request), _)) => self.prepare(&request)?,
                // Meant for a container that ended by itself in the meantime.
                Ok((Command::Finish { .. } | Command::Beside | Command::Kill, _)) => true,
                // A controller that left without reading its last replies resets the connection.
                Err(WireError::Closed | WireError::Io { .. }) => false,
                Err(error) => return Err(RuntimeError::Request { reason: error.to_string() }),
            };
        }
        Ok(())
    }

    /// Whether the controller is still there to hear it.
    fn reply(&self, reply: &Reply, files: &[BorrowedFd<'_>]) -> Result<Go, RuntimeError> {
        match send(self.control.as_fd(), reply, files) {
            Ok(()) => Ok(true),
            Err(WireError::Io { .. } | WireError::Closed) => Ok(false),
            Err(error) => Err(RuntimeError::Request { reason: error.to_string() }),
        }
    }

    /// Makes one more container that waits for its program; those of another shape go.
    fn prepare(&mut self, request: &SandboxRequest) -> Result<Go, RuntimeError> {
        self.discard_unlike(request);
        // What depends on the deadline is lowered at the start, and nobody may raise it.
        let mut shape = request.clone();
        shape.limits.wall_ms = LONGEST_MS;
        let reply = match self.workshop.create(&shape, &mut Given::default()) {
            Ok(sandbox) => {
                let setup_secs = sandbox.setup.as_secs_f64();
                self.waiting.push(sandbox);
                Reply::Prepared { setup_secs, waiting: self.count() }
            }
            Err(error) => {
                // Those of another shape have gone.
                let go = self.reply(&self.removed(0), &[])?;
                return Ok(go && self.reply(&Reply::Unprepared(error.to_fault()), &[])?);
            }
        };
        self.reply(&reply, &[])
    }

    fn removed(&self, leftovers: u64) -> Reply {
        Reply::Removed { leftovers, waiting: self.count() }
    }

    fn count(&self) -> u16 {
        u16::try_from(self.waiting.len()).unwrap_or(u16::MAX)
    }

    /// A container that waits, serves this request and still lives: the youngest, whose memory is in the caches yet.
    fn waiting_for(&mut self, request: &SandboxRequest) -> Option<Sandbox> {
        self.discard_unlike(request);
        while let Some(sandbox) = self.waiting.pop() {
            if !sandbox.ended() {
                return Some(sandbox);
            }
            self.abandon(sandbox);
        }
        None
    }

    fn discard_unlike(&mut self, request: &SandboxRequest) {
        if self.waiting.first().is_some_and(|sandbox| !sandbox.shape.same_shape(request)) {
            self.discard();
        }
    }

    fn discard(&mut self) {
        while let Some(sandbox) = self.waiting.pop() {
            self.abandon(sandbox);
        }
    }

    fn abandon(&self, sandbox: Sandbox) {
        let remains = sandbox.abandon();
        self.workshop.remove(remains);
    }

    fn run(&mut self, request: &SandboxRequest, descriptors: Vec<OwnedFd>) -> Result<Go, RuntimeError> {
        let begun = Instant::now();
        let mut given = match Given::sort(&request.descriptors, descriptors) {
            Ok(given) => given,
            Err(error) => return self.reply(&Reply::Fault(error.to_fault()), &[]),
        };
        let waiting = self.waiting_for(request);
        let pooled = waiting.is_some();
        let made = waiting.map_or_else(|| self.workshop.create(request, &mut given), Ok);
        let sandbox = match made {
            Ok(sandbox) => sandbox,
            Err(error) => {
                let go = self.reply(&Reply::Fault(error.to_fault()), &[])?;
                return Ok(go && self.reply(&self.removed(0), &[])?);
            }
        };
        if !self.reply(&Reply::Started { pid: sandbox.pid() }, &[])? {
            self.abandon(sandbox);
            return Ok(false);
        }
        let (ran, remains) = sandbox.run(self.control.as_fd(), request, given, begun, pooled);
        let (reply, files, orphaned) = match ran {
            Ok(ran) => (Reply::Outcome(Box::new(ran.outcome)), ran.files, ran.orphaned),
            Err(error) => (Reply::Fault(error.to_fault()), Vec::new(), false),
        };
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        // Whoever waits for the answer does not wait for the removal.
        let heard = !orphaned && self.reply(&reply, &files)?;
        let leftovers = self.workshop.remove(remains);
        Ok(heard && self.reply(&self.removed(leftovers), &[])?)
    }
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
}
