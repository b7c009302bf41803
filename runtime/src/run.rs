//! `rlox-runtime run`: one container in the foreground, with the caller's own standard streams.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use oci_spec::runtime::Spec;
use rlox_host::{CGROUP_ROOT, CgroupHome, Owner};
use rlox_protocol::{Ending, Limits};

use crate::capture::Capture;
use crate::cdi::{DeviceArgs, has_user_namespace};
use crate::cgroup::ContainerCgroup;
use crate::container::{Created, Streams};
use crate::error::RuntimeError;
use crate::filter::Filter;
use crate::interrupt::Interrupt;
use crate::launcher::check_id;
use crate::sandbox::undo;
use crate::sealed;
use crate::spec::{Adaptation, IdMap, absolute, adapt, is_bind, load};
use crate::staging::{Joining, Staging};
use crate::supervise::{Watch, watch};
use crate::workload::Confined;

/// The range of host ids for the foreground: above those of any controller's launchers.
const FOREGROUND_SLOT: u16 = 50_000;

/// How libcontainer's init ends where it cannot execute the program.
const NEVER_RAN: i32 = 255;

/// What `run` was asked for.
pub(crate) struct Run {
    pub(crate) bundle: PathBuf,
    pub(crate) id: Option<String>,
    pub(crate) args: Vec<String>,
    pub(crate) devices: DeviceArgs,
    pub(crate) timeout_secs: Option<f64>,
    pub(crate) allow_missing_cgroup: bool,
}

impl Run {
    /// Runs the bundle and returns the exit code by the shells' rule.
    pub(crate) fn execute(self) -> Result<i32, RuntimeError> {
        if let Ok(spec) = load(&self.bundle) {
            sealed::ensure_for(&spec)?;
        }
        let owner = Owner::current().map_err(RuntimeError::system("reading /proc/self/stat"))?;
        let id = self.id.clone().unwrap_or_else(|| format!("run-{owner}"));
        check_id(&id)?;
        let home = rlox_host::prepare().map_err(|error| RuntimeError::Host { reason: error.to_string() })?;
        if let (CgroupHome::None { reason }, false) = (&home, self.allow_missing_cgroup) {
            let reason = format!("cgroup: {reason}; or pass --allow-missing cgroup to run without limits");
            return Err(RuntimeError::Host { reason });
        }
        let directory = rlox_host::run_directory().join(format!("rlox-{owner}-run"));
        std::fs::create_dir_all(&directory)
            .map_err(RuntimeError::system(format!("creating {}", directory.display())))?;
        let result = self.execute_in(&id, &home, &directory);
        // What lies in it is on a tmpfs of our own mount namespace, or ours as an ordinary user.
        if let Err(error) = nix::mount::umount2(&directory, nix::mount::MntFlags::MNT_DETACH) {
            tracing::debug!(%error, "no tmpfs to unmount");
        }
        if let Err(error) = std::fs::remove_dir_all(&directory) {
            tracing::error!(directory = %directory.display(), %error, "cannot remove the run directory");
        }
        result
    }

    fn execute_in(&self, id: &str, home: &CgroupHome, directory: &Path) -> Result<i32, RuntimeError> {
        let bundle = std::fs::canonicalize(&self.bundle).map_err(|error| RuntimeError::Bundle {
            bundle: self.bundle.clone(),
            reason: error.to_string(),
        })?;
        let mut spec = load(&bundle)?;
        self.devices.apply(&mut spec)?;
        let args = (!self.args.is_empty()).then_some(self.args.as_slice());
        // The owner in the cgroup's name lets a later start clean up after a runtime that was killed.
        let owner = Owner::current().map_err(RuntimeError::system("reading /proc/self/stat"))?;
        let cgroup_id = format!("{owner}-{id}");
        let ids = IdMap::for_slot(FOREGROUND_SLOT);
        let adaptation = Adaptation { id: &cgroup_id, home, ids, limits: None, args, env: &[], mounts: &[] };
        let mut spec = adapt(absolute(spec, &bundle), &adaptation)?;
        require_root_file_system(&spec, &bundle)?;
        let mut staging = Staging::prepare(directory, home, joining(&spec, directory))?;
        if !self.devices.devices.is_empty() && has_user_namespace(&spec) {
            spec = staging.write_over_root(spec, ids)?;
        }
        let filter = Filter::take(&mut spec, false)?;
        let generated = staging.write_bundle(id, spec.clone())?;
        let cgroup = ContainerCgroup::new(home, &cgroup_id, staging.hierarchies());
        let result = self.watch(id, &spec, filter, &generated, &staging, &cgroup);
        let (counters, _) = cgroup.counters();
        cgroup.remove();
        staging.remove_bundle(id);
        let code = result?;
        if counters.oom_kill > 0 {
            tracing::warn!(
                oom_kill = counters.oom_kill,
                "the kernel killed processes of the container for memory"
            );
        }
        Ok(code)
    }

    fn watch(
        &self,
        id: &str,
        spec: &Spec,
        filter: Option<Filter>,
        bundle: &Path,
        staging: &Staging,
        cgroup: &ContainerCgroup,
    ) -> Result<i32, RuntimeError> {
        let interrupt = Interrupt::catch().map_err(RuntimeError::system("catching signals"))?;
        let filtered = filter.is_some();
        let program = Confined { filter, ..Confined::default() };
        let created = cgroup
            .around(|| Created::create(id, bundle, &staging.state(), Streams::default(), program), undo)
            .map_err(RuntimeError::system("entering the container's cgroup"))??;
        let created = created.checked(spec, filtered, cgroup)?.started(spec)?;
        let limits = self.timeout_secs.map(deadline_only);
        let (mut stdout, mut stderr) = (Capture::none(), Capture::none());
        let begun = Instant::now();
        let mut watching = Watch {
            refusals: None,
            control: None,
            interrupt: Some(interrupt.descriptor.as_fd()),
            stdout: &mut stdout,
            stderr: &mut stderr,
            limits: limits.as_ref(),
            cgroup: None,
        };
        let watched = watch(&created, &mut watching)?;
        if watched.unnamed && watched.ending == Ending::Exited(NEVER_RAN) {
            let reason =
                "start: the container ended before its program ran; did a startContainer hook fail?".into();
            return Err(RuntimeError::Create { id: id.to_owned(), reason });
        }
        Ok(match watched.ending {
            Ending::Exited(code) => code,
            Ending::Signaled(signal) => 128 + signal,
            Ending::Deadline | Ending::CpuLimit => {
                tracing::error!(seconds = begun.elapsed().as_secs_f64(), "killed at the deadline");
                128 + libc::SIGKILL
            }
            Ending::OutputFlood => 128 + libc::SIGKILL,
            Ending::Cancelled => 128 + interrupt.signal().unwrap_or(libc::SIGKILL),
        })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the command line admits 0.001 to 1e6"
)]
fn deadline_only(secs: f64) -> Limits {
    let wall_ms = (secs * 1000.0) as u64;
    Limits {
        cpu_ms: u64::MAX,
        wall_ms,
        wall_most_ms: wall_ms,
        memory_bytes: 0,
        pids: 0,
        cpu_millis: 0,
        output_bytes: 0,
        flood_bytes: u64::MAX,
        file_bytes: 0,
        open_files: 0,
    }
}

/// A container that is to see cgroups has to find itself where libcontainer put it, and one that is to see where this
/// runtime keeps its own files must not find them there.
fn joining(spec: &Spec, directory: &Path) -> Joining {
    let shows = |source: &Path, place: &Path| source.starts_with(place) || place.starts_with(source);
    let sees = spec.mounts().iter().flatten().any(|mount| {
        let bound = mount.source().as_ref().filter(|_| is_bind(mount));
        // What cannot be resolved now cannot be bound later either.
        let bound = bound.map(|source| std::fs::canonicalize(source).unwrap_or_else(|_| source.clone()));
        mount.typ().as_deref() == Some("cgroup")
            || bound.is_some_and(|source| {
                [Path::new(CGROUP_ROOT), directory].iter().any(|place| shows(&source, place))
            })
    });
    if sees { Joining::Moved } else { Joining::Born }
}

fn require_root_file_system(spec: &Spec, bundle: &Path) -> Result<(), RuntimeError> {
    let root = spec.root().as_ref().map(|root| root.path().clone()).unwrap_or_default();
    if root.is_dir() {
        return Ok(());
    }
    Err(RuntimeError::Bundle {
        bundle: bundle.to_owned(),
        reason: format!(
            "no root file system at {}; prepare it with: rlox-runtime bundle prepare {}",
            root.display(),
            bundle.display()
        ),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whoever_sees_cgroups_is_moved_into_them() {
        let with = |mount: serde_json::Value| {
            let text = json!({ "ociVersion": "1.2.0", "root": { "path": "/r" }, "mounts": [mount] });
            joining(&serde_json::from_value::<Spec>(text).unwrap(), Path::new("/run/rlox-1.2-run"))
        };
        let bind = |source: &str| json!({ "destination": "/x", "type": "bind", "source": source, "options": ["rbind"] });
        assert_eq!(
            with(json!({ "destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup" })),
            Joining::Moved
        );
        for source in ["/sys/fs/cgroup/memory", "/sys", "/", "/run", "/run/rlox-1.2-run/cgroup"] {
            assert_eq!(with(bind(source)), Joining::Moved, "{source}");
        }
        assert_eq!(with(bind("/srv")), Joining::Born);
    }
}
