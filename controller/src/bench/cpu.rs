//! CPU time of the service with everything that it started, read from `/proc`.
//!
//! A process's own time and the time of its reaped descendants are both in `/proc/PID/stat`. Launchers reap their
//! containers and the grader reaps its forks before either reports, so that between two verifications the sum over
//! the living processes holds all that ended ones took. What the kernel does later on its own threads, as for a
//! network namespace that goes, is in no process and not counted; it comes with every container, judged or not.

use std::collections::BTreeMap;
use std::io;

use nix::unistd::{SysconfVar, sysconf};

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

/// One line of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    parent: u32,
    /// Ticks in user and kernel mode.
    own: u64,
    /// The same of descendants that were waited for.
    reaped: u64,
}

/// Reads this process and its descendants now.
pub(super) fn read() -> io::Result<Cpu> {
    let ticks = sysconf(SysconfVar::CLK_TCK)?.and_then(|ticks| u32::try_from(ticks).ok()).unwrap_or(100);
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process that ends meanwhile is counted by the one that reaps it, at the next reading.
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok().and_then(|line| parse(&line));
        if let Some(stat) = stat {
            all.insert(pid, stat);
        }
    }
    let me = std::process::id();
    let seconds = |ticks_used: u64| seconds(ticks_used, ticks);
    let service = seconds(all.get(&me).map(|stat| stat.own + stat.reaped).unwrap_or_default());
    let mut cpu = Cpu { service, ..Cpu::default() };
    for (pid, _) in all.iter().filter(|(_, stat)| stat.parent == me) {
        let used = seconds(tree(&all, *pid));
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

fn tree(all: &BTreeMap<u32, Stat>, root: u32) -> u64 {
    let own = all.get(&root).map(|stat| stat.own + stat.reaped).unwrap_or_default();
    let children = all.iter().filter(|(_, stat)| stat.parent == root);
    own + children.map(|(pid, _)| tree(all, *pid)).sum::<u64>()
}

#[expect(clippy::cast_precision_loss, reason = "ticks of a short measurement")]
fn seconds(used: u64, per_second: u32) -> f64 {
    used as f64 / f64::from(per_second)
}

/// The command's name, in parentheses, may itself hold spaces and parentheses.
fn parse(line: &str) -> Option<Stat> {
    let (_, rest) = line.rsplit_once(')')?;
    let fields: Vec<_> = rest.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        own: number(11)? + number(12)?,
        reaped: number(13)? + number(14)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_past_an_odd_name() {
        let line = "7 (a) b) S 3 7 7 0 -1 4194560 1 2 0 0 10 20 30 40 20 0 1 0 100 0 0";
        assert_eq!(parse(line), Some(Stat { parent: 3, own: 30, reaped: 70 }));
        assert_eq!(parse("7 (a"), None);
    }

    #[test]
    fn a_tree_holds_children_of_children_and_no_strangers() {
        let stat = |parent, own| Stat { parent, own, reaped: 1 };
        let all = BTreeMap::from([(1, stat(0, 1)), (2, stat(1, 10)), (3, stat(2, 100)), (4, stat(9, 1000))]);
        assert_eq!((tree(&all, 1), tree(&all, 2)), (114, 112));
        assert!(is_graders(b"rlox-runtime\0launcher\0--slot\x000\0") && !is_graders(b"x\0--slot\x0010\0"));
    }

    #[test]
    fn time_of_this_process_is_found() {
        assert!(read().unwrap().total() >= 0.0);
    }
}
