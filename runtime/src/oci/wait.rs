//! Waiting for processes in the foreground: their end, with our own signals passed on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::error::OciError;
use super::terminal::Terminal;
use crate::sys;

/// Waits until the process of a pidfd has ended, whoever its parent is.
pub(crate) fn ended(pidfd: BorrowedFd<'_>, patience: Duration) -> io::Result<()> {
    let end = Instant::now() + patience;
    loop {
        let left = end.saturating_duration_since(Instant::now()).as_millis();
        let timeout =
            PollTimeout::try_from(i32::try_from(left).unwrap_or(i32::MAX)).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(pidfd, PollFlags::POLLIN)], timeout) {
            Ok(0) if Instant::now() >= end => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("still there after {patience:?}"),
                ));
            }
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Signals that are passed on to the program in the foreground.
const FORWARDED: [Signal; 8] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGCONT,
    Signal::SIGWINCH,
];

/// Signals as a descriptor. Blocked before the child starts, so that none that matters is missed.
pub(crate) struct Signals {
    descriptor: SignalFd,
    blocked: SigSet,
}

impl Signals {
    pub(crate) fn block() -> Result<Self, OciError> {
        let mut blocked = SigSet::empty();
        for signal in FORWARDED {
            blocked.add(signal);
        }
        blocked.thread_block().map_err(OciError::errno("blocking signals"))?;
        let descriptor = SignalFd::with_flags(&blocked, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .map_err(OciError::errno("signalfd"))?;
        Ok(Self { descriptor, blocked })
    }

    /// From here on signals come by the descriptor again.
    pub(crate) fn block_again(&self) -> Result<(), OciError> {
        self.blocked.thread_block().map_err(OciError::errno("blocking signals"))
    }

    /// The children to come are to receive signals again.
    pub(crate) fn unblock(&self) -> Result<(), OciError> {
        self.blocked.thread_unblock().map_err(OciError::errno("unblocking signals"))
    }
}

/// Waits for a child of ours and passes signals and terminal on; returns the exit code by the shells' rule.
pub(crate) fn foreground(
    pid: Pid,
    signals: &mut Signals,
    mut terminal: Option<&mut Terminal>,
) -> Result<i32, OciError> {
    let pidfd = sys::pidfd_open(pid).map_err(OciError::system("opening a pidfd"))?;
    loop {
        let mut polled = vec![
            PollFd::new(pidfd.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.descriptor.as_fd(), PollFlags::POLLIN),
        ];
        if let Some(terminal) = &terminal {
            polled.extend(terminal.polled());
        }
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(OciError::errno("poll")(errno)),
        }
        let over = polled[0].any() == Some(true);
        if let Some(terminal) = &mut terminal {
            terminal.pump()?;
        }
        while let Ok(Some(info)) = signals.descriptor.read_signal() {
            let number = i32::try_from(info.ssi_signo).unwrap_or_default();
            if number == libc::SIGWINCH {
                if let Some(terminal) = &terminal {
                    terminal.resize();
                }
            } else if !over {
                sys::kill_number(pid, number).map_err(OciError::system("passing a signal on"))?;
            }
        }
        if over {
            if let Some(terminal) = &mut terminal {
                terminal.finish()?;
            }
            return reap(pid);
        }
    }
}

fn reap(pid: Pid) -> Result<i32, OciError> {
    loop {
        match waitpid(pid, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::Exited(_, code)) => return Ok(code),
            Ok(WaitStatus::Signaled(_, signal, _)) => return Ok(128 + signal as i32),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(OciError::errno(format!("waiting for process {pid}"))(errno)),
        }
    }
}
