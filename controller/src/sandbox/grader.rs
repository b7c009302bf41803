//! The grader: one long-lived container of trusted code that forks once per verification.
//!
//! A thread keeps it alive. Workers hand it jobs over a socket of sequenced packets, three descriptors each: the
//! channel to the snippet, the report's socket and the sealed job. The report is authenticated with a key that
//! exists once, in the job and here.

use std::io::IoSlice;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hmac::{Hmac, Mac};
use nix::sys::socket::{AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair};
use rlox_protocol::{DescriptorRole, Limits, Reply, SandboxRequest, Stdio};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::memfd::sealed;
use super::reports::Refused;
use super::{Environment, Launcher, SandboxError};
use crate::job::{Job, hex};
use crate::judge::Report;

/// The grader's launcher number.
const SLOT: u16 = 0;
const START_PATIENCE: Duration = Duration::from_secs(10);
/// Ten years: it lives as long as the service.
const LIFE_MS: u64 = 10 * 365 * 24 * 3600 * 1000;
/// Between two attempts to start it: grows while it fails.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// CPU time and, after the program's end, time that a fork has beyond the program's own: what it compares is the
/// program's data.
const SLACK: Duration = Duration::from_secs(1);
/// A fork begins before its program's container is made, which takes long on a loaded machine. Less than a worker's
/// patience with a launcher.
const SETUP: Duration = Duration::from_secs(10);
/// Beyond this a job does not fit the grader's own limit either.
const MAX_REPORT: usize = 8 << 20;

/// What the grader's fork is given.
#[derive(Serialize)]
struct GraderJob<'a> {
    tests: &'a [String],
    early_stop: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Signed {
    report: String,
    mac: String,
}

/// A handle on the running grader.
#[derive(Debug)]
pub(crate) struct Grader {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    socket: Mutex<Option<Arc<OwnedFd>>>,
    changed: Condvar,
    stopping: AtomicBool,
    /// Why it is not there.
    failure: Mutex<Option<String>>,
}

impl Shared {
    fn set(&self, socket: Option<Arc<OwnedFd>>) {
        *self.socket.lock().unwrap_or_else(PoisonError::into_inner) = socket;
        self.changed.notify_all();
    }
}

impl Grader {
    /// Starts the grader and the thread that keeps it alive.
    pub(crate) fn start(environment: &Arc<Environment>, concurrency: u16) -> Result<Self, SandboxError> {
        let shared = Arc::new(Shared {
            socket: Mutex::new(None),
            changed: Condvar::new(),
            stopping: AtomicBool::new(false),
            failure: Mutex::new(None),
        });
        let thread = {
            let (environment, shared) = (Arc::clone(environment), Arc::clone(&shared));
            std::thread::Builder::new()
                .name("grader".into())
                .spawn(move || keep_alive(&environment, &shared, concurrency))
                .map_err(SandboxError::system("starting the grader's thread"))?
        };
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Hands over one job; the report comes on the socket whose other end is `report`.
    pub(crate) fn submit(
        &self,
        key: &[u8],
        job: &Job,
        channel: BorrowedFd<'_>,
        report: BorrowedFd<'_>,
    ) -> Result<(), SandboxError> {
        let (cpu, wall) = (job.granted.timeout + SLACK, job.granted.wall_most() + SETUP);
        let job = GraderJob { tests: &job.tests, early_stop: job.early_stop };
        let job = serde_json::to_vec(&job).map_err(SandboxError::system("encoding a grader's job"))?;
        let job = sealed(c"rlox-tests", &job)?;
        let socket = self.socket()?;
        let descriptors = [channel.as_raw_fd(), report.as_raw_fd(), job.as_raw_fd()];
        let text = format!("{} {} {}", cpu.as_millis(), wall.as_millis(), hex(key));
        sendmsg::<()>(
            socket.as_raw_fd(),
            &[IoSlice::new(text.as_bytes())],
            &[ControlMessage::ScmRights(&descriptors)],
            MsgFlags::MSG_NOSIGNAL,
            None,
        )
        .map(drop)
        .map_err(|errno| SandboxError::Grader { reason: format!("cannot hand over a job: {errno}") })
    }

    fn socket(&self) -> Result<Arc<OwnedFd>, SandboxError> {
        let guard = self.shared.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let (guard, _) = self
            .shared
            .changed
            .wait_timeout_while(guard, START_PATIENCE, |socket| socket.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        guard.clone().ok_or_else(|| {
            let failure = self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let failure = failure.unwrap_or_else(|| "no reason is known".into());
            SandboxError::Grader { reason: format!("it does not start: {failure}") }
        })
    }
}

impl Drop for Grader {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.set(None);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the grader's thread panicked");
        }
    }
}

fn keep_alive(environment: &Arc<Environment>, shared: &Shared, concurrency: u16) {
    let mut pause = FIRST_PAUSE;
    loop {
        let begun = Instant::now();
        let result = live_once(environment, shared, concurrency);
        shared.set(None);
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        if let Err(error) = result {
            tracing::error!(%error, "the grader failed and is started again");
            *shared.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
        }
        pause = if begun.elapsed() > LONGEST_PAUSE { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        let woken = shared.socket.lock().unwrap_or_else(PoisonError::into_inner);
        // Wakes early when the service stops.
        drop(shared.changed.wait_timeout_while(woken, pause, |_| !shared.stopping.load(Ordering::SeqCst)));
    }
}

fn live_once(environment: &Arc<Environment>, shared: &Shared, concurrency: u16) -> Result<(), SandboxError> {
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
        .map_err(SandboxError::system("making the grader's socket"))?;
    let launcher = Launcher::start(environment, SLOT)?;
    let log = std::io::stderr();
    let request = SandboxRequest {
        id: environment.container_id(SLOT),
        bundle: environment
            .home
            .bundle("grader")
            .map_err(SandboxError::system("finding the grader's bundle"))?,
        args: None,
        env: Vec::new(),
        mounts: Vec::new(),
        warm: false,
        limits: limits(concurrency),
        count_refused: false,
        stdio: Stdio::Log,
        descriptors: vec![DescriptorRole::Log, DescriptorRole::Preserve],
    };
    use std::os::fd::AsFd;
    launcher.run(request, &[log.as_fd(), theirs.as_fd()])?;
    drop(theirs);
    let mut ours = Some(Arc::new(ours));
    loop {
        let reply = launcher.wait_reply(Instant::now() + Duration::from_millis(100))?;
        match reply {
            Some(Reply::Started { .. }) => shared.set(ours.take()),
            Some(Reply::Outcome(outcome)) => {
                return Err(SandboxError::Grader { reason: format!("it ended: {:?}", outcome.ending) });
            }
            Some(Reply::Fault(fault)) => return Err(SandboxError::Fault { message: fault.message }),
            Some(_) => {}
            None if shared.stopping.load(Ordering::SeqCst) => return Ok(()),
            None => {}
        }
    }
}

fn limits(concurrency: u16) -> Limits {
    Limits {
        // Each fork has a limit of its own.
        cpu_ms: u64::MAX,
        wall_ms: LIFE_MS,
        wall_most_ms: LIFE_MS,
        // A gibibyte for each fork, as the grader itself limits them, and one for their common parent.
        memory_bytes: (u64::from(concurrency) + 1) << 30,
        pids: u64::from(concurrency) + 64,
        cpu_millis: 1000 * u64::from(concurrency),
        output_bytes: 0,
        flood_bytes: u64::MAX,
        file_bytes: 64 << 20,
        open_files: 1024,
    }
}

/// Checks a report's authentication and decodes it.
pub(crate) fn authenticate(key: &[u8], bytes: &[u8]) -> Result<Report, Refused> {
    if bytes.is_empty() {
        return Err(Refused::Missing);
    }
    if bytes.len() > MAX_REPORT {
        return Err(Refused::Malformed);
    }
    let mut documents = serde_json::Deserializer::from_slice(bytes).into_iter::<Signed>();
    let signed = documents.next().and_then(Result::ok).ok_or(Refused::Malformed)?;
    match documents.next() {
        None => {}
        Some(Ok(_)) => return Err(Refused::Second),
        Some(Err(_)) => return Err(Refused::Malformed),
    }
    let mut mac = Hmac::<Sha256>::new_from_slice(key).map_err(|_| Refused::Unauthenticated)?;
    mac.update(signed.report.as_bytes());
    let given = unhex(&signed.mac).ok_or(Refused::Malformed)?;
    // Constant-time comparison.
    mac.verify_slice(&given).map_err(|_| Refused::Unauthenticated)?;
    serde_json::from_str(&signed.report).map_err(|_| Refused::Malformed)
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(key: &[u8], report: &str) -> Vec<u8> {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
        mac.update(report.as_bytes());
        let mac = hex(&mac.finalize().into_bytes());
        serde_json::to_vec(&serde_json::json!({ "report": report, "mac": mac })).unwrap()
    }

    const REPORT: &str = r#"{"loaded":true,"complete":true,"ended":null,"results":[[true,null]],"tampering":[["lying_type","x"]]}"#;

    #[test]
    fn a_report_with_the_right_key_is_read() {
        let report = authenticate(b"key", &signed(b"key", REPORT)).unwrap();
        assert_eq!(report.results, [(true, None)]);
    }

    #[test]
    fn missing_malformed_and_wrongly_authenticated_reports_are_refused() {
        let refused = |bytes: &[u8]| authenticate(b"key", bytes).unwrap_err();
        assert_eq!(refused(b""), Refused::Missing);
        assert_eq!(refused(b"{}"), Refused::Malformed);
        assert_eq!(refused(&signed(b"other", REPORT)), Refused::Unauthenticated);
        assert_eq!(refused(&signed(b"key", REPORT).repeat(2)), Refused::Second);
        assert_eq!(refused(&[signed(b"key", REPORT), b"x".to_vec()].concat()), Refused::Malformed);
        let changed =
            String::from_utf8(signed(b"key", REPORT)).unwrap().replace("complete\\\":true", "complete\\\":1");
        assert_eq!(refused(changed.as_bytes()), Refused::Unauthenticated);
        let odd = serde_json::to_vec(&serde_json::json!({ "report": REPORT, "mac": "abc" })).unwrap();
        assert_eq!(refused(&odd), Refused::Malformed);
    }
}
