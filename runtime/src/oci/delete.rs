//! `delete`, and the removal of whatever a failed or killed command left.

use std::time::{Duration, Instant};

use super::Context;
use super::error::OciError;
use super::hooks::{self, Kind};
use super::store::{Entry, Record, Status, Store};
use crate::sys;

/// How long the processes of a killed creation may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Removes a container.
pub(crate) fn delete(context: &Context, id: &str, force: bool) -> Result<(), OciError> {
    let store = Store::open(context.globals.root.as_deref());
    let entry = match store.entry(id) {
        Err(OciError::NotFound { .. }) if force => return Ok(()),
        other => other?,
    };
    let record = entry.peek()?;
    let status = record.as_ref().map_or(Status::Stopped, Record::status);
    match status {
        // A container that never started has nothing to lose.
        Status::Stopped | Status::Created => {}
        Status::Creating | Status::Running | Status::Paused if force => {}
        Status::Creating | Status::Running | Status::Paused => {
            return Err(OciError::Status { id: id.to_owned(), action: "delete", status: status.name() });
        }
    }
    dispose(entry, record.as_ref())
}

/// Kills, removes the cgroup, runs the `poststop` hooks, removes the state.
pub(crate) fn dispose(entry: Entry, record: Option<&Record>) -> Result<(), OciError> {
    let Some(record) = record else { return entry.remove() };
    kill_init(record)?;
    remove_group(&entry, record)?;
    if let Some(unit) = &record.unit {
        super::scope::forget(unit);
    }
    let hooks = record.hooks.as_ref().map(|hooks| Kind::Poststop.of(hooks)).unwrap_or_default();
    let state = hooks::state(record, "stopped", 0);
    for hook in &hooks {
        // The specification wants the rest of the hooks to run, and the container to be gone.
        if let Err(error) =
            hooks::run(Kind::Poststop, std::slice::from_ref(hook), &state, Some(&record.bundle), &[])
        {
            tracing::warn!(%error, "a poststop hook failed");
        }
    }
    entry.remove()
}

/// Kills what is in the cgroup and removes it. Where the command that made the container was killed, a process of its
/// may be about to join, and would make the cgroup anew.
fn remove_group(entry: &Entry, record: &Record) -> Result<(), OciError> {
    let remove = || match &record.group {
        Some(group) => group.remove().map_err(|reason| OciError::Cgroup { id: record.id.clone(), reason }),
        None => Ok(()),
    };
    let end = Instant::now() + PATIENCE;
    while record.init().is_none() && !entry.makers_are_gone()? {
        remove()?;
        if Instant::now() >= end {
            return Err(OciError::Busy { id: record.id.clone() });
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    remove()
}

/// Kills the first process and waits until it has ended.
fn kill_init(record: &Record) -> Result<(), OciError> {
    use std::os::fd::AsFd;
    let Some(init) = record.init().filter(rlox_host::Owner::running) else { return Ok(()) };
    let pid = nix::unistd::Pid::from_raw(record.pid());
    let Ok(pidfd) = sys::pidfd_open(pid) else { return Ok(()) };
    if !init.running() {
        return Ok(());
    }
    if let Some(group) = record.group.as_ref().filter(|group| group.exists() && group.frozen())
        && let Err(reason) = group.freeze(false)
    {
        tracing::warn!(reason, "a paused container cannot be thawed");
    }
    sys::pidfd_kill(pidfd.as_fd()).map_err(OciError::system(format!("killing process {pid}")))?;
    super::wait::ended(pidfd.as_fd(), std::time::Duration::from_secs(10))
        .map_err(OciError::system(format!("waiting for process {pid}")))
}
