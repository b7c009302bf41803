//! What a trainer looks like from outside: a reading of `/proc` a second, and what in the readings is contagion.
//!
//! The trainer's own account can be made up by the code that it executes, and ends with it; these readings cannot,
//! and do not. They fall anywhere in a step, where an honest trainer opens and closes things. So a count is contagion
//! only where it stays above everything seen in the first steps.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

/// Between two readings.
const INTERVAL: Duration = Duration::from_secs(1);
/// Readings that make the height of a healthy trainer: at least these many, of the first steps.
const EARLY_READINGS: usize = 3;
/// Steps that are early, as in the account from inside.
const EARLY_STEPS: u64 = 5;
/// So many readings in a row are no passing height.
const STAYS: usize = 3;
/// Most readings kept of one trial: a day's.
const MOST: usize = 90_000;

/// One reading of one process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Reading {
    pub(super) at: SystemTime,
    /// Steps that had ended.
    pub(super) steps: u64,
    pub(super) vm_rss_bytes: u64,
    pub(super) open_fds: u64,
    pub(super) threads: u64,
    pub(super) children: u64,
}

/// A trace that was seen from outside.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Trace {
    pub(super) kind: &'static str,
    pub(super) at: SystemTime,
    /// The step that ran.
    pub(super) step: u64,
    pub(super) value: u64,
}

/// Reads a process once a second.
#[derive(Debug)]
pub(super) struct Sampler {
    next: Instant,
    readings: Vec<Reading>,
}

impl Sampler {
    pub(super) fn new() -> Self {
        Self { next: Instant::now(), readings: Vec::new() }
    }

    /// Reads, where it is time. Before training begins a trainer grows as it should, and nothing is read.
    pub(super) fn look(&mut self, process: Option<i32>, began: bool, steps: u64) {
        let Some(pid) =
            process.filter(|_| began && Instant::now() >= self.next && self.readings.len() < MOST)
        else {
            return;
        };
        self.next = Instant::now() + INTERVAL;
        // A process that is ending has no numbers any more.
        self.readings.extend(read(pid, steps));
    }

    pub(super) fn readings(&self) -> &[Reading] {
        &self.readings
    }
}

fn read(pid: i32, steps: u64) -> Option<Reading> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let entries = |name: &str| fs::read_dir(format!("/proc/{pid}/{name}")).map(|entries| entries.flatten());
    let children = entries("task").ok()?.map(|task| {
        let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        text.split_whitespace().count() as u64
    });
    Some(Reading {
        at: SystemTime::now(),
        steps,
        vm_rss_bytes: field("VmRSS:")? << 10,
        open_fds: entries("fd").ok()?.count() as u64,
        threads: field("Threads:")?,
        children: children.sum(),
    })
}

/// What in the readings is contagion: each kind at most once.
pub(super) fn traces(readings: &[Reading], spike: f64) -> Vec<Trace> {
    let early: Vec<&Reading> = readings.iter().take_while(|reading| reading.steps < EARLY_STEPS).collect();
    if early.len() < EARLY_READINGS {
        return Vec::new();
    }
    let later = readings.get(early.len()..).unwrap_or_default();
    let mut found = Vec::new();
    let mut resident: Vec<u64> = early.iter().map(|reading| reading.vm_rss_bytes).collect();
    resident.sort_unstable();
    let median = resident.get(resident.len() / 2).copied().unwrap_or_default();
    let trace =
        |kind, reading: &Reading, value| Trace { kind, at: reading.at, step: reading.steps + 1, value };
    // Memory is not opened and closed: one reading is enough.
    if let Some(seen) = later.iter().find(|seen| float(seen.vm_rss_bytes) > spike * float(median)) {
        found.push(trace("vm_rss_spike", seen, seen.vm_rss_bytes));
    }
    for (kind, value) in [
        ("open_fds", (|reading: &Reading| reading.open_fds) as fn(&Reading) -> u64),
        ("threads", |reading| reading.threads),
        ("children", |reading| reading.children),
    ] {
        let height = early.iter().map(|reading| value(reading)).max().unwrap_or_default();
        let stays = later.windows(STAYS).find(|window| window.iter().all(|reading| value(reading) > height));
        if let Some(first) = stays.and_then(|window| window.first()) {
            found.push(trace(kind, first, value(first)));
        }
    }
    found
}

#[expect(clippy::cast_precision_loss, reason = "bytes of memory")]
fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(count: u64) -> Vec<Reading> {
        let reading = |second: u64| Reading {
            at: SystemTime::UNIX_EPOCH + Duration::from_secs(second),
            steps: second,
            vm_rss_bytes: 100 << 20,
            open_fds: 10 + second % 2,
            threads: 2,
            children: 0,
        };
        (0..count).map(reading).collect()
    }

    #[test]
    fn a_healthy_trainer_opens_and_closes_and_is_not_contagion() {
        let mut readings = readings(30);
        readings[12].open_fds = 20;
        readings[20].children = 1;
        readings[21].children = 1;
        assert_eq!(traces(&readings, 1.5), []);
    }

    #[test]
    fn what_stays_is() {
        let mut readings = readings(30);
        readings.iter_mut().skip(8).for_each(|reading| reading.children = 1);
        readings[12].vm_rss_bytes = 151 << 20;
        let found = traces(&readings, 1.5);
        let kinds: Vec<_> = found.iter().map(|trace| (trace.kind, trace.step, trace.value)).collect();
        assert_eq!(kinds, [("vm_rss_spike", 13, 151 << 20), ("children", 9, 1)]);
        assert_eq!(found[1].at, SystemTime::UNIX_EPOCH + Duration::from_secs(8));
    }

    #[test]
    fn nothing_is_said_of_a_trial_without_a_healthy_beginning() {
        let mut readings = readings(30);
        readings.iter_mut().for_each(|reading| reading.steps += 3);
        readings[10].vm_rss_bytes = 900 << 20;
        assert_eq!(traces(&readings, 1.5), []);
    }

    #[test]
    fn this_process_can_be_read() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let reading = read(pid, 4).unwrap();
        assert!(reading.vm_rss_bytes > 1 << 20 && reading.open_fds > 2 && reading.threads > 0, "{reading:?}");
        let mut sampler = Sampler::new();
        sampler.look(Some(pid), false, 0);
        assert!(sampler.readings().is_empty(), "training did not begin");
        sampler.look(Some(pid), true, 0);
        sampler.look(Some(pid), true, 0);
        assert_eq!(sampler.readings().len(), 1, "once a second");
        assert_eq!(read(-1, 0), None);
    }
}
