//! Walks what a trainer left, or still changes, which may be anything: by descriptors, so that no link is followed and
//! no path is too long; depth and number of entries are bounded. What cannot be walked is an error: who counts a tree
//! takes it for too large.

use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Uid, chownat, openat, statat};
use rustix::io::Errno;

/// Directories below one another. A descriptor each is open.
const DEPTH: usize = 64;
/// Files and directories: an honest trainer makes some hundred. Empty files take no blocks, but they take inodes.
const ENTRIES: u64 = 1 << 16;

/// What is done at an entry: its directory, its name, what it is.
type Visit<'a> = dyn FnMut(&OwnedFd, &CStr, &Stat) -> Result<(), Errno> + 'a;

/// Visits everything in a directory. What vanishes meanwhile is passed over.
fn walk(root: &Path, visit: &mut Visit<'_>) -> io::Result<()> {
    let root = openat(CWD, root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut levels = vec![(Dir::read_from(&root)?, root)];
    let mut entries = 0;
    while let Some((listing, directory)) = levels.last_mut() {
        let Some(entry) = listing.next() else {
            levels.pop();
            continue;
        };
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        entries += 1;
        if entries > ENTRIES {
            return Err(io::Error::other(format!("more than {ENTRIES} entries")));
        }
        let found = match statat(&*directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            found => found?,
        };
        match visit(directory, name, &found) {
            Err(Errno::NOENT) => continue,
            done => done?,
        }
        if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let below = match openat(&*directory, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => continue,
            below => below?,
        };
        if levels.len() >= DEPTH {
            return Err(io::Error::other(format!("more than {DEPTH} directories below one another")));
        }
        levels.push((Dir::read_from(&below)?, below));
    }
    Ok(())
}

/// What a tree takes on the disk, in MiB; more than any limit where that cannot be told.
pub(super) fn size_mb(directory: &Path) -> u64 {
    let mut blocks: u64 = 0;
    let counted = walk(directory, &mut |_, _, found| {
        blocks = blocks.saturating_add(u64::try_from(found.st_blocks).unwrap_or(u64::MAX));
        Ok(())
    });
    match counted {
        Ok(()) => blocks.saturating_mul(512) >> 20,
        Err(error) => {
            tracing::warn!(directory = %directory.display(), %error, "a trial's files cannot be counted");
            u64::MAX
        }
    }
}

/// Makes everything in a directory, and itself, ours. What cannot be does not keep the rest from it.
pub(super) fn own(directory: &Path) -> io::Result<()> {
    let own = |parent: &OwnedFd, name: &CStr| {
        chownat(parent, name, Some(Uid::ROOT), Some(Gid::ROOT), AtFlags::SYMLINK_NOFOLLOW)
    };
    let mut refused = None;
    std::os::unix::fs::lchown(directory, Some(0), Some(0))?;
    walk(directory, &mut |parent, name, _| {
        if let Err(errno) = own(parent, name) {
            refused.get_or_insert(errno);
        }
        Ok(())
    })?;
    refused.map_or(Ok(()), |errno| Err(errno.into()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::mkdirat;

    use super::*;

    fn deep(root: &Path, depth: usize, name: &str) -> OwnedFd {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut at = openat(CWD, root, flags, Mode::empty()).unwrap();
        for _ in 0..depth {
            mkdirat(&at, name, Mode::RWXU).unwrap();
            at = openat(&at, name, flags, Mode::empty()).unwrap();
        }
        at
    }

    fn mebibyte(at: &OwnedFd) {
        let file = openat(at, "file", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).unwrap();
        std::io::Write::write_all(&mut fs::File::from(file), &vec![1; 3 << 20]).unwrap();
    }

    #[test]
    fn files_below_a_path_that_is_too_long_count_and_links_do_not() {
        let directory = tempfile::tempdir().unwrap();
        let (trial, outside) = (directory.path().join("trial"), directory.path().join("outside"));
        fs::create_dir(&trial).unwrap();
        fs::create_dir(&outside).unwrap();
        mebibyte(&deep(&outside, 1, "d"));
        symlink(&outside, trial.join("link")).unwrap();
        assert_eq!(size_mb(&trial), 0);
        mebibyte(&deep(&trial, DEPTH - 1, &"d".repeat(200)));
        assert!((3..5).contains(&size_mb(&trial)));
        if nix::unistd::geteuid().is_root() {
            own(&trial).unwrap();
        }
    }

    #[test]
    fn what_is_too_deep_too_many_or_not_there_is_over_every_limit() {
        let directory = tempfile::tempdir().unwrap();
        deep(directory.path(), DEPTH, "d");
        assert_eq!(size_mb(directory.path()), u64::MAX);
        assert_eq!(size_mb(&directory.path().join("none")), u64::MAX);
        let many = tempfile::tempdir().unwrap();
        let target = many.path().join("0");
        fs::write(&target, "").unwrap();
        let at = openat(CWD, many.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        for number in 1..ENTRIES {
            rustix::fs::symlinkat("x", &at, number.to_string()).unwrap();
        }
        assert_eq!(size_mb(many.path()), 0);
        fs::write(many.path().join("more"), "").unwrap();
        assert_eq!(size_mb(many.path()), u64::MAX);
    }
}
