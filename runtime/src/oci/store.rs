//! The state directories: one for each container, made so that the death of any command at any point leaves
//! something that the next command understands.
//!
//! The directory's name is the container's id, and making it is what claims the id. The record in it is replaced
//! by renaming, and says what exists so far: a command writes what it is about to make before it makes it. A command
//! that changes a container holds the lock file; the kernel drops the lock with its process.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use oci_spec::runtime::{Hooks, LinuxSeccomp, Process};
use rlox_host::Owner;
use serde::{Deserialize, Serialize};

use super::error::OciError;
use crate::cgroup::group::Group;
use crate::files::read_regular;
use crate::spec::CONFIG_BYTES;

/// How long to wait for a command that is working on the same container.
const PATIENCE: Duration = Duration::from_secs(30);
const RECORD: &str = "record.json";
const MAKERS: &str = "makers";
/// Twice what is in one is taken from a `config.json`.
const RECORD_BYTES: u64 = 3 * CONFIG_BYTES;
/// Directories that are being removed; no container can have such a name.
const TRASH: &str = ".gone-";
/// The name that libcontainer gives its init until the program is executed.
const WAITING: &str = "youki:[2:INIT]";

/// How far a container has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    Creating,
    Created,
    Starting,
    Started,
}

/// What is known about a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) oci_version: String,
    pub(crate) id: String,
    pub(crate) bundle: PathBuf,
    pub(crate) rootfs: PathBuf,
    pub(crate) created: String,
    pub(crate) owner: u32,
    pub(crate) annotations: HashMap<String, String>,
    pub(crate) phase: Phase,
    /// The command that works or worked on it, as `PID.START`.
    worker: String,
    /// The container's first process, as `PID.START`.
    init: Option<String>,
    pub(crate) group: Option<Group>,
    /// Unit of systemd that holds the cgroup.
    pub(crate) unit: Option<String>,
    pub(crate) hooks: Option<Hooks>,
    /// What `exec` starts from.
    pub(crate) process: Process,
    pub(crate) seccomp: Option<LinuxSeccomp>,
    /// Types of the namespaces that are not the caller's.
    pub(crate) namespaces: Vec<String>,
}

/// Status as the OCI specification names it, and `paused`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Creating,
    Created,
    Running,
    Paused,
    Stopped,
}

impl Status {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Created => "created",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
        }
    }
}

impl Record {
    /// A record of a container that is about to be created by this process.
    pub(crate) fn new(id: &str, bundle: &Path, process: Process) -> Result<Self, OciError> {
        Ok(Self {
            oci_version: super::OCI_VERSION.to_owned(),
            id: id.to_owned(),
            bundle: bundle.to_owned(),
            rootfs: PathBuf::new(),
            created: super::time::now(),
            owner: nix::unistd::getuid().as_raw(),
            annotations: HashMap::new(),
            phase: Phase::Creating,
            worker: me()?,
            init: None,
            group: None,
            unit: None,
            hooks: None,
            process,
            seccomp: None,
            namespaces: Vec::new(),
        })
    }

    /// The first process, whether or not it still runs.
    pub(crate) fn init(&self) -> Option<Owner> {
        self.init.as_ref()?.parse().ok()
    }

    pub(crate) fn set_init(&mut self, pid: nix::unistd::Pid) {
        let pid = u32::try_from(pid.as_raw()).unwrap_or_default();
        self.init = Owner::of(pid).map(|owner| owner.to_string());
    }

    /// The process id of the first process, 0 where there is none.
    pub(crate) fn pid(&self) -> i32 {
        self.init().filter(Owner::running).and_then(|init| i32::try_from(init.pid()).ok()).unwrap_or_default()
    }

    /// Says which command works on it from now on.
    pub(crate) fn enter(&mut self, phase: Phase) -> Result<(), OciError> {
        self.phase = phase;
        self.worker = me()?;
        Ok(())
    }

    fn worker_lives(&self) -> bool {
        self.worker.parse().is_ok_and(|worker: Owner| worker.running())
    }

    /// The status now.
    pub(crate) fn status(&self) -> Status {
        if self.phase == Phase::Creating {
            return if self.worker_lives() { Status::Creating } else { Status::Stopped };
        }
        let Some(init) = self.init().filter(Owner::running) else { return Status::Stopped };
        let waiting = match self.phase {
            Phase::Creating | Phase::Created => true,
            Phase::Started => false,
            // Only the process itself knows whether the word to start reached it.
            Phase::Starting => waits(init.pid()),
        };
        match (waiting, self.group.as_ref().is_some_and(Group::frozen)) {
            (true, false) => Status::Created,
            (_, true) => Status::Paused,
            (false, false) => Status::Running,
        }
    }
}

/// Whether a first process has not executed its program yet.
pub(crate) fn waits(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == WAITING)
}

fn me() -> Result<String, OciError> {
    let owner = Owner::current().map_err(OciError::system("reading /proc/self/stat"))?;
    Ok(owner.to_string())
}

/// The root of all state directories.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    root: PathBuf,
}

/// One container's directory, locked.
pub(crate) struct Entry {
    pub(crate) directory: PathBuf,
    id: String,
    _lock: File,
}

impl Store {
    /// The store at `root`, or at the caller's usual place.
    pub(crate) fn open(root: Option<&Path>) -> Self {
        let root = root.map_or_else(default_root, Path::to_owned);
        Self { root: std::path::absolute(&root).unwrap_or(root) }
    }

    /// Claims an id. What a killed `create` left before it wrote a record is taken over.
    pub(crate) fn claim(&self, id: &str) -> Result<Entry, OciError> {
        check_id(id)?;
        DirBuilder::new()
            .recursive(true)
            .mode(0o711)
            .create(&self.root)
            .map_err(OciError::system(format!("creating {}", self.root.display())))?;
        self.sweep();
        let directory = self.root.join(id);
        let made = DirBuilder::new().mode(0o711).create(&directory);
        let fresh = match made {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(OciError::system(format!("creating {}", directory.display()))(error)),
        };
        let exists = || OciError::Exists { id: id.to_owned() };
        if !fresh && directory.join(RECORD).exists() {
            return Err(exists());
        }
        let entry = self
            .lock(id, Duration::ZERO)
            .map_err(|error| if matches!(error, OciError::Busy { .. }) { exists() } else { error })?;
        if !fresh && directory.join(RECORD).exists() {
            return Err(exists());
        }
        Ok(entry)
    }

    /// Locks a container that exists.
    pub(crate) fn entry(&self, id: &str) -> Result<Entry, OciError> {
        check_id(id)?;
        self.lock(id, PATIENCE)
    }

    fn lock(&self, id: &str, patience: Duration) -> Result<Entry, OciError> {
        let directory = self.root.join(id);
        let path = directory.join("lock");
        let open = File::options().create(true).truncate(false).write(true).open(&path);
        let file = match open {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(OciError::NotFound { id: id.to_owned() });
            }
            Err(error) => return Err(OciError::system(format!("opening {}", path.display()))(error)),
        };
        let end = Instant::now() + patience;
        // A record lock belongs to the process alone: the container's init, forked from it, does not hold it.
        let whole = crate::sys::whole_file_lock();
        loop {
            match fcntl(file.as_raw_fd(), FcntlArg::F_SETLK(&whole)) {
                Ok(_) => break,
                Err(errno) if errno != Errno::EAGAIN && errno != Errno::EACCES => {
                    return Err(OciError::errno(format!("locking {}", path.display()))(errno));
                }
                Err(_) if Instant::now() >= end => return Err(OciError::Busy { id: id.to_owned() }),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        if !path.exists() {
            // Removed while we waited.
            return Err(OciError::NotFound { id: id.to_owned() });
        }
        Ok(Entry { directory, id: id.to_owned(), _lock: file })
    }

    /// Reads a record without locking; `None` where a command died before it wrote one.
    pub(crate) fn peek(&self, id: &str) -> Result<Option<Record>, OciError> {
        check_id(id)?;
        read(&self.root.join(id), id)
    }

    /// Reads a record without locking.
    pub(crate) fn record(&self, id: &str) -> Result<Record, OciError> {
        self.peek(id)?.ok_or_else(|| OciError::Status {
            id: id.to_owned(),
            action: "use",
            status: "what a killed command left; delete it with --force",
        })
    }

    /// All ids, also of what killed commands left.
    pub(crate) fn ids(&self) -> Result<Vec<String>, OciError> {
        let entries = match fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(OciError::system(format!("reading {}", self.root.display()))(error)),
        };
        let mut ids: Vec<_> = entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| check_id(name).is_ok())
            .collect();
        ids.sort();
        Ok(ids)
    }

    /// Removes what commands that were killed while removing left.
    fn sweep(&self) {
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let remover = name.strip_prefix(TRASH).and_then(|rest| rest.rsplit_once('-')).map(|(_, pid)| pid);
            if remover.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
                && let Err(error) = fs::remove_dir_all(entry.path())
            {
                tracing::debug!(%error, path = %entry.path().display(), "cannot remove an old state directory");
            }
        }
    }
}

impl Entry {
    /// The record; `None` where there is none yet.
    pub(crate) fn peek(&self) -> Result<Option<Record>, OciError> {
        read(&self.directory, &self.id)
    }

    /// The record.
    pub(crate) fn record(&self) -> Result<Record, OciError> {
        self.peek()?.ok_or_else(|| OciError::Status {
            id: self.id.clone(),
            action: "use",
            status: "what a killed command left; delete it with --force",
        })
    }

    /// Replaces the record at once.
    pub(crate) fn save(&self, record: &Record) -> Result<(), OciError> {
        let text = serde_json::to_vec(record)
            .map_err(|error| OciError::invalid(format!("writing the record: {error}")))?;
        replace(&self.directory.join(RECORD), &text)
            .map_err(OciError::system(format!("writing the record of {}", self.id)))
    }

    /// Marks the processes that are about to be forked as makers of this container. They share the lock of this open
    /// file until they execute another program or end, also when this process is killed.
    pub(crate) fn makers(&self) -> Result<File, OciError> {
        let path = self.directory.join(MAKERS);
        File::create(&path)
            .and_then(|file| file.lock_shared().map(|()| file))
            .map_err(OciError::system(format!("locking {}", path.display())))
    }

    /// Whether no maker is left.
    pub(crate) fn makers_are_gone(&self) -> Result<bool, OciError> {
        let path = self.directory.join(MAKERS);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(error) => return Err(OciError::system(format!("opening {}", path.display()))(error)),
        };
        match file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => {
                Err(OciError::system(format!("locking {}", path.display()))(error))
            }
        }
    }

    /// Removes the directory; in one step as far as other commands can see.
    pub(crate) fn remove(self) -> Result<(), OciError> {
        let parent = self.directory.parent().unwrap_or(Path::new("/"));
        let trash = parent.join(format!("{TRASH}{}-{}", self.id, std::process::id()));
        fs::rename(&self.directory, &trash)
            .and_then(|()| match fs::remove_dir_all(&trash) {
                // Swept by another command in the meantime.
                Err(_) if !trash.exists() => Ok(()),
                other => other,
            })
            .map_err(OciError::system(format!("removing {}", self.directory.display())))
    }
}

fn read(directory: &Path, id: &str) -> Result<Option<Record>, OciError> {
    let path = directory.join(RECORD);
    let text = match read_regular(&path, RECORD_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if directory.is_dir() {
                return Ok(None);
            }
            return Err(OciError::NotFound { id: id.to_owned() });
        }
        Err(error) => return Err(OciError::system(format!("reading {}", path.display()))(error)),
    };
    decode(&text, id, &path).map(Some)
}

/// The text of a record. Commands kill and remove what a record names, so it has to be one of this container.
pub(crate) fn decode(text: &[u8], id: &str, path: &Path) -> Result<Record, OciError> {
    let refuse = |reason: String| OciError::Config { path: path.to_owned(), reason };
    let record: Record = serde_json::from_slice(text).map_err(|error| refuse(error.to_string()))?;
    if record.id != id {
        return Err(refuse(format!("it is the record of {:?}", record.id)));
    }
    if let Some(group) = &record.group {
        group.check_own().map_err(refuse)?;
    }
    if let Some(hooks) = &record.hooks {
        super::hooks::check(hooks)?;
    }
    Ok(record)
}

/// Writes a file so that a reader sees the old or the new content, never half of it.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let fresh = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let mut file = File::create(&fresh)?;
    file.write_all(content)?;
    drop(file);
    fs::rename(&fresh, path)
}

fn default_root() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty());
    match runtime {
        Some(directory) if !real_root() => PathBuf::from(directory).join("rlox"),
        Some(_) | None if nix::unistd::geteuid().is_root() => "/run/rlox".into(),
        Some(_) | None => std::env::temp_dir().join(format!("rlox-{}", nix::unistd::geteuid())),
    }
}

/// Root of the machine and not of a user namespace.
pub(crate) fn real_root() -> bool {
    nix::unistd::geteuid().is_root()
        && fs::read_to_string("/proc/self/uid_map")
            .is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
}

/// The id becomes a directory and a cgroup name.
pub(crate) fn check_id(id: &str) -> Result<(), OciError> {
    let valid = !id.is_empty()
        && id.len() <= 200
        && id.chars().all(|each| each.is_ascii_alphanumeric() || "-_.+".contains(each))
        && !id.starts_with('.');
    if valid {
        return Ok(());
    }
    Err(OciError::invalid(format!(
        "container id {id:?}: use 1 to 200 letters, digits, '-', '_', '.', '+', not starting with '.'"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, Store) {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(Some(directory.path()));
        (directory, store)
    }

    #[test]
    fn an_id_is_claimed_once() {
        let (_directory, store) = store();
        let entry = store.claim("a").unwrap();
        entry.save(&Record::new("a", Path::new("/b"), Process::default()).unwrap()).unwrap();
        drop(entry);
        assert!(matches!(store.claim("a"), Err(OciError::Exists { .. })));
        assert_eq!(store.ids().unwrap(), ["a"]);
        assert_eq!(store.record("a").unwrap().status(), Status::Creating);
        store.entry("a").unwrap().remove().unwrap();
        assert!(matches!(store.entry("a"), Err(OciError::NotFound { .. })));
        assert!(store.ids().unwrap().is_empty());
    }

    #[test]
    fn what_died_before_its_record_is_taken_over() {
        let (_directory, store) = store();
        drop(store.claim("a").unwrap());
        assert!(store.peek("a").unwrap().is_none());
        assert!(store.claim("a").is_ok());
    }

    #[test]
    fn a_record_of_something_else_is_refused() {
        let record = Record::new("a", Path::new("/b"), Process::default()).unwrap();
        let with = |change: &dyn Fn(&mut serde_json::Value)| {
            let mut value = serde_json::to_value(&record).unwrap();
            change(&mut value);
            decode(value.to_string().as_bytes(), "a", Path::new("/x"))
                .map(drop)
                .map_err(|error| error.to_string())
        };
        let group = |path: &str| serde_json::json!({"v2": false, "path": path});
        with(&|_| {}).unwrap();
        with(&|value| value["group"] = group("/rlox-a")).unwrap();
        assert!(with(&|value| value["id"] = "b".into()).unwrap_err().contains("the record of \"b\""));
        for path in ["/", "", ".", "rlox-a", "/../rlox-a", "/a/../.."] {
            assert!(with(&|value| value["group"] = group(path)).unwrap_err().contains("cgroup"), "{path}");
        }
    }

    #[test]
    fn makers_are_those_who_share_the_file_whoever_opened_it() {
        use std::process::{Command, Stdio};
        let (_directory, store) = store();
        let entry = store.claim("a").unwrap();
        assert!(entry.makers_are_gone().unwrap());
        let makers = entry.makers().unwrap();
        let mut child = Command::new("sleep").arg("300").stdout(Stdio::from(makers)).spawn().unwrap();
        assert!(!entry.makers_are_gone().unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(entry.makers_are_gone().unwrap());
    }

    #[test]
    fn a_creation_whose_process_died_counts_as_stopped() {
        let mut record = Record::new("a", Path::new("/b"), Process::default()).unwrap();
        record.worker = "1.0".into();
        assert_eq!(record.status(), Status::Stopped);
    }

    #[test]
    fn ids_that_could_leave_their_directory_are_refused() {
        for bad in ["", ".", "..", "a/b", "../x", "a b", "é"] {
            assert!(check_id(bad).is_err(), "{bad:?}");
        }
        assert!(check_id("a-b_c.d+e").is_ok());
    }
}
