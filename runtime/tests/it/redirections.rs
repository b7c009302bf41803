//! Root file systems and specs that would lead set-up astray, as in runc's vulnerabilities of 2019 to 2026. What is
//! hostile here is files and JSON; no program of theirs ever runs.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::{RUNTIME, bundle, ready, stderr};

/// A bundle of the test's own: the snippet's configuration with the snippet's root, both to be changed.
struct Bundle {
    directory: tempfile::TempDir,
    config: Value,
}

impl Bundle {
    fn new() -> Self {
        let text = fs::read_to_string(bundle().join("config.json")).unwrap();
        let mut config: Value = serde_json::from_str(&text).unwrap();
        config["root"]["path"] = json!(bundle().join("rootfs"));
        Self { directory: tempfile::tempdir().unwrap(), config }
    }

    /// With an empty root of its own, in which the test makes its links.
    fn with_root(links: &[(&str, &str)]) -> Self {
        let mut own = Self::new();
        let root = own.directory.path().join("rootfs");
        fs::create_dir(&root).unwrap();
        for (name, target) in links {
            fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            symlink(target, root.join(name)).unwrap();
        }
        own.config["root"]["path"] = json!(root);
        own
    }

    fn without_dev_mounts(mut self) -> Self {
        let mounts = self.config["mounts"].as_array_mut().unwrap();
        mounts.retain(|mount| !mount["destination"].as_str().unwrap().starts_with("/dev"));
        self.config["linux"]["readonlyPaths"] = json!([]);
        self.config["annotations"] = json!({});
        self
    }

    fn mount(mut self, mount: Value) -> Self {
        self.config["mounts"].as_array_mut().unwrap().push(mount);
        self
    }

    fn run(&self, arguments: &[&str]) -> Output {
        fs::write(self.directory.path().join("config.json"), self.config.to_string()).unwrap();
        let mut command = Command::new(RUNTIME);
        command.args(["run", "--timeout-secs", "60"]).arg(self.directory.path()).arg("--").args(arguments);
        command.stdin(Stdio::null()).output().unwrap()
    }

    #[track_caller]
    fn refused(&self, words: &[&str]) {
        let output = self.run(&["/bin/sh", "-c", "echo ran"]);
        assert_eq!(output.status.code(), Some(65), "{}", stderr(&output));
        for word in words {
            assert!(stderr(&output).contains(word), "no {word:?} in {}", stderr(&output));
        }
        assert!(output.stdout.is_empty());
    }
}

/// CVE-2025-31133: `/dev/null` is what files are masked with.
#[test]
fn a_link_in_place_of_a_device_is_refused() {
    if !ready() {
        return;
    }
    let target = tempfile::NamedTempFile::new().unwrap();
    fs::write(target.path(), "untouched").unwrap();
    for name in ["null", "zero", "full", "random", "urandom", "tty"] {
        let device = format!("dev/{name}");
        let links = [(device.as_str(), target.path().to_str().unwrap())];
        Bundle::with_root(&links).without_dev_mounts().refused(&[&device, "symbolic link"]);
    }
    assert_eq!(fs::read_to_string(target.path()).unwrap(), "untouched");
}

/// CVE-2025-52565: the console is bound there.
#[test]
fn a_link_in_place_of_the_console_is_refused() {
    if !ready() {
        return;
    }
    for name in ["dev/console", "dev/pts"] {
        Bundle::with_root(&[(name, "/proc/sys/kernel/core_pattern")]).without_dev_mounts().refused(&[name]);
    }
}

/// CVE-2026-41579: everything below `/dev` lands where it points.
#[test]
fn a_link_in_place_of_a_directory_of_the_kernel_is_refused() {
    if !ready() {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    for name in ["dev", "proc", "sys"] {
        let links = [(name, outside.path().to_str().unwrap())];
        Bundle::with_root(&links).refused(&[&format!("/{name} is a symbolic link")]);
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0, "something was made at the link's target");
}

/// CVE-2025-52881: what set-up writes to `/proc` would go elsewhere.
#[test]
fn a_mount_that_catches_writes_to_proc_is_refused() {
    if !ready() {
        return;
    }
    let tmpfs =
        |at: &str| json!({"destination": at, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid"]});
    for at in ["/proc/self/attr", "/proc/sys", "/tmp/../proc/self", "/proc"] {
        Bundle::new().mount(tmpfs(at)).refused(&["/proc", "set-up"]);
    }
    let bind = json!({"destination": "/proc/self/attr/exec", "type": "bind", "source": "/proc/sysrq-trigger", "options": ["bind"]});
    Bundle::new().mount(bind).refused(&["/proc/self/attr/exec"]);
}

/// libcontainer masks the link and leaves open what it points to.
#[test]
fn a_masked_path_that_is_a_link_is_refused() {
    if !ready() {
        return;
    }
    for section in ["maskedPaths", "readonlyPaths"] {
        let mut own = Bundle::with_root(&[("etc/secret", "/etc/real")]);
        own.config["linux"][section] = json!(["/etc/../etc/secret"]);
        own.refused(&["/etc/secret", "symbolic link"]);
    }
}

/// The allowed neighbours of all of that, in one container.
#[test]
fn replaced_figures_masked_files_and_real_devices_work() {
    if !ready() {
        return;
    }
    let figures = tempfile::NamedTempFile::new().unwrap();
    fs::write(figures.path(), "1.00 2.00\n").unwrap();
    fs::set_permissions(figures.path(), fs::Permissions::from_mode(0o644)).unwrap();
    let mut own = Bundle::new()
        .mount(json!({"destination": "/proc/uptime", "type": "bind", "source": figures.path(),
        "options": ["bind", "ro", "nosuid", "nodev", "private"]}));
    own.config["linux"]["maskedPaths"].as_array_mut().unwrap().push(json!("/etc/hosts"));
    let code = "import json, os, stat\n\
        null = os.stat('/dev/null')\n\
        print(json.dumps([open('/proc/uptime').read(), open('/etc/hosts').read(), stat.S_ISCHR(null.st_mode),\n\
            os.major(null.st_rdev), os.minor(null.st_rdev), len(open('/etc/passwd').read()) > 0]))";
    let output = own.run(&["/usr/bin/python3", "-I", "-S", "-c", code]);
    let seen: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    assert_eq!(seen, json!(["1.00 2.00\n", "", true, 1, 3, true]));
}

/// CVE-2024-21626: a working directory through a descriptor that the caller left open.
#[test]
fn a_working_directory_outside_the_root_is_refused() {
    if !ready() {
        return;
    }
    let mut own = Bundle::new();
    own.config["process"]["cwd"] = json!("/proc/self/fd/9");
    fs::write(own.directory.path().join("config.json"), own.config.to_string()).unwrap();
    let run = |bundle: &Path| {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exec 9</; exec \"$@\"", "sh", RUNTIME, "run"]).arg(bundle);
        command.args(["--", "/bin/sh", "-c", "pwd"]).stdin(Stdio::null()).output().unwrap()
    };
    let output = run(own.directory.path());
    assert_ne!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(String::from_utf8_lossy(&run(&bundle()).stdout), "/tmp\n", "with the bundle's own directory");
}

/// CVE-2019-5736: where the container's root is the host's, its first process runs from a copy that cannot be changed.
#[test]
fn the_runtime_runs_from_a_sealed_copy_where_ids_are_not_mapped() {
    // An ordinary user's containers have mapped ids always.
    if !ready() || !nix::unistd::geteuid().is_root() {
        return;
    }
    let link_of_init = |map: bool| {
        let mut own = Bundle::new();
        let record = own.directory.path().join("record");
        let script = format!(
            "pid=$(sed 's/.*\"pid\":\\([0-9]*\\).*/\\1/'); readlink /proc/$pid/exe >{0}; \
             (: >>/proc/$pid/exe) 2>/dev/null && echo written >>{0}; true",
            record.display()
        );
        own.config["hooks"] = json!({"createRuntime": [{"path": "/bin/sh", "args": ["sh", "-c", script], "env": ["PATH=/usr/bin:/bin"]}]});
        if !map {
            own.config["linux"]["namespaces"].as_array_mut().unwrap().retain(|each| each["type"] != "user");
            for section in ["uidMappings", "gidMappings", "readonlyPaths"] {
                own.config["linux"].as_object_mut().unwrap().remove(section);
            }
        }
        let output = own.run(&["/bin/true"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        fs::read_to_string(record).unwrap()
    };
    assert_eq!(link_of_init(false), "/memfd:rlox-runtime (deleted)\n");
    // With mapped ids the container owns no file of the host, so the program itself will do.
    assert!(link_of_init(true).starts_with(RUNTIME));
}
