//! Frames over a Unix stream socket: 4 bytes of little-endian length, then JSON. Descriptors travel with the
//! length, so that they arrive with the message that they belong to.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{self, ControlMessage, ControlMessageOwned, MsgFlags};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Largest frame that either side accepts.
pub const MAX_FRAME: usize = 64 << 20;
/// Most descriptors that one frame may carry.
pub const MAX_DESCRIPTORS: usize = 8;

/// What can go wrong with a frame.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The other side closed the socket between two frames.
    #[error("the other side closed the socket")]
    Closed,
    /// The system refused to move the bytes.
    #[error("cannot {action} a frame")]
    Io {
        /// `send` or `receive`.
        action: &'static str,
        /// The system's word.
        #[source]
        source: io::Error,
    },
    /// The bytes are no message of this protocol.
    #[error("frame is not a valid message")]
    Decode(#[source] serde_json::Error),
    /// The message cannot be written as JSON.
    #[error("message cannot be encoded")]
    Encode(#[source] serde_json::Error),
    /// A frame over [`MAX_FRAME`] or with too many descriptors.
    #[error("frame of {bytes} bytes and {descriptors} descriptors is over the limit")]
    TooLarge {
        /// Length of the JSON part.
        bytes: usize,
        /// Descriptors that came with it.
        descriptors: usize,
    },
}

fn io_error(action: &'static str, errno: Errno) -> WireError {
    WireError::Io { action, source: errno.into() }
}

/// Sends one message with its descriptors; blocks until all of it is in the socket.
pub fn send<T: Serialize>(
    socket: BorrowedFd<'_>,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), WireError> {
    let body = serde_json::to_vec(message).map_err(WireError::Encode)?;
    let too_large = || WireError::TooLarge { bytes: body.len(), descriptors: descriptors.len() };
    if body.len() > MAX_FRAME || descriptors.len() > MAX_DESCRIPTORS {
        return Err(too_large());
    }
    let length = u32::try_from(body.len()).map_err(|_| too_large())?.to_le_bytes();
    let raw: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let control = [ControlMessage::ScmRights(&raw)];
    let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &control };
    let sent = retry(|| {
        socket::sendmsg::<()>(
            socket.as_raw_fd(),
            &[IoSlice::new(&length)],
            control,
            MsgFlags::MSG_NOSIGNAL,
            None,
        )
    })
    .map_err(|errno| io_error("send", errno))?;
    send_all(socket, &length[sent..])?;
    send_all(socket, &body)
}

/// Receives one message and its descriptors (close-on-exec); blocks until all of it is here.
pub fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> Result<(T, Vec<OwnedFd>), WireError> {
    let mut length = [0u8; 4];
    let mut control = cmsg_space!([i32; MAX_DESCRIPTORS]);
    let mut descriptors = Vec::new();
    let got = {
        let mut slices = [IoSliceMut::new(&mut length)];
        let message = socket::recvmsg::<()>(
            socket.as_raw_fd(),
            &mut slices,
            Some(&mut control),
            MsgFlags::MSG_CMSG_CLOEXEC,
        )
        .map_err(|errno| io_error("receive", errno))?;
        if message.flags.contains(MsgFlags::MSG_CTRUNC) {
            return Err(WireError::TooLarge { bytes: 0, descriptors: MAX_DESCRIPTORS + 1 });
        }
        for item in message.cmsgs().map_err(|errno| io_error("receive", errno))? {
            if let ControlMessageOwned::ScmRights(list) = item {
                descriptors.extend(list.into_iter().map(own));
            }
        }
        message.bytes
    };
    if got == 0 {
        return Err(WireError::Closed);
    }
    receive_exact(socket, &mut length[got..])?;
    let size = u32::from_le_bytes(length) as usize;
    if size > MAX_FRAME {
        return Err(WireError::TooLarge { bytes: size, descriptors: descriptors.len() });
    }
    let mut body = vec![0u8; size];
    receive_exact(socket, &mut body)?;
    Ok((serde_json::from_slice(&body).map_err(WireError::Decode)?, descriptors))
}

#[expect(unsafe_code, reason = "the kernel hands descriptors over as bare integers")]
fn own(raw: i32) -> OwnedFd {
    // SAFETY: the kernel has just installed this descriptor for us and nothing else knows its number.
    unsafe { OwnedFd::from_raw_fd(raw) }
}

fn retry<T>(mut call: impl FnMut() -> nix::Result<T>) -> nix::Result<T> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

fn send_all(socket: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), WireError> {
    while !bytes.is_empty() {
        let sent = retry(|| socket::send(socket.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL))
            .map_err(|errno| io_error("send", errno))?;
        bytes = &bytes[sent..];
    }
    Ok(())
}

fn receive_exact(socket: BorrowedFd<'_>, mut buffer: &mut [u8]) -> Result<(), WireError> {
    while !buffer.is_empty() {
        let got = retry(|| nix::unistd::read(socket.as_fd().as_raw_fd(), buffer))
            .map_err(|errno| io_error("receive", errno))?;
        if got == 0 {
            return Err(WireError::Closed);
        }
        buffer = &mut buffer[got..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::Command;

    #[test]
    fn message_and_descriptor_arrive_together() {
        let (left, right) = UnixStream::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"hello").unwrap();
        send(left.as_fd(), &Command::Finish { grace_ms: 7 }, &[file.as_fd()]).unwrap();
        let (message, descriptors) = receive::<Command>(right.as_fd()).unwrap();
        assert_eq!(message, Command::Finish { grace_ms: 7 });
        let mut received = std::fs::File::from(descriptors.into_iter().next().unwrap());
        received.rewind().unwrap();
        let mut text = String::new();
        received.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
    }

    #[test]
    fn close_garbage_and_oversize_are_told_apart() {
        let (left, right) = UnixStream::pair().unwrap();
        drop(left);
        assert!(matches!(receive::<Command>(right.as_fd()), Err(WireError::Closed)));

        let (mut left, right) = UnixStream::pair().unwrap();
        left.write_all(&[3, 0, 0, 0, b'?', b'?', b'?']).unwrap();
        assert!(matches!(receive::<Command>(right.as_fd()), Err(WireError::Decode(_))));

        let (mut left, right) = UnixStream::pair().unwrap();
        left.write_all(&u32::MAX.to_le_bytes()).unwrap();
        assert!(matches!(receive::<Command>(right.as_fd()), Err(WireError::TooLarge { .. })));
    }
}
