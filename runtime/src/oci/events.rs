//! `events`: a container's counters as JSON lines, and a line for each memory kill.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;
use serde_json::json;

use super::Context;
use super::error::OciError;
use super::inspect::print;
use super::store::{Status, Store};
use crate::sys;

/// How often memory kills are looked for.
const LOOK: Duration = Duration::from_millis(500);

/// Prints once, or until the container ends.
pub(crate) fn events(context: &Context, id: &str, once: bool, interval: Duration) -> Result<(), OciError> {
    let record = Store::open(context.globals.root.as_deref()).record(id)?;
    let status = record.status();
    if !matches!(status, Status::Created | Status::Running | Status::Paused) {
        return Err(OciError::NotRunning { id: id.to_owned() });
    }
    let group = record.group.as_ref().ok_or_else(|| OciError::Cgroup {
        id: id.to_owned(),
        reason: "it has none, so nothing is counted".into(),
    })?;
    let stats = || print(&json!({"type": "stats", "id": id, "data": group.stats()}).to_string());
    if once {
        return stats();
    }
    let pidfd = sys::pidfd_open(Pid::from_raw(record.pid())).map_err(OciError::system("opening a pidfd"))?;
    let mut kills = group.oom_kills();
    let mut next = Instant::now() + interval;
    loop {
        let wait = next.saturating_duration_since(Instant::now()).min(LOOK).as_millis();
        let wait = PollTimeout::try_from(i32::try_from(wait).unwrap_or(500)).unwrap_or(PollTimeout::ZERO);
        let ended = poll(&mut [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)], wait).is_ok_and(|n| n > 0);
        let now = group.oom_kills();
        if now > kills {
            print(&json!({"type": "oom", "id": id}).to_string())?;
            kills = now;
        }
        if ended {
            return Ok(());
        }
        if Instant::now() >= next {
            stats()?;
            next += interval;
        }
    }
}

/// A duration such as `5s`, `500ms` or `1m30s`.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?}: a duration such as 5s, 500ms or 1m");
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|each: char| !each.is_ascii_digit()).unwrap_or(rest.len());
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        let unit_end = rest[digits..].find(|each: char| each.is_ascii_digit()).unwrap_or(rest.len() - digits);
        total += match &rest[digits..digits + unit_end] {
            "ms" => Duration::from_millis(number),
            "s" | "" => Duration::from_secs(number),
            "m" => Duration::from_secs(number * 60),
            "h" => Duration::from_secs(number * 3600),
            _ => return Err(wrong()),
        };
        rest = &rest[digits + unit_end..];
    }
    if total.is_zero() { Err(wrong()) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_callers_write_them() {
        assert_eq!(interval("5s").unwrap(), Duration::from_secs(5));
        assert_eq!(interval("1m30s").unwrap(), Duration::from_secs(90));
        assert_eq!(interval("250ms").unwrap(), Duration::from_millis(250));
        for bad in ["", "x", "5y", "0s"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }
}
