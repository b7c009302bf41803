//! What a launcher reports: facts that it observed from outside. Judging them is the controller's work.

use base64::Engine as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A message from a launcher to the controller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// The container passed every check and its program runs.
    Started {
        /// The init process's id on the host.
        pid: i32,
    },
    /// The program ended and everything of it was removed.
    Outcome(Box<Outcome>),
    /// The sandbox could not do its work; nothing is known of the program.
    Fault(Fault),
}

/// Everything known about one finished container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The request's container id.
    pub id: String,
    /// How it ended.
    pub ending: Ending,
    /// Whether the launcher ended it because the controller said `Finish`.
    pub finished_early: bool,
    /// Standard output, empty unless captured.
    pub stdout: Output,
    /// Standard error, empty unless captured.
    pub stderr: Output,
    /// Seconds spent creating the container, checks included.
    pub setup_secs: f64,
    /// Seconds from start to the end of the init process.
    pub wall_secs: f64,
    /// CPU seconds of the whole container.
    pub cpu_secs: f64,
    /// What the load of the machine took from it.
    #[serde(default)]
    pub load: Load,
    /// Counters read from its cgroup before removal.
    pub cgroup: CgroupCounters,
    /// System calls that were refused and counted; nothing where the request did not ask for it.
    #[serde(default)]
    pub refused: RefusedCalls,
    /// Processes still in the cgroup after the kill, plus anything that could not be removed.
    pub leftovers: u64,
}

/// How the init process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Exited by itself with this code.
    Exited(i32),
    /// Ended by this signal, not sent by the launcher.
    Signaled(i32),
    /// Killed by the launcher at the wall-clock deadline.
    Deadline,
    /// Killed by the launcher when its processes had used their CPU time.
    CpuLimit,
    /// Killed by the launcher because it wrote too much.
    OutputFlood,
    /// Killed by the launcher on the controller's word.
    Cancelled,
}

/// What the load of the machine took from a container, as far as anybody looked: nothing is read of a program that
/// ends long before its limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Seconds in which it, or who it waited for, was ready to run and others had the CPUs.
    pub cpu_wait_secs: f64,
    /// Share of the time in which some task of the host waited for a CPU; zero where the kernel does not tell.
    pub host_share: f64,
}

/// Counters of one cgroup; zero where the host has no such counter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupCounters {
    /// Processes killed by the kernel for memory.
    pub oom_kill: u64,
    /// Times that a fork met the task limit.
    pub pids_max: u64,
    /// Highest memory use in bytes.
    pub memory_peak_bytes: u64,
    /// Highest number of tasks.
    pub pids_peak: u64,
    /// Times that the CPU quota throttled the container.
    pub cpu_throttled: u64,
}

/// Calls for which no program has an honest use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedCalls {
    /// How many; counting ends at a thousand.
    pub total: u64,
    /// Which, in alphabetical order.
    pub names: Vec<String>,
}

/// One captured output stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// The first bytes, up to the limit.
    #[serde(serialize_with = "to_base64", deserialize_with = "from_base64")]
    pub bytes: Vec<u8>,
    /// Bytes written in all, the dropped ones included.
    pub total: u64,
}

impl Output {
    /// Whether bytes were dropped.
    pub fn truncated(&self) -> bool {
        self.total > self.bytes.len() as u64
    }
}

/// A failure of the sandbox itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Which stage failed.
    pub kind: FaultKind,
    /// What happened, where, with which values.
    pub message: String,
}

/// Stages at which a sandbox can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The request makes no sense (unknown bundle, wrong descriptors).
    Request,
    /// Creating the container failed.
    Create,
    /// A limit or a security layer was asked for and is not in force.
    Verify,
    /// Watching or removing it failed.
    Supervise,
}

fn to_base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&base64::engine::general_purpose::STANDARD.encode(bytes))
}

fn from_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    base64::engine::general_purpose::STANDARD.decode(text).map_err(serde::de::Error::custom)
}
