//! The OCI command line, as engines call it. Options may stand before or after the id.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::cdi::SpecArgs;

/// Options that stand before the command.
#[derive(Debug, Clone, Args)]
pub(crate) struct Globals {
    /// Where containers' states are kept; default: /run/rlox for root, else $XDG_RUNTIME_DIR/rlox.
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Write messages to this file as well.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Format of messages in the log file.
    #[arg(long, global = true, value_enum, default_value = "text")]
    pub(crate) log_format: LogFormat,
    /// Log what is being done, too.
    #[arg(long, global = true)]
    pub(crate) debug: bool,
    /// Have systemd make the cgroup; cgroupsPath is then SLICE:PREFIX:NAME.
    #[arg(long, global = true)]
    pub(crate) systemd_cgroup: bool,
    /// Accepted for callers of other runtimes; what rootless needs is found out.
    #[arg(long, global = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_name = "true|false|auto", hide = true)]
    pub(crate) rootless: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
}

/// The commands of the OCI command line, `run` excepted, which has a short form as well.
#[derive(Debug, Subcommand)]
pub(crate) enum OciCommand {
    /// Create a container; its program waits for `start`.
    Create(CreateArgs),
    /// Start the program of a created container.
    Start { id: String },
    /// Print a container's state as JSON.
    State { id: String },
    /// Send a signal to a container.
    Kill(KillArgs),
    /// Remove a stopped container.
    Delete {
        id: String,
        /// Kill it first if it runs; no error if it does not exist.
        #[arg(short, long)]
        force: bool,
    },
    /// Run another program in a running container.
    Exec(ExecArgs),
    /// List containers.
    List {
        #[arg(short, long, value_enum, default_value = "table")]
        format: Format,
        /// Ids only.
        #[arg(short, long)]
        quiet: bool,
    },
    /// List the processes of a container.
    Ps {
        #[arg(short, long, value_enum, default_value = "table")]
        format: Format,
        id: String,
        /// Options for ps.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Stop all processes of a container.
    Pause { id: String },
    /// Continue a paused container.
    Resume { id: String },
    /// Change a container's limits.
    Update(Box<UpdateArgs>),
    /// Print statistics and memory kills of a container as JSON lines.
    Events {
        /// Print the statistics once.
        #[arg(long)]
        stats: bool,
        /// How often to print them.
        #[arg(long, default_value = "5s", value_parser = super::events::interval)]
        interval: std::time::Duration,
        id: String,
    },
    /// Write a config.json to start from; with --device, print what the devices make of one.
    Spec(SpecArgs),
    /// Print what this runtime supports as JSON.
    Features,
    /// Run hooks for libcontainer.
    #[command(hide = true, name = "oci-hook")]
    Hook { kind: super::hooks::Kind, bundle: PathBuf, report: i32, plan: String },
}

/// How a new container is made.
#[derive(Debug, Clone, Args)]
pub(crate) struct CreateArgs {
    /// Unique name of the container.
    pub(crate) id: String,
    /// Directory that holds config.json.
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    pub(crate) bundle: PathBuf,
    #[command(flatten)]
    pub(crate) how: How,
}

/// Options of `create` and `run`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct How {
    /// Write the process id of the program to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) pid_file: Option<PathBuf>,
    /// Send the master of the terminal to this socket.
    #[arg(long, value_name = "SOCKET")]
    pub(crate) console_socket: Option<PathBuf>,
    /// Pass on this many descriptors beyond the standard streams.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) preserve_fds: u16,
    /// Do not use pivot_root.
    #[arg(long)]
    pub(crate) no_pivot: bool,
    /// Keep the caller's session keyring.
    #[arg(long)]
    pub(crate) no_new_keyring: bool,
}

#[derive(Debug, Args)]
pub(crate) struct KillArgs {
    pub(crate) id: String,
    /// Name or number.
    #[arg(default_value = "TERM")]
    pub(crate) signal: String,
    /// All processes, not the first alone.
    #[arg(short, long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    pub(crate) id: String,
    /// Program and arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<String>,
    /// The process section as JSON, in place of the arguments.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) process: Option<PathBuf>,
    /// Return once it runs.
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// Give it a terminal.
    #[arg(short, long)]
    pub(crate) tty: bool,
    #[arg(long, value_name = "FILE")]
    pub(crate) pid_file: Option<PathBuf>,
    #[arg(long, value_name = "SOCKET")]
    pub(crate) console_socket: Option<PathBuf>,
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// NAME=VALUE, beside the container's own.
    #[arg(short, long)]
    pub(crate) env: Vec<String>,
    /// UID or UID:GID.
    #[arg(short, long, value_name = "UID[:GID]")]
    pub(crate) user: Option<String>,
    #[arg(short = 'g', long)]
    pub(crate) additional_gids: Vec<u32>,
    /// A capability beside the container's own.
    #[arg(short, long)]
    pub(crate) cap: Vec<String>,
    #[arg(long)]
    pub(crate) no_new_privs: bool,
    #[arg(long, value_name = "PROFILE")]
    pub(crate) apparmor: Option<String>,
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) preserve_fds: u16,
    /// Also in a paused container.
    #[arg(long)]
    pub(crate) ignore_paused: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UpdateArgs {
    pub(crate) id: String,
    /// linux.resources as JSON; - for standard input.
    #[arg(short, long, value_name = "FILE|-")]
    pub(crate) resources: Option<PathBuf>,
    /// Bytes, or with the suffix k, m or g; -1 for no limit.
    #[arg(short = 'm', long, value_parser = super::update::bytes, allow_hyphen_values = true)]
    pub(crate) memory: Option<i64>,
    #[arg(long, value_parser = super::update::bytes, allow_hyphen_values = true)]
    pub(crate) memory_reservation: Option<i64>,
    /// Memory and swap together.
    #[arg(long, value_parser = super::update::bytes, allow_hyphen_values = true)]
    pub(crate) memory_swap: Option<i64>,
    /// Microseconds in each period; -1 for no limit.
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) cpu_quota: Option<i64>,
    #[arg(long)]
    pub(crate) cpu_period: Option<u64>,
    #[arg(long)]
    pub(crate) cpu_burst: Option<u64>,
    #[arg(long, visible_alias = "cpu-shares")]
    pub(crate) cpu_share: Option<u64>,
    #[arg(long)]
    pub(crate) cpu_idle: Option<i64>,
    #[arg(long)]
    pub(crate) cpu_rt_period: Option<u64>,
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) cpu_rt_runtime: Option<i64>,
    #[arg(long)]
    pub(crate) cpuset_cpus: Option<String>,
    #[arg(long)]
    pub(crate) cpuset_mems: Option<String>,
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) pids_limit: Option<i64>,
    #[arg(long)]
    pub(crate) blkio_weight: Option<u16>,
}
