//! Every system call that has no safe wrapper. The only module of this crate with `unsafe`.
#![expect(unsafe_code, reason = "raw system calls, each with its reason")]

use std::ffi::CString;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::Pid;
use oci_spec::runtime::PosixRlimitType;

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

/// Sends a signal by number; a process that is gone already needs none.
pub(crate) fn kill_number(pid: Pid, signal: i32) -> io::Result<()> {
    // SAFETY: kill takes two integers and touches no memory of ours.
    let result = unsafe { libc::kill(pid.as_raw(), signal) };
    match Errno::result(result) {
        Ok(_) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Which side of a fork this is.
pub(crate) enum Forked {
    /// The parent, with the child's process id.
    Parent(Pid),
    /// The child.
    Child,
}

/// Forks this single-threaded process. A sibling is a child of our own parent, which then has to reap it.
pub(crate) fn fork(sibling: bool) -> io::Result<Forked> {
    let flags = libc::SIGCHLD | if sibling { libc::CLONE_PARENT } else { 0 };
    // SAFETY: without a stack and without CLONE_VM this is a fork: the child has a copy of our memory. No other
    // thread exists in this program, so no lock can be held by one that is not copied.
    let result = unsafe { libc::syscall(libc::SYS_clone, libc::c_long::from(flags), 0, 0, 0, 0) };
    let pid = i32::try_from(Errno::result(result)?).map_err(io::Error::other)?;
    Ok(if pid == 0 { Forked::Child } else { Forked::Parent(Pid::from_raw(pid)) })
}

/// Ends a forked child without running what the parent registered for its own end.
pub(crate) fn exit_child(code: i32) -> ! {
    // SAFETY: _exit takes an integer and does not return.
    unsafe { libc::_exit(code) }
}

/// Sets a resource limit of another process.
pub(crate) fn prlimit(pid: Pid, kind: PosixRlimitType, soft: u64, hard: u64) -> io::Result<()> {
    let resource = match kind {
        PosixRlimitType::RlimitCpu => libc::RLIMIT_CPU,
        PosixRlimitType::RlimitFsize => libc::RLIMIT_FSIZE,
        PosixRlimitType::RlimitData => libc::RLIMIT_DATA,
        PosixRlimitType::RlimitStack => libc::RLIMIT_STACK,
        PosixRlimitType::RlimitCore => libc::RLIMIT_CORE,
        PosixRlimitType::RlimitRss => libc::RLIMIT_RSS,
        PosixRlimitType::RlimitNproc => libc::RLIMIT_NPROC,
        PosixRlimitType::RlimitNofile => libc::RLIMIT_NOFILE,
        PosixRlimitType::RlimitMemlock => libc::RLIMIT_MEMLOCK,
        PosixRlimitType::RlimitAs => libc::RLIMIT_AS,
        PosixRlimitType::RlimitLocks => libc::RLIMIT_LOCKS,
        PosixRlimitType::RlimitSigpending => libc::RLIMIT_SIGPENDING,
        PosixRlimitType::RlimitMsgqueue => libc::RLIMIT_MSGQUEUE,
        PosixRlimitType::RlimitNice => libc::RLIMIT_NICE,
        PosixRlimitType::RlimitRtprio => libc::RLIMIT_RTPRIO,
        PosixRlimitType::RlimitRttime => libc::RLIMIT_RTTIME,
    };
    let limit = libc::rlimit64 { rlim_cur: soft, rlim_max: hard };
    // SAFETY: the new limit is a valid structure that outlives the call; the null pointer asks for no old one.
    let result = unsafe { libc::prlimit64(pid.as_raw(), resource, &raw const limit, std::ptr::null_mut()) };
    Errno::result(result).map(drop).map_err(io::Error::from)
}

/// Gives this process a session keyring of its own, so that a container does not find the caller's keys.
pub(crate) fn new_session_keyring() -> io::Result<()> {
    const KEYCTL_JOIN_SESSION_KEYRING: libc::c_long = 1;
    // SAFETY: the null name asks for an anonymous keyring; the other argument is an integer.
    let result = unsafe {
        libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>())
    };
    match Errno::result(result) {
        // A kernel without keyrings has no keys to hide.
        Ok(_) | Err(Errno::ENOSYS) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// The size of a terminal, to be given to another.
pub(crate) fn copy_window_size(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: an all-zero winsize is a valid value of four integers.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is valid and outlives both calls.
    let result = unsafe { libc::ioctl(from.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    Errno::result(result)?;
    // SAFETY: as above; the kernel only reads it.
    let result = unsafe { libc::ioctl(to.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
    Errno::result(result).map(drop).map_err(io::Error::from)
}

/// An exclusive lock on all of a file, for `F_SETLK`.
#[expect(clippy::cast_possible_truncation, reason = "both constants are small")]
pub(crate) fn whole_file_lock() -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Brings the loopback device of this network namespace up.
pub(crate) fn loopback_up() -> io::Result<()> {
    let socket = nix::sys::socket::socket(
        nix::sys::socket::AddressFamily::Inet,
        nix::sys::socket::SockType::Datagram,
        nix::sys::socket::SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    // SAFETY: an all-zero request is a valid value: bytes and integers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(*b"lo") {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    // SAFETY: the request is valid, names a device with a final zero, and outlives both calls.
    Errno::result(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request) })?;
    let up = libc::c_short::try_from(libc::IFF_UP).map_err(io::Error::other)?;
    // SAFETY: the call before has filled the flags in, which are an integer.
    unsafe { request.ifr_ifru.ifru_flags |= up };
    // SAFETY: as for the first call; the kernel only reads it.
    Errno::result(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) })
        .map(drop)
        .map_err(io::Error::from)
}

/// A detached copy of one mount, without the mounts on top of it.
pub(crate) fn clone_mount(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
    // SAFETY: the path is a valid string that outlives the call; the other arguments are integers.
    let raw = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
    let raw = RawFd::try_from(Errno::result(raw)?).map_err(io::Error::other)?;
    // SAFETY: the kernel has just created this descriptor and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Loads a program that decides on devices and attaches it to a cgroup of v2, beside what is attached already.
pub(crate) fn attach_device_program(instructions: &[u64], cgroup: BorrowedFd<'_>) -> io::Result<()> {
    const BPF_PROG_LOAD: libc::c_int = 5;
    const BPF_PROG_ATTACH: libc::c_int = 8;
    const BPF_PROG_TYPE_CGROUP_DEVICE: u32 = 15;
    const BPF_CGROUP_DEVICE: u32 = 6;
    const BPF_F_ALLOW_MULTI: u32 = 2;
    #[repr(C)]
    struct Load {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        version: u32,
        flags: u32,
    }
    #[repr(C)]
    struct Attach {
        target: u32,
        program: u32,
        kind: u32,
        flags: u32,
    }
    let count = u32::try_from(instructions.len()).map_err(io::Error::other)?;
    let load = Load {
        kind: BPF_PROG_TYPE_CGROUP_DEVICE,
        count,
        instructions: instructions.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        version: 0,
        flags: 0,
    };
    // SAFETY: the structure is the beginning of the kernel's union for this command, of the size that is passed, and
    // what it points to outlives the call.
    let raw = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const load, size_of::<Load>()) };
    let raw = RawFd::try_from(Errno::result(raw)?).map_err(io::Error::other)?;
    // SAFETY: the kernel has just created this descriptor and nobody else owns it.
    let program = unsafe { OwnedFd::from_raw_fd(raw) };
    let number = |raw: RawFd| u32::try_from(raw).map_err(io::Error::other);
    let attach = Attach {
        target: number(cgroup.as_raw_fd())?,
        program: number(program.as_raw_fd())?,
        kind: BPF_CGROUP_DEVICE,
        flags: BPF_F_ALLOW_MULTI,
    };
    // SAFETY: as above.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_ATTACH, &raw const attach, size_of::<Attach>()) };
    Errno::result(result).map(drop).map_err(io::Error::from)
}

/// A descriptor that the kernel has just put into this process with a message.
pub(crate) fn received(raw: RawFd) -> OwnedFd {
    // SAFETY: the caller has it from SCM_RIGHTS of a message that was read once; nobody else owns it.
    unsafe { OwnedFd::from_raw_fd(raw) }
}

/// Standard input, which nothing in this program closes.
pub(crate) fn standard_input() -> BorrowedFd<'static> {
    // SAFETY: number 0 stays open for as long as the process lives: nothing here closes it.
    unsafe { BorrowedFd::borrow_raw(0) }
}

/// Takes ownership of a descriptor that a wrapper has just returned as a number.
pub(crate) fn own(raw: RawFd) -> OwnedFd {
    // SAFETY: callers pass what open() has just returned; nobody else owns it.
    unsafe { OwnedFd::from_raw_fd(raw) }
}

/// Borrows a descriptor by the number that it had before a fork.
pub(crate) fn borrow<'a>(raw: RawFd) -> BorrowedFd<'a> {
    // SAFETY: its owner, in the process that was copied, holds it open over the making of a container, and the copy
    // has it until it closes all.
    unsafe { BorrowedFd::borrow_raw(raw) }
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

/// Loads a compiled seccomp filter into the calling thread, which has to have no_new_privs. A filter that notifies
/// gives the descriptor on which its questions are answered.
pub(crate) fn load_filter(program: &[u8], notifies: bool) -> io::Result<Option<OwnedFd>> {
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
    let flags = if notifies { libc::SECCOMP_FILTER_FLAG_NEW_LISTENER } else { 0 };
    // SAFETY: the structure points to as many instructions as it says, which live until the call returns; the kernel
    // copies them.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    let result = Errno::result(result)?;
    Ok(if notifies { Some(own(RawFd::try_from(result).map_err(io::Error::other)?)) } else { None })
}

/// Closes every descriptor from this number on.
pub(crate) fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: the call takes three integers. Owners of these descriptors in this process never use them again: it
    // is the copy of a process, and becomes a program.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0u32) };
    Errno::result(result).map(drop).map_err(io::Error::from)
}

/// Has the kernel kill this process when the one that made it ends.
pub(crate) fn die_with_parent() -> io::Result<()> {
    // SAFETY: the call takes integers and touches no memory of ours.
    let result = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
    Errno::result(result).map(drop).map_err(io::Error::from)
}
/// Makes pages of this process its own, as writing to each of them would.
pub(crate) fn populate(range: &Range<usize>) -> io::Result<()> {
    // SAFETY: the kernel changes no content, and refuses ranges that are not mapped.
    let result =
        unsafe { libc::madvise(range.start as *mut libc::c_void, range.len(), libc::MADV_POPULATE_WRITE) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
