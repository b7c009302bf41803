//! Command line of `rlox-runtime`.

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use rlox_host::CgroupHome;
use tracing_subscriber::EnvFilter;

use crate::cdi::{CdiError, DeviceArgs};
use crate::doctor::DoctorArgs;
use crate::error::RuntimeError;
use crate::launcher::{self, check_id};
use crate::oci;
use crate::oci::args::{Globals, How, OciCommand};
use crate::prepare::prepare;
use crate::run::Run;

/// Runs one program in a fresh, limited, unprivileged container.
#[derive(Debug, Parser)]
#[command(
    name = "rlox-runtime",
    version,
    about,
    after_help = "First steps:\n  \
    rlox-runtime doctor\n  \
    rlox-runtime bundle prepare bundles/snippet\n  \
    echo 'print(6 * 7)' | rlox-runtime run bundles/snippet\n\n\
    Exit codes of run: the program's own, 128+N for signal N; 126 and 127 as the shells \
    have them; of the runtime itself: 64 usage, 65 bad bundle, 69 this host cannot contain the program, 70 internal failure."
)]
pub struct Cli {
    /// What to write to standard error: error, warn, info, debug or trace.
    #[arg(long, global = true, default_value = "warn", env = "RLOX_LOG")]
    pub log_level: String,
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Run a bundle in the foreground and return its program's exit code.
    Run(RunArgs),
    /// Say which isolation layers this host gives, with the remedy for each that is missing.
    Doctor(DoctorArgs),
    /// Work on bundles.
    Bundle {
        #[command(subcommand)]
        command: BundleCommands,
    },
    /// Serve requests of a controller on descriptor 0 (started by the controller).
    #[command(hide = true)]
    Launcher(LauncherArgs),
    #[command(flatten)]
    Oci(OciCommand),
}

#[derive(Debug, Args)]
struct RunArgs {
    /// The bundle, a directory that holds config.json and rootfs/; with --bundle, the container's id instead.
    #[arg(value_name = "BUNDLE|ID")]
    target: PathBuf,
    /// The bundle, in the OCI form `run --bundle DIR ID`.
    #[arg(short, long, value_name = "DIR")]
    bundle: Option<PathBuf>,
    /// Kill the program after this many seconds of wall-clock time.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout_secs: Option<f64>,
    /// Run although this layer is missing on the host. Without cgroups nothing limits memory, tasks or CPU.
    #[arg(long, value_name = "LAYER", value_enum)]
    allow_missing: Vec<Layer>,
    #[command(flatten)]
    devices: DeviceArgs,
    /// OCI form: return once the program runs.
    #[arg(short, long)]
    detach: bool,
    /// OCI form: do not delete the container after its end.
    #[arg(long)]
    keep: bool,
    /// Accepted for callers of other runtimes.
    #[arg(long, hide = true)]
    no_subreaper: bool,
    #[command(flatten)]
    how: How,
    /// Program and arguments, in place of the bundle's own.
    #[arg(last = true)]
    args: Vec<String>,
}

/// Isolation layers that an operator may give up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Layer {
    /// Limits on memory, tasks and CPU.
    Cgroup,
}

#[derive(Debug, Subcommand)]
enum BundleCommands {
    /// Build the root file system of a bundle from this host's Python. Quick where nothing changed.
    Prepare {
        /// Directories that hold a config.json.
        #[arg(required = true)]
        bundles: Vec<PathBuf>,
        /// The interpreter to copy (3.11 or newer); default: $RLOX_PYTHON, /usr/bin/python3, python3 in PATH.
        #[arg(long)]
        python: Option<PathBuf>,
        /// Directory of installed packages (a site-packages) from which a bundle gets those that it names; default: the
        /// one that was named when the bundle was prepared last.
        #[arg(long, value_name = "DIR")]
        packages: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
struct LauncherArgs {
    // Beyond this a range would end above the ids that there are.
    #[arg(long, value_parser = clap::value_parser!(u16).range(..=50_000))]
    slot: u16,
    #[arg(long)]
    directory: PathBuf,
    /// Found out where it is not given.
    #[arg(long, value_parser = home)]
    cgroup_home: Option<CgroupHome>,
    #[arg(long)]
    warm: Option<PathBuf>,
    #[arg(long, value_delimiter = ',')]
    preload: Vec<String>,
}

fn home(text: &str) -> Result<CgroupHome, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.001..=1e6).contains(&value) => Ok(value),
        Ok(_) | Err(_) => Err("a number of seconds from 0.001 to 1000000".into()),
    }
}

impl Cli {
    /// Whether a command line that could not be parsed was meant for an OCI command, whose callers expect its codes.
    pub fn names_oci_command(args: impl Iterator<Item = String>) -> bool {
        let known = OciCommand::augment_subcommands(clap::Command::new("oci"));
        let mut args = args.skip(1);
        args.any(|arg| known.find_subcommand(&arg).is_some())
    }

    /// Starts logging: to the file that was named, else to standard error.
    pub fn start_logging(&self) {
        let level = if self.globals.debug { "debug" } else { &self.log_level };
        // libcontainer warns of every cgroup v1 hierarchy that a host lacks and logs each error that it also returns.
        let filter = format!("{level},libcontainer=off,libcgroups=off");
        let filter = EnvFilter::try_new(&filter).unwrap_or_else(|_| EnvFilter::new("warn"));
        let builder = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
        let Some(path) = &self.globals.log else {
            builder.with_writer(std::io::stderr).without_time().init();
            return;
        };
        match oci::open_log(path) {
            Ok(file) => {
                let lines = oci::Lines(self.globals.log_format);
                builder.event_format(lines).with_writer(std::sync::Mutex::new(file)).init();
            }
            Err(error) => {
                builder.with_writer(std::io::stderr).without_time().init();
                tracing::error!(%error, path = %path.display(), "cannot open the log");
            }
        }
    }

    /// Does what was asked for; returns the exit code.
    pub fn execute(self) -> Result<i32, RuntimeError> {
        match self.command {
            Commands::Run(args) => {
                if let Some(run) = args.oci() {
                    return Ok(oci::Context { globals: self.globals }.run(run));
                }
                args.into_run()?.execute()
            }
            Commands::Oci(command) => Ok(oci::Context { globals: self.globals }.execute(&command)),
            Commands::Doctor(args) => args.execute(),
            Commands::Bundle { command: BundleCommands::Prepare { bundles, python, packages } } => {
                for bundle in bundles {
                    let built = prepare(&bundle, python.as_deref(), packages.as_deref())?;
                    let state = if built { "prepared" } else { "up to date" };
                    println!("{}: {state}", bundle.join("rootfs").display());
                }
                Ok(0)
            }
            Commands::Launcher(args) => {
                let LauncherArgs { slot, directory, cgroup_home, warm, preload } = args;
                let prepared =
                    || rlox_host::prepare().map_err(|error| RuntimeError::Host { reason: error.to_string() });
                let home = cgroup_home.map_or_else(prepared, Ok)?;
                launcher::serve(launcher::Options { slot, directory, home, warm, preload })?;
                Ok(0)
            }
        }
    }
}

impl RunArgs {
    /// The OCI form, where nothing is asked for that only the sandbox form has: a program of one's own, a deadline.
    fn oci(&self) -> Option<oci::Run> {
        let sandbox = !self.args.is_empty()
            || self.timeout_secs.is_some()
            || !self.allow_missing.is_empty()
            || !self.devices.devices.is_empty();
        let id = self.target.to_str()?;
        let bundle = match &self.bundle {
            Some(bundle) => bundle.clone(),
            None if !self.target.is_dir() && check_id(id).is_ok() && Path::new("config.json").exists() => {
                ".".into()
            }
            None => return None,
        };
        let run = oci::Run {
            id: id.to_owned(),
            bundle,
            detach: self.detach,
            keep: self.keep,
            how: self.how.clone(),
        };
        (!sandbox).then_some(run)
    }

    fn into_run(self) -> Result<Run, RuntimeError> {
        let (bundle, id) = match self.bundle {
            Some(bundle) => {
                let id = self.target.to_str().ok_or_else(|| RuntimeError::Request {
                    reason: format!("container id {:?} is not UTF-8", self.target),
                })?;
                (bundle, Some(id.to_owned()))
            }
            None => (self.target, None),
        };
        Ok(Run {
            bundle,
            id,
            args: self.args,
            devices: self.devices,
            timeout_secs: self.timeout_secs,
            allow_missing_cgroup: self.allow_missing.contains(&Layer::Cgroup),
        })
    }
}

impl RuntimeError {
    /// The exit code of the runtime itself for this failure.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Request { .. } | Self::Device(CdiError::Name { .. }) => 64,
            Self::Bundle { .. } => 65,
            Self::Host { .. } | Self::Verify { .. } | Self::Device(_) => 69,
            // libcontainer looks the program up before it starts it; the shells' codes for what it found.
            Self::Create { reason, .. } if reason.contains("not found in $PATH") => 127,
            Self::Create { reason, .. } if reason.contains("correct permission") => 126,
            Self::Create { .. } | Self::System { .. } => 70,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn both_forms_of_run_name_the_bundle() {
        let parse = |args: &[&str]| match Cli::try_parse_from(args).unwrap().command {
            Commands::Run(args) => args.into_run().unwrap(),
            Commands::Doctor(_) | Commands::Bundle { .. } | Commands::Launcher(_) | Commands::Oci(_) => {
                unreachable!()
            }
        };
        let short = parse(&["rlox-runtime", "run", "bundles/snippet", "--", "/bin/true"]);
        assert_eq!(
            (short.bundle.to_str(), short.id, short.args),
            (Some("bundles/snippet"), None, vec!["/bin/true".into()])
        );
        let oci = parse(&["rlox-runtime", "run", "--bundle", "b", "my-id"]);
        assert_eq!((oci.bundle.to_str(), oci.id.as_deref()), (Some("b"), Some("my-id")));
    }
}
