//! Readings of a running container for its [`Deadline`]: what it used, what it waited, how busy the host is.
//!
//! CPU time comes from the cgroup, which counts every process; without cgroups from the init process and its
//! children that ended. Waiting comes from each task's `schedstat`.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::unistd::{Pid, SysconfVar, sysconf};
use rlox_host::read_bounded;
use rlox_protocol::{Limits, Load};

use crate::cgroup::ContainerCgroup;
use crate::cgroup::usage::pressure;
use crate::deadline::{Deadline, Due, Limit, Reading, Task};

/// The time of one running container.
pub(crate) struct Meter<'a> {
    pid: Pid,
    cgroup: Option<&'a ContainerCgroup>,
    started: Instant,
    /// CPU time before the start: setting it up.
    before: Duration,
    /// Nothing where a clock is enough.
    deadline: Option<Deadline>,
    /// The end where a clock is enough.
    plain: Option<Instant>,
    beside: Option<Beside>,
    /// The host's pressure at the first look.
    host: Option<(Instant, Duration)>,
    host_share: f64,
}

/// A process for which the program waits.
struct Beside {
    schedstat: File,
    before: Duration,
    waited: Duration,
}

impl<'a> Meter<'a> {
    /// Begins now.
    pub(crate) fn start(
        pid: Pid,
        cgroup: Option<&'a ContainerCgroup>,
        limits: Option<&Limits>,
    ) -> io::Result<Self> {
        let started = Instant::now();
        let mut meter = Self {
            pid,
            cgroup: cgroup.filter(|cgroup| cgroup.is_real()),
            started,
            before: Duration::ZERO,
            deadline: None,
            plain: None,
            beside: None,
            host: None,
            host_share: 0.0,
        };
        let Some(limits) = limits else { return Ok(meter) };
        if Deadline::is_plain(limits) {
            meter.plain = started.checked_add(Duration::from_millis(limits.wall_ms));
            return Ok(meter);
        }
        // Before its start a container is its first process.
        let start = meter.reading(&[pid.as_raw()])?;
        meter.before = start.cpu;
        let start = Reading { at: Duration::ZERO, cpu: Duration::ZERO, ..start };
        meter.deadline = Some(Deadline::new(limits, meter.cpus(limits), start));
        Ok(meter)
    }

    /// When to look first.
    pub(crate) fn first(&self) -> Option<Instant> {
        self.deadline.as_ref().map_or(self.plain, |deadline| self.started.checked_add(deadline.first()))
    }

    /// Looks at the container: the time of the next look, or the limit that it reached.
    pub(crate) fn look(&mut self) -> io::Result<Result<Option<Instant>, Limit>> {
        if self.deadline.is_none() {
            return Ok(Err(Limit::Wall));
        }
        let numbers = match self.cgroup {
            Some(cgroup) => cgroup.tasks()?,
            None => threads(self.pid),
        };
        let reading = self.reading(&numbers)?;
        self.look_at_host();
        let due = self.deadline.as_mut().map_or(Due::Over(Limit::Wall), |deadline| deadline.read(reading));
        Ok(match due {
            Due::At(next) => Ok(self.started.checked_add(next)),
            Due::Over(limit) => Err(limit),
        })
    }

    /// Counts what this process waits from now on as no time of the program.
    pub(crate) fn beside(&mut self, schedstat: OwnedFd) {
        let schedstat = File::from(schedstat);
        let before = waited(&schedstat).unwrap_or_default();
        self.beside = Some(Beside { schedstat, before, waited: Duration::ZERO });
    }

    /// CPU time before the start.
    pub(crate) fn before(&self) -> Duration {
        self.before
    }

    /// What the load of the machine took.
    pub(crate) fn load(&self) -> Load {
        let lost = self.deadline.as_ref().map(Deadline::lost).unwrap_or_default();
        Load { cpu_wait_secs: lost.as_secs_f64(), host_share: self.host_share }
    }

    fn reading(&mut self, tasks: &[i32]) -> io::Result<Reading> {
        let at = self.started.elapsed();
        let cpu = self.cpu()?.saturating_sub(self.before);
        if let Some(beside) = &mut self.beside {
            // Once it has ended there is nothing to read, and what it waited stays.
            let now = waited(&beside.schedstat).unwrap_or_default().saturating_sub(beside.before);
            beside.waited = beside.waited.max(now);
        }
        Ok(Reading {
            at,
            cpu,
            tasks: tasks.iter().filter_map(task).collect(),
            stalled: self.cgroup.map(ContainerCgroup::stalled).unwrap_or_default(),
            beside: self.beside.as_ref().map(|beside| beside.waited).unwrap_or_default(),
        })
    }

    fn cpu(&self) -> io::Result<Duration> {
        match self.cgroup {
            Some(cgroup) => cgroup.cpu(),
            None => {
                let stat = read_bounded(Path::new(&format!("/proc/{}/stat", self.pid)))?;
                let ticks = ticks(&stat).ok_or_else(|| io::Error::other("cannot read /proc/PID/stat"))?;
                let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten();
                let per_second = per_second.and_then(|ticks| u32::try_from(ticks).ok()).unwrap_or(100).max(1);
                Ok(Duration::from_secs(ticks) / per_second)
            }
        }
    }

    fn cpus(&self, limits: &Limits) -> f64 {
        if self.cgroup.is_some() && limits.cpu_millis > 0 {
            return Duration::from_millis(limits.cpu_millis).as_secs_f64();
        }
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        f64::from(u16::try_from(all).unwrap_or(u16::MAX))
    }

    fn look_at_host(&mut self) {
        let text = read_bounded(Path::new("/proc/pressure/cpu")).unwrap_or_default();
        let Some(total) = pressure(&text, "some") else { return };
        let now = Instant::now();
        let (begun, before) = *self.host.get_or_insert((now, total));
        let passed = now.duration_since(begun).as_secs_f64();
        if passed > 0.0 {
            self.host_share = (total.saturating_sub(before).as_secs_f64() / passed).min(1.0);
        }
    }
}

/// One task by its number; one that has ended meanwhile is none any more.
fn task(number: &i32) -> Option<(i32, Task)> {
    let text = read_bounded(Path::new(&format!("/proc/{number}/schedstat"))).ok()?;
    Some((*number, schedstat(&text)?))
}

fn threads(pid: Pid) -> Vec<i32> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Nanoseconds on a CPU, nanoseconds ready for one.
fn schedstat(text: &str) -> Option<Task> {
    let mut words = text.split_whitespace().map(|word| word.parse().map(Duration::from_nanos));
    Some(Task { ran: words.next()?.ok()?, waited: words.next()?.ok()? })
}

fn waited(file: &File) -> Option<Duration> {
    let mut buffer = [0u8; 128];
    let count = file.read_at(&mut buffer, 0).ok()?;
    schedstat(std::str::from_utf8(buffer.get(..count)?).ok()?).map(|task| task.waited)
}

/// User and system time of a process and of its children that were waited for.
fn ticks(stat: &str) -> Option<u64> {
    // The name in parentheses may hold anything, so the fields are counted from its end.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split_whitespace().collect();
    fields.get(11..15)?.iter().map(|word| word.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limits on time alone.
    fn times(cpu_ms: u64, wall_ms: u64, wall_most_ms: u64) -> Limits {
        Limits {
            cpu_ms,
            wall_ms,
            wall_most_ms,
            memory_bytes: 0,
            pids: 0,
            cpu_millis: 0,
            output_bytes: 0,
            flood_bytes: 0,
            file_bytes: 0,
            open_files: 0,
        }
    }

    #[test]
    fn fields_are_found_behind_any_name() {
        let stat = "7 (a) R 1 (x) S 1 7 7 0 -1 4194304 104 0 0 0 11 5 3 2 20 0 1 0 2428947 3133440";
        assert_eq!(ticks(stat), Some(21));
        assert_eq!(ticks("7 (a"), None);
        let task = Task { ran: Duration::from_nanos(982_342), waited: Duration::from_nanos(6_810_702) };
        assert_eq!(schedstat("982342 6810702 2\n"), Some(task));
        assert_eq!(schedstat("982342"), None);
    }

    #[test]
    fn this_process_without_cgroups_is_metered_against_its_limits() {
        let limits = times(3_600_000, 3_600_000, 7_200_000);
        let pid = Pid::this();
        let mut meter = Meter::start(pid, None, Some(&limits)).unwrap();
        let schedstat = File::open(format!("/proc/{pid}/schedstat")).unwrap();
        assert!(waited(&schedstat).is_some());
        meter.beside(schedstat.into());
        assert!(matches!(meter.look(), Ok(Ok(Some(next))) if next > Instant::now()));
        // A process that is gone cannot be metered.
        assert!(Meter::start(Pid::from_raw(i32::MAX), None, Some(&limits)).is_err());
    }

    #[test]
    fn a_plain_deadline_reads_nothing() {
        let limits = times(u64::MAX, 1, 1);
        let mut meter = Meter::start(Pid::from_raw(i32::MAX), None, Some(&limits)).unwrap();
        assert!(meter.first().is_some());
        assert!(matches!(meter.look(), Ok(Err(Limit::Wall))));
        assert!(Meter::start(Pid::from_raw(i32::MAX), None, None).unwrap().first().is_none());
    }
}
