//! A service of the test's own on a port that the system chose. It ends with the test, also with one that fails.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::host::{processes, wait_until};
use super::http::{Address, Answer};
use super::{CONTROLLER, SOON, nothing_left, program};

/// Longest that a service may take to end, jobs in flight included.
const END: Duration = Duration::from_secs(30);

pub(crate) struct Service {
    child: Child,
    pub(crate) address: Address,
    pub(crate) port: u16,
    log: Arc<Mutex<String>>,
    pub(crate) scratch: tempfile::TempDir,
}

impl Service {
    /// `rlox-controller serve --port 0` with two workers.
    #[track_caller]
    pub(crate) fn start() -> Self {
        Self::with(&["--workers", "2"])
    }

    #[track_caller]
    pub(crate) fn with(arguments: &[&str]) -> Self {
        Self::of(CONTROLLER, &[&["serve", "--port", "0"], arguments].concat())
    }

    /// Any program that serves; waits until it says where.
    #[track_caller]
    pub(crate) fn of(path: &str, arguments: &[&str]) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let mut command = program(path, scratch.path());
        command.args(arguments);
        Self::spawned(command, scratch)
    }

    /// A command that serves, with the directory of its temporary files.
    #[track_caller]
    pub(crate) fn spawned(mut command: Command, scratch: tempfile::TempDir) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let copy = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                *copy.lock().unwrap() += &format!("{line}\n");
            }
        });
        let mut service = Self { child, address: Address::Tcp(0), port: 0, log, scratch };
        wait_until("listening on", Duration::from_secs(90), || {
            let ended = service.child.try_wait().unwrap();
            assert!(ended.is_none(), "the service ended with {ended:?}: {}", service.log());
            let log = service.log();
            let port = log
                .split_once("listening on http://127.0.0.1:")
                .map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
            service.port = port.and_then(|port| port.parse().ok()).unwrap_or(0);
            service.port != 0
        });
        service.address = Address::Tcp(service.port);
        service
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.address.request("GET", path, &[], b"").unwrap()
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        post(&self.address, path, body)
    }

    /// A verification that has to have a verdict.
    #[track_caller]
    pub(crate) fn verify(&self, body: &Value) -> Value {
        let answer = self.post("/verify", body);
        assert_eq!(answer.status, 200, "{answer:?}\nlog: {}", self.log());
        answer.json()
    }

    /// A batch of which every entry has to have a verdict.
    #[track_caller]
    pub(crate) fn batch(&self, requests: &[Value]) -> Vec<Value> {
        let answer = self.post("/verify/batch", &json!({ "requests": requests }));
        assert_eq!(answer.status, 200, "{answer:?}\nlog: {}", self.log());
        let results = answer.json()["results"].as_array().unwrap().clone();
        assert_eq!(results.len(), requests.len());
        results
    }

    /// An honest program passes: the service works.
    #[track_caller]
    pub(crate) fn is_well(&self) {
        let verdict = self.verify(&honest());
        assert_eq!((&verdict["verdict"], &verdict["reward"]), (&json!("passed"), &json!(1.0)), "{verdict}");
        assert_eq!(verdict["containment"]["leftovers"], 0, "{verdict}");
    }

    /// Waits until so many workers run a job and so many jobs wait.
    #[track_caller]
    pub(crate) fn wait_busy(&self, busy: u64, waiting: u64) {
        wait_until(&format!("{busy} busy workers and {waiting} waiting jobs"), SOON, || {
            let health = self.get("/health").json();
            health["pool"]["busy"] == busy && health["queue"]["waiting"] == waiting
        });
    }

    /// Launcher processes by their slots; slot 0 is the grader's.
    pub(crate) fn launcher(&self, slot: u16) -> Option<i32> {
        let token = format!("/rlox-{}.", self.id());
        processes(&token).into_iter().find(|pid| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.contains(&format!("launcher\0--slot\0{slot}\0"))
        })
    }

    /// Programs that run in the containers of one launcher; not what libcontainer runs while it makes one.
    pub(crate) fn contained(&self, slot: u16) -> Vec<i32> {
        let inside = |pid: &i32| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
            let prefix = format!("/rlox-{}.", self.id());
            line.contains("/opt/rlox/")
                && text
                    .lines()
                    .filter_map(|line| line.split_once(&prefix))
                    .any(|(_, rest)| rest.split('-').nth(1) == Some(&slot.to_string()))
        };
        processes(&format!("rlox-{}.", self.id())).into_iter().filter(inside).collect()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.id()).unwrap()), signal).unwrap();
    }

    /// Waits for the end of a service that was asked to end.
    #[track_caller]
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        let log = Arc::clone(&self.log);
        wait_until(&format!("the service's end; its log:\n{}", log.lock().unwrap()), END, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap_or(ExitStatus::from_raw(0))
    }

    /// Ends it as an operator would, and checks that nothing is left.
    #[track_caller]
    pub(crate) fn stop(mut self) {
        self.signal(Signal::SIGTERM);
        let status = self.ended();
        assert_eq!(status.code(), Some(0), "{status:?}: {}", self.log());
        nothing_left(self.id(), self.scratch.path());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Only where a test failed or killed it on purpose; what it leaves then goes at the next service's start.
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            self.child.kill().unwrap_or_default();
            self.child.wait().map(drop).unwrap_or_default();
        }
    }
}

/// A request that passes.
pub(crate) fn honest() -> Value {
    json!({ "code": "def f(a, b):\n    return a + b\n", "tests": ["assert f(2, 3) == 5"] })
}

/// A request that passes after so many seconds.
pub(crate) fn slow(secs: f64) -> Value {
    json!({ "code": format!("import time\ndef f():\n    time.sleep({secs})\n    return 1\n"), "tests": ["assert f() == 1"] })
}

#[track_caller]
pub(crate) fn post(address: &Address, path: &str, body: &Value) -> Answer {
    address
        .request("POST", path, &[("Content-Type", "application/json")], body.to_string().as_bytes())
        .unwrap()
}

/// Sends a request from a thread of its own.
pub(crate) fn post_apart(service: &Service, body: &Value) -> std::thread::JoinHandle<Answer> {
    let (address, body) = (service.address.clone(), body.clone());
    std::thread::spawn(move || post(&address, "/verify", &body))
}
