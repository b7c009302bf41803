//! `kill`, `pause` and `resume`.

use nix::unistd::Pid;

use super::Context;
use super::args::KillArgs;
use super::error::OciError;
use super::store::{Record, Status, Store};
use crate::sys;

/// Sends a signal to the first process or to all.
pub(crate) fn kill(context: &Context, args: &KillArgs) -> Result<(), OciError> {
    let signal = number(&args.signal)?;
    let record = Store::open(context.globals.root.as_deref()).record(&args.id)?;
    let status = record.status();
    if args.all {
        // Also after the end of the first process, whose children may live on in the same pid namespace.
        let Some(group) = record.group.as_ref().filter(|group| group.exists()) else {
            return Err(OciError::NotRunning { id: args.id.clone() });
        };
        if status == Status::Stopped && group.members().is_empty() {
            return Err(OciError::NotRunning { id: args.id.clone() });
        }
        return group.signal(signal).map_err(|reason| OciError::Cgroup { id: args.id.clone(), reason });
    }
    match status {
        Status::Created | Status::Running | Status::Paused => {}
        Status::Creating => {
            return Err(OciError::Status { id: args.id.clone(), action: "kill", status: "creating" });
        }
        Status::Stopped => return Err(OciError::NotRunning { id: args.id.clone() }),
    }
    sys::kill_number(Pid::from_raw(record.pid()), signal).map_err(OciError::system("kill"))?;
    let without_pid_namespace = !record.namespaces.iter().any(|name| name == "pid");
    if let Some(group) = record.group.as_ref().filter(|group| group.exists()) {
        if without_pid_namespace && signal == libc::SIGKILL {
            // Nobody else ends what the first process left behind.
            group.signal(signal).map_err(|reason| OciError::Cgroup { id: args.id.clone(), reason })?;
        }
        if status == Status::Paused && signal == libc::SIGKILL && !group.is_v2() {
            // On v1 a frozen process does not die.
            group.freeze(false).map_err(|reason| OciError::Cgroup { id: args.id.clone(), reason })?;
        }
    }
    Ok(())
}

/// A signal by number, by name, or by name without SIG.
fn number(text: &str) -> Result<i32, OciError> {
    if let Ok(number) = text.parse::<i32>() {
        if (0..=64).contains(&number) {
            return Ok(number);
        }
        return Err(OciError::invalid(format!("signal {text}: no such number")));
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let realtime = |prefix: &str, base: i32, sign: i32| {
        let offset = name.strip_prefix(prefix)?;
        let offset: i32 = match offset.strip_prefix(['+', '-']) {
            Some(digits) => digits.parse().ok()?,
            None if offset.is_empty() => 0,
            None => return None,
        };
        Some(base + sign * offset).filter(|number| (34..=64).contains(number))
    };
    let named = format!("SIG{name}").parse::<nix::sys::signal::Signal>().ok().map(|signal| signal as i32);
    named
        .or_else(|| realtime("RTMIN", 34, 1))
        .or_else(|| realtime("RTMAX", 64, -1))
        .ok_or_else(|| OciError::invalid(format!("signal {text:?}: no such name")))
}

/// Stops all processes of a container.
pub(crate) fn pause(context: &Context, id: &str) -> Result<(), OciError> {
    freeze(context, id, "pause", true)
}

/// Continues a paused container.
pub(crate) fn resume(context: &Context, id: &str) -> Result<(), OciError> {
    freeze(context, id, "resume", false)
}

fn freeze(context: &Context, id: &str, action: &'static str, freeze: bool) -> Result<(), OciError> {
    let entry = Store::open(context.globals.root.as_deref()).entry(id)?;
    let record: Record = entry.record()?;
    let status = record.status();
    let admitted = match (status, freeze) {
        (Status::Running | Status::Created, true) | (Status::Paused, false) => true,
        (Status::Creating | Status::Stopped, _) | (Status::Paused, true) | (_, false) => false,
    };
    if !admitted {
        return Err(OciError::Status { id: id.to_owned(), action, status: status.name() });
    }
    let fail = |reason: String| OciError::Cgroup { id: id.to_owned(), reason };
    let group = record.group.as_ref().ok_or_else(|| fail("it has none, so it cannot be frozen".into()))?;
    group.freeze(freeze).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_numbers_and_names() {
        for (text, wanted) in
            [("9", 9), ("KILL", 9), ("SIGKILL", 9), ("sigterm", 15), ("RTMIN+3", 37), ("0", 0)]
        {
            assert_eq!(number(text).unwrap(), wanted, "{text}");
        }
        for bad in ["", "65", "-1", "SIGNONE", "RTMIN+90", "RTMIN\u{e9}", "RTMIN3"] {
            assert!(number(bad).is_err(), "{bad}");
        }
    }
}
