//! `rlox-runtime doctor`: which layers of isolation this host gives, each missing one with the command that adds it.
//!
//! Layers are tried, not looked up, wherever a try is possible: a setting may say one thing and a security module
//! another. The last line is a real container.

mod layers;
mod noise;
mod probe;
mod report;
mod sandbox;

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use rlox_host::CgroupHome;

use crate::error::RuntimeError;
use report::{Report, Status};

/// Flags of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print a JSON document, whose fields stay.
    #[arg(long)]
    json: bool,
    /// Also run the attack corpus and its honest twins here, with controls that must fail (rlox-controller doctor --prove).
    #[arg(long)]
    prove: bool,
    /// The prepared bundle to try; default: bundles/snippet, searched upward from here and from this program.
    #[arg(long, value_name = "DIR")]
    bundle: Option<PathBuf>,
    /// Try to become root of a user namespace and say how it went (started by doctor itself).
    #[arg(long, hide = true)]
    probe_user_namespace: bool,
}

/// Exit codes: the host cannot contain, or there is no prepared bundle to show it with.
const CANNOT_CONTAIN: i32 = 69;
const NOT_PREPARED: i32 = 65;

impl DoctorArgs {
    /// Examines the host and prints what it found; returns the exit code.
    pub(crate) fn execute(self) -> Result<i32, RuntimeError> {
        if self.probe_user_namespace {
            return Ok(probe::become_root_of_a_user_namespace());
        }
        if self.prove {
            return prove(self.json);
        }
        let report = self.examine()?;
        let text = if self.json { format!("{}\n", report.json()) } else { report.text() };
        // A reader that has seen enough, such as head, is no failure.
        match std::io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                return Err(RuntimeError::system("writing to standard output")(error));
            }
            Ok(()) | Err(_) => {}
        }
        Ok(match report.contains {
            Some(true) => 0,
            Some(false) => CANNOT_CONTAIN,
            None => NOT_PREPARED,
        })
    }

    fn examine(&self) -> Result<Report, RuntimeError> {
        let home = rlox_host::prepare().map_err(|error| RuntimeError::Host { reason: error.to_string() })?;
        let mut layers = layers::all(&home)?;
        let refused = layers.iter().any(|layer| layer.required && layer.status == Status::Missing);
        let bundle = self.bundle.clone().or_else(find_bundle);
        let sandbox = match (refused, &home) {
            // What is known to be missing would only be told a second time.
            (true, _) | (_, CgroupHome::None { .. }) => sandbox::Tried::Skipped,
            (false, CgroupHome::V1 | CgroupHome::V2 { .. }) => sandbox::measure(bundle.as_deref())?,
        };
        layers.push(sandbox.layer(bundle.as_deref()));
        let noise = noise::measure();
        layers.push(noise.layer());
        let contains = match &sandbox {
            _ if refused => Some(false),
            sandbox::Tried::Entered(_) => Some(true),
            sandbox::Tried::Failed(_) => Some(false),
            sandbox::Tried::NotPrepared | sandbox::Tried::Skipped => None,
        };
        Ok(Report { layers, contains, timing: sandbox.timing(), noise })
    }
}

/// The snippet's bundle of the checkout that this is run from or was built in.
fn find_bundle() -> Option<PathBuf> {
    let holds = |directory: &Path| {
        let bundle = directory.join("bundles/snippet");
        bundle.join("config.json").is_file().then_some(bundle)
    };
    let named = std::env::var_os("RLOX_HOME").map(PathBuf::from);
    let here = std::env::current_dir().unwrap_or_default();
    let program = std::env::current_exe().unwrap_or_default();
    named.iter().map(PathBuf::as_path).chain(here.ancestors()).chain(program.ancestors()).find_map(holds)
}

/// The corpus needs the whole service, which this program knows nothing of: the controller beside it has it.
fn prove(json: bool) -> Result<i32, RuntimeError> {
    use std::os::unix::process::CommandExt;
    let program = std::env::current_exe().map_err(RuntimeError::system("finding this program"))?;
    let controller = program.with_file_name("rlox-controller");
    let mut command = std::process::Command::new(&controller);
    command.args(["doctor", "--prove"]).args(json.then_some("--json"));
    let error = command.exec();
    Err(RuntimeError::Request {
        reason: format!(
            "--prove runs the corpus through the service, and {} cannot be started: {error}; build it with: \
             cargo build --release",
            controller.display()
        ),
    })
}
