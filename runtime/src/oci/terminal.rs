//! A terminal for a program in the foreground: we are the one behind the console socket, and carry bytes between the
//! pseudo-terminal and our own standard streams.

use std::fs::File;
use std::io::{self, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixAddr, recvmsg};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

use rlox_host::Owner;

use super::error::OciError;
use crate::sys;

/// Begins the name of the socket; its owner, which tells whether it is still used, ends it.
const SOCKET: &str = "rlox-console-";

/// A socket of ours for the console.
pub(crate) struct Listener {
    listener: UnixListener,
    pub(crate) path: PathBuf,
}

impl Listener {
    pub(crate) fn bind(directory: &Path) -> Result<Self, OciError> {
        sweep(directory);
        let owner = Owner::current().map_err(OciError::system("reading /proc/self/stat"))?;
        let path = directory.join(format!("{SOCKET}{owner}"));
        let listener =
            UnixListener::bind(&path).map_err(OciError::system(format!("binding {}", path.display())))?;
        Ok(Self { listener, path })
    }

    /// Takes the terminal that the container sent.
    pub(crate) fn accept(self) -> Result<Terminal, OciError> {
        let (stream, _) = self.listener.accept().map_err(OciError::system("accepting the terminal"))?;
        let mut name = [0u8; 256];
        let mut space = nix::cmsg_space!([std::os::fd::RawFd; 1]);
        let mut parts = [IoSliceMut::new(&mut name)];
        let message =
            recvmsg::<UnixAddr>(stream.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)
                .map_err(OciError::errno("receiving the terminal"))?;
        let raw = message
            .cmsgs()
            .map_err(OciError::errno("receiving the terminal"))?
            .find_map(|each| {
                let ControlMessageOwned::ScmRights(descriptors) = each else { return None };
                descriptors.first().copied()
            })
            .ok_or_else(|| OciError::invalid("the container sent no terminal"))?;
        Terminal::new(sys::received(raw))
    }
}

/// Removes the sockets of commands that were killed.
fn sweep(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(SOCKET)?.parse::<Owner>().ok());
        if owner.is_some_and(|owner| !owner.alive())
            && let Err(error) = std::fs::remove_file(entry.path())
        {
            // Another user's is not ours to remove.
            tracing::debug!(%error, path = %entry.path().display(), "cannot remove an old console socket");
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(%error, "the console socket is gone already");
        }
    }
}

/// The master side, and our own terminal in raw mode where we have one.
pub(crate) struct Terminal {
    master: File,
    input_open: bool,
    saved: Option<Termios>,
}

impl Terminal {
    fn new(master: OwnedFd) -> Result<Self, OciError> {
        let flags = fcntl(master.as_raw_fd(), FcntlArg::F_GETFL).map_err(OciError::errno("fcntl"))?;
        let flags = OFlag::from_bits_truncate(flags) | OFlag::O_NONBLOCK;
        fcntl(master.as_raw_fd(), FcntlArg::F_SETFL(flags)).map_err(OciError::errno("fcntl"))?;
        let stdin = io::stdin();
        let saved = tcgetattr(&stdin).ok();
        if let Some(saved) = &saved {
            let mut raw = saved.clone();
            cfmakeraw(&mut raw);
            tcsetattr(&stdin, SetArg::TCSANOW, &raw).map_err(OciError::errno("setting the terminal"))?;
        }
        let terminal = Self { master: master.into(), input_open: true, saved };
        terminal.resize();
        Ok(terminal)
    }

    /// Gives the container's terminal the size of ours.
    pub(crate) fn resize(&self) {
        if let Err(error) = sys::copy_window_size(io::stdin().as_fd(), self.master.as_fd()) {
            tracing::debug!(%error, "no terminal size to pass on");
        }
    }

    pub(crate) fn polled(&self) -> Vec<PollFd<'_>> {
        let mut polled = vec![PollFd::new(self.master.as_fd(), PollFlags::POLLIN)];
        if self.input_open {
            polled.push(PollFd::new(stdin_descriptor(), PollFlags::POLLIN));
        }
        polled
    }

    /// Carries what is there.
    pub(crate) fn pump(&mut self) -> Result<(), OciError> {
        self.output()?;
        if self.input_open && readable(stdin_descriptor()) {
            let mut buffer = [0u8; 4096];
            match nix::unistd::read(0, &mut buffer) {
                Ok(0) | Err(_) => {
                    self.input_open = false;
                    // End of input, as a terminal's user types it.
                    self.master.write_all(&[4]).map_err(OciError::system("writing to the terminal"))?;
                }
                Ok(count) => write_slowly(&mut self.master, &buffer[..count])?,
            }
        }
        Ok(())
    }

    fn output(&mut self) -> Result<(), OciError> {
        let mut buffer = [0u8; 4096];
        loop {
            match self.master.read(&mut buffer) {
                // EIO: nobody holds the other side any longer.
                Ok(0) => return Ok(()),
                Ok(count) => {
                    let mut stdout = io::stdout().lock();
                    stdout
                        .write_all(&buffer[..count])
                        .and_then(|()| stdout.flush())
                        .map_err(OciError::system("writing the program's output"))?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Ok(()),
            }
        }
    }

    /// Carries the rest.
    pub(crate) fn finish(&mut self) -> Result<(), OciError> {
        self.output()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(saved) = &self.saved
            && let Err(errno) = tcsetattr(io::stdin(), SetArg::TCSANOW, saved)
        {
            tracing::warn!(%errno, "the terminal's settings could not be restored");
        }
    }
}

fn write_slowly(master: &mut File, mut bytes: &[u8]) -> Result<(), OciError> {
    while !bytes.is_empty() {
        match master.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let mut polled = [PollFd::new(master.as_fd(), PollFlags::POLLOUT)];
                nix::poll::poll(&mut polled, nix::poll::PollTimeout::NONE)
                    .map_err(OciError::errno("poll"))?;
            }
            Err(error) => return Err(OciError::system("writing to the terminal")(error)),
        }
    }
    Ok(())
}

fn readable(descriptor: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::new(descriptor, PollFlags::POLLIN)];
    nix::poll::poll(&mut polled, nix::poll::PollTimeout::ZERO).is_ok_and(|count| count > 0)
}

/// Standard input stays open as long as this process lives.
fn stdin_descriptor() -> BorrowedFd<'static> {
    sys::standard_input()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_of_a_killed_command_goes_and_others_stay() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let dead = path("rlox-console-4000000.1");
        let others = [path("rlox-console-x"), path("something")];
        for file in others.iter().chain([&dead]) {
            File::create(file).unwrap();
        }
        let listener = Listener::bind(directory.path()).unwrap();
        assert!(!dead.exists() && others.iter().all(|file| file.exists()));
        sweep(directory.path());
        assert!(listener.path.exists(), "its owner lives");
        let own = listener.path.clone();
        drop(listener);
        assert!(!own.exists());
    }
}
