//! Another process in a running container, under everything that the container's own process is under.
//!
//! libcontainer's way of adding a process gives it no seccomp filter and user 0. This is ours: two forks, because a
//! process enters a pid namespace only by being born in it. The first child joins the cgroup, then all namespaces
//! in one call; the second is our child as well, waits until the parent has set its resource limits from outside,
//! and then gives up, in this order: terminal or streams, profile, groups and user, capabilities, system calls.
//! Whatever fails is reported on a pipe that the successful `execve` closes.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::path::Path;

use libcontainer::syscall::syscall::create_syscall;
use libcontainer::{apparmor, capabilities, seccomp, tty};
use nix::sched::CloneFlags;
use nix::sys::stat::Mode;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use oci_spec::runtime::{LinuxSeccomp, Process};

use super::executor::execute;
use crate::cgroup::group::Group;
use crate::error::chain;
use crate::sys::{self, Forked};

/// What the new process gets.
pub(crate) struct Tenant<'a> {
    /// The container's first process.
    pub(crate) init: Pid,
    pub(crate) init_pidfd: OwnedFd,
    pub(crate) process: &'a Process,
    /// In the form of config.json.
    pub(crate) seccomp: Option<&'a LinuxSeccomp>,
    pub(crate) group: Option<&'a Group>,
    /// A connected socket that takes the master of the terminal.
    pub(crate) console: Option<OwnedFd>,
    pub(crate) preserve: i32,
    /// The container has a user namespace of its own.
    pub(crate) new_user_namespace: bool,
}

/// Namespaces that can be joined, by their name in /proc.
const NAMESPACES: [(&str, CloneFlags); 8] = [
    ("user", CloneFlags::CLONE_NEWUSER),
    ("cgroup", CloneFlags::CLONE_NEWCGROUP),
    ("ipc", CloneFlags::CLONE_NEWIPC),
    ("uts", CloneFlags::CLONE_NEWUTS),
    ("net", CloneFlags::CLONE_NEWNET),
    ("pid", CloneFlags::CLONE_NEWPID),
    ("mnt", CloneFlags::CLONE_NEWNS),
    ("time", CloneFlags::from_bits_retain(0x80)),
];

impl Tenant<'_> {
    /// Starts the process; it runs its program when this returns, and is our child.
    pub(crate) fn start(&self) -> Result<Pid, String> {
        let (mut report, report_end) = pipe()?;
        let (go_end, go) = pipe()?;
        let mut go = File::from(go);
        let flags = self.foreign_namespaces()?;
        // Inherited by the children; afterwards the file is closed to its own user.
        let score = self.oom_score()?;
        // Nobody in the container may look into a process that is half in it.
        nix::sys::prctl::set_dumpable(false).map_err(|errno| format!("prctl: {errno}"))?;
        let first = match sys::fork(false).map_err(|error| format!("fork: {error}"))? {
            Forked::Parent(pid) => pid,
            Forked::Child => {
                drop((report, go));
                let result = self.first_child(flags, report_end, go_end);
                sys::exit_child(if result.is_ok() { 0 } else { 1 })
            }
        };
        drop((report_end, go_end));
        let restored = nix::sys::prctl::set_dumpable(true).map_err(|errno| format!("prctl: {errno}"));
        let restored = restored.and_then(|()| score.map_or(Ok(()), |own| write_score(&own)));
        let second = read_pid(&mut report);
        let waited = waitpid(first, None).map_err(|errno| format!("waitpid: {errno}"));
        let second = second?;
        let prepared = restored.and(waited.map(drop)).and_then(|()| self.prepare_from_outside(second));
        if let Err(reason) = prepared.and_then(|()| go.write_all(b"g").map_err(|error| error.to_string())) {
            kill_and_reap(second);
            return Err(reason);
        }
        drop(go);
        let mut text = String::new();
        report.read_to_string(&mut text).map_err(|error| format!("reading the report: {error}"))?;
        if text.is_empty() {
            return Ok(second);
        }
        kill_and_reap(second);
        Err(text)
    }

    /// Takes the process's score on; returns our own, to be restored.
    fn oom_score(&self) -> Result<Option<String>, String> {
        let Some(score) = self.process.oom_score_adj() else { return Ok(None) };
        let own =
            std::fs::read_to_string(OOM_SCORE).map_err(|error| format!("process.oomScoreAdj: {error}"))?;
        write_score(&score.to_string())?;
        Ok(Some(own))
    }

    /// Namespaces of the container that are not ours.
    fn foreign_namespaces(&self) -> Result<CloneFlags, String> {
        let mut flags = CloneFlags::empty();
        for (name, flag) in NAMESPACES {
            let read = |who: &str| std::fs::read_link(format!("/proc/{who}/ns/{name}"));
            let Ok(own) = read("self") else { continue };
            let theirs = read(&self.init.to_string());
            let theirs = theirs.map_err(|error| format!("namespace {name} of {}: {error}", self.init))?;
            if own != theirs {
                flags |= flag;
            }
        }
        Ok(flags)
    }

    /// Limits that only a process outside may raise.
    fn prepare_from_outside(&self, pid: Pid) -> Result<(), String> {
        if let Some(group) = self.group {
            group.holds(pid, &[])?;
        }
        for limit in self.process.rlimits().iter().flatten() {
            sys::prlimit(pid, limit.typ(), limit.soft(), limit.hard())
                .map_err(|error| format!("process.rlimits {}: {error}", limit.typ()))?;
        }
        Ok(())
    }

    /// Joins, forks into the pid namespace, reports the number of the second child.
    fn first_child(&self, flags: CloneFlags, report: OwnedFd, go: File) -> Result<(), ()> {
        let mut report = File::from(report);
        let mut fail = |text: String| {
            // Frame: pid 0, then the text. The parent is there; if it is not, nobody reads anyway.
            report.write_all(&0i32.to_ne_bytes()).and_then(|()| report.write_all(text.as_bytes())).ok();
        };
        if let Some(group) = self.group
            && let Err(error) = group.join(Pid::this(), self.init)
        {
            fail(format!("joining the cgroup: {error}"));
            return Err(());
        }
        if !flags.is_empty()
            && let Err(errno) = nix::sched::setns(self.init_pidfd.as_fd(), flags)
        {
            fail(format!("joining the namespaces: {errno}"));
            return Err(());
        }
        if flags.contains(CloneFlags::CLONE_NEWUSER)
            && let Err(reason) = root_in_namespace()
        {
            fail(reason);
            return Err(());
        }
        match sys::fork(true) {
            Err(error) => {
                fail(format!("fork: {error}"));
                Err(())
            }
            Ok(Forked::Parent(pid)) => report.write_all(&pid.as_raw().to_ne_bytes()).map_err(drop),
            Ok(Forked::Child) => {
                let reason = self.second_child(go).err().unwrap_or_else(|| "exec returned".into());
                report.write_all(reason.as_bytes()).ok();
                sys::exit_child(1)
            }
        }
    }

    /// Everything that happens in the container; returns only with what failed.
    fn second_child(&self, mut go: File) -> Result<(), String> {
        let mut word = [0u8; 1];
        let count = go.read(&mut word).map_err(|error| error.to_string())?;
        if count == 0 {
            return Err("the runtime gave up".into());
        }
        let system = create_syscall();
        let step =
            |name: &'static str| move |error: &dyn std::error::Error| format!("{name}: {}", chain(error));
        nix::unistd::setsid().map_err(|errno| format!("setsid: {errno}"))?;
        if let Some(console) = &self.console {
            let copy = console.try_clone().map_err(|error| error.to_string())?;
            tty::setup_console(system.as_ref(), copy.into_raw_fd(), false)
                .map_err(|error| step("terminal")(&error))?;
        }
        if let Some(profile) = self.process.apparmor_profile() {
            apparmor::apply_profile(profile).map_err(|error| step("process.apparmorProfile")(&error))?;
        }
        let user = self.process.user();
        let umask = user.umask().unwrap_or(0o022);
        nix::sys::stat::umask(Mode::from_bits_truncate(umask));
        let cwd = self.process.cwd();
        let early = nix::unistd::chdir(cwd);
        self.set_groups()?;
        let (uid, gid) = (user.uid(), user.gid());
        system
            .set_id(nix::unistd::Uid::from_raw(uid), nix::unistd::Gid::from_raw(gid))
            .map_err(|error| step("process.user")(&error))?;
        if early.is_err() {
            nix::unistd::chdir(cwd).map_err(|errno| format!("process.cwd {}: {errno}", cwd.display()))?;
        }
        inside(cwd)?;
        system.close_range(self.preserve).map_err(|error| step("close_range")(&error))?;
        let no_new_privileges = self.process.no_new_privileges() == Some(true);
        if no_new_privileges {
            nix::sys::prctl::set_no_new_privs().map_err(|errno| format!("noNewPrivileges: {errno}"))?;
        } else {
            // Without that bit only a privileged process may load a filter.
            self.filter()?;
        }
        capabilities::reset_effective(system.as_ref()).map_err(|error| step("capabilities")(&error))?;
        if let Some(sets) = self.process.capabilities() {
            capabilities::drop_privileges(sets, system.as_ref())
                .map_err(|error| step("process.capabilities")(&error))?;
        }
        if no_new_privileges {
            self.filter()?;
        }
        let args = self.process.args().clone().unwrap_or_default();
        execute(&args, &self.process.env().clone().unwrap_or_default())
    }

    fn filter(&self) -> Result<(), String> {
        let Some(filter) = self.seccomp else { return Ok(()) };
        let adapted = crate::spec::for_libcontainer(filter.clone()).map_err(|error| chain(&error))?;
        match seccomp::initialize_seccomp(&adapted) {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err("linux.seccomp: SCMP_ACT_NOTIFY is not supported for exec".into()),
            Err(error) => Err(format!("linux.seccomp: {}", chain(&error))),
        }
    }

    fn set_groups(&self) -> Result<(), String> {
        let groups = self.process.user().additional_gids().clone().unwrap_or_default();
        let allowed =
            std::fs::read_to_string("/proc/self/setgroups").map_or(true, |word| word.trim() == "allow");
        if !allowed {
            if groups.is_empty() {
                return Ok(());
            }
            return Err("process.user.additionalGids: this user namespace has no supplementary groups".into());
        }
        let groups: Vec<_> = groups.into_iter().map(nix::unistd::Gid::from_raw).collect();
        match nix::unistd::setgroups(&groups) {
            Ok(()) => Ok(()),
            // Only root may; an ordinary caller in its own namespaces keeps what it has.
            Err(nix::errno::Errno::EPERM) if groups.is_empty() && !self.new_user_namespace => Ok(()),
            Err(errno) => Err(format!("process.user.additionalGids: {errno}")),
        }
    }
}

/// After joining a user namespace our ids mean nothing in it; id 0 may set up the rest.
fn root_in_namespace() -> Result<(), String> {
    nix::unistd::setresgid(0.into(), 0.into(), 0.into()).map_err(|errno| format!("setresgid: {errno}"))?;
    nix::unistd::setresuid(0.into(), 0.into(), 0.into()).map_err(|errno| format!("setresuid: {errno}"))?;
    // Changing ids cleared it; it must not be seen from the container.
    nix::sys::prctl::set_dumpable(false).map_err(|errno| format!("prctl: {errno}"))
}

/// Refuses a working directory outside the container's root, which a leaked descriptor could make.
fn inside(cwd: &Path) -> Result<(), String> {
    let now = nix::unistd::getcwd().map_err(|errno| format!("process.cwd {}: {errno}", cwd.display()))?;
    if now.is_absolute() {
        Ok(())
    } else {
        Err(format!("process.cwd {}: outside the container", cwd.display()))
    }
}

const OOM_SCORE: &str = "/proc/self/oom_score_adj";

fn write_score(score: &str) -> Result<(), String> {
    std::fs::write(OOM_SCORE, score.trim()).map_err(|error| format!("process.oomScoreAdj: {error}"))
}

fn pipe() -> Result<(File, OwnedFd), String> {
    let (reading, writing) =
        nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(|errno| format!("pipe: {errno}"))?;
    Ok((File::from(reading), writing))
}

/// The frame that the first child writes: a number, and a reason where it is 0.
fn read_pid(report: &mut File) -> Result<Pid, String> {
    let mut number = [0u8; 4];
    report.read_exact(&mut number).map_err(|_| "the runtime's helper process died".to_owned())?;
    match i32::from_ne_bytes(number) {
        pid @ 1.. => Ok(Pid::from_raw(pid)),
        _ => {
            let mut reason = String::new();
            report.read_to_string(&mut reason).map_err(|error| error.to_string())?;
            Err(reason)
        }
    }
}

fn kill_and_reap(pid: Pid) {
    if let Ok(pidfd) = sys::pidfd_open(pid)
        && let Err(error) = sys::pidfd_kill(pidfd.as_fd())
    {
        tracing::error!(%error, %pid, "cannot kill a process that failed to join");
    }
    if let Err(errno) = waitpid(pid, None) {
        tracing::debug!(%errno, %pid, "nothing to reap");
    }
}
