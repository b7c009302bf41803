//! Landlock: a second check of every path, by a module that knows nothing of mounts.
//!
//! The container's first process restricts itself before it waits for the start, so that nothing of the program has
//! run, and a failure is a failed creation and no verdict. Everything may be read and executed, and written is what the
//! bundle names: a mount that should have been read-only, or a file of `/proc`, is then still closed.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use oci_spec::runtime::Spec;
use rlox_host::landlock_abi;

use crate::spec::is_bind;
use crate::sys;

/// Annotation of a bundle's `config.json`: directories in which a program may write, separated by `:`. A bundle
/// without it is not restricted. Writable bind mounts are added.
const ANNOTATION: &str = "org.rlox.landlock";

/// Rights on files, as the kernel numbers them.
mod right {
    pub(super) const EXECUTE: u64 = 1;
    pub(super) const WRITE_FILE: u64 = 1 << 1;
    pub(super) const READ_FILE: u64 = 1 << 2;
    pub(super) const READ_DIR: u64 = 1 << 3;
    pub(super) const MAKE_CHAR: u64 = 1 << 6;
    pub(super) const MAKE_BLOCK: u64 = 1 << 11;
    pub(super) const TRUNCATE: u64 = 1 << 14;
    pub(super) const IOCTL_DEV: u64 = 1 << 15;

    /// Every right on files that this version of the interface has; version 2 is the oldest used.
    pub(super) fn all(abi: u32) -> u64 {
        match abi {
            0..=2 => (1 << 14) - 1,
            3 | 4 => (1 << 15) - 1,
            _ => (1 << 16) - 1,
        }
    }
}

/// Since version 6: no abstract socket and no signal leaves the domain.
const SCOPED: u64 = 0b11;

/// Where a program may write.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Policy {
    writable: Vec<PathBuf>,
}

/// Restricts the calling process where its bundle asks for that and the kernel can.
pub(crate) fn restrict(spec: &Spec) -> Result<(), String> {
    let Some(policy) = Policy::of(spec) else { return Ok(()) };
    match landlock_abi() {
        Ok(abi) if abi >= rlox_host::LANDLOCK_OLDEST => policy.apply(abi),
        // The host's report names it as missing; whoever insists on it is refused before any container is made.
        Ok(_) | Err(_) => Ok(()),
    }
}

impl Policy {
    fn of(spec: &Spec) -> Option<Self> {
        let annotation = spec.annotations().as_ref()?.get(ANNOTATION)?;
        let named = annotation.split(':').filter(|path| !path.is_empty()).map(PathBuf::from);
        let read_only =
            |options: &Vec<String>| options.iter().any(|option| option == "ro" || option == "rro");
        let bound = spec.mounts().iter().flatten().filter(|mount| is_bind(mount));
        let bound = bound.filter(|mount| !mount.options().as_ref().is_some_and(read_only));
        // Nodes of devices are bound below /dev, which has a rule of its own.
        let bound = bound.map(|mount| mount.destination().clone()).filter(|path| !path.starts_with("/dev"));
        Some(Self { writable: named.chain(bound).collect() })
    }

    fn apply(&self, abi: u32) -> Result<(), String> {
        use right::{EXECUTE, IOCTL_DEV, MAKE_BLOCK, MAKE_CHAR, READ_DIR, READ_FILE, TRUNCATE, WRITE_FILE};
        let all = right::all(abi);
        let scoped = if abi >= 6 { SCOPED } else { 0 };
        let failed = |what: &str| {
            let what = format!("Landlock: {what}");
            move |error: std::io::Error| format!("{what}: {error}")
        };
        let ruleset = sys::landlock_create(all, scoped, abi).map_err(failed("making a ruleset"))?;
        let allow = |path: &Path, rights: u64| {
            let directory = directory(path)?;
            sys::landlock_allow(ruleset.as_fd(), directory.as_fd(), rights & all)
                .map_err(failed(&format!("a rule for {}", path.display())))
        };
        allow(Path::new("/"), EXECUTE | READ_FILE | READ_DIR)?;
        // Devices take writes; names below /dev are fixed.
        allow(Path::new("/dev"), READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | IOCTL_DEV)?;
        for path in &self.writable {
            allow(path, all & !(MAKE_CHAR | MAKE_BLOCK))?;
        }
        sys::landlock_restrict(ruleset.as_fd()).map_err(failed("restricting"))
    }
}

fn directory(path: &Path) -> Result<OwnedFd, String> {
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    let raw = open(path, flags, Mode::empty())
        .map_err(|errno| format!("Landlock: opening {}: {errno}", path.display()))?;
    Ok(sys::own(raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(name: &str) -> Option<Policy> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bundles").join(name).join("config.json");
        Policy::of(&Spec::load(path).unwrap())
    }

    #[test]
    fn bundles_write_to_their_tmpfs_and_read_only_binds_add_nothing() {
        let wanted = Some(Policy { writable: vec!["/tmp".into(), "/dev/shm".into()] });
        for name in ["snippet", "trainer"] {
            assert_eq!(policy(name), wanted, "{name}");
        }
        // Its forks mount a /tmp of their own, which Landlock forbids.
        assert_eq!(policy("grader"), None);
    }

    #[test]
    fn a_bundle_that_does_not_ask_is_not_restricted() {
        assert_eq!(Policy::of(&Spec::default()), None);
    }

    #[test]
    fn each_version_handles_the_rights_that_it_has() {
        assert_eq!(right::all(2), 0x3fff);
        assert_eq!(right::all(3), 0x7fff);
        assert_eq!(right::all(7), 0xffff);
    }
}
