//! Where a grader's report arrives, and who writes it.
//!
//! The socket also says which process the grader's fork is, as the kernel attests it: the fork greets with one byte
//! before it begins. The program waits for that process whenever a statement runs, so what the fork waits for a CPU
//! is no time of the program. The launcher gets the fork's `schedstat`, but only for programs that are still there
//! after a part of their time: most are not, and pay nothing.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixCredentials, recvmsg, setsockopt, sockopt};
use rlox_protocol::Command;

use super::launcher::stream_pair;
use super::{Launcher, SandboxError};

/// What the fork sends before its report.
const GREETING: &[u8] = b"\n";
/// The part of a program's time after which the launcher is told of the fork: before its first look.
const PART: u32 = 10;

/// Our end of the socket on which one report comes.
pub(super) struct Reporting {
    /// Nothing once the report is whole.
    socket: Option<OwnedFd>,
    bytes: Vec<u8>,
    writer: Option<i32>,
    tell: Option<Instant>,
}

impl Reporting {
    /// A socket, with the end that the grader gets.
    pub(super) fn open() -> Result<(Self, OwnedFd), SandboxError> {
        let (ours, theirs) = stream_pair().map_err(SandboxError::system("making a report socket"))?;
        setsockopt(&ours, sockopt::PassCred, &true)
            .map_err(SandboxError::system("preparing a report socket"))?;
        fcntl(ours.as_raw_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))
            .map_err(SandboxError::system("preparing a report socket"))?;
        Ok((Self { socket: Some(ours), bytes: Vec::new(), writer: None, tell: None }, theirs))
    }

    /// The program has been started, with this much time.
    pub(super) fn started(&mut self, time: Duration) {
        self.tell = Some(Instant::now() + time / PART);
    }

    /// What to poll.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// When [`Self::tell`] is due, or `end` if that is sooner.
    pub(super) fn until(&self, end: Instant) -> Instant {
        self.tell.map_or(end, |tell| tell.min(end))
    }

    /// Tells the launcher of the fork when it is time.
    pub(super) fn tell(&mut self, launcher: &Launcher) -> Result<(), SandboxError> {
        if self.tell.is_none_or(|tell| Instant::now() < tell) {
            return Ok(());
        }
        self.tell = None;
        let Some(writer) = self.writer.filter(|_| self.socket.is_some()) else { return Ok(()) };
        match File::open(format!("/proc/{writer}/schedstat")) {
            Ok(schedstat) => launcher.tell(&Command::Beside, &[schedstat.as_fd()]),
            Err(error) => {
                // It has just ended, or this kernel does not count.
                tracing::debug!(%error, "what the grader's fork waits is not known");
                Ok(())
            }
        }
    }

    /// Reads what is there; true when the report is whole.
    pub(super) fn read(&mut self) -> Result<bool, SandboxError> {
        let Some(socket) = &self.socket else { return Ok(false) };
        let mut buffer = [0u8; 65536];
        match receive(socket.as_fd(), &mut buffer) {
            Ok((0, _)) => {
                self.socket = None;
                Ok(true)
            }
            Ok((count, writer)) => {
                let new = &buffer[..count];
                if self.writer.is_none() && self.bytes.is_empty() && new.starts_with(GREETING) {
                    self.writer = writer;
                    self.bytes.extend_from_slice(&new[GREETING.len()..]);
                } else {
                    self.bytes.extend_from_slice(new);
                }
                Ok(false)
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(false),
            Err(errno) => Err(SandboxError::system("reading a report")(io::Error::from(errno))),
        }
    }

    /// The report.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reads once, and says which process wrote it, by our own number for it.
fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> nix::Result<(usize, Option<i32>)> {
    let mut control = cmsg_space!(UnixCredentials);
    let mut slices = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags)?;
    let mut writer = None;
    for each in message.cmsgs()? {
        if let ControlMessageOwned::ScmCredentials(credentials) = each {
            writer = Some(credentials.pid());
        }
    }
    // A process that this namespace does not know has the number 0.
    Ok((message.bytes, writer.filter(|pid| *pid > 0)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_writer_is_known_by_its_greeting_which_is_no_part_of_the_report() {
        let (mut reporting, theirs) = Reporting::open().unwrap();
        let mut theirs = UnixStream::from(theirs);
        assert!(!reporting.read().unwrap(), "nothing is there");
        theirs.write_all(GREETING).unwrap();
        assert!(!reporting.read().unwrap());
        assert_eq!(reporting.writer, i32::try_from(std::process::id()).ok());
        theirs.write_all(b"{}\n").unwrap();
        drop(theirs);
        assert!(!reporting.read().unwrap());
        assert!(reporting.read().unwrap(), "the end");
        assert!(reporting.descriptor().is_none());
        assert_eq!(reporting.into_bytes(), b"{}\n");
    }

    #[test]
    fn a_fork_that_ends_after_its_greeting_has_sent_no_report() {
        let (mut reporting, theirs) = Reporting::open().unwrap();
        UnixStream::from(theirs).write_all(GREETING).unwrap();
        while !reporting.read().unwrap() {}
        assert!(reporting.into_bytes().is_empty());
    }

    #[test]
    fn the_launcher_is_told_once_and_in_time() {
        let (mut reporting, _theirs) = Reporting::open().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        assert_eq!(reporting.until(end), end);
        reporting.started(Duration::from_secs(10));
        let due = reporting.until(end);
        assert!(due < end && due > Instant::now(), "after a tenth of its time");
    }
}
