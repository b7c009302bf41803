//! What a launcher and a container's first process still have to tell each other once the container is made.
//!
//! A container may be created before it is known what it is for. Its first process keeps one end of a socket: it sends
//! the descriptor on which its filter asks, and, after the start, receives the command line and descriptors of its
//! program. Only trusted code ever uses that end; it is closed before the program runs.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::fcntl::{FcntlArg, fcntl};
use rlox_protocol::{WireError, receive, send};
use serde::{Deserialize, Serialize};

use crate::sys;

/// Above every number that a program is given.
const OUT_OF_THE_WAY: i32 = 64;

/// What the container's first process becomes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Program {
    /// Its command line; the bundle's where there is none.
    pub(crate) args: Option<Vec<String>>,
    /// The first descriptor is standard input; the others become 3, 4, ….
    pub(crate) stdin: bool,
}

/// The launcher's end and the container's.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = UnixStream::pair()?;
    Ok((ours.into(), theirs.into()))
}

/// Hands the program over; the start lets it be read.
pub(crate) fn give(
    socket: BorrowedFd<'_>,
    program: &Program,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), WireError> {
    send(socket, program, descriptors)
}

/// Sends the descriptor on which a filter asks.
pub(crate) fn send_listener(socket: BorrowedFd<'_>, listener: &OwnedFd) -> Result<(), String> {
    send(socket, &(), &[listener.as_fd()]).map_err(|error| error.to_string())
}

/// Receives it.
pub(crate) fn receive_listener(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let ((), descriptors) = receive(socket).map_err(io::Error::other)?;
    descriptors.into_iter().next().ok_or_else(|| io::Error::other("no descriptor came"))
}

/// In the container's first process: takes the program over, puts its descriptors in place and closes all others.
pub(crate) fn take(socket: BorrowedFd<'_>) -> Result<Program, String> {
    let (program, descriptors) =
        receive::<Program>(socket).map_err(|error| format!("taking the program over: {error}"))?;
    place(&program, descriptors).map_err(|error| format!("placing descriptors: {error}"))?;
    Ok(program)
}

fn place(program: &Program, descriptors: Vec<OwnedFd>) -> io::Result<()> {
    // A number to be taken may still be that of another of them.
    let moved: Vec<OwnedFd> = descriptors
        .into_iter()
        .map(|each| Ok(sys::own(fcntl(each.as_raw_fd(), FcntlArg::F_DUPFD_CLOEXEC(OUT_OF_THE_WAY))?)))
        .collect::<io::Result<_>>()?;
    let mut next = 3;
    let mut moved = moved.into_iter();
    if program.stdin
        && let Some(stdin) = moved.next()
    {
        nix::unistd::dup2(stdin.as_raw_fd(), 0)?;
    }
    for each in moved {
        nix::unistd::dup2(each.as_raw_fd(), next)?;
        next += 1;
    }
    sys::close_from(next.unsigned_abs())
}
