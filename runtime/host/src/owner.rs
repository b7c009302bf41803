//! Names that tell whether what they name was left by a dead process.
//!
//! Every cgroup and run directory carries its owner's process id and start time. A later run can then remove
//! what a killed one left, and never what a living one uses, also after the process id was used again.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::files::read_bounded;

/// A process, told apart from a later one with the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pid: u32,
    start_ticks: u64,
}

impl Owner {
    /// This process.
    pub fn current() -> std::io::Result<Self> {
        let pid = std::process::id();
        let start_ticks = start_ticks(pid).ok_or_else(|| {
            std::io::Error::other("cannot read this process's start time from /proc/self/stat")
        })?;
        Ok(Self { pid, start_ticks })
    }

    /// The process that has this id now.
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, start_ticks: start_ticks(pid)? })
    }

    /// Its id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the process still exists; one that ended and was not yet waited for does.
    pub fn alive(&self) -> bool {
        start_ticks(self.pid) == Some(self.start_ticks)
    }

    /// Whether the process has not ended.
    pub fn running(&self) -> bool {
        self.alive() && !matches!(state(self.pid), Some('Z' | 'X') | None)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.pid, self.start_ticks)
    }
}

/// The text is no owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not of the form PID.START")]
pub struct NotAnOwner;

impl FromStr for Owner {
    type Err = NotAnOwner;

    fn from_str(text: &str) -> Result<Self, NotAnOwner> {
        let (pid, start) = text.split_once('.').ok_or(NotAnOwner)?;
        Ok(Self {
            pid: pid.parse().map_err(|_| NotAnOwner)?,
            start_ticks: start.parse().map_err(|_| NotAnOwner)?,
        })
    }
}

fn state(pid: u32) -> Option<char> {
    let stat = read_bounded(Path::new(&format!("/proc/{pid}/stat"))).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Field 22 of `/proc/PID/stat`; the command name before it may hold spaces and parentheses.
fn start_ticks(pid: u32) -> Option<u64> {
    let stat = read_bounded(Path::new(&format!("/proc/{pid}/stat"))).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_an_earlier_bearer_of_its_id_is_not() {
        let owner = Owner::current().unwrap();
        assert!(owner.alive());
        assert_eq!(owner.to_string().parse::<Owner>().unwrap(), owner);
        assert!(!Owner { start_ticks: owner.start_ticks + 1, ..owner }.alive());
        assert!("12".parse::<Owner>().is_err());
    }
}
