//! Removes what a trainer left, which may be a tree of any depth, with paths of any length.
//!
//! A removal that goes down the tree needs a descriptor or a frame of the stack a level. This one takes the tree apart
//! instead: what is below the first level is moved up to it, so that nothing is ever deeper than two. A few
//! descriptors are open at a time, nothing is made, so it works on a full disk, and a crash leaves a hidden directory
//! that the next start removes.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

/// Hidden, as is everything in a sweep's directory but the trials.
const PREFIX: &str = ".discarded-";

/// Removes whatever has this name in a directory of ours. Nothing there is no error.
pub(super) fn remove(parent: &Path, name: &str) -> io::Result<()> {
    let (path, aside) = (parent.join(name), parent.join(format!("{PREFIX}{name}")));
    match fs::symlink_metadata(&path) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return fs::remove_file(&path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    if fs::symlink_metadata(&aside).is_ok() {
        take_apart(&aside)?;
    }
    fs::rename(&path, &aside)?;
    take_apart(&aside)
}

/// Removes what a controller that died had put aside.
pub(super) fn finish(parent: &Path) -> io::Result<()> {
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX)) {
            take_apart(&entry.path())?;
        }
    }
    Ok(())
}

fn take_apart(aside: &Path) -> io::Result<()> {
    let top = open(CWD, aside)?;
    let mut number = 0;
    empty(&top, |name| {
        let directory = open(&top, name)?;
        empty(&directory, |inner| move_up(&directory, inner, &top, &mut number))?;
        Ok(unlinkat(&top, name, AtFlags::REMOVEDIR)?)
    })?;
    fs::remove_dir(aside)
}

fn open(parent: impl AsFd, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

/// Removes everything in a directory; `inner` does it with the directories in it.
fn empty(directory: &OwnedFd, mut inner: impl FnMut(&CStr) -> io::Result<()>) -> io::Result<()> {
    // Some file systems pass entries over while others come and go: again, until nothing is left.
    loop {
        let mut left = false;
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            left = true;
            match unlinkat(directory, name, AtFlags::empty()) {
                // Linux says the first of a directory, POSIX the second.
                Err(Errno::ISDIR | Errno::PERM) => inner(name)?,
                Err(Errno::NOENT) | Ok(()) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        if !left {
            return Ok(());
        }
    }
}

/// Moves a directory up, to the first number that is free there: the trainer may have used numbers, too.
fn move_up(directory: &OwnedFd, name: &CStr, top: &OwnedFd, number: &mut u64) -> io::Result<()> {
    loop {
        *number += 1;
        match renameat(directory, name, top, number.to_string()) {
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
            done => return Ok(done?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::mkdirat;

    use super::*;

    /// A chain of directories with a file in each, which no path can name.
    fn chain(root: &Path, depth: u32) {
        let mut at = open(CWD, root).unwrap();
        for _ in 0..depth {
            let name = "d".repeat(200);
            mkdirat(&at, &name, Mode::RWXU).unwrap();
            at = open(&at, &name).unwrap();
            openat(&at, "file", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).unwrap();
        }
    }

    #[test]
    fn a_tree_deeper_than_any_path_is_removed_and_what_it_links_to_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (outside, trial) = (directory.path().join("outside"), directory.path().join("trial"));
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "kept").unwrap();
        fs::create_dir(&trial).unwrap();
        // Names like the numbers that are given here.
        fs::create_dir_all(trial.join("0/1/2")).unwrap();
        fs::create_dir_all(trial.join("1/0/0/0")).unwrap();
        symlink(&outside, trial.join("2")).unwrap();
        chain(&trial, 3000);
        remove(directory.path(), "trial").unwrap();
        let left: Vec<_> =
            fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left, std::slice::from_ref(&outside));
        assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "kept");
        remove(directory.path(), "trial").unwrap();
    }

    #[test]
    fn what_a_crash_left_aside_is_removed_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let aside = directory.path().join(format!("{PREFIX}trial"));
        fs::create_dir_all(aside.join("0/deeper/5")).unwrap();
        fs::create_dir_all(aside.join("7")).unwrap();
        fs::create_dir(directory.path().join("trial")).unwrap();
        fs::write(aside.join("7/file"), "x").unwrap();
        finish(directory.path()).unwrap();
        let left: Vec<_> =
            fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["trial"]);
        // Put aside and not yet removed, when the same trial is discarded again.
        fs::create_dir_all(aside.join("1/1/1")).unwrap();
        remove(directory.path(), "trial").unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
