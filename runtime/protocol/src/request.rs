//! What a launcher is asked to do. Limits are explicit: a field that is absent would be a limit forgotten.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A message from the controller to a launcher.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// Create a container of this shape and let it wait for the next `Run` that asks for the same.
    Prepare(Box<SandboxRequest>),
    /// Run, supervise and remove one container: the one that waits, where its shape is the same.
    Run(Box<SandboxRequest>),
    /// The answer is known: let the program end by itself within the grace, then kill it.
    Finish {
        /// Milliseconds before the kill.
        grace_ms: u64,
    },
    /// The descriptor that comes along is `/proc/PID/schedstat` of a process for which the program waits: what that
    /// one waits for a CPU is no time of the program either.
    Beside,
    /// Kill at once.
    Kill,
}

/// One container to run, once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxRequest {
    /// Container id: letters, digits, `-`, `_`, `.`; unique on this host while it lives.
    pub id: String,
    /// Directory that holds the bundle's `config.json`.
    pub bundle: PathBuf,
    /// Replaces the bundle's `process.args` where given.
    pub args: Option<Vec<String>>,
    /// `args` are a command line of the bundle's interpreter: a fork of the launcher's own may run them instead.
    pub warm: bool,
    /// Environment entries (`NAME=value`) added to the bundle's own.
    pub env: Vec<String>,
    /// Bind mounts added to the bundle's own.
    pub mounts: Vec<BindMount>,
    /// The limits in force, all of them.
    pub limits: Limits,
    /// Count refused system calls for which no program has an honest use.
    pub count_refused: bool,
    /// What the program's standard streams are.
    pub stdio: Stdio,
    /// Meaning of the descriptors that travel with this message, in order.
    pub descriptors: Vec<DescriptorRole>,
}

impl SandboxRequest {
    /// Whether a container made for `self` serves `other`: all is the same but what is settled at the start.
    pub fn same_shape(&self, other: &Self) -> bool {
        let limits = Limits {
            cpu_ms: self.limits.cpu_ms,
            wall_ms: self.limits.wall_ms,
            wall_most_ms: self.limits.wall_most_ms,
            output_bytes: self.limits.output_bytes,
            flood_bytes: self.limits.flood_bytes,
            ..other.limits
        };
        (&self.bundle, &self.env, &self.mounts, self.limits, self.warm)
            == (&other.bundle, &other.env, &other.mounts, limits, other.warm)
            && (self.count_refused, self.stdio) == (other.count_refused, other.stdio)
            && self.args.as_deref().and_then(<[_]>::first) == other.args.as_deref().and_then(<[_]>::first)
    }
}

/// A host path made visible in the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BindMount {
    /// Path on the host.
    pub source: PathBuf,
    /// Path in the container.
    pub destination: PathBuf,
    /// Whether the container may write there.
    pub writable: bool,
}

/// Limits of one container. Every one of them is enforced from outside the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// CPU milliseconds of all its processes together, from start to kill.
    pub cpu_ms: u64,
    /// Wall-clock milliseconds from start to kill, less those in which it waited for a CPU because of others.
    pub wall_ms: u64,
    /// Wall-clock milliseconds from start to kill, however long it waited.
    pub wall_most_ms: u64,
    /// Bytes of memory, swap included.
    pub memory_bytes: u64,
    /// Tasks alive at once.
    pub pids: u64,
    /// Thousandths of a CPU.
    pub cpu_millis: u64,
    /// Bytes kept of each output stream; the rest is read and dropped.
    pub output_bytes: u64,
    /// Bytes of both output streams together at which the program is killed.
    pub flood_bytes: u64,
    /// Largest file that the program may write (`RLIMIT_FSIZE`).
    pub file_bytes: u64,
    /// Open descriptors (`RLIMIT_NOFILE`).
    pub open_files: u64,
}

/// What the program's standard streams are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdio {
    /// Standard output and error are pipes read by the launcher within the output limits.
    Capture,
    /// Standard output and error both go to the descriptor with role `Log`.
    Log,
    /// The launcher's own streams (the command line's `run`).
    Inherit,
}

/// What a descriptor that travels with a `Run` is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DescriptorRole {
    /// Becomes descriptor 0.
    Stdin,
    /// Becomes descriptors 1 and 2 with [`Stdio::Log`].
    Log,
    /// Becomes the next of the descriptors 3, 4, … in the container.
    Preserve,
}
