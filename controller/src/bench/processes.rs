//! Processes as `/proc` lists them: who started whom, and how long each ran.

use std::collections::BTreeMap;
use std::io;

use nix::unistd::{SysconfVar, sysconf};

/// What `/proc/PID/stat` says of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) parent: u32,
    /// Ticks in user and kernel mode.
    pub(super) own: u64,
    /// The same of descendants that were waited for.
    pub(super) reaped: u64,
}

impl Stat {
    pub(super) fn ticks(self) -> u64 {
        self.own + self.reaped
    }
}

/// All processes of this host at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Processes(pub(super) BTreeMap<u32, Stat>);

impl Processes {
    pub(super) fn read() -> io::Result<Self> {
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
        Ok(Self(all))
    }

    pub(super) fn get(&self, pid: u32) -> Option<Stat> {
        self.0.get(&pid).copied()
    }

    pub(super) fn children(&self, parent: u32) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().filter(move |(_, stat)| stat.parent == parent).map(|(pid, _)| *pid)
    }

    /// A process with all its descendants, itself first.
    pub(super) fn tree(&self, root: u32) -> Vec<u32> {
        let mut found: Vec<u32> = self.get(root).map(|_| root).into_iter().collect();
        let mut next = 0;
        while let Some(pid) = found.get(next).copied() {
            found.extend(self.children(pid));
            next += 1;
        }
        found
    }

    /// Ticks of a process, its descendants, and those that any of them waited for.
    pub(super) fn ticks(&self, root: u32) -> u64 {
        self.tree(root).into_iter().filter_map(|pid| self.get(pid)).map(Stat::ticks).sum()
    }
}

/// Ticks as seconds.
#[expect(clippy::cast_precision_loss, reason = "ticks of a short measurement")]
pub(super) fn seconds(ticks: u64) -> f64 {
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|ticks| u32::try_from(ticks).ok());
    ticks as f64 / f64::from(per_second.unwrap_or(100))
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
        let all = Processes(all);
        assert_eq!((all.ticks(1), all.ticks(2), all.ticks(5)), (114, 112, 0));
        assert_eq!(all.tree(1), [1, 2, 3]);
    }
}
