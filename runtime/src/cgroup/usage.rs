//! What a running container used and waited so far, for its deadline.

use std::io;
use std::time::Duration;

use rlox_host::{CgroupHome, read_bounded};

use super::ContainerCgroup;

impl ContainerCgroup {
    /// Whether the host counts and limits for this container at all.
    pub(crate) fn is_real(&self) -> bool {
        !matches!(self.home, CgroupHome::None { .. })
    }

    /// CPU time of all processes that are or were in it.
    pub(crate) fn cpu(&self) -> io::Result<Duration> {
        if matches!(self.home, CgroupHome::V2 { .. }) {
            let text = read_bounded(&self.directory("").join("cpu.stat"))?;
            let usage = keyed(&text, "usage_usec").ok_or_else(|| missing("usage_usec in cpu.stat"))?;
            return Ok(Duration::from_micros(usage));
        }
        let text = read_bounded(&self.directory("cpuacct").join("cpuacct.usage"))?;
        let usage = text.trim().parse().map_err(|_| missing("a number in cpuacct.usage"))?;
        Ok(Duration::from_nanos(usage))
    }

    /// The threads in it, by our own numbers for them.
    pub(crate) fn tasks(&self) -> io::Result<Vec<i32>> {
        let file = match self.home {
            CgroupHome::V2 { .. } => self.directory("").join("cgroup.threads"),
            CgroupHome::V1 | CgroupHome::None { .. } => self.directory("cpuacct").join("tasks"),
        };
        Ok(read_bounded(&file)?.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Time in which some task was ready and none ran, less what the own quota held back; zero where the kernel does
    /// not count it, as on v1 and without PSI.
    pub(crate) fn stalled(&self) -> Duration {
        if !matches!(self.home, CgroupHome::V2 { .. }) {
            return Duration::ZERO;
        }
        let read = |file: &str| read_bounded(&self.directory("").join(file)).unwrap_or_default();
        let full = pressure(&read("cpu.pressure"), "full").unwrap_or_default();
        // Summed over CPUs, so rather too much: what remains is what others took.
        let throttled = keyed(&read("cpu.stat"), "throttled_usec").unwrap_or_default();
        full.saturating_sub(Duration::from_micros(throttled))
    }
}

fn missing(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("no {what}"))
}

fn keyed(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.split_once(' ').filter(|(name, _)| *name == key));
    line.and_then(|(_, value)| value.trim().parse().ok())
}

/// The total of one line of a pressure file.
pub(crate) fn pressure(text: &str, kind: &str) -> Option<Duration> {
    let line = text.lines().find(|line| line.split(' ').next() == Some(kind))?;
    let total = line.split(' ').find_map(|word| word.strip_prefix("total="))?;
    total.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_files_are_read_by_their_names() {
        let text = "some avg10=8.83 avg60=2.54 avg300=5.08 total=9753486849\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(pressure(text, "some"), Some(Duration::from_micros(9_753_486_849)));
        assert_eq!(pressure(text, "full"), Some(Duration::from_micros(7)));
        assert_eq!(pressure("", "full"), None);
        let stat = "usage_usec 12\nuser_usec 10\nnr_throttled 1\nthrottled_usec 5\n";
        assert_eq!((keyed(stat, "usage_usec"), keyed(stat, "usage")), (Some(12), None));
    }
}
