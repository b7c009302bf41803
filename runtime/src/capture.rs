//! Bounded reading of a program's output. A program is never blocked on a full pipe and never fills our memory:
//! bytes beyond the limit are read and dropped, and counted so that a flood can be ended.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use rlox_protocol::Output;

/// The reading end of one output pipe.
pub(crate) struct Capture {
    pipe: Option<File>,
    output: Output,
    keep: usize,
}

impl Capture {
    /// A pipe of which the program gets the returned writing end.
    pub(crate) fn pipe(keep: u64) -> io::Result<(Self, OwnedFd)> {
        let (reading, writing) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        let reading = File::from(reading);
        use std::os::fd::AsRawFd;
        // Only our end: the flag belongs to the open file, and the two ends are different ones.
        fcntl(reading.as_raw_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        Ok((Self { pipe: Some(reading), output: Output::default(), keep }, writing))
    }

    /// A stream that is not captured.
    pub(crate) fn none() -> Self {
        Self { pipe: None, output: Output::default(), keep: 0 }
    }

    /// The descriptor to poll, while the pipe is open.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Reads what is there now, at most 1 MiB so that the caller's deadline is looked at in between.
    pub(crate) fn drain(&mut self) {
        let mut buffer = [0u8; 65536];
        for _ in 0..16 {
            let Some(pipe) = &mut self.pipe else { return };
            match pipe.read(&mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(count) => {
                    self.output.total += count as u64;
                    let room = self.keep - self.output.bytes.len();
                    self.output.bytes.extend_from_slice(&buffer[..count.min(room)]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::warn!(%error, "reading a program's output failed");
                    self.pipe = None;
                }
            }
        }
    }

    /// Bytes seen so far.
    pub(crate) fn total(&self) -> u64 {
        self.output.total
    }

    /// What was kept.
    pub(crate) fn finish(mut self) -> Output {
        self.drain();
        self.output
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn keeps_the_first_bytes_and_counts_the_rest() {
        let (mut capture, writing) = Capture::pipe(5).unwrap();
        let mut writer = File::from(writing);
        writer.write_all(b"hello world").unwrap();
        capture.drain();
        assert_eq!(capture.total(), 11);
        drop(writer);
        let output = capture.finish();
        assert_eq!(output.bytes, b"hello");
        assert!(output.truncated());
    }

    #[test]
    fn output_within_the_limit_is_whole() {
        let (capture, writing) = Capture::pipe(64).unwrap();
        File::from(writing).write_all(b"ok").unwrap();
        let output = capture.finish();
        assert_eq!((output.bytes.as_slice(), output.truncated()), (b"ok".as_slice(), false));
    }
}
