//! This program as a meter: starts programs, waits for them and for whatever they leave behind, and says how long
//! that took and what it cost.
//!
//! It adopts orphans (`PR_SET_CHILD_SUBREAPER`): conmon and other daemons of engines become its children, and their
//! time is counted with that of all children that were waited for. That needs no cgroup and no privilege, is exact to
//! the microsecond, and does not see what other users of the machine do.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MemFdCreateFlag, memfd_create};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::time::TimeValLike;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

use super::meter::{Batch, Measured, UNIQUE};
use crate::bench::processes::{Processes, seconds};

/// No call of these programs takes nearly as long.
const LIMIT: Duration = Duration::from_secs(60);
/// The same once nobody waits for the result any more.
const ABANDONED: Duration = Duration::from_secs(10);
/// How long orphans may take to end before they count as staying.
const ORPHANS: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(50);

/// A call that runs.
struct Call {
    begun: Instant,
    id: String,
    output: File,
    errors: File,
}

/// What the watching thread knows.
#[derive(Default)]
struct Watched {
    running: Mutex<BTreeMap<i32, Instant>>,
    abandoned: AtomicBool,
}

/// What is kept from one batch to the next.
#[derive(Default)]
struct Spawner {
    watched: Arc<Watched>,
    /// Calls so far.
    number: u64,
    /// Orphans that did not end: what an engine keeps for its next container.
    staying: BTreeSet<u32>,
}

/// Answers batches until standard input ends.
pub(crate) fn serve() -> io::Result<()> {
    nix::sys::prctl::set_child_subreaper(true)?;
    let mut spawner = Spawner::default();
    let watching = Arc::clone(&spawner.watched);
    std::thread::spawn(move || watching.watch());
    for line in io::stdin().lines() {
        let batch: Batch = serde_json::from_str(&line?).map_err(io::Error::other)?;
        let measured = spawner.measure(&batch)?;
        let mut answer = serde_json::to_vec(&measured).map_err(io::Error::other)?;
        answer.push(b'\n');
        io::stdout().write_all(&answer)?;
        io::stdout().flush()?;
    }
    spawner.end_those_that_stay()
}

impl Spawner {
    fn measure(&mut self, batch: &Batch) -> io::Result<Measured> {
        let (before, stayed, begun) = (used()?, staying()?, Instant::now());
        let end = begun + Duration::from_secs_f64(batch.secs);
        let mut measured = Measured::default();
        let mut calls: BTreeMap<i32, Call> = BTreeMap::new();
        let mut started = 0;
        loop {
            let wanted = || if batch.count > 0 { started < batch.count } else { Instant::now() < end };
            if calls.len() < usize::try_from(batch.clients).unwrap_or(1)
                && wanted()
                && !self.watched.abandoned.load(Ordering::Relaxed)
            {
                self.number += 1;
                started += 1;
                match start(batch, &self.watched, self.number) {
                    Ok((pid, call)) => drop(calls.insert(pid, call)),
                    Err(error) => {
                        measured.fail(&error.to_string());
                        // A program that cannot be started cannot be started the next time either.
                        break;
                    }
                }
                continue;
            }
            if calls.is_empty() {
                break;
            }
            let (pid, status) = self.watched.next_ended()?;
            let Some(call) = calls.remove(&pid) else { continue };
            let wall = call.begun.elapsed().as_secs_f64();
            measured.elapsed = begun.elapsed().as_secs_f64();
            match call.complaint(status, &batch.expect) {
                None => measured.walls.push(wall),
                Some(why) => {
                    measured.fail(&why);
                    clean_up(batch, &call.id);
                }
            }
        }
        self.reap_orphans()?;
        measured.cpu = used()? - before + staying()? - stayed;
        Ok(measured)
    }

    /// Waits for all that became this process's child, at most for a while.
    fn reap_orphans(&mut self) -> io::Result<()> {
        let end = Instant::now() + ORPHANS;
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Err(Errno::ECHILD) => return Ok(()),
                Ok(WaitStatus::StillAlive) => {
                    let all = Processes::read()?;
                    let new: Vec<_> =
                        all.children(std::process::id()).filter(|pid| !self.staying.contains(pid)).collect();
                    if new.is_empty() {
                        return Ok(());
                    }
                    if Instant::now() >= end {
                        self.staying.extend(new);
                        return Ok(());
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Ends what engines keep running for the next container: it was started for this measurement only.
    fn end_those_that_stay(&mut self) -> io::Result<()> {
        let me = std::process::id();
        for pid in Processes::read()?.tree(me).into_iter().filter(|pid| *pid != me) {
            if let Ok(pid) = i32::try_from(pid) {
                kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap_or_default();
            }
        }
        self.staying.clear();
        self.reap_orphans()
    }
}

fn start(batch: &Batch, watched: &Watched, number: u64) -> io::Result<(i32, Call)> {
    let id = format!("rlox-speed-{}-{number}", std::process::id());
    let mut command = command(&batch.argv, &id)?;
    // Files, not pipes: what outlives a command may keep a pipe open.
    let file = |name| memfd_create(name, MemFdCreateFlag::MFD_CLOEXEC).map(File::from);
    let (output, errors) = (file(c"output")?, file(c"errors")?);
    command.stdout(output.try_clone()?).stderr(errors.try_clone()?);
    let begun = Instant::now();
    // The lock is held, so that the watching thread never sees a process that was not entered yet.
    let mut running = watched.running.lock().unwrap_or_else(PoisonError::into_inner);
    let child = command.spawn()?;
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    running.insert(pid, begun);
    Ok((pid, Call { begun, id, output, errors }))
}

fn command(argv: &[String], id: &str) -> io::Result<Command> {
    let mut words = argv.iter().map(|word| word.replace(UNIQUE, id));
    let mut command = Command::new(words.next().ok_or(io::ErrorKind::InvalidInput)?);
    command.args(words).stdin(Stdio::null()).process_group(0);
    Ok(command)
}

fn clean_up(batch: &Batch, id: &str) {
    if let Ok(mut command) = command(&batch.cleanup, id) {
        // Where nothing is left of the call, this fails, and that is well.
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().map(drop).unwrap_or_default();
    }
}

impl Call {
    fn complaint(&self, status: WaitStatus, expect: &str) -> Option<String> {
        let text = |file: &File| {
            let (mut file, mut bytes) = (file, Vec::new());
            file.rewind().and_then(|()| file.take(65_536).read_to_end(&mut bytes)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let good = matches!(status, WaitStatus::Exited(_, 0)) && text(&self.output) == expect;
        let ended = match status {
            WaitStatus::Exited(_, code) => format!("code {code}"),
            WaitStatus::Signaled(_, signal, _) => format!("signal {signal}"),
            other @ (WaitStatus::Stopped(..)
            | WaitStatus::PtraceEvent(..)
            | WaitStatus::PtraceSyscall(_)
            | WaitStatus::Continued(_)
            | WaitStatus::StillAlive) => format!("{other:?}"),
        };
        let errors = text(&self.errors);
        let last = errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        (!good).then(|| format!("{ended}: {}", last.chars().take(300).collect::<String>()))
    }
}

impl Watched {
    /// Waits for a child, or an orphan that was adopted.
    fn next_ended(&self) -> io::Result<(i32, WaitStatus)> {
        loop {
            // Left unreaped until it is off the list: a number of a process that is on it is never another's.
            let found = waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
            let pid = match found {
                Ok(status) => status.pid(),
                Err(Errno::EINTR) => None,
                Err(errno) => return Err(errno.into()),
            };
            let Some(pid) = pid else { continue };
            self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid.as_raw());
            return Ok((pid.as_raw(), waitpid(pid, None)?));
        }
    }

    /// Notices the end of standard input, and kills calls that never end.
    fn watch(&self) {
        loop {
            std::thread::sleep(LOOK);
            if hung_up() {
                self.abandoned.store(true, Ordering::Relaxed);
            }
            let limit = if self.abandoned.load(Ordering::Relaxed) { ABANDONED } else { LIMIT };
            let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            for (pid, _) in running.iter().filter(|(_, begun)| begun.elapsed() > limit) {
                killpg(Pid::from_raw(*pid), Signal::SIGKILL).unwrap_or_default();
            }
        }
    }
}

fn hung_up() -> bool {
    let input = io::stdin();
    let mut polled = [PollFd::new(input.as_fd(), PollFlags::empty())];
    poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// CPU seconds of this process and of what it waited for.
fn used() -> io::Result<f64> {
    let of = |who| getrusage(who).map(|usage: Usage| usage.user_time() + usage.system_time());
    let total = of(UsageWho::RUSAGE_SELF)? + of(UsageWho::RUSAGE_CHILDREN)?;
    Ok(Duration::from_micros(u64::try_from(total.num_microseconds()).unwrap_or_default()).as_secs_f64())
}

/// CPU seconds of descendants that do not end, as far as the kernel's hundredths go.
fn staying() -> io::Result<f64> {
    let all = Processes::read()?;
    Ok(seconds(all.children(std::process::id()).map(|pid| all.ticks(pid)).sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(argv: &[&str], expect: &str) -> Batch {
        let argv = argv.iter().map(|each| (*each).to_owned()).collect();
        Batch { argv, cleanup: Vec::new(), expect: expect.into(), clients: 1, count: 1, secs: 0.0 }
    }

    #[test]
    fn names_in_arguments_are_those_of_the_call() {
        let made = command(&batch(&["run", "--name", "{id}"], "").argv, "x-1").unwrap();
        assert_eq!(made.get_args().collect::<Vec<_>>(), ["--name", "x-1"]);
        assert!(command(&[], "x").is_err());
    }

    #[test]
    fn an_end_that_is_not_as_expected_is_said_with_the_last_words() {
        let file = |text: &str| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            file
        };
        let call =
            Call { begun: Instant::now(), id: String::new(), output: file("42\n"), errors: file("a\nb\n\n") };
        let exited = |code| WaitStatus::Exited(Pid::from_raw(1), code);
        assert_eq!(call.complaint(exited(0), "42\n"), None);
        assert_eq!(call.complaint(exited(0), "43\n").unwrap(), "code 0: b");
        assert_eq!(call.complaint(exited(2), "42\n").unwrap(), "code 2: b");
    }
}
