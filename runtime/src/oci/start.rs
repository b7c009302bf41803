//! `start`: the waiting program goes on, then the `poststart` hooks run.

use std::time::{Duration, Instant};

use super::Context;
use super::create::inner;
use super::error::OciError;
use super::hooks::{self, Kind};
use super::store::{Entry, Phase, Record, Status, Store, waits};
use crate::container::release;
use crate::error::RuntimeError;

/// How long `execve` may take where no hook comes before it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Starts a created container.
pub(crate) fn start(context: &Context, id: &str) -> Result<(), OciError> {
    let entry = Store::open(context.globals.root.as_deref()).entry(id)?;
    start_entry(&entry, id)
}

/// Waits until the program was executed: the `startContainer` hooks come before it, the `poststart` hooks after it.
fn executed(record: &Record) -> Result<(), OciError> {
    let Some(init) = record.init() else { return Ok(()) };
    let hooks = record.hooks.as_ref().map(|hooks| Kind::StartContainer.of(hooks)).unwrap_or_default();
    let end = Instant::now() + PATIENCE;
    loop {
        // In this order: the name of a process that has ended stays until its parent has waited for it.
        let running = init.running();
        if !waits(init.pid()) {
            return Ok(());
        }
        if !running {
            let id = record.id.clone();
            let reason = "the container ended before its program ran".into();
            return Err(RuntimeError::Create { id, reason }.into());
        }
        if hooks.is_empty() && Instant::now() >= end {
            // A program that took our name; it runs.
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The same under a lock that is held already.
pub(crate) fn start_entry(entry: &Entry, id: &str) -> Result<(), OciError> {
    let mut record = entry.record()?;
    let status = record.status();
    if status != Status::Created {
        return Err(OciError::Status { id: id.to_owned(), action: "start", status: status.name() });
    }
    if record.process.args().as_ref().is_none_or(Vec::is_empty) {
        return Err(OciError::invalid(format!("container {id:?} has no process.args to start")));
    }
    record.enter(Phase::Starting)?;
    entry.save(&record)?;
    release(&inner(&entry.directory), id)
        .map_err(|reason| RuntimeError::Create { id: id.to_owned(), reason: format!("start: {reason}") })?;
    executed(&record)?;
    record.enter(Phase::Started)?;
    entry.save(&record)?;
    let hooks = record.hooks.as_ref().map(|hooks| Kind::Poststart.of(hooks)).unwrap_or_default();
    if hooks.is_empty() {
        return Ok(());
    }
    let state = hooks::state(&record, "running", record.pid());
    hooks::run(Kind::Poststart, &hooks, &state, Some(&record.bundle), &[]).inspect_err(|_| {
        // A container whose set-up was not completed must not go on.
        let killed = match &record.group {
            Some(group) => group.signal(libc::SIGKILL),
            None => crate::sys::kill_number(nix::unistd::Pid::from_raw(record.pid()), libc::SIGKILL)
                .map_err(|error| error.to_string()),
        };
        if let Err(reason) = killed {
            tracing::error!(reason, "cannot stop a container whose poststart hook failed");
        }
    })
}
