//! Running from a sealed copy in memory where the container's root is the host's.
//!
//! A container can execute `/proc/self/exe` of its own first process, which is this program, and keep it open until it
//! may be written to (CVE-2019-5736). Mapped ids own no file of the host; without them the host's root owns this
//! program. What the container then reaches is a copy that nobody can change and that is gone with the process.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MemFdCreateFlag, memfd_create};
use oci_spec::runtime::Spec;

use crate::cdi::has_user_namespace;
use crate::error::RuntimeError;

/// Starts this program again from a sealed copy, unless it is one or the container has ids of its own. Call it before
/// anything is made: only the process's id survives.
pub(crate) fn ensure_for(spec: &Spec) -> Result<(), RuntimeError> {
    if !nix::unistd::geteuid().is_root() || has_user_namespace(spec) {
        return Ok(());
    }
    ensure()
}

/// The same for a launcher of an ordinary user whose containers go on as copies of it: there the container's user is
/// the one who may own this program.
pub(crate) fn ensure() -> Result<(), RuntimeError> {
    let own = std::fs::read_link("/proc/self/exe").map_err(RuntimeError::system("reading /proc/self/exe"))?;
    if own.as_os_str().as_bytes().starts_with(b"/memfd:") {
        return Ok(());
    }
    restart().map_err(RuntimeError::system("starting again from a sealed copy"))
}

fn restart() -> io::Result<()> {
    // Close-on-exec is safe: the kernel has read the program by then, and it needs no interpreter by name.
    let flags = MemFdCreateFlag::MFD_CLOEXEC | MemFdCreateFlag::MFD_ALLOW_SEALING;
    // Kernels since 6.3 may be told to make such files not executable unless that is asked for; older ones know no
    // such question.
    let executable = flags | MemFdCreateFlag::from_bits_retain(nix::libc::MFD_EXEC);
    let copy = memfd_create(c"rlox-runtime", executable).or_else(|_| memfd_create(c"rlox-runtime", flags))?;
    let mut copy = File::from(copy);
    io::copy(&mut File::open("/proc/self/exe")?, &mut copy)?;
    copy.flush()?;
    let seals =
        SealFlag::F_SEAL_SEAL | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_WRITE;
    fcntl(copy.as_raw_fd(), FcntlArg::F_ADD_SEALS(seals))?;
    let text = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::other);
    let arguments =
        std::env::args_os().map(|argument| text(argument.as_bytes())).collect::<io::Result<Vec<_>>>()?;
    let environment = std::env::vars_os()
        .map(|(name, value)| text(&[name.as_bytes(), b"=", value.as_bytes()].concat()))
        .collect::<io::Result<Vec<_>>>()?;
    match nix::unistd::fexecve(copy.as_raw_fd(), &arguments, &environment)? {}
}
