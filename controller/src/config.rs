//! The service's configuration, validated once.

use std::time::Duration;

use rlox_protocol::Limits;

/// What one request may ask for at most, and what it gets without asking.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ceilings {
    /// CPU time of one execution, and its wall clock while it does not wait for others; also the default.
    pub(crate) timeout: Duration,
    /// Multiple of a request's timeout at which its wall clock ends whatever the load.
    pub(crate) wall_factor: f64,
    /// Memory in MiB.
    pub(crate) memory_mb: u64,
    /// Tasks.
    pub(crate) pids: u64,
    /// Bytes of each output stream.
    pub(crate) output_bytes: u64,
}

/// Defaults of a request that names no limit.
pub(crate) const DEFAULT_MEMORY_MB: u64 = 512;
pub(crate) const DEFAULT_PIDS: u64 = 64;
pub(crate) const DEFAULT_OUTPUT_BYTES: u64 = 65_536;
/// Load may stretch the wall clock of an execution up to this multiple of its limit.
pub(crate) const DEFAULT_WALL_FACTOR: f64 = 4.0;
/// Least values with which the interpreter starts.
pub(crate) const MIN_MEMORY_MB: u64 = 32;
pub(crate) const MIN_PIDS: u64 = 4;

/// Output beyond this is a flood, whatever the request keeps.
const FLOOD_BYTES: u64 = 4 << 20;

impl Default for Ceilings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(5),
            wall_factor: DEFAULT_WALL_FACTOR,
            memory_mb: 2048,
            pids: 256,
            output_bytes: 1 << 20,
        }
    }
}

/// Limits as a request gave them, defaults filled in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Granted {
    pub(crate) timeout: Duration,
    pub(crate) wall_factor: f64,
    pub(crate) memory_mb: u64,
    pub(crate) pids: u64,
    pub(crate) output_bytes: u64,
}

impl Default for Granted {
    fn default() -> Self {
        Self {
            timeout: Ceilings::default().timeout,
            wall_factor: DEFAULT_WALL_FACTOR,
            memory_mb: DEFAULT_MEMORY_MB,
            pids: DEFAULT_PIDS,
            output_bytes: DEFAULT_OUTPUT_BYTES,
        }
    }
}

impl Granted {
    /// Wall clock at which an execution ends whatever the load.
    pub(crate) fn wall_most(self) -> Duration {
        self.timeout.mul_f64(self.wall_factor)
    }

    /// The launcher's form. What is kept of the output has to hold at least what is expected, to be compared.
    pub(crate) fn limits(self, expected: u64) -> Limits {
        let kept = self.output_bytes.max(expected);
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
        Limits {
            cpu_ms: millis(self.timeout),
            wall_ms: millis(self.timeout),
            wall_most_ms: millis(self.wall_most()),
            memory_bytes: self.memory_mb << 20,
            pids: self.pids,
            cpu_millis: 1000,
            output_bytes: kept,
            flood_bytes: FLOOD_BYTES + 2 * kept,
            file_bytes: 64 << 20,
            open_files: 256,
        }
    }
}

/// How the verification service is set up.
#[derive(Debug, Clone)]
pub(crate) struct ServiceConfig {
    /// What requests may ask for.
    pub(crate) ceilings: Ceilings,
    /// Sandboxes at once.
    pub(crate) workers: u16,
    /// Jobs that may wait.
    pub(crate) queue: usize,
    /// Run although cgroups are missing: the operator's explicit choice.
    pub(crate) allow_missing_cgroup: bool,
    /// Refuse to start where the kernel lacks Landlock.
    pub(crate) require_landlock: bool,
    /// Containers made ahead, shared out among the workers.
    pub(crate) pool: u16,
    /// Modules that launchers import once, for all programs; `None` executes an interpreter in each container.
    pub(crate) preload: Option<Vec<String>>,
    /// What other servers' clients get.
    pub(crate) dialects: DialectConfig,
}

/// What requests in other servers' dialects get, beside the ceilings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DialectConfig {
    /// The most CPU time and wall clock of one run.
    pub(crate) timeout: Duration,
    /// Every end with code 0 counts, as with the originals.
    pub(crate) lenient_exit: bool,
}

/// The longest run of a dialect, unless the operator says otherwise: their clients ask for 10 seconds and more.
pub(crate) const DEFAULT_DIALECT_SECS: f64 = 30.0;

impl Default for DialectConfig {
    fn default() -> Self {
        Self { timeout: Duration::from_secs_f64(DEFAULT_DIALECT_SECS), lenient_exit: false }
    }
}

/// What programs that models write import most, of the standard library and of the bundle's packages. A module that is
/// not in the list is imported when a program asks for it.
pub(crate) const PRELOAD: [&str; 33] = [
    "abc",
    "array",
    "bisect",
    "collections",
    "contextlib",
    "copy",
    "csv",
    "dataclasses",
    "datetime",
    "decimal",
    "enum",
    "fractions",
    "functools",
    "heapq",
    "inspect",
    "io",
    "itertools",
    "json",
    "linecache",
    "math",
    "numpy",
    "operator",
    "os",
    "random",
    "re",
    "statistics",
    "string",
    "sys",
    "textwrap",
    "threading",
    "time",
    "traceback",
    "typing",
];

impl Default for ServiceConfig {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let workers = u16::try_from(cores * 2).unwrap_or(64).clamp(2, 256);
        Self {
            ceilings: Ceilings::default(),
            workers,
            pool: workers,
            preload: Some(PRELOAD.map(str::to_owned).to_vec()),
            queue: 4096,
            allow_missing_cgroup: false,
            require_landlock: false,
            dialects: DialectConfig::default(),
        }
    }
}
