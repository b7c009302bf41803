//! A sweep's directory: whole files only, one directory a trial, nothing that a trainer left is followed.
//!
//! What a sweep is and how far it got is in the database; these files are what it produced.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::libc;
use nix::sys::statvfs::statvfs;
use rlox_report::TrialKey;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::discard;
use super::plan::Plan;
use crate::job::hex;

/// Hidden, as is everything here but the trials: `ls | wc -l` counts them.
const MANIFEST: &str = ".sweep.json";
/// Digests of summaries, from before there was a database.
const RECEIPTS: &str = ".recorded";
const SUMMARY: &str = "run_summary.json";
/// The trainer's output.
pub(crate) const LOG: &str = "trainer.log";
/// Less than this free is a full disk: a database page and a summary have to fit.
const LEAST_FREE: u64 = 256 << 10;
/// A summary has a few kilobytes.
const MAX_SUMMARY: u64 = 1 << 20;

/// A file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}: {source}")]
pub(crate) struct FileError {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl FileError {
    /// Wraps the system's word.
    pub(super) fn of(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self { action, path: path.to_owned(), source }
    }

    /// There was no room.
    pub(super) fn is_full(&self) -> bool {
        matches!(self.source.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
    }
}

/// Bytes that may still be written below a path.
pub(super) fn free_bytes(path: &Path) -> Option<u64> {
    let found = statvfs(path).ok()?;
    Some(found.blocks_available().saturating_mul(found.fragment_size()))
}

/// Whether there is no room left.
pub(super) fn full(path: &Path) -> bool {
    free_bytes(path).is_some_and(|free| free < LEAST_FREE)
}

/// What the sweep in a directory is; for those who have the files alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) plan: Plan,
    pub(super) corpus: Vec<(String, String)>,
}

/// A sweep's directory.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    root: PathBuf,
}

impl Folder {
    /// The directory, which need not exist yet.
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Its path.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where a trial's files are.
    pub(crate) fn trial(&self, key: TrialKey) -> PathBuf {
        self.root.join(key.to_string())
    }

    /// Makes the directory, with the manifest in it.
    pub(super) fn prepare(&self, manifest: &Manifest) -> Result<(), FileError> {
        fs::create_dir_all(&self.root).map_err(FileError::of("create", &self.root))?;
        discard::finish(&self.root).map_err(FileError::of("clear", &self.root))?;
        let path = self.root.join(MANIFEST);
        if read_manifest(&self.root)?.as_ref() == Some(manifest) {
            return Ok(());
        }
        let mut text = serde_json::to_vec_pretty(manifest)
            .map_err(|error| FileError::of("encode", &path)(io::Error::other(error)))?;
        text.push(b'\n');
        self.write(&path, &text)
    }

    /// A new, empty directory for a trial; what an earlier attempt left goes.
    pub(super) fn begin(&self, key: TrialKey) -> Result<PathBuf, FileError> {
        self.discard(key)?;
        let path = self.trial(key);
        fs::create_dir(&path).map_err(FileError::of("create", &path))?;
        Ok(path)
    }

    /// Removes what an attempt left.
    pub(super) fn discard(&self, key: TrialKey) -> Result<(), FileError> {
        discard::remove(&self.root, &key.to_string()).map_err(FileError::of("clear", &self.trial(key)))
    }

    /// Puts a trial's summary in place, whole or not at all.
    pub(super) fn put_summary(&self, key: TrialKey, text: &str) -> Result<(), FileError> {
        let path = self.trial(key).join(SUMMARY);
        if fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir()) {
            // A file cannot take a directory's place, and a trainer can make one of any name.
            let aside = tempfile::Builder::new()
                .prefix("not-a-summary-")
                .tempdir_in(self.trial(key))
                .map_err(FileError::of("make room in", &path))?
                .keep();
            fs::rename(&path, &aside).map_err(FileError::of("move aside", &path))?;
        }
        self.write(&path, text.as_bytes())
    }

    /// Puts a recorded summary back where it is missing or is another one.
    pub(super) fn restore_summary(&self, key: TrialKey, text: &str) -> Result<(), FileError> {
        let directory = self.trial(key);
        if read_summary(&directory).is_some_and(|found| found == text) {
            return Ok(());
        }
        tracing::warn!(trial = %key, "a recorded summary was missing or changed; it is put back");
        match fs::symlink_metadata(&directory) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => fs::remove_file(&directory).map_err(FileError::of("clear", &directory))?,
            Err(_) => {}
        }
        fs::create_dir_all(&directory).map_err(FileError::of("create", &directory))?;
        self.put_summary(key, text)
    }

    /// Removes every trial and the manifest; files of others stay.
    pub(super) fn clear(&self) -> Result<(), FileError> {
        for entry in fs::read_dir(&self.root).map_err(FileError::of("list", &self.root))?.flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let trial = name.to_str().is_some_and(|name| TrialKey::parse(name).is_some());
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_directory && (trial || name == RECEIPTS) {
                discard::remove(&self.root, &name.to_string_lossy())
                    .map_err(FileError::of("remove", &path))?;
            } else if name == MANIFEST {
                fs::remove_file(&path).map_err(FileError::of("remove", &path))?;
            }
        }
        Ok(())
    }

    /// The summary that a controller without a database recorded, where its receipt is there.
    pub(super) fn receipted(&self, key: TrialKey) -> Option<String> {
        let pinned = fs::read_to_string(self.root.join(RECEIPTS).join(key.to_string())).ok()?;
        let text = read_summary(&self.trial(key))?;
        (hex(&Sha256::digest(text.as_bytes())) == pinned.trim()).then_some(text)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), FileError> {
        let directory = path.parent().unwrap_or(&self.root);
        let write = || -> io::Result<()> {
            let permissions = fs::Permissions::from_mode(0o644);
            // Never through a name that a trainer could have made a link of: a random one, then rename.
            let mut file = tempfile::Builder::new().permissions(permissions).tempfile_in(directory)?;
            file.write_all(bytes)?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            File::open(directory)?.sync_all()
        };
        write().map_err(FileError::of("write", path))
    }
}

/// The manifest of a directory.
pub(super) fn read_manifest(root: &Path) -> Result<Option<Manifest>, FileError> {
    let path = root.join(MANIFEST);
    match fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| FileError::of("read the manifest", &path)(io::Error::other(error))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FileError::of("read", &path)(error)),
    }
}

fn read_summary(directory: &Path) -> Option<String> {
    let mut file = open_untrusted(&directory.join(SUMMARY)).ok()?;
    let mut bytes = Vec::new();
    Read::by_ref(&mut file).take(MAX_SUMMARY).read_to_end(&mut bytes).ok()?;
    String::from_utf8(bytes).ok()
}

/// Opens a file that a trainer may have replaced by anything: a regular file, or an error. The last part of the path
/// is no link; the parts before it are ours.
pub(super) fn open_untrusted(path: &Path) -> io::Result<File> {
    // A pipe without a writer would hold the opening up for ever.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(file)
}

/// At most so many bytes of such a file from an offset on.
pub(super) fn read_untrusted(path: &Path, offset: u64, most: u64) -> io::Result<Vec<u8>> {
    let mut file = open_untrusted(path)?;
    file.seek(io::SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A piece of a trial's log, and how long the log is.
pub(crate) fn read_log(trial: &Path, offset: u64, most: u64) -> io::Result<(Vec<u8>, u64)> {
    let mut file = open_untrusted(&trial.join(LOG))?;
    let length = file.metadata()?.len();
    file.seek(io::SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok((bytes, length))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn key() -> TrialKey {
        TrialKey::parse("rlox_seed0_fraction0").unwrap()
    }

    #[test]
    fn a_link_in_place_of_a_summary_is_replaced_and_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("target");
        fs::write(&target, "untouched").unwrap();
        let folder = Folder::new(directory.path().join("sweep"));
        fs::create_dir(folder.root()).unwrap();
        let trial = folder.begin(key()).unwrap();
        symlink(&target, trial.join(SUMMARY)).unwrap();
        assert_eq!(read_summary(&trial), None);
        folder.put_summary(key(), "{}").unwrap();
        assert_eq!(read_summary(&trial).as_deref(), Some("{}"));
        assert_eq!(fs::read_to_string(&target).unwrap(), "untouched");
    }

    #[test]
    fn links_pipes_and_directories_are_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("file"), "0123456789").unwrap();
        symlink(path("file"), path("link")).unwrap();
        fs::create_dir(path("directory")).unwrap();
        nix::unistd::mkfifo(&path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for name in ["link", "directory", "pipe", "none"] {
            assert!(read_untrusted(&path(name), 0, 10).is_err(), "{name}");
        }
        assert_eq!(read_untrusted(&path("file"), 3, 4).unwrap(), b"3456");
        assert_eq!(read_untrusted(&path("file"), 30, 4).unwrap(), b"");
    }

    #[test]
    fn a_recorded_summary_that_went_is_put_back() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::new(directory.path().to_owned());
        folder.restore_summary(key(), "{}").unwrap();
        assert_eq!(read_summary(&folder.trial(key())).as_deref(), Some("{}"));
        fs::write(folder.trial(key()).join(SUMMARY), "forged").unwrap();
        folder.restore_summary(key(), "{}").unwrap();
        assert_eq!(read_summary(&folder.trial(key())).as_deref(), Some("{}"));
    }
}
