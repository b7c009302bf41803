//! A small file system to fill.

use std::io::Write;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// Unmounted at the end, also of a test that failed.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Of so many MiB; `None` where the host does not let us mount.
    pub(crate) fn mounted(path: PathBuf, megabytes: u32) -> Option<Self> {
        std::fs::create_dir(&path).unwrap();
        let options = format!("size={megabytes}m");
        mount(Some("rlox-tests"), &path, Some("tmpfs"), MsFlags::empty(), Some(options.as_str())).ok()?;
        Some(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Fills what is free, and says in which file.
    pub(crate) fn fill(&self) -> PathBuf {
        let path = self.0.join("filler");
        let mut file = std::fs::File::create(&path).unwrap();
        let block = [1u8; 4096];
        while file.write_all(&block).is_ok() {}
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        umount2(&self.0, MntFlags::MNT_DETACH).unwrap_or_default();
    }
}
