//! A launcher as the controller uses it: containers that wait, programs that are copies of its interpreter.

use std::io::{Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rlox_protocol::{
    Command as Message, DescriptorRole, Ending, Interpreter, Limits, Outcome, Reply, SandboxRequest,
    Stdio as Streams, receive, send,
};
use tempfile::TempDir;

use crate::support::host::{need, patience, wait_until};
use crate::support::{RUNTIME, bundle, ready};

const SOON: Duration = Duration::from_secs(20);
/// Launcher numbers of these tests; a container's host ids follow from it.
const SLOT: u16 = 40_000;
const MODULES: &str = "json,random,re,threading";

struct Launcher {
    child: Child,
    socket: UnixStream,
    _directory: TempDir,
    interpreter: Interpreter,
    made: u32,
}

/// A launcher; a warm one where the bundle's Python can be embedded.
fn launcher(warm: bool) -> Launcher {
    let directory = tempfile::Builder::new().prefix("rlox-launcher").tempdir().unwrap();
    let (socket, theirs) = UnixStream::pair().unwrap();
    let slot = SLOT + u16::try_from(std::process::id() % 5000).unwrap();
    let mut command = Command::new(RUNTIME);
    command.args(["--log-level", "warn", "launcher", "--slot", &slot.to_string(), "--directory"]);
    command.arg(directory.path()).env_clear();
    if warm {
        command.arg("--warm").arg(bundle()).args(["--preload", MODULES]);
        command.envs([("LANG", "C.UTF-8"), ("PATH", "/usr/bin:/bin"), ("HOME", "/tmp")]);
    }
    let child = command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).spawn().unwrap();
    let mut launcher = Launcher {
        child,
        socket,
        _directory: directory,
        interpreter: Interpreter::Exec { reason: String::new() },
        made: 0,
    };
    let first = launcher.reply();
    let Reply::Ready(interpreter) = first else { panic!("the first word is {first:?}") };
    launcher.interpreter = interpreter;
    launcher
}

/// A warm launcher, on hosts that have this Python as a library.
#[track_caller]
fn warm() -> Option<Launcher> {
    if !ready() {
        return None;
    }
    let launcher = launcher(true);
    match &launcher.interpreter {
        Interpreter::Warm { .. } => Some(launcher),
        Interpreter::Exec { reason } => {
            need(false, reason);
            None
        }
    }
}

fn limits() -> Limits {
    Limits {
        cpu_ms: 20_000 * u64::from(patience()),
        wall_ms: 20_000 * u64::from(patience()),
        wall_most_ms: 20_000 * u64::from(patience()),
        memory_bytes: 256 << 20,
        pids: 64,
        cpu_millis: 1000,
        output_bytes: 65_536,
        flood_bytes: 4 << 20,
        file_bytes: 64 << 20,
        open_files: 256,
    }
}

impl Launcher {
    fn reply(&self) -> Reply {
        self.reply_with_files().0
    }

    fn reply_with_files(&self) -> (Reply, Vec<OwnedFd>) {
        receive(self.socket.as_fd()).unwrap()
    }

    fn tell(&self, message: &Message, files: &[BorrowedFd<'_>]) {
        send(self.socket.as_fd(), message, files).unwrap();
    }

    fn request(&mut self, descriptors: Vec<DescriptorRole>) -> SandboxRequest {
        self.made += 1;
        let driver = ["/usr/bin/python3", "-I", "-S", "-B", "-Xutf8", "/opt/rlox/driver.pyc", "run"];
        SandboxRequest {
            id: format!("launcher-{}-{}", self.child.id(), self.made),
            bundle: bundle(),
            args: Some(driver.map(str::to_owned).to_vec()),
            warm: matches!(self.interpreter, Interpreter::Warm { .. }),
            env: Vec::new(),
            mounts: Vec::new(),
            limits: limits(),
            count_refused: true,
            stdio: Streams::Capture,
            descriptors,
        }
    }

    /// Has a container made; waits until it is there.
    fn prepare(&mut self) {
        let request = self.request(Vec::new());
        self.tell(&Message::Prepare(Box::new(request)), &[]);
        let reply = self.reply();
        assert!(matches!(reply, Reply::Prepared { .. }), "{reply:?}");
    }

    fn run_as(&mut self, request: SandboxRequest, code: &str, input: &str) -> Outcome {
        let file = |text: &str| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            file.rewind().unwrap();
            file
        };
        let (code, input) = (file(code), file(input));
        let roles = vec![DescriptorRole::Preserve, DescriptorRole::Stdin];
        let request = SandboxRequest { descriptors: roles, ..request };
        self.tell(&Message::Run(Box::new(request)), &[code.as_fd(), input.as_fd()]);
        let mut found = None;
        loop {
            match self.reply_with_files() {
                (Reply::Started { .. }, _) => {}
                (Reply::Outcome(mut outcome), files) => {
                    let mut files = files.into_iter();
                    outcome.stdout.read(&mut files).unwrap();
                    outcome.stderr.read(&mut files).unwrap();
                    found = Some(*outcome);
                }
                (Reply::Removed { leftovers, .. }, _) => {
                    assert_eq!(leftovers, 0);
                    return found.unwrap();
                }
                (other, _) => panic!("{other:?}"),
            }
        }
    }

    fn run(&mut self, code: &str) -> Outcome {
        let request = self.request(Vec::new());
        self.run_as(request, code, "")
    }

    /// What a program printed that ended well.
    #[track_caller]
    fn printed(&mut self, code: &str) -> String {
        let outcome = self.run(code);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        assert_eq!(outcome.ending, Ending::Exited(0), "{}", text(&outcome.stderr.bytes));
        text(&outcome.stdout.bytes)
    }

    /// The first processes of its containers.
    fn containers(&self) -> Vec<i32> {
        let children = format!("/proc/{0}/task/{0}/children", self.child.id());
        let text = std::fs::read_to_string(children).unwrap_or_default();
        text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        self.socket.shutdown(std::net::Shutdown::Both).ok();
        wait_until("the launcher's end", SOON, || self.child.try_wait().unwrap().is_some());
    }
}

#[test]
fn a_program_has_its_input_output_and_exit_code() {
    if !ready() {
        return;
    }
    for asked in [false, true] {
        let mut launcher = launcher(asked);
        let request = launcher.request(Vec::new());
        let code = "import sys\nprint(input() + '!')\nprint('e', file=sys.stderr)\nsys.exit(7)\n";
        let outcome = launcher.run_as(request, code, "hello\n");
        assert_eq!(outcome.ending, Ending::Exited(7));
        let streams = (outcome.stdout.bytes.as_slice(), outcome.stderr.bytes.as_slice());
        assert_eq!(streams, (b"hello!\n".as_slice(), b"e\n".as_slice()));
        assert!(!outcome.pooled);
        assert_eq!(outcome.warm, matches!(launcher.interpreter, Interpreter::Warm { .. }));
    }
}

#[test]
fn a_waiting_container_serves_one_request_of_its_shape() {
    if !ready() {
        return;
    }
    for asked in [false, true] {
        let mut launcher = launcher(asked);
        launcher.prepare();
        assert_eq!(launcher.containers().len(), 1);
        assert!(launcher.run("pass").pooled);
        assert!(!launcher.run("pass").pooled, "the second has one of its own");
        launcher.prepare();
        let mut other = launcher.request(Vec::new());
        other.limits.pids = 32;
        let code = "open('/proc/self/limits').read()";
        assert!(!launcher.run_as(other, code, "").pooled, "it was made with other limits");
        assert_eq!(launcher.containers(), Vec::<i32>::new());
    }
}

#[test]
fn a_waiting_container_that_is_killed_is_replaced() {
    if !ready() {
        return;
    }
    let mut launcher = launcher(true);
    launcher.prepare();
    let waiting = launcher.containers();
    kill(Pid::from_raw(waiting[0]), Signal::SIGKILL).unwrap();
    let state = format!("/proc/{}/stat", waiting[0]);
    wait_until("its end", SOON, || std::fs::read_to_string(&state).unwrap().contains(") Z "));
    let outcome = launcher.run("print(1)");
    assert_eq!((outcome.ending, outcome.stdout.bytes.as_slice()), (Ending::Exited(0), b"1\n".as_slice()));
}

#[test]
fn what_waits_ends_with_its_launcher() {
    if !ready() {
        return;
    }
    for asked in [false, true] {
        let mut launcher = launcher(asked);
        launcher.prepare();
        let waiting = launcher.containers()[0];
        launcher.child.kill().unwrap();
        wait_until("the end of the waiting process", SOON, || {
            !Path::new(&format!("/proc/{waiting}")).exists()
        });
        rlox_host::remove_of_slot(
            &rlox_host::prepare().unwrap(),
            &format!("launcher-{}-", launcher.child.id()),
        );
    }
}

#[test]
fn a_copy_looks_like_an_interpreter_that_was_executed() {
    let Some(mut warm) = warm() else { return };
    let mut cold = launcher(false);
    // Everything that tells a program how it was started, and where its modules are.
    let code = "import os, sys, json, re, random, threading, encodings, subprocess\n\
        own = open('/proc/self/cmdline').read().rstrip('\\0').split('\\0')\n\
        print(own[1:], sys.argv, sys.flags, sys.path, sys.prefix, sys.executable, sys.orig_argv[1:])\n\
        print(os.getcwd(), os.getpid(), os.getuid(), sorted(os.listdir('/proc/self/fd'))[:3], os.umask(0o22))\n\
        print([each.__file__ for each in (json, re, os, random, encodings, threading)], json.__path__)\n\
        print([type(each.__spec__.loader).__module__ for each in (json, os)], json.loads.__code__.co_filename)\n\
        print(open('/proc/self/comm').read().strip(), threading.current_thread().name, __name__, __file__)\n\
        print(sys.stdin.read(), sys.stdout.encoding, sys.stdout.errors, sys.stdin.encoding, sys.meta_path)\n\
        print(subprocess.run([sys.executable, '-c', 'print(6 * 7)'], capture_output=True).stdout)\n";
    let address = |text: String| -> String { text.replace("python3.11", "python3") };
    assert_eq!(address(warm.printed(code)), address(cold.printed(code)));
}

#[test]
fn copies_share_no_randomness() {
    let Some(mut warm) = warm() else { return };
    let code = "import random, uuid, os, tempfile\n\
        print(random.random(), uuid.uuid4(), os.urandom(4), next(tempfile._get_candidate_names()))";
    let words: Vec<Vec<String>> =
        (0..2).map(|_| warm.printed(code).split(' ').map(str::to_owned).collect()).collect();
    assert!(words[0].iter().zip(&words[1]).all(|(one, other)| one != other), "{words:?}");
}

#[test]
fn nothing_of_a_program_is_left_for_the_next() {
    let Some(mut warm) = warm() else { return };
    let word = "rlox-left-behind";
    // Put together at run time: the program's own text must not hold it.
    let spell = "word = '-'.join(['rlox', 'left', 'behind'])\n";
    warm.printed(&format!(
        "{spell}import builtins, json, os, sys\nprint(word * 50)\nprint(word * 50, file=sys.stderr)\n\
         builtins.trace = json.trace = sys.trace = word\nos.environ['TRACE'] = word\n\
         open('/tmp/' + word, 'w').write(word)\nopen('/dev/shm/' + word, 'w').write(word)\n"
    ));
    let search = "import re, os, sys, builtins, json\n\
        found = []\n\
        needle = b'-'.join([b'rlox', b'left', b'behind'])\n\
        own = id(needle)\n\
        with open('/proc/self/mem', 'rb', 0) as memory:\n\
        \x20   for line in open('/proc/self/maps'):\n\
        \x20       span, mode = line.split()[:2]\n\
        \x20       start, end = (int(part, 16) for part in span.split('-'))\n\
        \x20       if 'r' not in mode or '[v' in line: continue\n\
        \x20       try:\n\
        \x20           memory.seek(start)\n\
        \x20           data = memory.read(end - start)\n\
        \x20       except (OSError, OverflowError, ValueError): continue\n\
        \x20       at = data.find(needle)\n\
        \x20       while at >= 0:\n\
        \x20           if not 0 <= start + at - own < 64: found.append(hex(start + at))\n\
        \x20           at = data.find(needle, at + 1)\n\
        \x20       del data\n\
        state = [hasattr(each, 'trace') for each in (builtins, json, sys)] + ['TRACE' in os.environ]\n\
        files = os.listdir('/tmp') + os.listdir('/dev/shm')\n\
        print(len(found), any(state), [each for each in files if 'left' in each])\n";
    assert_eq!(warm.printed(search), "0 False []");
    // The same search sees the word where a program holds it itself.
    let held = format!("held = bytes(range(3)) + b'{word}'\n{search}");
    assert_ne!(warm.printed(&held), "0 False []");
}

#[test]
fn a_program_has_no_descriptor_of_its_launcher() {
    let Some(mut warm) = warm() else { return };
    let code = "import os\n\
        for name in sorted(os.listdir('/proc/self/fd'), key=int):\n\
        \x20   try: print(name, os.readlink('/proc/self/fd/' + name).split(':')[0])\n\
        \x20   except OSError: pass\n";
    let printed = warm.printed(code);
    let names: Vec<&str> = printed.lines().map(|line| line.split(' ').next().unwrap()).collect();
    // Its three streams; the listing's own descriptor is gone when it is looked at.
    assert_eq!(names, ["0", "1", "2"], "{printed}");
}

#[test]
fn a_program_can_read_but_not_change_what_it_runs_in() {
    let Some(mut warm) = warm() else { return };
    let code = "import os\n\
        for flags in (os.O_WRONLY, os.O_RDWR):\n\
        \x20   try:\n\
        \x20       os.close(os.open('/proc/self/exe', flags))\n\
        \x20       print('opened')\n\
        \x20   except OSError: pass\n\
        print(len(os.readlink('/proc/self/exe')) > 0)\n";
    assert_eq!(warm.printed(code), "True");
}

#[test]
fn threads_processes_and_last_words_work_in_a_copy() {
    let Some(mut warm) = warm() else { return };
    let code = "import atexit, multiprocessing, os, signal, subprocess, sys, threading\n\
        class Last:\n\
        \x20   def __del__(self): print('last word', flush=True)\n\
        kept = Last()\n\
        atexit.register(print, 'at exit')\n\
        sums = []\n\
        workers = [threading.Thread(target=lambda n=n: sums.append(n * n)) for n in range(8)]\n\
        for worker in workers: worker.start()\n\
        for worker in workers: worker.join()\n\
        with multiprocessing.get_context('fork').Pool(2) as pool: print(pool.map(abs, [-1, -2]), sum(sums))\n\
        print(subprocess.run(['echo', 'sub'], capture_output=True, text=True).stdout.strip())\n\
        signal.signal(signal.SIGUSR1, lambda *_: print('signal'))\n\
        os.kill(os.getpid(), signal.SIGUSR1)\n\
        threading.Thread(target=lambda: print('late thread')).start()\n";
    assert_eq!(warm.printed(code), "[1, 2] 140\nsub\nsignal\nlate thread\nat exit\nlast word");
}
