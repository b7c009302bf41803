//! Docker driving this runtime by `--runtime`: a daemon of the test's own, as root, without a network.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::engine::{self, Daemon};
use crate::oci::support::{shared_rootfs, texts};
use crate::support::host::{need, wait_until};
use crate::support::{RUNTIME, ready, rootless};

const SOON: Duration = Duration::from_secs(60);
const WHO: &str = "import os; print(os.getuid(), os.getgid(), os.uname().nodename)";
const IMAGE: &str = "rlox-test:1";

struct Docker {
    directory: TempDir,
    daemon: Daemon,
    parent: String,
}

#[track_caller]
fn docker() -> Option<Docker> {
    if !ready() || rootless() {
        return None;
    }
    if !need(engine::installed(&["dockerd", "docker"]), "Docker (Debian: apt install docker.io)") {
        return None;
    }
    let directory = tempfile::Builder::new().prefix("rlox-dock").tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let mut command = Command::new("dockerd");
    command
        .arg("--data-root")
        .arg(at("data"))
        .arg("--exec-root")
        .arg(at("run"))
        .arg("--pidfile")
        .arg(at("pid"))
        .arg("--host")
        .arg(format!("unix://{}", at("sock").display()))
        .args(["--iptables=false", "--ip6tables=false", "--bridge=none", "--storage-driver=vfs"])
        .arg(format!("--add-runtime=rlox={RUNTIME}"));
    let daemon = Daemon::start(&mut command, directory.path());
    let parent = engine::parent(&directory);
    let engine = Docker { directory, daemon, parent };
    wait_until("dockerd", SOON, || engine.docker(&["info"]).status.success());
    engine.import();
    Some(engine)
}

impl Docker {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "60", "docker", "--host"]);
        command.arg(format!("unix://{}", self.path("sock").display())).stdin(Stdio::null());
        command
    }

    fn docker(&self, args: &[&str]) -> Output {
        self.command().args(args).output().unwrap()
    }

    /// The bundle's root file system as an image: nothing is fetched.
    fn import(&self) {
        let mut tar = Command::new("tar")
            .arg("-C")
            .arg(shared_rootfs())
            .args(["-c", "."])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let archive = tar.stdout.take().unwrap();
        let output = self.command().args(["import", "-", IMAGE]).stdin(archive).output().unwrap();
        assert!(tar.wait().unwrap().success() && output.status.success(), "{}", texts(&output).1);
    }

    fn run(&self, options: &[&str], program: &[&str]) -> Output {
        let mut args = vec!["run", "--runtime", "rlox", "--network", "none", "--cgroup-parent", &self.parent];
        args.extend(options);
        args.push(IMAGE);
        args.extend(program);
        self.docker(&args)
    }

    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        engine::succeeded("docker", args, &self.docker(args)).trim().to_owned()
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        let listed = texts(&self.docker(&["ps", "--all", "--quiet"])).0;
        for id in listed.split_whitespace() {
            self.docker(&["rm", "--force", id]);
        }
        self.daemon.stop(&self.parent);
    }
}

#[test]
fn a_container_lives_under_docker() {
    let Some(engine) = docker() else { return };
    let output = engine.run(&["--rm"], &["/bin/sh", "-c", "echo hello; exit 5"]);
    assert_eq!((output.status.code(), texts(&output).0.trim()), (Some(5), "hello"), "{}", texts(&output).1);
    let identity = ["--rm", "--user", "5:6", "--hostname", "box", "--cap-drop", "ALL", "--tmpfs", "/scratch"];
    let output = engine.run(&identity, &["/usr/bin/python3", "-c", WHO]);
    assert_eq!(texts(&output).0, "5 6 box\n", "{}", texts(&output).1);
    let shared = engine.path("data").parent().unwrap().display().to_string();
    let options = ["--rm", "--read-only", "--volume", &format!("{shared}:/mnt:ro")];
    let output = engine.run(&options, &["/bin/sh", "-c", "ls /mnt/log && ! touch /mnt/x && ! touch /x"]);
    assert_eq!(output.status.code(), Some(0), "{}", texts(&output).1);
    let limits = ["--rm", "--memory", "40m", "--memory-swap", "40m"];
    let output = engine.run(&limits, &["/usr/bin/python3", "-c", "x = b'x' * (100 << 20)"]);
    assert_eq!(output.status.code(), Some(137), "{}", texts(&output).1);

    let output = engine.run(&["--detach", "--name", "long"], &["/bin/sleep", "300"]);
    assert_eq!(output.status.code(), Some(0), "{}", texts(&output).1);
    let output = engine.docker(&[
        "exec",
        "--user",
        "1000",
        "long",
        "/usr/bin/python3",
        "-c",
        "import os; print(os.getuid()); exit(3)",
    ]);
    assert_eq!((output.status.code(), texts(&output).0.trim()), (Some(3), "1000"), "{}", texts(&output).1);
    engine.ok(&["update", "--memory", "128m", "--memory-swap", "128m", "--pids-limit", "33", "long"]);
    assert!(engine.ok(&["stats", "--no-stream", "long"]).contains("128MiB"));
    engine.ok(&["pause", "long"]);
    assert_eq!(engine.ok(&["inspect", "--format", "{{.State.Status}}", "long"]), "paused");
    engine.ok(&["unpause", "long"]);
    assert_eq!(engine.ok(&["top", "long"]).lines().count(), 2);
    engine.ok(&["stop", "--time", "1", "long"]);
    assert_eq!(engine.ok(&["inspect", "--format", "{{.State.ExitCode}}", "long"]), "137");
    engine.ok(&["rm", "long"]);
}
