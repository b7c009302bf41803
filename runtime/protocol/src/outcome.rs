//! What a launcher reports: facts that it observed from outside. Judging them is the controller's work.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

/// A message from a launcher to the controller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// The launcher takes requests; its first word.
    Ready(Interpreter),
    /// A container waits.
    Prepared {
        /// Seconds spent creating it, checks included.
        setup_secs: f64,
        /// How many wait now.
        waiting: u16,
    },
    /// A container could not be made ahead; the next request makes its own.
    Unprepared(Fault),
    /// What was left of the container before was removed.
    Removed {
        /// Processes, cgroups and files that could not be.
        leftovers: u64,
        /// Containers that wait now.
        waiting: u16,
    },
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

/// Where a launcher's programs get their interpreter from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "interpreter", rename_all = "snake_case")]
pub enum Interpreter {
    /// A fork of one that the launcher has started.
    Warm {
        /// Its version.
        version: String,
        /// Modules that could not be imported ahead, with the reason.
        missing: Vec<String>,
    },
    /// Executed in each container.
    Exec {
        /// Why none is warm; empty where none was asked for.
        reason: String,
    },
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
    /// The container waited when the request came.
    pub pooled: bool,
    /// Its interpreter was a fork of the launcher's.
    pub warm: bool,
    /// Seconds from the request to the start, checks included.
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
    /// The first bytes, up to the limit. They travel in a file: a launcher never has them in its memory, of which
    /// the next container gets a copy.
    #[serde(skip)]
    pub bytes: Vec<u8>,
    /// Whether a descriptor of that file comes with the message; standard output's is the first.
    pub attached: bool,
    /// Bytes written in all, the dropped ones included.
    pub total: u64,
}

impl Output {
    /// Whether bytes were dropped.
    pub fn truncated(&self) -> bool {
        self.total > self.bytes.len() as u64
    }

    /// Takes the bytes out of the file that came with the message.
    pub fn read(&mut self, descriptors: &mut impl Iterator<Item = OwnedFd>) -> io::Result<()> {
        if self.attached {
            let file = descriptors.next().ok_or_else(|| io::Error::other("no descriptor came with it"))?;
            let file = File::from(file);
            let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
            self.bytes = vec![0; length];
            file.read_exact_at(&mut self.bytes, 0)?;
        }
        Ok(())
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
