//! Ctrl-C and termination for the foreground `run`: the container is in a session of its own and would outlive us.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// A descriptor that becomes readable when this process is asked to end.
pub(crate) fn descriptor() -> io::Result<OwnedFd> {
    let (reading, writing) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::low_level::pipe::register(signal, writing.try_clone()?)?;
    }
    Ok(reading.into())
}
