//! A sweep's directory: one sweep at a time, whole files only, finished trials kept.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use rlox_report::TrialKey;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::plan::Plan;
use crate::corpus::Pinned;
use crate::job::hex;

/// Hidden, as is everything here but the trials: `ls | wc -l` counts them.
const MANIFEST: &str = ".sweep.json";
const LOCK: &str = ".lock";
const SUMMARY: &str = "run_summary.json";
const RECEIPTS: &str = ".recorded";
/// Marks a summary that was written from outside the trainer.
pub(crate) const RECORDER: &str = "rlox-controller";

/// The directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// The system refused.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// To which path.
        path: PathBuf,
        /// The system's word.
        #[source]
        source: io::Error,
    },
    /// Another controller runs a sweep there.
    #[error(
        "{path} is in use by another sweep (process {pid}); wait for it, cancel it with: rlox-controller sweep cancel, or choose another --sweep-dir"
    )]
    Busy {
        /// The directory.
        path: PathBuf,
        /// The process named in the lock.
        pid: String,
    },
    /// The directory holds trials of another plan or corpus.
    #[error(
        "{path} holds a sweep with other settings ({what} differs); choose another --sweep-dir, or remove it with --fresh"
    )]
    Other {
        /// The directory.
        path: PathBuf,
        /// What differs.
        what: &'static str,
    },
    /// The manifest is not one.
    #[error("{path} is not a sweep's manifest: {reason}")]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    move |source| StoreError::Io { action, path: path.to_owned(), source }
}

/// What the sweep in a directory is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Manifest {
    plan: Plan,
    corpus: Vec<(String, String)>,
}

/// A sweep's directory, locked.
#[derive(Debug)]
pub(crate) struct Store {
    root: PathBuf,
    _lock: Flock<File>,
}

impl Store {
    /// Opens a directory for this plan; trials that were recorded earlier stay.
    pub(crate) fn open(root: &Path, plan: &Plan, corpus: &[Pinned], fresh: bool) -> Result<Self, StoreError> {
        fs::create_dir_all(root).map_err(io_error("create", root))?;
        let lock = lock(root)?;
        let store = Self { root: root.to_owned(), _lock: lock };
        let receipts = root.join(RECEIPTS);
        fs::create_dir_all(&receipts).map_err(io_error("create", &receipts))?;
        if fresh {
            store.clear()?;
        }
        let manifest = Manifest {
            plan: plan.clone(),
            corpus: corpus.iter().map(|pin| (pin.name.clone(), pin.digest.clone())).collect(),
        };
        match read_manifest(root)? {
            None => store.write(&root.join(MANIFEST), &manifest)?,
            Some(found) if found == manifest => {}
            Some(found) => {
                let what = if found.corpus == manifest.corpus { "the plan" } else { "the corpus" };
                return Err(StoreError::Other { path: root.to_owned(), what });
            }
        }
        Ok(store)
    }

    /// The plan of an existing sweep.
    pub(crate) fn plan(root: &Path) -> Result<Option<Plan>, StoreError> {
        Ok(read_manifest(root)?.map(|manifest| manifest.plan))
    }

    /// The process that runs the sweep there now.
    pub(crate) fn running(root: &Path) -> Option<i32> {
        match lock(root) {
            Err(StoreError::Busy { pid, .. }) => pid.parse().ok(),
            Ok(_) | Err(_) => None,
        }
    }

    fn clear(&self) -> Result<(), StoreError> {
        for entry in fs::read_dir(&self.root).map_err(io_error("list", &self.root))?.flatten() {
            let path = entry.path();
            let name = entry.file_name();
            let ours = name.to_str().is_some_and(|name| TrialKey::parse(name).is_some());
            if ours && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                fs::remove_dir_all(&path).map_err(io_error("remove", &path))?;
            } else if name == MANIFEST {
                fs::remove_file(&path).map_err(io_error("remove", &path))?;
            }
        }
        Ok(())
    }

    /// The sweep's directory.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The trial's directory.
    pub(crate) fn trial(&self, key: TrialKey) -> PathBuf {
        self.root.join(key.to_string())
    }

    /// Whether the trial was recorded by a controller.
    pub(crate) fn finished(&self, key: TrialKey) -> bool {
        let Ok(pinned) = fs::read_to_string(self.receipt(key)) else { return false };
        digest_of(&self.trial(key).join(SUMMARY)).is_some_and(|digest| digest == pinned.trim())
    }

    /// Where the summary's digest is kept: outside the trial's directory, in which its trainer may write anything.
    fn receipt(&self, key: TrialKey) -> PathBuf {
        self.root.join(RECEIPTS).join(key.to_string())
    }

    /// A new, empty directory for a trial; what an interrupted attempt left goes.
    pub(crate) fn begin(&self, key: TrialKey) -> Result<PathBuf, StoreError> {
        let path = self.trial(key);
        for (old, removed) in [
            (self.receipt(key), fs::remove_file(self.receipt(key))),
            (path.clone(), fs::remove_dir_all(&path)),
        ] {
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(io_error("clear", &old)(error));
                }
                Ok(()) | Err(_) => {}
            }
        }
        fs::create_dir(&path).map_err(io_error("create", &path))?;
        Ok(path)
    }

    /// Puts a trial's summary in place, whole or not at all.
    pub(crate) fn record(&self, key: TrialKey, summary: &Value) -> Result<(), StoreError> {
        let path = self.trial(key).join(SUMMARY);
        self.write(&path, summary)?;
        let digest = digest_of(&path).unwrap_or_default();
        self.write_bytes(&self.receipt(key), digest.as_bytes())
    }

    fn write<T: Serialize>(&self, path: &Path, value: &T) -> Result<(), StoreError> {
        let mut text = serde_json::to_vec_pretty(value)
            .map_err(|error| io_error("encode", path)(io::Error::other(error)))?;
        text.push(b'\n');
        self.write_bytes(path, &text)
    }

    fn write_bytes(&self, path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
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
        write().map_err(io_error("write", path))
    }
}

/// The SHA-256 of a regular file of at most 1 MiB.
fn digest_of(path: &Path) -> Option<String> {
    let regular = fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && found.len() < 1 << 20);
    regular.then(|| fs::read(path).ok()).flatten().map(|bytes| hex(&Sha256::digest(bytes)))
}

fn lock(root: &Path) -> Result<Flock<File>, StoreError> {
    let path = root.join(LOCK);
    let open = File::options().create(true).truncate(false).read(true).write(true).open(&path);
    let file = open.map_err(io_error("open", &path))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => {
            let write = || -> io::Result<()> {
                lock.set_len(0)?;
                (&*lock).write_all(std::process::id().to_string().as_bytes())
            };
            write().map_err(io_error("write", &path))?;
            Ok(lock)
        }
        Err(_) => {
            let pid = fs::read_to_string(&path).unwrap_or_default();
            Err(StoreError::Busy { path: root.to_owned(), pid })
        }
    }
}

fn read_manifest(root: &Path) -> Result<Option<Manifest>, StoreError> {
    let path = root.join(MANIFEST);
    match fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| StoreError::Manifest { path, reason: error.to_string() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("read", &path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::plan::Profile;

    #[test]
    fn a_recorded_trial_is_kept_and_an_interrupted_one_starts_again() {
        let directory = tempfile::tempdir().unwrap();
        let plan = Plan::of(Profile::Smoke);
        let store = Store::open(directory.path(), &plan, &[], false).unwrap();
        let keys = plan.trials().unwrap();
        store.begin(keys[0]).unwrap();
        store.record(keys[0], &serde_json::json!({ "recorded_by": RECORDER })).unwrap();
        let interrupted = store.begin(keys[1]).unwrap();
        // What the trainer itself wrote does not count, whatever it claims.
        let forged = format!(r#"{{"survived": true, "recorded_by": "{RECORDER}"}}"#);
        fs::write(interrupted.join(SUMMARY), forged).unwrap();
        drop(store);
        let store = Store::open(directory.path(), &plan, &[], false).unwrap();
        assert!(store.finished(keys[0]));
        assert!(!store.finished(keys[1]));
        assert!(!store.begin(keys[1]).unwrap().join(SUMMARY).exists());
    }

    #[test]
    fn a_directory_serves_one_sweep_and_one_controller() {
        let directory = tempfile::tempdir().unwrap();
        let plan = Plan::of(Profile::Smoke);
        let store = Store::open(directory.path(), &plan, &[], false).unwrap();
        let second = Store::open(directory.path(), &plan, &[], false);
        assert!(matches!(second, Err(StoreError::Busy { .. })));
        assert_eq!(Store::running(directory.path()), i32::try_from(std::process::id()).ok());
        drop(store);
        let other = Plan::of(Profile::Full);
        assert!(matches!(Store::open(directory.path(), &other, &[], false), Err(StoreError::Other { .. })));
        assert!(Store::open(directory.path(), &other, &[], true).is_ok());
    }

    #[test]
    fn a_link_in_place_of_a_summary_is_replaced_and_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("target");
        fs::write(&target, "untouched").unwrap();
        let plan = Plan::of(Profile::Smoke);
        let store = Store::open(&directory.path().join("sweep"), &plan, &[], false).unwrap();
        let key = plan.trials().unwrap()[0];
        let trial = store.begin(key).unwrap();
        std::os::unix::fs::symlink(&target, trial.join(SUMMARY)).unwrap();
        assert!(!store.finished(key));
        store.record(key, &serde_json::json!({ "recorded_by": RECORDER })).unwrap();
        assert!(store.finished(key));
        assert_eq!(fs::read_to_string(&target).unwrap(), "untouched");
    }
}
