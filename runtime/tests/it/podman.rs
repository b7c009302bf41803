//! Podman driving this runtime: the calls that engines make are not all in any specification.
//!
//! An engine of the test's own: storage, state and cgroups are in places that are removed with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::engine;
use crate::oci::support::{shared_rootfs, texts};
use crate::support::host::{need, wait_until};
use crate::support::{RUNTIME, ready, rootless};

const SOON: Duration = Duration::from_secs(60);

struct Podman {
    directory: TempDir,
    parent: String,
}

/// An engine with one image, where this host has Podman.
#[track_caller]
fn podman() -> Option<Podman> {
    if !ready() || !need(engine::installed(&["podman"]), "podman (Debian: apt install podman)") {
        return None;
    }
    let directory = tempfile::Builder::new().prefix("rlox-podman").tempdir().unwrap();
    let engine = Podman { parent: format!("/{}", engine::parent(&directory)), directory };
    // The default limits are for hosts whose root may raise them.
    let conf = "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n\
        [engine]\nevents_logger = \"none\"\n";
    fs::write(engine.path("containers.conf"), conf).unwrap();
    let archive = engine.path("image.tar");
    // Without Python: every container of this engine is a copy of the image.
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(shared_rootfs()).args(["--exclude", "./usr/lib/python*", "-cf"]).arg(&archive).arg(".");
    assert!(tar.status().unwrap().success());
    engine.ok(&["import", "--quiet", archive.to_str().unwrap(), "rlox-test"]);
    fs::remove_file(archive).unwrap();
    Some(engine)
}

impl Podman {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["-k", "5", "600", "podman", "--runtime", RUNTIME, "--cgroup-manager", "cgroupfs"])
            .args(["--storage-driver", "vfs", "--root"])
            .arg(self.path("storage"))
            .arg("--runroot")
            .arg(self.path("run"))
            .arg("--tmpdir")
            .arg(self.path("tmp"))
            .args(args)
            .env("CONTAINERS_CONF", self.path("containers.conf"))
            .stdin(Stdio::null());
        command
    }

    /// Output in files: conmon keeps a pipe open.
    fn output(&self, args: &[&str]) -> Output {
        engine::captured(&mut self.command(args), self.directory.path())
    }

    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        engine::succeeded("podman", args, &self.output(args)).trim_end().to_owned()
    }

    /// `run` with what every container of a test has.
    fn started<'a>(&'a self, options: &[&'a str]) -> Vec<&'a str> {
        let mut args = vec!["run", "--network", "none"];
        if !rootless() {
            args.extend(["--cgroup-parent", &self.parent]);
        }
        args.extend(options);
        args
    }

    /// `podman run --rm` with options, of a shell line: code and output.
    fn run(&self, options: &[&str], line: &str) -> (i32, String) {
        let mut args = self.started(&["--rm"]);
        args.extend(options);
        args.extend(["rlox-test", "/bin/sh", "-c", line]);
        let output = self.output(&args);
        let (out, err) = texts(&output);
        (output.status.code().unwrap(), format!("{}{err}", out.trim_end()))
    }

    fn start(&self, name: &str, options: &[&str]) {
        let mut args = self.started(&["--detach", "--name", name]);
        args.extend(options);
        args.extend(["rlox-test", "/bin/sleep", "300"]);
        self.ok(&args);
    }

    fn inspect(&self, name: &str) -> Value {
        let text = self.ok(&["inspect", name]);
        serde_json::from_str::<Value>(&text).unwrap()[0].clone()
    }

    /// The value of a limit in the cgroup of a container.
    fn limit(&self, name: &str, controller: &str, v1: &str, v2: &str) -> String {
        let pid = self.inspect(name)["State"]["Pid"].as_i64().unwrap();
        let membership = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let line = membership.lines().find(|line| {
            let names = line.split(':').nth(1).unwrap();
            if unified { names.is_empty() } else { names.split(',').any(|each| each == controller) }
        });
        let path = line.unwrap().splitn(3, ':').nth(2).unwrap();
        let (root, file) = if unified { (String::new(), v2) } else { (format!("/{controller}"), v1) };
        fs::read_to_string(format!("/sys/fs/cgroup{root}{path}/{file}")).unwrap().trim().to_owned()
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        self.output(&["rm", "--all", "--force", "--time", "0"]);
        // Files of mapped ids are Podman's to remove.
        self.output(&["rmi", "--all", "--force"]);
        for hierarchy in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
            remove_cgroups(&hierarchy.path().join(self.parent.trim_start_matches('/')));
        }
    }
}

fn remove_cgroups(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_cgroups(&entry.path());
        }
    }
    if directory.exists() {
        wait_until("an empty cgroup", SOON, || fs::remove_dir(directory).is_ok());
    }
}

#[test]
fn run_exec_stop_and_every_step_between() {
    let Some(podman) = podman() else { return };
    assert_eq!(podman.run(&[], "echo hello; exit 7"), (7, "hello".into()));
    podman.start("c", &[]);
    assert_eq!(podman.ok(&["exec", "c", "/bin/echo", "inside"]), "inside");
    let output = podman.output(&[
        "exec",
        "--env",
        "A=b",
        "--workdir",
        "/tmp",
        "c",
        "/bin/sh",
        "-c",
        "echo $A $PWD; exit 4",
    ]);
    assert_eq!((output.status.code(), texts(&output).0.trim()), (Some(4), "b /tmp"));
    assert_eq!(podman.output(&["exec", "c", "no-such"]).status.code(), Some(127));
    // The engine's own filter holds for a process that joins.
    let seccomp = podman.ok(&["exec", "c", "/bin/grep", "Seccomp:", "/proc/self/status"]);
    assert_eq!(seccomp.split_whitespace().last(), Some("2"));
    podman.ok(&["pause", "c"]);
    assert_eq!(podman.inspect("c")["State"]["Status"], "paused");
    podman.ok(&["unpause", "c"]);
    assert!(podman.ok(&["top", "c"]).contains("sleep"));
    podman.ok(&["stop", "--time", "1", "c"]);
    assert_eq!(podman.inspect("c")["State"]["ExitCode"], 137);
    podman.ok(&["start", "c"]);
    podman.ok(&["kill", "c"]);
    wait_until("the end", SOON, || podman.inspect("c")["State"]["Status"] == "exited");
    podman.ok(&["rm", "--force", "c"]);
}

#[test]
fn programs_that_cannot_run_have_the_shells_codes() {
    let Some(podman) = podman() else { return };
    let code = |program| {
        let mut args = podman.started(&["--rm"]);
        args.extend(["rlox-test", program]);
        podman.output(&args).status.code()
    };
    assert_eq!(code("/no/such"), Some(127));
    assert_eq!(code("nosuch"), Some(127));
    assert_eq!(code("/data/file"), Some(126));
}

#[test]
fn limits_are_in_force_and_can_be_changed() {
    let Some(podman) = podman() else { return };
    podman.start("c", &["--memory", "64m", "--memory-swap", "64m", "--pids-limit", "33", "--cpus", "0.5"]);
    assert_eq!(podman.limit("c", "memory", "memory.limit_in_bytes", "memory.max"), "67108864");
    assert_eq!(podman.limit("c", "pids", "pids.max", "pids.max"), "33");
    let quota = podman.limit("c", "cpu", "cpu.cfs_quota_us", "cpu.max");
    assert_eq!(quota.split_whitespace().next(), Some("50000"));
    podman.ok(&["update", "--memory", "128m", "--memory-swap", "128m", "--cpus", "0.25", "c"]);
    assert_eq!(podman.limit("c", "memory", "memory.limit_in_bytes", "memory.max"), "134217728");
    let quota = podman.limit("c", "cpu", "cpu.cfs_quota_us", "cpu.max");
    assert_eq!(quota.split_whitespace().next(), Some("25000"));
}

#[test]
fn volumes_read_only_roots_and_tmpfs() {
    let Some(podman) = podman() else { return };
    let volume = podman.path("volume");
    fs::create_dir(&volume).unwrap();
    fs::write(volume.join("file"), "data\n").unwrap();
    let mount = |mode: &str| format!("{}:/v{mode}", volume.display());
    let (code, out) = podman.run(&["--volume", &mount(":ro")], "cat /v/file; touch /v/new");
    assert_eq!(code, 1, "{out}");
    assert!(out.starts_with("data"), "{out}");
    assert_eq!(podman.run(&["--volume", &mount("")], "echo new > /v/new").0, 0);
    assert_eq!(fs::read_to_string(volume.join("new")).unwrap(), "new\n");
    let (_, out) = podman.run(&["--read-only"], "touch /new 2>/dev/null || touch /tmp/new && echo fixed");
    assert_eq!(out, "fixed");
    assert_eq!(podman.run(&["--tmpfs", "/data"], "ls /data").1, "file\ninner");
}

#[test]
fn users_capabilities_terminals_and_names() {
    let Some(podman) = podman() else { return };
    let (_, out) = podman.run(
        &["--user", "5:6", "--cap-drop", "all", "--security-opt", "no-new-privileges"],
        "grep -E '^(Uid|Gid|CapBnd|NoNewPrivs)' /proc/self/status | tr -s '\\t\\n' ' '",
    );
    assert_eq!(out.trim(), "Uid: 5 5 5 5 Gid: 6 6 6 6 CapBnd: 0000000000000000 NoNewPrivs: 1");
    assert_eq!(podman.run(&["--hostname", "named"], "cat /proc/sys/kernel/hostname").1, "named");
    assert_eq!(podman.run(&["--tty"], "test -t 0 && echo terminal").1.trim(), "terminal");
    if !rootless() {
        let mapping = ["--uidmap", "0:900000:1000", "--gidmap", "0:900000:1000"];
        let (_, out) = podman.run(&mapping, "cat /proc/self/uid_map");
        assert_eq!(out.split_whitespace().collect::<Vec<_>>(), ["0", "900000", "1000"]);
    }
}

#[test]
fn hooks_of_the_engine_run() {
    let Some(podman) = podman() else { return };
    let (hooks, file) = (podman.path("hooks"), podman.path("hooked"));
    fs::create_dir(&hooks).unwrap();
    let line = format!("cat >> {}", file.display());
    let hook = json!({
        "version": "1.0.0",
        "hook": {"path": "/bin/sh", "args": ["sh", "-c", line], "env": ["PATH=/usr/bin:/bin"]},
        "when": {"always": true},
        "stages": ["createRuntime", "poststop"]
    });
    fs::write(hooks.join("test.json"), hook.to_string()).unwrap();
    let mut args = vec!["--hooks-dir", hooks.to_str().unwrap()];
    args.extend(podman.started(&["--rm"]));
    args.extend(["rlox-test", "/bin/true"]);
    let output = podman.output(&args);
    assert_eq!(output.status.code(), Some(0), "{}", texts(&output).1);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(r#""status":"creating""#) && text.contains(r#""status":"stopped""#), "{text}");
}
