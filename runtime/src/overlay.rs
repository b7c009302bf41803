//! A layer over a root file system that the container's root may write to, in place of the bundle's own files.
//!
//! With mapped ids the container's root owns nothing of a bundle that real root prepared. What a device needs
//! there, mount points and links made by its hooks, goes into this layer: it lies on the launcher's own tmpfs, in
//! its own mount namespace, and is gone with it. The program still sees a read-only root.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, lchown};
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};

use crate::error::RuntimeError;

/// Deeper trees are no root file systems of ours.
const MAX_DEPTH: u32 = 64;

/// Mounts `lower` with a layer below `scratch` (made here), in which `owner` owns every directory.
pub(crate) fn mount_over(lower: &Path, scratch: &Path, owner: u32) -> Result<PathBuf, RuntimeError> {
    let lower = fs::canonicalize(lower)
        .map_err(RuntimeError::system(format!("resolving the root file system {}", lower.display())))?;
    let [upper, work, merged] = ["upper", "work", "merged"].map(|name| scratch.join(name));
    for directory in [scratch, &upper, &work, &merged] {
        DirBuilder::new()
            .mode(0o755)
            .create(directory)
            .map_err(RuntimeError::system(format!("creating {}", directory.display())))?;
    }
    let options = ["lowerdir", "upperdir", "workdir"]
        .into_iter()
        .zip([&lower, &upper, &work])
        .map(|(name, path)| Ok(format!("{name}={}", escaped(path)?)))
        .collect::<Result<Vec<_>, RuntimeError>>()?
        .join(",");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("rlox"), &merged, Some("overlay"), flags, Some(options.as_str())).map_err(|errno| {
        RuntimeError::System {
            action: format!("mounting a writable layer over {}", lower.display()),
            source: errno.into(),
        }
    })?;
    give(&merged, owner, MAX_DEPTH)
        .map_err(RuntimeError::system(format!("giving {} to the container", merged.display())))?;
    Ok(merged)
}

/// Overlay's options know three special characters.
fn escaped(path: &Path) -> Result<String, RuntimeError> {
    let text = path.to_str().ok_or_else(|| RuntimeError::Request {
        reason: format!("the path {} is not UTF-8", path.display()),
    })?;
    Ok(text.replace('\\', "\\\\").replace(',', "\\,").replace(':', "\\:"))
}

fn give(directory: &Path, owner: u32, depth: u32) -> std::io::Result<()> {
    lchown(directory, Some(owner), Some(owner))?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        // Links are not followed: nothing outside this tree changes its owner.
        if entry.file_type()?.is_dir() && depth > 0 {
            give(&entry.path(), owner, depth - 1)?;
        }
    }
    Ok(())
}
