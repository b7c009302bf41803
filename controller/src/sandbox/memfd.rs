//! Sealed memory files: how source, input and jobs reach a container. No length limit, no temporary file, no
//! pipe that could block, and nobody can change them afterwards.

use std::ffi::CStr;
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MemFdCreateFlag, memfd_create};

use super::SandboxError;

/// A sealed memory file with these bytes, positioned at its beginning.
pub(super) fn sealed(name: &CStr, bytes: &[u8]) -> Result<OwnedFd, SandboxError> {
    let build = || -> std::io::Result<OwnedFd> {
        let flags = MemFdCreateFlag::MFD_CLOEXEC | MemFdCreateFlag::MFD_ALLOW_SEALING;
        let mut file = File::from(memfd_create(name, flags)?);
        file.write_all(bytes)?;
        file.rewind()?;
        let seals =
            SealFlag::F_SEAL_SEAL | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_WRITE;
        fcntl(file.as_raw_fd(), FcntlArg::F_ADD_SEALS(seals))?;
        Ok(file.into())
    };
    build().map_err(SandboxError::system("making a sealed memory file"))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn can_be_read_and_not_written() {
        let mut file = File::from(sealed(c"test", b"hello").unwrap());
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        assert!(file.write_all(b"x").is_err());
    }
}
