//! Every system call that has no safe wrapper. The only module of this crate with `unsafe`.
#![expect(unsafe_code, reason = "raw system calls, each with its reason")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::unistd::Pid;

/// A descriptor that becomes readable when the process ends, and cannot come to mean another process.
pub(crate) fn pidfd_open(pid: Pid) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes two integers and touches no memory of ours.
    let raw = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    let raw = Errno::result(raw)?;
    let raw = RawFd::try_from(raw).map_err(io::Error::other)?;
    // SAFETY: the kernel has just created this descriptor and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Sends SIGKILL through a pidfd; a process that is gone already is what we wanted.
pub(crate) fn pidfd_kill(pidfd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the null siginfo asks the kernel to fill in the usual one; the other arguments are integers.
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            libc::SIGKILL,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    match Errno::result(result) {
        Ok(_) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Descriptor numbers 3, 4, … kept free of our own files, so that a container's extra descriptors can be put
/// exactly there. Between containers each number holds `/dev/null`.
pub(crate) struct ReservedNumbers {
    null: File,
    count: RawFd,
}

const FIRST: RawFd = 3;

impl ReservedNumbers {
    /// Takes `count` numbers; has to run before the process opens anything else.
    pub(crate) fn take(count: u8) -> io::Result<Self> {
        let null = File::options().read(true).write(true).open("/dev/null")?;
        let count = RawFd::from(count);
        // The original must itself sit above the reserved numbers.
        let raw = nix::fcntl::fcntl(null.as_raw_fd(), nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(FIRST + count))?;
        drop(null);
        // SAFETY: F_DUPFD_CLOEXEC has just created this descriptor for us.
        let null = unsafe { File::from_raw_fd(raw) };
        let numbers = Self { null, count };
        numbers.clear()?;
        Ok(numbers)
    }

    /// Puts the descriptors at 3, 4, …, inheritable.
    pub(crate) fn place(&self, descriptors: &[OwnedFd]) -> io::Result<()> {
        for (number, descriptor) in (FIRST..FIRST + self.count).zip(descriptors) {
            nix::unistd::dup2(descriptor.as_raw_fd(), number)?;
        }
        Ok(())
    }

    /// Closes what was placed.
    pub(crate) fn clear(&self) -> io::Result<()> {
        for number in FIRST..FIRST + self.count {
            nix::unistd::dup3(self.null.as_raw_fd(), number, nix::fcntl::OFlag::O_CLOEXEC)?;
        }
        Ok(())
    }

    /// Moves a descriptor that arrived at a reserved number out of the way.
    pub(crate) fn adopt(&self, raw: RawFd) -> io::Result<OwnedFd> {
        let moved = nix::fcntl::fcntl(raw, nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(FIRST + self.count))?;
        // SAFETY: F_DUPFD_CLOEXEC has just created this descriptor for us.
        Ok(unsafe { OwnedFd::from_raw_fd(moved) })
    }
}

/// Takes ownership of a descriptor that a wrapper has just returned as a number.
pub(crate) fn own(raw: RawFd) -> OwnedFd {
    // SAFETY: callers pass what open() has just returned; nobody else owns it.
    unsafe { OwnedFd::from_raw_fd(raw) }
}

/// `SECCOMP_IOCTL_NOTIF_RECV` and `SECCOMP_IOCTL_NOTIF_SEND` on `x86_64`: direction, size, `!` and number in one.
const NOTIFICATION_RECEIVE: libc::c_ulong = 0xc050_2100;
const NOTIFICATION_SEND: libc::c_ulong = 0xc018_2101;

/// Refuses one call that a filter asks about with `EPERM`; its number, or `None` where the caller is gone.
pub(crate) fn seccomp_refuse_one(filter: BorrowedFd<'_>) -> io::Result<Option<i32>> {
    // SAFETY: the structure holds integers only, for which zero is a value; the kernel wants it zeroed.
    let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the request reads and writes exactly this structure, whose size is part of its number.
    let result = unsafe { libc::ioctl(filter.as_raw_fd(), NOTIFICATION_RECEIVE, &raw mut asked) };
    match Errno::result(result) {
        Ok(_) => {}
        Err(Errno::ENOENT | Errno::EINTR | Errno::EAGAIN) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    }
    let mut answer = libc::seccomp_notif_resp { id: asked.id, val: 0, error: -libc::EPERM, flags: 0 };
    // SAFETY: the request reads exactly this structure, whose size is part of its number.
    let result = unsafe { libc::ioctl(filter.as_raw_fd(), NOTIFICATION_SEND, &raw mut answer) };
    match Errno::result(result) {
        // Killed between question and answer.
        Ok(_) | Err(Errno::ENOENT) => Ok(Some(asked.data.nr)),
        Err(errno) => Err(errno.into()),
    }
}

/// The kernel's `struct landlock_ruleset_attr`; older versions know only its beginning.
#[repr(C)]
struct RulesetAttributes {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

/// The kernel's `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}

/// A Landlock ruleset that handles these rights on files and these scopes.
pub(crate) fn landlock_create(files: u64, scoped: u64, abi: u32) -> io::Result<OwnedFd> {
    let attributes = RulesetAttributes { handled_access_fs: files, handled_access_net: 0, scoped };
    let size: usize = match abi {
        0..=3 => 8,
        4 | 5 => 16,
        _ => 24,
    };
    // SAFETY: the kernel reads `size` bytes of the structure, which is at least that long, and keeps no pointer.
    let raw = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attributes, size, 0u32) };
    let raw = Errno::result(raw)?;
    Ok(own(RawFd::try_from(raw).map_err(io::Error::other)?))
}

/// Allows rights below an opened path.
pub(crate) fn landlock_allow(ruleset: BorrowedFd<'_>, path: BorrowedFd<'_>, rights: u64) -> io::Result<()> {
    const PATH_BENEATH: libc::c_int = 1;
    let rule = PathBeneath { allowed_access: rights, parent_fd: path.as_raw_fd() };
    // SAFETY: the rule has the layout that this type of rule has in the kernel, which reads it and keeps no pointer.
    let result = unsafe {
        libc::syscall(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), PATH_BENEATH, &raw const rule, 0u32)
    };
    Errno::result(result).map(drop).map_err(io::Error::from)
}

/// Restricts the calling thread, and all that it becomes or starts, to the ruleset.
pub(crate) fn landlock_restrict(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call takes two integers and touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0u32) };
    Errno::result(result).map(drop).map_err(io::Error::from)
}

/// Loads a compiled seccomp filter into the calling thread, which has to have no_new_privs.
pub(crate) fn load_filter(program: &[u8]) -> io::Result<()> {
    const INSTRUCTION: usize = size_of::<libc::sock_filter>();
    let (instructions, rest) = program.as_chunks::<INSTRUCTION>();
    if instructions.is_empty() || !rest.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a whole number of instructions"));
    }
    let mut instructions: Vec<libc::sock_filter> = instructions
        .iter()
        .map(|&[a, b, jt, jf, k0, k1, k2, k3]| libc::sock_filter {
            code: u16::from_ne_bytes([a, b]),
            jt,
            jf,
            k: u32::from_ne_bytes([k0, k1, k2, k3]),
        })
        .collect();
    let length = u16::try_from(instructions.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len: length, filter: instructions.as_mut_ptr() };
    // SAFETY: the structure points to as many instructions as it says, which live until the call returns; the kernel
    // copies them.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0u32, &raw const program) };
    Errno::result(result).map(drop).map_err(io::Error::from)
}
