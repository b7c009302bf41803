//! When a program's time is over. Pure: fed with readings, no clock and no files of its own.
//!
//! Two limits. **CPU time** of all processes of the container together: load of the machine does not move it.
//! **Wall clock**, for programs that sleep: it stands still while the program could have run and did not, because
//! others had the CPUs, up to a bound that holds whatever the load is.
//!
//! What counts as such a wait must not be in the program's own hand:
//!
//! * A sleeping task waits for nothing. Only the kernel's count of time on a run queue is taken.
//! * A task that waits while a sibling runs has not lost anything: the container had its CPU. Of each task's wait the
//!   CPU time of all the others is taken off, and of the rest the largest counts, not the sum. Sixty busy processes
//!   wait for each other nearly all the time, and what they wait is what the others run.
//! * The container's own quota makes it wait as well, but only once it has used that quota; so no more is counted than
//!   the time in which it did not run, at the rate that the quota allows.
//! * Of a process beside it for which the program waits, the trusted grader, only what fits into that same rest.
//!
//! All of these err to the program's disadvantage where tasks live shorter than the distance between two readings;
//! a second try, which the controller gives, is the remedy for that.
//!
//! On a busy machine a program that runs in many small pieces really waits that often; the bound ends it as well.
//!
//! Readings are rare: none before the first moment in which a limit can be reached or an eighth of the time has
//! passed. A program that ends in its first eighth is looked at once, at its start.

use std::collections::HashMap;
use std::time::Duration;

use rlox_protocol::Limits;

/// Parts of the undisturbed time after which tasks are looked at: who lives shorter may be missed.
const LOOKS: u32 = 8;
/// Of a program that computes all the time, both limits end at the same moment. Which one is seen first depends on
/// what the readings miss; within this part of the limit it had its CPU time.
const NEARLY: u32 = 20;
/// Two looks are at least this far apart, which is how late a limit may be noticed.
const NEAREST: Duration = Duration::from_millis(10);

/// What one look at a container found. Times are counted from its start, except those of tasks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reading {
    /// Wall clock.
    pub(crate) at: Duration,
    /// CPU time of all its processes, ended ones included.
    pub(crate) cpu: Duration,
    /// The living tasks, by their numbers.
    pub(crate) tasks: HashMap<i32, Task>,
    /// Time in which some task was ready and none ran, where the kernel counts that for a cgroup.
    pub(crate) stalled: Duration,
    /// What the process beside it waited for a CPU.
    pub(crate) beside: Duration,
}

/// What the kernel counts of one task since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) ran: Duration,
    pub(crate) waited: Duration,
}

/// Which limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    Cpu,
    Wall,
}

/// What follows from a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Look again at this time from the start.
    At(Duration),
    /// Its time is over.
    Over(Limit),
}

/// The time of one program.
#[derive(Debug)]
pub(crate) struct Deadline {
    cpu: Duration,
    wall: Duration,
    most: Duration,
    /// CPUs that it may use at once.
    cpus: f64,
    last: Reading,
    lost: Duration,
}

impl Deadline {
    /// Starts with what was there already when the program was started.
    pub(crate) fn new(limits: &Limits, cpus: f64, start: Reading) -> Self {
        let wall = Duration::from_millis(limits.wall_ms);
        Self {
            cpu: Duration::from_millis(limits.cpu_ms),
            wall,
            most: Duration::from_millis(limits.wall_most_ms).max(wall),
            cpus,
            last: start,
            lost: Duration::ZERO,
        }
    }

    /// Whether two clocks are enough: no reading of the container could change anything.
    pub(crate) fn is_plain(limits: &Limits) -> bool {
        limits.cpu_ms == u64::MAX && limits.wall_most_ms <= limits.wall_ms
    }

    /// When to look first.
    pub(crate) fn first(&self) -> Duration {
        self.next(Duration::ZERO, Duration::ZERO)
    }

    /// What it lost to others so far.
    pub(crate) fn lost(&self) -> Duration {
        self.lost
    }

    /// Takes a reading into account.
    pub(crate) fn read(&mut self, reading: Reading) -> Due {
        self.lost += lost_between(&self.last, &reading, self.cpus);
        let (at, cpu) = (reading.at, reading.cpu);
        self.last = reading;
        if cpu >= self.cpu {
            return Due::Over(Limit::Cpu);
        }
        if at >= self.wall_end() {
            let nearly = cpu.saturating_add(self.cpu / NEARLY) >= self.cpu;
            return Due::Over(if nearly { Limit::Cpu } else { Limit::Wall });
        }
        Due::At(self.next(at, cpu))
    }

    fn wall_end(&self) -> Duration {
        self.wall.saturating_add(self.lost).min(self.most)
    }

    fn next(&self, at: Duration, cpu: Duration) -> Duration {
        let left = self.cpu.saturating_sub(cpu);
        let soonest = Duration::try_from_secs_f64(left.as_secs_f64() / self.cpus).unwrap_or(Duration::MAX);
        let look = self.wall / LOOKS;
        let wait = soonest.min(look).min(self.wall_end().saturating_sub(at));
        at.saturating_add(wait.max(NEAREST))
    }
}

/// Time between two readings in which the container could have run and others had the CPUs; never more than that.
fn lost_between(before: &Reading, after: &Reading, cpus: f64) -> Duration {
    let passed = after.at.saturating_sub(before.at);
    let cpu = after.cpu.saturating_sub(before.cpu);
    let idle = passed.saturating_sub(cpu.div_f64(cpus));
    let by_task = after.tasks.iter().map(|(number, task)| {
        let known = before.tasks.get(number).copied().unwrap_or_default();
        let others = cpu.saturating_sub(task.ran.saturating_sub(known.ran));
        task.waited.saturating_sub(known.waited).saturating_sub(others)
    });
    let stalled = after.stalled.saturating_sub(before.stalled);
    let own = by_task.max().unwrap_or_default().max(stalled).min(idle);
    let beside = after.beside.saturating_sub(before.beside).min(idle.saturating_sub(own));
    own + beside
}

#[cfg(test)]
mod tests;
