//! Walks what a trainer left, which may be anything: links are not followed, depth is bounded.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Visits a directory tree, at most 64 deep.
pub(super) fn walk(
    path: &Path,
    depth: u32,
    visit: &mut dyn FnMut(&Path) -> io::Result<()>,
) -> io::Result<()> {
    visit(path)?;
    let metadata = std::fs::symlink_metadata(path)?;
    if !metadata.is_dir() || depth >= 64 {
        return Ok(());
    }
    for entry in std::fs::read_dir(path)? {
        walk(&entry?.path(), depth + 1, visit)?;
    }
    Ok(())
}

/// What a tree takes on the disk, in MiB.
pub(super) fn size_mb(directory: &Path) -> u64 {
    let mut blocks = 0;
    let counted = walk(directory, 0, &mut |path| {
        blocks += std::fs::symlink_metadata(path)?.blocks();
        Ok(())
    });
    if let Err(error) = counted {
        // A file that vanished meanwhile; the next look counts again.
        tracing::debug!(%error, "counting a trial's files");
    }
    (blocks * 512) >> 20
}
