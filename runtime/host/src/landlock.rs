//! Which version of Landlock the running kernel offers. Asked of the kernel: a list of modules does not tell the version.
#![expect(unsafe_code, reason = "Landlock's calls have no wrapper in libc")]

use std::io;

/// `LANDLOCK_CREATE_RULESET_VERSION`
const VERSION: u32 = 1;

/// Older versions cannot express a rename from one directory to another, which honest programs do.
pub const LANDLOCK_OLDEST: u32 = 2;

/// The version of Landlock's interface, or why there is none (`ENOSYS`: not built in; `EOPNOTSUPP`: switched off at boot).
pub fn landlock_abi() -> io::Result<u32> {
    // SAFETY: with a null attribute of size 0 and this flag the call reads no memory and only returns a number.
    let answer = unsafe {
        nix::libc::syscall(
            nix::libc::SYS_landlock_create_ruleset,
            std::ptr::null::<nix::libc::c_void>(),
            0usize,
            VERSION,
        )
    };
    u32::try_from(answer).map_err(|_| io::Error::last_os_error())
}
