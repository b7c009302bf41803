//! One verification on its way through the service: what to run, and what came back, without HTTP.

use rlox_protocol::Limits;

use crate::config::Granted;
use crate::judge::Judged;
use crate::script::{Ran, Script};

/// What to verify.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) code: String,
    pub(crate) tests: Vec<String>,
    pub(crate) stdio: Vec<StdioTest>,
    /// Run nothing more after the first failure.
    pub(crate) early_stop: bool,
    pub(crate) granted: Granted,
    /// Run as a script for another server's client; then there are no tests.
    pub(crate) script: Option<Script>,
}

impl Job {
    /// The launcher's form of its limits.
    pub(crate) fn limits(&self) -> Limits {
        let limits = self.granted.limits(self.expected_bytes());
        let cpu = self.script.as_ref().and_then(|script| script.cpu);
        let cpu_ms = cpu.map_or(u64::MAX, |cpu| u64::try_from(cpu.as_millis()).unwrap_or(u64::MAX).max(1));
        Limits { cpu_ms: limits.cpu_ms.min(cpu_ms), ..limits }
    }

    /// Bytes of the longest output that a run may have and still be right, with room for trailing white space.
    pub(crate) fn expected_bytes(&self) -> u64 {
        const WHITE_SPACE: u64 = 4096;
        self.stdio.iter().map(|test| test.stdout.len() as u64 + WHITE_SPACE).max().unwrap_or(0)
    }
}

/// One run with its input and the output that is right.
#[derive(Debug, Clone)]
pub(crate) struct StdioTest {
    pub(crate) stdin: String,
    pub(crate) stdout: String,
}

/// A finished verification.
#[derive(Debug, Clone)]
pub(crate) struct Finished {
    pub(crate) job_id: String,
    pub(crate) granted: Granted,
    pub(crate) judged: Judged,
    pub(crate) usage: Usage,
    pub(crate) events: Events,
    pub(crate) stdout: Captured,
    pub(crate) stderr: Captured,
    /// Of a script.
    pub(crate) ran: Option<Ran>,
}

/// What it took, over all containers of the job.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) queue_secs: f64,
    pub(crate) setup_secs: f64,
    pub(crate) wall_secs: f64,
    pub(crate) cpu_secs: f64,
    pub(crate) memory_peak_bytes: u64,
    pub(crate) pids_peak: u64,
}

/// What the cgroup counted and the load did, over all containers of the job.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Events {
    pub(crate) oom_kill: u64,
    pub(crate) pids_max: u64,
    pub(crate) seccomp: u64,
    pub(crate) leftovers: u64,
    /// Time in which the program, or the grader for it, could have run and others had the CPUs.
    pub(crate) cpu_wait_secs: f64,
    /// Containers run once more because the load may have cost the first its time.
    pub(crate) retries: u64,
    /// The second ended in the same way.
    pub(crate) pressure: bool,
}

/// Output of the last container.
#[derive(Debug, Clone, Default)]
pub(crate) struct Captured {
    pub(crate) text: String,
    pub(crate) truncated: bool,
}

/// Sixteen hexadecimal digits from the kernel's generator.
pub(crate) fn random_id() -> Result<String, getrandom::Error> {
    Ok(hex(&random_bytes::<8>()?))
}

/// Bytes from the kernel's generator.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N], getrandom::Error> {
    let mut bytes = [0u8; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
