//! One launcher process, seen from the controller: start it, talk to it, end it.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rlox_protocol::{Command as Message, Reply, SandboxRequest, receive, send};

use super::{Environment, SandboxError};

/// How long a launcher may take to leave after its socket was closed.
const LEAVE: Duration = Duration::from_secs(5);
/// How long making a container may take.
const PREPARE: Duration = Duration::from_secs(60);

/// A running launcher.
#[derive(Debug)]
pub(crate) struct Launcher {
    environment: Arc<Environment>,
    slot: u16,
    child: Child,
    socket: Option<UnixStream>,
    /// It runs snippets, and may hold a container ready.
    snippets: bool,
    /// Containers that it holds ready.
    waiting: Cell<u16>,
}

impl Launcher {
    /// Starts a launcher with a clean environment.
    pub(crate) fn start(environment: &Arc<Environment>, slot: u16) -> Result<Self, SandboxError> {
        Self::spawn(environment, slot, false)
    }

    /// Starts one for snippets, with an interpreter of its own where the service is set up so.
    pub(super) fn start_for_snippets(
        environment: &Arc<Environment>,
        slot: u16,
    ) -> Result<Self, SandboxError> {
        Self::spawn(environment, slot, true)
    }

    fn spawn(environment: &Arc<Environment>, slot: u16, snippets: bool) -> Result<Self, SandboxError> {
        let spawn = |error: String| SandboxError::Spawn { reason: error };
        let directory = environment
            .subdirectory(&format!("launcher-{slot}"))
            .map_err(|error| spawn(error.to_string()))?;
        let home = serde_json::to_string(&environment.cgroups).map_err(|error| spawn(error.to_string()))?;
        let (ours, theirs) = UnixStream::pair().map_err(|error| spawn(error.to_string()))?;
        let mut command = Command::new(&environment.home.runtime);
        command
            .args(["--log-level", "warn", "launcher", "--slot"])
            .arg(slot.to_string())
            .arg("--directory")
            .arg(directory)
            .arg("--cgroup-home")
            .arg(home)
            .env_clear();
        if let Some(warmth) = environment.warmth.as_ref().filter(|_| snippets) {
            let environment = warmth.environment.iter().map(|(name, value)| (name, value));
            command.arg("--warm").arg(&warmth.bundle).envs(environment);
            if !warmth.modules.is_empty() {
                command.arg("--preload").arg(warmth.modules.join(","));
            }
        }
        let child = command
            // Ctrl-C is for the controller, which then ends its launchers in order.
            .process_group(0)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(|error| spawn(format!("{}: {error}", environment.home.runtime.display())))?;
        let environment = Arc::clone(environment);
        Ok(Self { environment, slot, child, socket: Some(ours), snippets, waiting: Cell::new(0) })
    }

    /// This launcher's number.
    pub(crate) fn slot(&self) -> u16 {
        self.slot
    }

    /// The socket, to poll.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    fn failed(&self, error: impl std::fmt::Display) -> SandboxError {
        SandboxError::Launcher { slot: self.slot, reason: error.to_string() }
    }

    /// Asks for one container.
    pub(crate) fn run(
        &self,
        request: SandboxRequest,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), SandboxError> {
        self.tell(&Message::Run(Box::new(request)), descriptors)
    }

    /// Has a container of this shape made ahead; false where that could not be.
    pub(super) fn prepare(&self, request: SandboxRequest) -> Result<bool, SandboxError> {
        self.tell(&Message::Prepare(Box::new(request)), &[])?;
        let deadline = Instant::now() + PREPARE;
        while Instant::now() < deadline {
            match self.wait_reply(deadline)? {
                Some(Reply::Prepared { .. }) => return Ok(true),
                Some(Reply::Unprepared(_)) => return Ok(false),
                Some(_) | None => {}
            }
        }
        Err(SandboxError::Stuck { slot: self.slot, seconds: PREPARE.as_secs_f64() })
    }

    /// Containers that wait for a program.
    pub(super) fn waiting(&self) -> u16 {
        self.waiting.get()
    }

    fn wait_now(&self, count: u16) {
        self.environment.ahead.waiting(self.waiting.replace(count), count);
    }

    /// Sends a message.
    pub(crate) fn tell(&self, message: &Message, descriptors: &[BorrowedFd<'_>]) -> Result<(), SandboxError> {
        let socket = self.descriptor().ok_or_else(|| self.failed("already stopped"))?;
        send(socket, message, descriptors).map_err(|error| self.failed(error))
    }

    /// Reads one reply; call it when the descriptor is readable. `None` where it is only for the books.
    pub(crate) fn reply(&self) -> Result<Option<Reply>, SandboxError> {
        let socket = self.descriptor().ok_or_else(|| self.failed("already stopped"))?;
        let (reply, descriptors) = receive(socket).map_err(|error| self.failed(error))?;
        let ahead = &self.environment.ahead;
        match reply {
            Reply::Ready(interpreter) => {
                if self.snippets {
                    ahead.interpreter_is(interpreter);
                }
                Ok(None)
            }
            Reply::Prepared { setup_secs, waiting } => {
                self.wait_now(waiting);
                ahead.made(Duration::from_secs_f64(setup_secs));
                Ok(Some(reply))
            }
            Reply::Unprepared(ref fault) => {
                ahead.failed();
                tracing::warn!(slot = self.slot, fault.message, "a container could not be made ahead");
                Ok(Some(reply))
            }
            Reply::Removed { leftovers, waiting } => {
                self.wait_now(waiting);
                ahead.removed(leftovers);
                Ok(None)
            }
            Reply::Outcome(mut outcome) => {
                if self.snippets {
                    ahead.served(outcome.pooled);
                    // Where none served it there was none, or those of another shape went.
                    self.wait_now(if outcome.pooled { self.waiting.get().saturating_sub(1) } else { 0 });
                }
                let mut descriptors = descriptors.into_iter();
                outcome
                    .stdout
                    .read(&mut descriptors)
                    .and_then(|()| outcome.stderr.read(&mut descriptors))
                    .map_err(|error| self.failed(error))?;
                Ok(Some(Reply::Outcome(outcome)))
            }
            Reply::Fault(_) => {
                // How many are left is told with the next one that is made.
                self.wait_now(0);
                Ok(Some(reply))
            }
            Reply::Started { .. } => Ok(Some(reply)),
        }
    }

    /// Waits for the next reply, at most until `deadline`.
    pub(crate) fn wait_reply(&self, deadline: Instant) -> Result<Option<Reply>, SandboxError> {
        let Some(socket) = self.descriptor() else { return Err(self.failed("already stopped")) };
        let mut polled = [PollFd::new(socket, PollFlags::POLLIN)];
        match poll(&mut polled, timeout(deadline)) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => Ok(None),
            Ok(_) => self.reply(),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    /// Ends the launcher: closes its socket, waits, and kills it where it does not leave.
    pub(crate) fn stop(&mut self) {
        self.wait_now(0);
        self.socket = None;
        let end = Instant::now() + LEAVE;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    if !status.success() {
                        // It died before it could remove its container.
                        self.remove_containers();
                    }
                    return;
                }
                Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(slot = self.slot, %error, "cannot wait for a launcher");
                    break;
                }
            }
        }
        tracing::error!(slot = self.slot, "a launcher did not leave and is killed");
        self.kill();
    }

    /// Kills a launcher that does not answer, and what its containers left.
    pub(crate) fn kill(&mut self) {
        self.wait_now(0);
        self.socket = None;
        let ended = self.child.kill().and_then(|()| self.child.wait());
        if let Err(error) = ended {
            tracing::error!(slot = self.slot, %error, "cannot kill a launcher");
        }
        self.remove_containers();
    }

    fn remove_containers(&self) {
        rlox_host::remove_of_slot(&self.environment.cgroups, &self.environment.slot_prefix(self.slot));
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        if self.socket.is_some() {
            self.stop();
        }
    }
}

/// Milliseconds until an instant, rounded up, for `poll`.
pub(super) fn timeout(deadline: Instant) -> PollTimeout {
    let millis = deadline.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
    PollTimeout::try_from(i32::try_from(millis).unwrap_or(i32::MAX)).unwrap_or(PollTimeout::ZERO)
}

/// A connected pair of stream sockets, close-on-exec.
pub(super) fn stream_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (left, right) = UnixStream::pair()?;
    Ok((left.into(), right.into()))
}
