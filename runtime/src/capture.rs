//! Bounded capture of a program's output. A program is never blocked on a full pipe and never fills our memory:
//! bytes beyond the limit are dropped, and counted so that a flood can be ended.
//!
//! The kernel moves the bytes from the pipe to a file in memory, and the controller gets that file. They are never in
//! this process, of which the next program may be a copy.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use nix::sys::memfd::{MemFdCreateFlag, memfd_create};
use rlox_protocol::Output;

/// Moved at once, so that the caller's deadline is looked at in between.
const STEP: usize = 1 << 20;

/// The reading end of one output pipe.
pub(crate) struct Capture {
    pipe: Option<OwnedFd>,
    kept: Option<File>,
    room: u64,
    total: u64,
    failure: Option<Errno>,
}

impl Capture {
    /// A pipe of which the program gets the returned writing end. Nothing is kept until [`Self::keep`] says how much.
    pub(crate) fn pipe() -> io::Result<(Self, OwnedFd)> {
        let (reading, writing) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        // Only our end: the flag belongs to the open file, and the two ends are different ones.
        fcntl(reading.as_raw_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok((Self { pipe: Some(reading), ..Self::none() }, writing))
    }

    /// A stream that is not captured.
    pub(crate) fn none() -> Self {
        Self { pipe: None, kept: None, room: 0, total: 0, failure: None }
    }

    /// Keeps the first bytes, up to this many.
    pub(crate) fn keep(&mut self, bytes: u64) {
        self.room = bytes;
    }

    /// The descriptor to poll, while the pipe is open.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Takes what is there now, up to a bound.
    pub(crate) fn drain(&mut self) {
        let mut left = STEP;
        while let Some(pipe) = &self.pipe {
            match take(pipe.as_fd(), &mut self.kept, &mut self.room, left) {
                Ok(0) => self.pipe = None,
                Ok(count) => {
                    self.total += count as u64;
                    left = left.saturating_sub(count);
                    if left == 0 {
                        return;
                    }
                }
                Err(Errno::EAGAIN) => return,
                Err(Errno::EINTR) => {}
                Err(error) => {
                    self.failure = Some(error);
                    self.pipe = None;
                }
            }
        }
    }

    /// Bytes seen so far.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// What was kept, with its file; an error where some of it could not be taken.
    pub(crate) fn finish(mut self) -> io::Result<(Output, Option<OwnedFd>)> {
        self.drain();
        if let Some(errno) = self.failure {
            return Err(errno.into());
        }
        let kept = self.kept.filter(|_| self.total > 0);
        let output = Output { bytes: Vec::new(), attached: kept.is_some(), total: self.total };
        Ok((output, kept.map(OwnedFd::from)))
    }
}

/// Moves bytes that wait to the file, and what has no room there to nowhere; how many.
fn take(pipe: BorrowedFd<'_>, kept: &mut Option<File>, room: &mut u64, most: usize) -> Result<usize, Errno> {
    let flags = SpliceFFlags::SPLICE_F_NONBLOCK;
    if *room == 0 {
        let null = File::options().write(true).open("/dev/null");
        let null = null.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
        return splice(pipe, None, null, None, most, flags);
    }
    let file = match kept {
        Some(file) => file,
        None => kept.insert(File::from(memfd_create(c"rlox-output", MemFdCreateFlag::MFD_CLOEXEC)?)),
    };
    let count = most.min(usize::try_from(*room).unwrap_or(usize::MAX));
    let count = splice(pipe, None, file, None, count, flags)?;
    *room -= count as u64;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn output(capture: Capture) -> Output {
        let (mut output, file) = capture.finish().unwrap();
        output.read(&mut file.into_iter()).unwrap();
        output
    }

    #[test]
    fn keeps_the_first_bytes_and_counts_the_rest() {
        let (mut capture, writing) = Capture::pipe().unwrap();
        capture.keep(5);
        let mut writer = File::from(writing);
        writer.write_all(b"hello world").unwrap();
        capture.drain();
        assert_eq!(capture.total(), 11);
        writer.write_all(b"!").unwrap();
        drop(writer);
        let output = output(capture);
        assert_eq!((output.bytes.as_slice(), output.total), (b"hello".as_slice(), 12));
        assert!(output.truncated());
    }

    #[test]
    fn output_within_the_limit_is_whole() {
        let (mut capture, writing) = Capture::pipe().unwrap();
        capture.keep(64);
        File::from(writing).write_all(b"ok").unwrap();
        let output = output(capture);
        assert_eq!((output.bytes.as_slice(), output.truncated()), (b"ok".as_slice(), false));
    }

    #[test]
    fn without_output_there_is_no_file_and_nothing_kept_is_no_error() {
        let (mut capture, writing) = Capture::pipe().unwrap();
        capture.keep(64);
        drop(writing);
        let (output, file) = capture.finish().unwrap();
        assert!(file.is_none() && !output.attached && !output.truncated());
        let (capture, writing) = Capture::pipe().unwrap();
        File::from(writing).write_all(b"dropped").unwrap();
        let (output, file) = capture.finish().unwrap();
        assert!(file.is_none() && output.total == 7);
    }
}
