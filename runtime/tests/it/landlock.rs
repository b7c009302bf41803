//! Landlock stands behind the mounts: what a mount would let through is refused all the same. The same bundle without
//! its annotation is the control.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::host::need;
use crate::support::{RUNTIME, bundle, ready, stderr};

/// Whether the kernel has it in a version that is used.
#[track_caller]
fn landlock() -> bool {
    let present = rlox_host::landlock_abi().is_ok_and(|abi| abi >= rlox_host::LANDLOCK_OLDEST);
    ready() && need(present, "a kernel with Landlock")
}

/// The snippet's bundle, edited, with a forgotten writable mount at `/run`.
fn run(edit: impl Fn(&mut Value), code: &str) -> Output {
    let text = std::fs::read_to_string(bundle().join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["root"]["path"] = json!(bundle().join("rootfs"));
    config["mounts"].as_array_mut().unwrap().push(json!({
        "destination": "/run", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777", "size=64k"]
    }));
    edit(&mut config);
    let own = tempfile::tempdir().unwrap();
    std::fs::write(own.path().join("config.json"), config.to_string()).unwrap();
    let mut command = Command::new(RUNTIME);
    command.args(["run", "--timeout-secs", "60"]).arg(own.path());
    command.args(["--", "/usr/bin/python3", "-I", "-S", "-c", code]).output().unwrap()
}

#[track_caller]
fn seen(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(output)))
}

/// Writes that mounts and modes allow. Each is harmless to the host: the files are the process's own.
const WRITES: &str = "import errno, json, os\n\
    def write(path, flags=os.O_WRONLY):\n\
    \x20   try: os.close(os.open(path, flags | os.O_CREAT if flags & os.O_EXCL else flags, 0o600)); return 'open'\n\
    \x20   except OSError as error: return errno.errorcode[error.errno]\n\
    def make(call):\n\
    \x20   try: call(); return 'made'\n\
    \x20   except OSError as error: return errno.errorcode[error.errno]\n\
    new = os.O_WRONLY | os.O_EXCL\n\
    print(json.dumps({'comm': write('/proc/self/comm'), 'oom': write('/proc/self/oom_score_adj'),\n\
    \x20   'filter': write('/proc/self/coredump_filter'), 'file': write('/run/file', new),\n\
    \x20   'directory': make(lambda: os.mkdir('/run/d')), 'link': make(lambda: os.symlink('x', '/run/l'))}))";

#[test]
fn what_mounts_would_let_through_is_refused_and_the_control_shows_that_they_would() {
    if !landlock() {
        return;
    }
    let with = seen(&run(|_| {}, WRITES));
    let without = seen(&run(|config| drop(config.as_object_mut().unwrap().remove("annotations")), WRITES));
    for name in ["comm", "oom", "filter", "file", "directory", "link"] {
        assert_eq!(with[name], "EACCES", "{name}: {with}");
        assert!(["open", "made"].contains(&without[name].as_str().unwrap()), "{name}: {without}");
    }
}

#[test]
fn the_places_that_the_bundle_names_and_the_devices_take_writes() {
    if !landlock() {
        return;
    }
    let code = "import json, os, shutil, subprocess\n\
        os.makedirs('/tmp/a/b'); os.makedirs('/tmp/c')\n\
        open('/tmp/a/b/f', 'w').write('x'); os.rename('/tmp/a/b/f', '/tmp/c/g'); os.link('/tmp/c/g', '/tmp/a/h')\n\
        os.truncate('/tmp/c/g', 0); os.mkfifo('/tmp/fifo'); open('/dev/shm/s', 'w').write('y')\n\
        open('/dev/null', 'w').write('z'); zero = open('/dev/zero', 'rb').read(2)\n\
        shutil.copy('/usr/bin/true', '/tmp/true'); own = subprocess.run(['/tmp/true']).returncode\n\
        status = open('/proc/self/status').readline().startswith('Name'); tools = os.path.exists('/usr/bin/python3')\n\
        pipe = subprocess.run(['/bin/sh', '-c', 'echo out >/dev/stdout; cat /proc/self/comm'], capture_output=True, text=True)\n\
        print(json.dumps([os.listdir('/tmp/c'), len(zero), own, status, tools, pipe.stdout]))";
    let seen = seen(&run(|_| {}, code));
    assert_eq!(seen, json!([["g"], 2, 0, true, true, "out\ncat\n"]));
}

/// A restriction that cannot be made is a failed creation: the program does not run with less.
#[test]
fn a_rule_that_cannot_be_made_starts_nothing() {
    if !landlock() {
        return;
    }
    let name = |path: &'static str| {
        move |config: &mut Value| config["annotations"]["org.rlox.landlock"] = json!(path)
    };
    let output = run(name("/tmp:/no-such-directory"), "print('it ran')");
    assert_eq!(output.status.code(), Some(70), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("Landlock") && stderr(&output).contains("/no-such-directory"),
        "{}",
        stderr(&output)
    );
    assert!(output.stdout.is_empty());
    let output = run(name("/tmp"), "print('it ran')");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "it ran\n", "{}", stderr(&output));
}

/// A signal or an abstract socket ends at the domain; inside it both work.
#[test]
fn signals_and_sockets_within_the_container_work() {
    if !landlock() {
        return;
    }
    let code = "import json, os, signal, socket\n\
        child = os.fork()\n\
        if child == 0: signal.pause()\n\
        os.kill(child, signal.SIGTERM)\n\
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n\
        server = socket.socket(socket.AF_UNIX); server.bind('\\0mine'); server.listen()\n\
        client = socket.socket(socket.AF_UNIX); client.connect('\\0mine')\n\
        print(json.dumps(ended))";
    assert_eq!(seen(&run(|_| {}, code)), json!(-15));
}
