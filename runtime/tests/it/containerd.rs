//! containerd and its runc shim driving this runtime, as Docker does too. A daemon of the test's own, as root.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use tempfile::TempDir;

use crate::engine::{self, Daemon};
use crate::oci::support::{shared_rootfs, texts};
use crate::support::host::{need, wait_until};
use crate::support::{RUNTIME, ready, rootless};

const SOON: Duration = Duration::from_secs(30);

struct Containerd {
    directory: TempDir,
    daemon: Daemon,
    parent: String,
}

#[track_caller]
fn containerd() -> Option<Containerd> {
    if !ready() || rootless() {
        return None;
    }
    if !need(engine::installed(&["containerd", "ctr"]), "containerd (Debian: apt install containerd)") {
        return None;
    }
    let directory = tempfile::Builder::new().prefix("rlox-ctr").tempdir().unwrap();
    let at = directory.path().display();
    let config = format!(
        "version = 2\nroot = \"{at}/root\"\nstate = \"{at}/state\"\n\
         disabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n\
         [grpc]\naddress = \"{at}/sock\"\n[ttrpc]\naddress = \"{at}/ttrpc\"\n"
    );
    fs::write(directory.path().join("config.toml"), config).unwrap();
    let mut command = Command::new("containerd");
    command.arg("--config").arg(directory.path().join("config.toml"));
    let daemon = Daemon::start(&mut command, directory.path());
    let parent = engine::parent(&directory);
    let engine = Containerd { directory, daemon, parent };
    wait_until("containerd", SOON, || engine.ctr(&["version"]).status.success());
    Some(engine)
}

impl Containerd {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn ctr(&self, args: &[&str]) -> Output {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "60", "ctr", "--address"]).arg(self.path("sock")).args(args);
        engine::captured(&mut command, self.directory.path())
    }

    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        engine::succeeded("ctr", args, &self.ctr(args))
    }

    fn run(&self, id: &str, options: &[&str], program: &[&str]) -> Output {
        let cgroup = format!("/{}/{id}", self.parent);
        let rootfs = shared_rootfs();
        // States and pipes of the test's own: the defaults are shared by every containerd of the host.
        let (states, pipes) = (self.path("runc"), self.path("fifo"));
        let mut args = vec!["run", "--runc-binary", RUNTIME, "--cgroup", &cgroup, "--read-only"];
        args.extend(["--runc-root", states.to_str().unwrap(), "--fifo-dir", pipes.to_str().unwrap()]);
        args.extend(options);
        args.extend(["--rootfs", rootfs.to_str().unwrap(), id]);
        args.extend(program);
        self.ctr(&args)
    }

    fn status(&self, id: &str) -> String {
        let listed = self.ok(&["task", "ls"]);
        let line = listed.lines().find(|line| line.split_whitespace().next() == Some(id));
        line.and_then(|line| line.split_whitespace().nth(2)).unwrap_or_default().to_owned()
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        let listed = texts(&self.ctr(&["task", "ls", "--quiet"])).0;
        for id in listed.split_whitespace() {
            self.ctr(&["task", "rm", "--force", id]);
        }
        self.daemon.stop(&self.parent);
    }
}

#[test]
fn a_task_lives_under_containerd() {
    let Some(engine) = containerd() else { return };
    let output = engine.run("once", &["--rm"], &["/bin/sh", "-c", "echo hello; exit 5"]);
    assert_eq!((output.status.code(), texts(&output).0.trim()), (Some(5), "hello"), "{}", texts(&output).1);
    let options = ["--detach", "--memory-limit", "67108864", "--seccomp"];
    let output = engine.run("task", &options, &["/bin/sleep", "300"]);
    assert!(output.status.success(), "{}", texts(&output).1);
    assert_eq!(engine.status("task"), "RUNNING");
    let pipes = engine.path("fifo");
    let joined = engine.ok(&[
        "task",
        "exec",
        "--fifo-dir",
        pipes.to_str().unwrap(),
        "--exec-id",
        "e",
        "task",
        "/bin/grep",
        "Seccomp:",
        "/proc/self/status",
    ]);
    assert_eq!(joined.split_whitespace().last(), Some("2"));
    assert!(engine.ok(&["task", "metrics", "task"]).contains("67108864"));
    assert_eq!(engine.ok(&["task", "ps", "task"]).lines().count(), 2);
    engine.ok(&["task", "pause", "task"]);
    assert_eq!(engine.status("task"), "PAUSED");
    engine.ok(&["task", "resume", "task"]);
    engine.ok(&["task", "kill", "--signal", "KILL", "task"]);
    wait_until("the end", SOON, || engine.status("task") == "STOPPED");
    let output = engine.ctr(&["task", "rm", "task"]);
    assert!(output.status.success() && texts(&output).1.contains("137"), "{}", texts(&output).1);
    engine.ok(&["container", "rm", "task"]);
}
