//! Standard streams that are `/dev/null` stay writable.
//!
//! libcontainer 0.7 replaces a standard stream that is the host's `/dev/null` by the container's own, which it opens
//! for reading only: a program whose output goes there fails with `EBADF` at its first line. This opens it again, for
//! both, as the last step before the program.

use std::os::fd::{AsRawFd, RawFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::sys::stat::{Mode, SFlag, fstat, makedev};
use nix::unistd::dup2;

use crate::sys;

const STREAMS: [RawFd; 2] = [1, 2];

/// Runs in the container's first process.
pub(crate) fn make_writable() -> Result<(), String> {
    for stream in STREAMS {
        let failed = |errno: nix::errno::Errno| format!("/dev/null on descriptor {stream}: {errno}");
        let Ok(status) = fstat(stream) else { continue };
        let device = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT == SFlag::S_IFCHR;
        if !device || status.st_rdev != makedev(1, 3) {
            continue;
        }
        let flags = OFlag::from_bits_truncate(fcntl(stream, FcntlArg::F_GETFL).map_err(failed)?);
        if flags & OFlag::O_ACCMODE != OFlag::O_RDONLY {
            continue;
        }
        let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty()).map_err(failed)?;
        let null = sys::own(null);
        dup2(null.as_raw_fd(), stream).map_err(failed)?;
    }
    Ok(())
}
