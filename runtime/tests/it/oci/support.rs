//! A bundle and a state directory of a test's own, and short ways to call the runtime on them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::host::wait_until;
use crate::support::{RUNTIME, bundle, ready, rootless};

pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A root file system with a shell and Python, shared by the tests that do not write to it.
pub(crate) fn shared_rootfs() -> &'static Path {
    static ROOTFS: OnceLock<PathBuf> = OnceLock::new();
    ROOTFS.get_or_init(|| {
        let base = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let lock = File::create(base.join("oci-rootfs.lock")).unwrap();
        let _lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, errno)| errno).unwrap();
        let rootfs = base.join("oci-rootfs");
        if !rootfs.join("sys").is_dir() {
            copy(&bundle().join("rootfs"), &rootfs);
            for directory in ["sys", "proc", "dev", "tmp", "etc"] {
                fs::create_dir_all(rootfs.join(directory)).unwrap();
            }
            fs::create_dir_all(rootfs.join("data/inner")).unwrap();
            fs::write(rootfs.join("data/file"), "from the image\n").unwrap();
        }
        rootfs
    })
}

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").args(["-a", "-T"]).arg(from).arg(to).status().unwrap();
    assert!(status.success());
}

/// An ordinary user's ids: their own as 0 and, with newuidmap, their subordinate range after it.
fn mappings(own: u32, list: &str) -> Value {
    let mut mappings = vec![json!({"containerID": 0, "hostID": own, "size": 1})];
    if let Some((first, count)) = range(list) {
        mappings.push(json!({"containerID": 1, "hostID": first, "size": count}));
    }
    Value::Array(mappings)
}

/// This user's subordinate range in /etc/subuid or /etc/subgid, where it can be used.
fn range(list: &str) -> Option<(u64, u64)> {
    if !Path::new("/usr/bin/newuidmap").exists() {
        return None;
    }
    let uid = nix::unistd::getuid();
    let name = nix::unistd::User::from_uid(uid).ok().flatten().map(|user| user.name).unwrap_or_default();
    let text = fs::read_to_string(list).ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let owner = fields.next()?;
        if owner != name && owner != uid.to_string() {
            return None;
        }
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    })
}

/// Whether containers of this caller can have more than one id.
pub(crate) fn has_range() -> bool {
    !rootless() || range("/etc/subuid").is_some()
}

/// Cgroups of a container, wherever they are.
pub(crate) fn cgroups(id: &str) -> Vec<PathBuf> {
    cgroups_named(&format!("rlox-{id}"))
}

/// Cgroups of this name, in all hierarchies.
pub(crate) fn cgroups_named(name: &str) -> Vec<PathBuf> {
    fn search(directory: &Path, name: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let found_name = entry.file_name();
            let found_name = found_name.to_string_lossy();
            if found_name == name || found_name.strip_suffix(".scope") == Some(name) {
                found.push(entry.path());
            }
            search(&entry.path(), name, found);
        }
    }
    let mut found = Vec::new();
    search(Path::new("/sys/fs/cgroup"), name, &mut found);
    found
}

/// One test's world.
pub(crate) struct World {
    pub(crate) directory: TempDir,
    ids: AtomicU32,
}

/// A world with the default configuration, where this host can run containers.
#[track_caller]
pub(crate) fn world() -> Option<World> {
    ready().then(|| {
        let world = World { directory: tempfile::tempdir().unwrap(), ids: AtomicU32::new(0) };
        fs::create_dir(world.bundle()).unwrap();
        world.configure(|_| {});
        world
    })
}

/// A container that is deleted at the end of the test, whatever happened.
pub(crate) struct Container<'a> {
    pub(crate) world: &'a World,
    pub(crate) id: String,
}

impl World {
    pub(crate) fn bundle(&self) -> PathBuf {
        self.directory.path().join("bundle")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a configuration: every namespace, no network, a program that waits.
    pub(crate) fn configure(&self, change: impl FnOnce(&mut Value)) {
        let mut config = json!({
            "ociVersion": "1.2.0",
            "process": {
                "user": {"uid": 0, "gid": 0},
                "args": ["/bin/sleep", "300"],
                "env": ["PATH=/usr/bin:/bin"],
                "cwd": "/",
                "noNewPrivileges": true,
                "capabilities": {"bounding": [], "effective": [], "permitted": [], "inheritable": [], "ambient": []}
            },
            "root": {"path": shared_rootfs(), "readonly": true},
            "hostname": "inside",
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
                {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
                    "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]},
                {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=1777"]}
            ],
            "linux": {
                "namespaces": [
                    {"type": "pid"}, {"type": "mount"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"},
                    {"type": "cgroup"}
                ],
                "cgroupsPath": Value::Null,
                "resources": {"devices": [{"allow": false, "access": "rwm"}]}
            }
        });
        config["linux"].as_object_mut().unwrap().remove("cgroupsPath");
        if rootless() {
            let namespaces = config["linux"]["namespaces"].as_array_mut().unwrap();
            namespaces.push(json!({"type": "user"}));
            config["linux"]["uidMappings"] = mappings(nix::unistd::getuid().as_raw(), "/etc/subuid");
            config["linux"]["gidMappings"] = mappings(nix::unistd::getgid().as_raw(), "/etc/subgid");
        }
        change(&mut config);
        fs::write(self.bundle().join("config.json"), config.to_string()).unwrap();
    }

    /// The same, with a program that Python runs and ends.
    pub(crate) fn python(&self, code: &str, change: impl FnOnce(&mut Value)) {
        self.configure(|config| {
            config["process"]["args"] = json!(["/usr/bin/python3", "-I", "-S", "-c", code]);
            change(config);
        });
    }

    /// A root file system that this test may write to.
    pub(crate) fn own_rootfs(&self) -> PathBuf {
        let rootfs = self.path("rootfs");
        copy(shared_rootfs(), &rootfs);
        rootfs
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(RUNTIME);
        command.arg("--root").arg(self.path("state"));
        if std::env::var_os("RLOX_TESTS_SYSTEMD").is_some() {
            command.arg("--systemd-cgroup");
        }
        command.args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).env_remove("RLOX_LOG");
        command
    }

    /// Runs a command of the runtime to its end, with its output in files: a container that inherits a pipe keeps it
    /// open.
    pub(crate) fn output(&self, args: &[&str]) -> Output {
        let number = self.ids.fetch_add(1, Ordering::Relaxed);
        let (out, err) = (self.path(&format!("out{number}")), self.path(&format!("err{number}")));
        let status = self
            .command(args)
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap())
            .status()
            .unwrap();
        Output { status, stdout: fs::read(out).unwrap(), stderr: fs::read(err).unwrap() }
    }

    /// A command that has to succeed; returns what it printed.
    #[track_caller]
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let output = self.output(args);
        let (out, err) = texts(&output);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {out}{err}");
        out
    }

    /// A command that has to fail with code 1; returns its message.
    #[track_caller]
    pub(crate) fn refused(&self, args: &[&str]) -> String {
        let output = self.output(args);
        let (out, err) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {out}{err}");
        assert!(!err.trim().is_empty(), "{args:?} failed without a word");
        err
    }

    /// An id of this test, deleted at its end.
    pub(crate) fn id(&self) -> Container<'_> {
        let number = self.ids.fetch_add(1, Ordering::Relaxed);
        Container { world: self, id: format!("it-{}-{number}", self.token()) }
    }

    fn token(&self) -> String {
        let name = self.directory.path().file_name().unwrap().to_string_lossy();
        format!("{}{}", std::process::id(), name.replace('.', "-"))
    }

    /// `run` in the foreground: code, output and messages.
    pub(crate) fn run(&self) -> (i32, String, String) {
        let container = self.id();
        let bundle = self.bundle();
        let output = self.output(&["run", "--bundle", bundle.to_str().unwrap(), &container.id]);
        let (out, err) = texts(&output);
        (output.status.code().unwrap(), out.trim_end().to_owned(), err)
    }

    /// `run` of a Python program that prints JSON.
    #[track_caller]
    pub(crate) fn seen(&self, code: &str, change: impl FnOnce(&mut Value)) -> Value {
        self.python(code, change);
        let (code, out, err) = self.run();
        assert_eq!(code, 0, "{out}\n{err}");
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }

    /// A created container.
    #[track_caller]
    pub(crate) fn created(&self) -> Container<'_> {
        let container = self.id();
        let bundle = self.bundle();
        self.ok(&["create", "--bundle", bundle.to_str().unwrap(), &container.id]);
        container
    }

    /// A running container.
    #[track_caller]
    pub(crate) fn running(&self) -> Container<'_> {
        let container = self.created();
        self.ok(&["start", &container.id]);
        container
    }
}

impl Container<'_> {
    #[track_caller]
    pub(crate) fn state(&self) -> Value {
        serde_json::from_str(&self.world.ok(&["state", &self.id])).unwrap()
    }

    #[track_caller]
    pub(crate) fn status(&self) -> String {
        self.state()["status"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub(crate) fn wait_for(&self, status: &str) {
        wait_until(status, SOON, || self.status() == status);
    }

    /// `exec` of a shell line: code and output.
    pub(crate) fn shell(&self, line: &str) -> (i32, String) {
        let output = self.world.output(&["exec", &self.id, "/bin/sh", "-c", line]);
        let (out, err) = texts(&output);
        (output.status.code().unwrap(), format!("{}{err}", out.trim_end()))
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        let output = self.world.output(&["delete", "--force", &self.id]);
        let (_, err) = texts(&output);
        if !std::thread::panicking() {
            assert!(output.status.success(), "delete --force {}: {err}", self.id);
        }
    }
}

pub(crate) fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}
