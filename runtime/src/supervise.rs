//! Watches one running container until its end: output, deadline, the controller's word, the process itself.
//!
//! One `poll` loop in one thread. When the time is over is decided in `deadline.rs` and enforced by a kill from
//! outside, so nothing that the program does with signals, clocks or its process group moves it.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::WaitStatus;
use rlox_protocol::{Command, Ending, Limits, Load, WireError, receive};

use crate::capture::Capture;
use crate::cgroup::ContainerCgroup;
use crate::container::Created;
use crate::deadline::Limit;
use crate::error::RuntimeError;
use crate::meter::Meter;
use crate::oci::store::waits;
use crate::refused::Refusals;
use crate::sys;

/// How long a killed init may take to vanish before it counts as stuck.
const KILL_PATIENCE: Duration = Duration::from_secs(30);

/// What watching saw.
pub(crate) struct Watched {
    pub(crate) ending: Ending,
    pub(crate) wall: Duration,
    pub(crate) load: Load,
    /// CPU time that its cgroup had counted before the start.
    pub(crate) before: Duration,
    pub(crate) finished_early: bool,
    /// The process ended under the name that it has until it executes the program.
    pub(crate) unnamed: bool,
    /// The controller's socket reached its end: nobody waits for the answer.
    pub(crate) orphaned: bool,
}

/// The streams that are watched besides the process.
pub(crate) struct Watch<'a> {
    pub(crate) control: Option<BorrowedFd<'a>>,
    /// Becomes readable when the caller is asked to end.
    pub(crate) interrupt: Option<BorrowedFd<'a>>,
    pub(crate) stdout: &'a mut Capture,
    pub(crate) stderr: &'a mut Capture,
    /// Calls that the filter asks about.
    pub(crate) refusals: Option<&'a mut Refusals>,
    /// No limits: the command line's `run` without a deadline.
    pub(crate) limits: Option<&'a Limits>,
    /// Where its CPU time is counted.
    pub(crate) cgroup: Option<&'a ContainerCgroup>,
}

struct State<'a> {
    /// When to look at the time again.
    deadline: Option<Instant>,
    meter: Meter<'a>,
    killed_for: Option<Ending>,
    finished_early: bool,
    orphaned: bool,
}

impl State<'_> {
    fn kill(&mut self, created: &Created, cause: Ending) -> Result<(), RuntimeError> {
        if self.killed_for.is_none() {
            self.killed_for = Some(cause);
            self.deadline = Some(Instant::now() + KILL_PATIENCE);
            sys::pidfd_kill(created.pidfd.as_fd()).map_err(RuntimeError::system("killing the container"))?;
        }
        Ok(())
    }

    fn deadline_passed(&mut self, created: &Created) -> Result<(), RuntimeError> {
        if self.killed_for.is_some() {
            return Err(RuntimeError::System {
                action: format!("killing process {}", created.pid),
                source: std::io::Error::other("it is still there 30 seconds after SIGKILL"),
            });
        }
        if self.finished_early {
            return self.kill(created, Ending::Cancelled);
        }
        match self.meter.look().map_err(RuntimeError::system("metering the container"))? {
            Ok(next) => {
                self.deadline = next;
                Ok(())
            }
            Err(Limit::Wall) => self.kill(created, Ending::Deadline),
            Err(Limit::Cpu) => self.kill(created, Ending::CpuLimit),
        }
    }

    fn command(&mut self, created: &Created, control: BorrowedFd<'_>) -> Result<(), RuntimeError> {
        match receive::<Command>(control) {
            Ok((Command::Finish { grace_ms }, _)) => {
                self.finished_early = true;
                if self.killed_for.is_none() {
                    self.deadline = Some(Instant::now() + Duration::from_millis(grace_ms));
                }
                Ok(())
            }
            Ok((Command::Beside, descriptors)) => {
                descriptors.into_iter().take(1).for_each(|schedstat| self.meter.beside(schedstat));
                Ok(())
            }
            Ok((Command::Kill, _)) => self.kill(created, Ending::Cancelled),
            Ok((Command::Run(_) | Command::Prepare(_), _))
            | Err(WireError::Closed | WireError::Decode(_) | WireError::TooLarge { .. }) => {
                self.orphaned = true;
                self.kill(created, Ending::Cancelled)
            }
            Err(WireError::Io { .. } | WireError::Encode(_)) => {
                self.orphaned = true;
                self.kill(created, Ending::Cancelled)
            }
        }
    }
}

/// Watches a started container until its init is gone and reaped; kills it where watching fails.
pub(crate) fn watch(created: &Created, watch: &mut Watch<'_>) -> Result<Watched, RuntimeError> {
    follow(created, watch).inspect_err(|_| created.abandon())
}

fn follow(created: &Created, watch: &mut Watch<'_>) -> Result<Watched, RuntimeError> {
    let started = Instant::now();
    let meter = Meter::start(created.pid, watch.cgroup, watch.limits)
        .map_err(RuntimeError::system("metering the container"))?;
    let mut state =
        State { deadline: meter.first(), meter, killed_for: None, finished_early: false, orphaned: false };
    loop {
        let ready = wait(created, watch, &state)?;
        if ready.output {
            watch.stdout.drain();
            watch.stderr.drain();
            let total = watch.stdout.total() + watch.stderr.total();
            if watch.limits.is_some_and(|limits| total > limits.flood_bytes) {
                state.kill(created, Ending::OutputFlood)?;
            }
        }
        if ready.control
            && let Some(control) = watch.control
        {
            state.command(created, control)?;
        }
        if ready.interrupted {
            state.kill(created, Ending::Cancelled)?;
        }
        if ready.refused
            && let Some(refusals) = &mut watch.refusals
        {
            refusals.refuse_one();
        }
        if ready.unasked
            && let Some(refusals) = &mut watch.refusals
        {
            refusals.close();
        }
        if ready.ended {
            break;
        }
        if state.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            state.deadline_passed(created)?;
        }
    }
    let wall = started.elapsed();
    // Nobody can be asked once it is reaped.
    let unnamed = waits(created.pid.as_raw().unsigned_abs());
    let ending = ending(created.reap()?, state.killed_for);
    let (load, before) = (state.meter.load(), state.meter.before());
    let finished_early = state.finished_early;
    Ok(Watched { ending, wall, load, before, finished_early, unnamed, orphaned: state.orphaned })
}

struct Ready {
    ended: bool,
    interrupted: bool,
    control: bool,
    output: bool,
    /// A call waits to be refused; nobody is left who could make one.
    refused: bool,
    unasked: bool,
}

fn wait(created: &Created, watch: &Watch<'_>, state: &State<'_>) -> Result<Ready, RuntimeError> {
    let mut polled = vec![PollFd::new(created.pidfd.as_fd(), PollFlags::POLLIN)];
    let control = watch.control.filter(|_| !state.orphaned);
    polled.extend(control.map(|control| PollFd::new(control, PollFlags::POLLIN)));
    let interrupt = watch.interrupt.filter(|_| state.killed_for.is_none());
    polled.extend(interrupt.map(|interrupt| PollFd::new(interrupt, PollFlags::POLLIN)));
    let outputs = [watch.stdout.descriptor(), watch.stderr.descriptor()];
    polled.extend(outputs.into_iter().flatten().map(|output| PollFd::new(output, PollFlags::POLLIN)));
    let refusals = watch.refusals.as_ref().and_then(|refusals| refusals.descriptor());
    let refusals_at = polled.len();
    polled.extend(refusals.map(|refusals| PollFd::new(refusals, PollFlags::POLLIN)));
    match poll(&mut polled, timeout(state.deadline)) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(RuntimeError::System { action: "poll".into(), source: errno.into() }),
    }
    let fired = |index: usize| polled.get(index).is_some_and(|each| each.any().unwrap_or(false));
    let events =
        |index: usize| polled.get(index).and_then(|each| each.revents()).unwrap_or(PollFlags::empty());
    let interrupt_at = 1 + usize::from(control.is_some());
    let first_output = interrupt_at + usize::from(interrupt.is_some());
    Ok(Ready {
        ended: fired(0),
        interrupted: interrupt.is_some() && fired(interrupt_at),
        control: control.is_some() && fired(1),
        output: (first_output..refusals_at).any(fired),
        refused: events(refusals_at).contains(PollFlags::POLLIN),
        unasked: events(refusals_at).intersects(PollFlags::POLLHUP | PollFlags::POLLERR),
    })
}

/// Rounded up: waking a moment early would spin until the deadline.
fn timeout(deadline: Option<Instant>) -> PollTimeout {
    deadline.map_or(PollTimeout::NONE, |deadline| {
        let millis = deadline.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
        PollTimeout::try_from(i32::try_from(millis).unwrap_or(i32::MAX)).unwrap_or(PollTimeout::ZERO)
    })
}

fn ending(status: WaitStatus, killed_for: Option<Ending>) -> Ending {
    match status {
        WaitStatus::Exited(_, code) => Ending::Exited(code),
        WaitStatus::Signaled(_, signal, _) => match killed_for {
            Some(cause) if signal == nix::sys::signal::Signal::SIGKILL => cause,
            Some(_) | None => Ending::Signaled(signal as i32),
        },
        // waitpid without WUNTRACED reports ends only.
        WaitStatus::Stopped(..)
        | WaitStatus::PtraceEvent(..)
        | WaitStatus::PtraceSyscall(_)
        | WaitStatus::Continued(_)
        | WaitStatus::StillAlive => killed_for.unwrap_or(Ending::Signaled(libc::SIGKILL)),
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::Signal;
    use nix::unistd::Pid;

    use super::*;

    #[test]
    fn our_kill_is_told_apart_from_its_own_death() {
        let pid = Pid::from_raw(1);
        let killed = WaitStatus::Signaled(pid, Signal::SIGKILL, false);
        assert_eq!(ending(killed, Some(Ending::Deadline)), Ending::Deadline);
        assert_eq!(ending(killed, None), Ending::Signaled(9));
        let crashed = WaitStatus::Signaled(pid, Signal::SIGSEGV, false);
        assert_eq!(ending(crashed, Some(Ending::Deadline)), Ending::Signaled(11));
        assert_eq!(ending(WaitStatus::Exited(pid, 3), Some(Ending::Cancelled)), Ending::Exited(3));
    }
}
