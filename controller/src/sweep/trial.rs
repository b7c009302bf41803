//! One trial in a container of its own: bundle `trainer`, no network, a socket to the service, watched from
//! outside.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rlox_protocol::{BindMount, Command, DescriptorRole, Limits, Outcome, Reply, SandboxRequest, Stdio};
use rlox_report::{Condition, TrialKey};

use super::plan::Plan;
use super::record::{Seen, Stopped, summary};
use super::store::{Store, StoreError};
use crate::judge::exit_status;
use crate::sandbox::{Environment, Launcher, SandboxError};

/// Where a trial finds things in its container.
const OUTPUT: &str = "/opt/rlox/out";
const SOCKET: &str = "unix:/opt/rlox/run/verify.sock";
const LIBRARY: &str = "librlox_rl_ops_ffi.so";
const METRICS: &str = "metrics.jsonl";
/// Made by the trainer right before its first step.
const BEGAN: &str = ".began";
const LOG: &str = "trainer.log";
const LOOK: Duration = Duration::from_millis(250);

/// What every trial of a sweep shares.
pub(super) struct Stage {
    pub(super) environment: Arc<Environment>,
    /// Directory with the service's socket.
    pub(super) socket: PathBuf,
    /// Directory with the advantages' library.
    pub(super) library: PathBuf,
}

/// A trial could not be run; says nothing about the trainer.
#[derive(Debug, thiserror::Error)]
pub(super) enum TrialError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("{action} failed: {source}")]
    System {
        action: String,
        #[source]
        source: io::Error,
    },
    #[error("reading the trial's files failed: {0}")]
    Report(#[from] rlox_report::ReportError),
    /// The trainer ended before its first step began: its set-up failed, which measures nothing.
    #[error("the trainer did not begin ({exit_status}); the end of {log}:\n{tail}")]
    NeverBegan { exit_status: String, log: PathBuf, tail: String },
    /// The operator stopped the sweep: not recorded, so that it runs again.
    #[error("cancelled")]
    Cancelled,
}

fn system(action: impl Into<String>) -> impl FnOnce(io::Error) -> TrialError {
    let action = action.into();
    move |source| TrialError::System { action, source }
}

impl Stage {
    /// Makes the shared directories: the socket's and a copy of the library.
    pub(super) fn prepare(environment: &Arc<Environment>) -> io::Result<Self> {
        // Below a directory that only its owner may search: other users of the host must not reach the service.
        let socket = environment.private_subdirectory("private")?.join("run");
        std::fs::DirBuilder::new().mode(0o711).create(&socket)?;
        let library = environment.subdirectory("lib")?;
        let built = environment.home.runtime.with_file_name(LIBRARY);
        std::fs::copy(&built, library.join(LIBRARY)).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("{}: {error}; build it with: cargo build --release", built.display()),
            )
        })?;
        Ok(Self { environment: Arc::clone(environment), socket, library })
    }

    /// The socket that the service has to listen on.
    pub(super) fn socket_file(&self) -> PathBuf {
        self.socket.join("verify.sock")
    }

    /// Runs one trial and records it. Returns whether it survived.
    pub(super) fn run(
        &self,
        store: &Store,
        plan: &Plan,
        key: TrialKey,
        slot: u16,
        stop: &AtomicBool,
    ) -> Result<bool, TrialError> {
        let directory = store.begin(key)?;
        let log = open_log(&directory)?;
        let launcher = Launcher::start(&self.environment, slot)?;
        let ids = rlox_host::container_ids(slot, 1000);
        give(&directory, ids)?;
        let request = self.request(plan, key, slot, &directory)?;
        launcher.run(request, &[log.as_fd()])?;
        let watched = watch(&launcher, plan, &directory, stop);
        drop(launcher);
        take_back(&directory)?;
        let (outcome, stopped) = watched?;
        if stopped.is_none() && std::fs::symlink_metadata(directory.join(BEGAN)).is_err() {
            let log = directory.join(LOG);
            let tail = tail(&log);
            return Err(TrialError::NeverBegan { exit_status: exit_status(&outcome), log, tail });
        }
        let sweep = rlox_report::load(store.root())?;
        let rows = sweep.trials.iter().find(|trial| trial.key == key).map(|trial| &trial.metrics.rows);
        let seen = Seen {
            key,
            outcome: &outcome,
            stopped,
            rows: rows.map_or(&[][..], Vec::as_slice),
            checkpoint: has_checkpoint(&directory),
            max_steps: plan.max_steps,
        };
        let summary = summary(&seen);
        store.record(key, &summary)?;
        Ok(summary["survived"] == true)
    }

    fn request(
        &self,
        plan: &Plan,
        key: TrialKey,
        slot: u16,
        directory: &Path,
    ) -> Result<SandboxRequest, SandboxError> {
        let bind = |source: &Path, destination: &str, writable: bool| BindMount {
            source: source.to_owned(),
            destination: destination.into(),
            writable,
        };
        let script = ["/opt/rlox/venv/bin/python", "-E", "-s", "-B", "/opt/rlox/harness/trl_grpo_run.py"];
        let mut args: Vec<String> = script.map(str::to_owned).to_vec();
        args.extend(plan.arguments(key, SOCKET, OUTPUT, super::plan::CORPUS));
        let bundle = self.environment.home.bundle("trainer");
        let mut mounts = vec![bind(directory, OUTPUT, true), bind(&self.library, "/opt/rlox/lib", false)];
        if key.condition == Condition::Rlox {
            // The baseline has no business with the service: code that took the trainer over would find it there.
            mounts.push(bind(&self.socket, "/opt/rlox/run", false));
        }
        Ok(SandboxRequest {
            id: self.environment.container_id(slot),
            bundle: bundle.map_err(|error| SandboxError::Fault { message: error.to_string() })?,
            args: Some(args),
            env: vec![format!("RLOX_RL_OPS_LIB=/opt/rlox/lib/{LIBRARY}")],
            mounts,
            warm: false,
            limits: Limits {
                cpu_ms: u64::MAX,
                wall_ms: plan.limits.wall_secs * 1000,
                wall_most_ms: plan.limits.wall_secs * 1000,
                memory_bytes: plan.limits.memory_mb << 20,
                pids: plan.limits.pids,
                cpu_millis: 2000,
                output_bytes: 0,
                flood_bytes: u64::MAX,
                file_bytes: plan.limits.disk_mb << 20,
                open_files: 1024,
            },
            count_refused: false,
            stdio: Stdio::Log,
            descriptors: vec![DescriptorRole::Log],
        })
    }
}

fn open_log(directory: &Path) -> Result<File, TrialError> {
    let path = directory.join(LOG);
    File::options()
        .create_new(true)
        .append(true)
        .custom_flags(nix::libc::O_NOFOLLOW)
        .open(&path)
        .map_err(system(format!("opening {}", path.display())))
}

/// The last lines of the trainer's log. It was opened by us and is append-only for the trainer.
fn tail(path: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::options().read(true).custom_flags(nix::libc::O_NOFOLLOW).open(path)?;
        let length = file.metadata()?.len();
        file.seek(io::SeekFrom::Start(length.saturating_sub(2000)))?;
        let mut bytes = Vec::new();
        file.take(2000).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_else(|error| format!("(cannot be read: {error})"))
}

/// Makes the trial's directory the container user's.
fn give(directory: &Path, ids: Option<(u32, u32)>) -> Result<(), TrialError> {
    let Some((uid, gid)) = ids else { return Ok(()) };
    lchown(directory, Some(uid), Some(gid)).map_err(system(format!("handing over {}", directory.display())))
}

/// Makes everything in the directory ours again. The trainer may have put anything there: links are not followed.
fn take_back(directory: &Path) -> Result<(), TrialError> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    walk(directory, 0, &mut |path| lchown(path, Some(0), Some(0)))
        .map_err(system(format!("taking back {}", directory.display())))
}

/// Visits a directory tree without following links, at most 64 deep.
fn walk(path: &Path, depth: u32, visit: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    visit(path)?;
    let metadata = std::fs::symlink_metadata(path)?;
    if !metadata.is_dir() || depth >= 64 {
        return Ok(());
    }
    for entry in std::fs::read_dir(path)? {
        walk(&entry?.path(), depth + 1, visit)?;
    }
    Ok(())
}

fn size_mb(directory: &Path) -> u64 {
    let mut blocks = 0;
    let counted = walk(directory, 0, &mut |path| {
        blocks += std::fs::symlink_metadata(path)?.blocks();
        Ok(())
    });
    if let Err(error) = counted {
        // A file that vanished meanwhile; the next look counts again.
        tracing::debug!(%error, "counting a trial's files");
    }
    (blocks * 512) >> 20
}

fn has_checkpoint(directory: &Path) -> bool {
    std::fs::symlink_metadata(directory.join("checkpoint_final.pt"))
        .is_ok_and(|found| found.is_file() && found.len() > 0)
}

/// Follows the trial until its end; ends it where it stalls, grows or the sweep is stopped.
fn watch(
    launcher: &Launcher,
    plan: &Plan,
    directory: &Path,
    stop: &AtomicBool,
) -> Result<(Outcome, Option<Stopped>), TrialError> {
    let metrics = directory.join(METRICS);
    let length = || std::fs::symlink_metadata(&metrics).map_or(0, |found| found.len());
    let (mut last_length, mut last_progress, mut began) = (0, Instant::now(), false);
    let (mut stopped, mut cancelled) = (None, false);
    let end = Instant::now() + Duration::from_secs(plan.limits.wall_secs) + Duration::from_secs(120);
    loop {
        match launcher.wait_reply(Instant::now() + LOOK)? {
            Some(Reply::Outcome(_)) if cancelled => return Err(TrialError::Cancelled),
            Some(Reply::Outcome(outcome)) => return Ok((*outcome, stopped)),
            Some(Reply::Fault(fault)) => return Err(SandboxError::Fault { message: fault.message }.into()),
            Some(Reply::Started { .. }) => last_progress = Instant::now(),
            Some(_) | None => {}
        }
        let now = length();
        let begins = !began && std::fs::symlink_metadata(directory.join(BEGAN)).is_ok();
        began |= begins;
        if begins || now > last_length {
            (last_length, last_progress) = (now, Instant::now());
        }
        let patience = plan.limits.patience(began);
        if stopped.is_none() && !cancelled {
            if stop.load(Ordering::Relaxed) {
                cancelled = true;
            } else if last_progress.elapsed() > patience {
                stopped = Some(Stopped::Stalled { secs: patience.as_secs() });
            } else if size_mb(directory) > plan.limits.disk_mb {
                stopped = Some(Stopped::Disk { limit_mb: plan.limits.disk_mb });
            }
            if cancelled || stopped.is_some() {
                launcher.tell(&Command::Kill, &[])?;
            }
        }
        if Instant::now() > end {
            return Err(SandboxError::Stuck { slot: launcher.slot(), seconds: 120.0 }.into());
        }
    }
}
