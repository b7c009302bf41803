//! Opening files that hostile code may have made: no link is followed, nothing that blocks is opened, no
//! more than a stated number of bytes is read.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat, open, openat};
use rustix::io::Errno;

use crate::model::Problem;

/// A file's first bytes.
pub(crate) struct Bounded {
    pub(crate) bytes: Vec<u8>,
    /// There was more.
    pub(crate) cut: bool,
}

/// Opens the directory that the operator named; links in that path are the operator's own.
pub(crate) fn open_root(path: &Path) -> io::Result<OwnedFd> {
    Ok(open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens a directory inside `parent`, never through a link.
pub(crate) fn open_directory(parent: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

/// Reads at most `limit_bytes` of a regular file inside `directory`. `Ok(None)` where there is none.
pub(crate) fn read_regular(
    directory: impl AsFd,
    name: &str,
    limit_bytes: u64,
) -> Result<Option<Bounded>, Problem> {
    // NONBLOCK: opening a pipe without a writer would otherwise wait for ever.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match openat(directory, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP | Errno::NXIO | Errno::NODEV) => return Err(Problem::NotARegularFile),
        Err(errno) => return Err(unreadable(&errno.into())),
    };
    let status = fstat(&file).map_err(|errno| unreadable(&errno.into()))?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Err(Problem::NotARegularFile);
    }
    let mut bytes = Vec::new();
    File::from(file).take(limit_bytes + 1).read_to_end(&mut bytes).map_err(|error| unreadable(&error))?;
    let cut = bytes.len() as u64 > limit_bytes;
    if cut {
        bytes.pop();
    }
    Ok(Some(Bounded { bytes, cut }))
}

fn unreadable(error: &io::Error) -> Problem {
    Problem::Unreadable { kind: error.kind() }
}
