//! CPU time of a service with everything that it started, read from `/proc`.
//!
//! A process's own time and the time of its reaped descendants are both in `/proc/PID/stat`. Launchers reap their
//! containers and the grader reaps its forks before either reports, so that between two verifications the sum over
//! the living processes holds all that ended ones took. What the kernel does later on its own threads, as for a
//! network namespace that goes, is in no process and not counted; it comes with every container, judged or not.

use std::io;

use super::processes::{Processes, Stat, seconds};

/// CPU seconds since the start, by what took them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Cpu {
    /// The controller itself.
    pub(super) service: f64,
    /// Launchers of workers, and the snippets' containers.
    pub(super) sandbox: f64,
    /// The grader's container with its forks, and its launcher.
    pub(super) grader: f64,
}

impl Cpu {
    pub(super) fn total(self) -> f64 {
        self.service + self.sandbox + self.grader
    }

    /// What was used since an earlier reading, for each of so many runs.
    pub(super) fn since(self, earlier: Self, runs: u32) -> Self {
        let each = |now: f64, then: f64| (now - then) / f64::from(runs);
        Self {
            service: each(self.service, earlier.service),
            sandbox: each(self.sandbox, earlier.sandbox),
            grader: each(self.grader, earlier.grader),
        }
    }
}

/// Reads this process and its descendants now.
pub(super) fn read() -> io::Result<Cpu> {
    read_of(std::process::id())
}

/// Reads a controller and its descendants now.
pub(super) fn read_of(controller: u32) -> io::Result<Cpu> {
    let all = Processes::read()?;
    let service = seconds(all.get(controller).map(Stat::ticks).unwrap_or_default());
    let mut cpu = Cpu { service, ..Cpu::default() };
    for pid in all.children(controller) {
        let used = seconds(all.ticks(pid));
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if is_graders(&line) {
            cpu.grader += used;
        } else {
            cpu.sandbox += used;
        }
    }
    Ok(cpu)
}

/// Launcher number 0 is the grader's.
fn is_graders(command_line: &[u8]) -> bool {
    let words: Vec<_> = command_line.split(|byte| *byte == 0).collect();
    words.windows(2).any(|pair| pair == [&b"--slot"[..], b"0"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_graders_launcher_is_known_by_its_number() {
        assert!(is_graders(b"rlox-runtime\0launcher\0--slot\x000\0") && !is_graders(b"x\0--slot\x0010\0"));
    }

    #[test]
    fn time_of_this_process_is_found() {
        assert!(read().unwrap().total() >= 0.0);
    }
}
