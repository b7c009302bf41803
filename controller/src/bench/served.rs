//! A service of the measurement's own: `serve` in a process of its own, so that its time and its memory are not
//! mixed with those of the clients that measure it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

use super::client::{Client, ClientError};
use super::cpu;

/// What the service logs once it answers.
const LISTENING: &str = "listening on http://";
/// A service proves itself with a few programs before it listens.
const START: Duration = Duration::from_secs(120);
/// Longest that it may take to finish what it was asked for, and leave.
const LEAVE: Duration = Duration::from_secs(40);
/// Lines of its log that are kept for an error.
const KEPT: usize = 8;
/// A service has come to rest where its processes used no time for so long.
const REST: Duration = Duration::from_millis(60);
/// Longest wait for that.
const REST_AT_MOST: Duration = Duration::from_secs(2);

/// The service is not what the measurement needs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServedError {
    /// It could not be started.
    #[error("cannot start a service: {0}")]
    Spawn(#[source] std::io::Error),
    /// It ended before it listened.
    #[error("the service did not start: {log}")]
    NotListening {
        /// What it said last.
        log: String,
    },
    /// It does not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Its times cannot be read.
    #[error("cannot read CPU times from /proc: {0}")]
    Proc(#[source] std::io::Error),
}

/// A running service; it ends where its standard input does, so also with a measurement that is killed.
pub(super) struct Served {
    child: Child,
    stderr: Option<ChildStderr>,
    pub(super) pid: u32,
    pub(super) address: SocketAddr,
    log: Arc<Mutex<VecDeque<String>>>,
}

impl Served {
    /// Starts `serve` with these flags. It has no address before [`Self::listening`].
    pub(super) fn spawn(flags: &[String]) -> Result<Self, ServedError> {
        let program = std::env::current_exe().map_err(ServedError::Spawn)?;
        let mut child = Command::new(program)
            .args(["--log-level", "info", "serve", "--port", "0", "--until-stdin-ends"])
            .args(flags)
            .env_remove("RLOX_LOG")
            .env("NO_COLOR", "1")
            // Ctrl-C is for the measurement, which then ends its services in order.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(ServedError::Spawn)?;
        let (stderr, pid) = (child.stderr.take(), child.id().unwrap_or_default());
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        Ok(Self { child, stderr, pid, address, log: Arc::default() })
    }

    /// Waits until it answers.
    pub(super) async fn listening(&mut self) -> Result<(), ServedError> {
        let nothing = |log: String| ServedError::NotListening { log };
        let stderr = self.stderr.take().ok_or_else(|| nothing("it has no log".into()))?;
        let mut lines = BufReader::new(stderr).lines();
        let found = tokio::time::timeout(START, listening(&mut lines, &self.log)).await;
        self.address = found.ok().flatten().ok_or_else(|| nothing(self.said()))?;
        let kept = Arc::clone(&self.log);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                keep(&kept, line);
            }
        });
        Ok(())
    }

    pub(super) async fn health(&self) -> Result<Value, ServedError> {
        Ok(Client::connect(self.address).await?.health().await?)
    }

    /// What it logged last.
    pub(super) fn said(&self) -> String {
        said(&self.log)
    }

    /// CPU seconds of it and of all that it started, once it has come to rest: what is removed or refilled after an
    /// answer belongs to the verification.
    pub(super) async fn rested(&self) -> Result<f64, ServedError> {
        let read = || cpu::read_of(self.pid).map(cpu::Cpu::total).map_err(ServedError::Proc);
        let end = Instant::now() + REST_AT_MOST;
        let mut before = read()?;
        loop {
            tokio::time::sleep(REST).await;
            let now = read()?;
            if now <= before || Instant::now() >= end {
                return Ok(now);
            }
            before = now;
        }
    }

    /// Ends it as its operator would; what it was asked for is finished.
    pub(super) async fn stop(mut self) {
        drop(self.child.stdin.take());
        match tokio::time::timeout(LEAVE, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => {}
            Ok(Ok(status)) => tracing::error!(%status, log = self.said(), "a service failed at its end"),
            Ok(Err(error)) => tracing::error!(%error, "cannot wait for a service"),
            Err(_) => {
                tracing::error!("a service did not leave and is killed");
                if let Err(error) = self.child.kill().await {
                    tracing::error!(%error, "cannot kill a service");
                }
            }
        }
    }
}

async fn listening(
    lines: &mut Lines<BufReader<ChildStderr>>,
    log: &Mutex<VecDeque<String>>,
) -> Option<SocketAddr> {
    while let Ok(Some(line)) = lines.next_line().await {
        let address = address(&line);
        keep(log, line);
        if address.is_some() {
            return address;
        }
    }
    None
}

fn address(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once(LISTENING)?;
    rest.split_whitespace().next()?.parse().ok()
}

fn keep(log: &Mutex<VecDeque<String>>, line: String) {
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    if log.len() == KEPT {
        log.pop_front();
    }
    log.push_back(line);
}

fn said(log: &Mutex<VecDeque<String>>) -> String {
    let log = log.lock().unwrap_or_else(PoisonError::into_inner);
    log.iter().map(String::as_str).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_from_the_line_that_the_service_logs() {
        let line = "2026-11-29T00:00:00Z  INFO listening on http://127.0.0.1:41234 tier=\"x\" workers=2";
        assert_eq!(address(line), Some(SocketAddr::from(([127, 0, 0, 1], 41234))));
        assert_eq!(address("INFO stopping"), None);
    }

    #[test]
    fn only_the_end_of_a_log_is_kept() {
        let log = Mutex::new(VecDeque::new());
        (0..20).for_each(|number| keep(&log, number.to_string()));
        assert!(said(&log).starts_with("12; ") && said(&log).ends_with("; 19"));
    }
}
