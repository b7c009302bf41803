//! One worker: a thread with a launcher of its own, running one job after the other.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, poll};
use rlox_protocol::{Command, DescriptorRole, Limits, Outcome, Reply, SandboxRequest, Stdio};

use super::grader::{Grader, authenticate};
use super::launcher::{stream_pair, timeout};
use super::memfd::sealed;
use super::plan::{fetch_file, fetched, plan};
use super::reporting::Reporting;
use super::reports::Refused;
use super::{Environment, Launcher, SandboxError};
use crate::config::Granted;
use crate::job::{Captured, Events, Finished, Job, Usage, random_bytes};
use crate::judge::{self, Judged, StdioRun, Verdict};
use crate::script::{Fetched, Ran, Script, Told};
use crate::tampering::{Kind, Tampering};

/// A launcher that is this late beyond the program's latest deadline is stuck.
const LATE: Duration = Duration::from_secs(15);
/// A program whose answer is known may flush and leave for this long.
const GRACE_MS: u64 = 200;

/// What the driver writes when a program has come to its own end.
const ENDED: &[u8] = b"end\n";

/// The interpreter's command line in `bundles/snippet`, less the driver's mode.
const DRIVER: [&str; 6] = ["/usr/bin/python3", "-I", "-S", "-B", "-Xutf8", "/opt/rlox/driver.pyc"];

/// One program to run, and how.
#[derive(Clone, Copy)]
struct Program<'a> {
    mode: &'a str,
    stdin: &'a str,
    script: Option<&'a Script>,
}

/// What came of it, with what it wrote to the descriptor on which it tells its end.
struct ProgramRun {
    outcome: Outcome,
    told: Vec<u8>,
    fetched: Vec<Fetched>,
}

/// Runs jobs with a launcher of its own.
#[derive(Debug)]
pub(super) struct Worker {
    environment: Arc<Environment>,
    grader: Arc<Grader>,
    slot: u16,
    launcher: Option<Launcher>,
    /// The most containers that are made ahead, how many of them the demand calls for, and their shape.
    most: u16,
    target: u16,
    shape: Option<SandboxRequest>,
}

/// How many containers wait, of those that should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stock {
    Empty,
    Some,
    Full,
}

/// Containers of one job.
#[derive(Default)]
struct Tally {
    usage: Usage,
    events: Events,
    refused: Vec<String>,
    stdout: Captured,
    stderr: Captured,
}

impl Tally {
    fn add(&mut self, outcome: &Outcome, kept: u64) {
        self.usage.setup_secs += outcome.setup_secs;
        self.usage.wall_secs += outcome.wall_secs;
        self.usage.cpu_secs += outcome.cpu_secs;
        self.usage.memory_peak_bytes = self.usage.memory_peak_bytes.max(outcome.cgroup.memory_peak_bytes);
        self.usage.pids_peak = self.usage.pids_peak.max(outcome.cgroup.pids_peak);
        self.events.oom_kill += outcome.cgroup.oom_kill;
        self.events.pids_max += outcome.cgroup.pids_max;
        self.events.leftovers += outcome.leftovers;
        self.events.cpu_wait_secs += outcome.load.cpu_wait_secs;
        self.events.seccomp += outcome.refused.total;
        for name in &outcome.refused.names {
            if !self.refused.contains(name) {
                self.refused.push(name.clone());
            }
        }
        let kept = usize::try_from(kept).unwrap_or(usize::MAX);
        let captured = |output: &rlox_protocol::Output| Captured {
            text: String::from_utf8_lossy(&output.bytes[..output.bytes.len().min(kept)]).into_owned(),
            truncated: output.truncated() || output.bytes.len() > kept,
        };
        self.stdout = captured(&outcome.stdout);
        self.stderr = captured(&outcome.stderr);
    }
}

impl Worker {
    pub(super) fn new(environment: &Arc<Environment>, grader: &Arc<Grader>, slot: u16, most: u16) -> Self {
        let (environment, grader) = (Arc::clone(environment), Arc::clone(grader));
        Self { environment, grader, slot, launcher: None, most, target: most.min(1), shape: None }
    }

    /// What there is to do for the pool.
    pub(super) fn stock(&self) -> Stock {
        match self.launcher.as_ref().map_or(0, Launcher::waiting) {
            waiting if waiting >= self.target => Stock::Full,
            0 => Stock::Empty,
            _ => Stock::Some,
        }
    }

    /// Has a container made, in the shape that was asked for last.
    pub(super) fn prepare(&mut self) {
        let prepared = self.next_shape().and_then(|shape| self.launcher()?.prepare(shape));
        match prepared {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(slot = self.slot, %error, "no container is made ahead");
                self.launcher = None;
            }
        }
        // The next request says how it is with making containers.
        self.target = 0;
    }

    /// A request of this shape is about to be served.
    fn asked_for(&mut self, request: &SandboxRequest) {
        let same = self.shape.as_ref().is_some_and(|shape| shape.same_shape(request));
        self.target = if same { self.target.saturating_mul(2).max(1) } else { 1 }.min(self.most);
        self.shape = Some(request.clone());
    }

    fn next_shape(&self) -> Result<SandboxRequest, SandboxError> {
        match &self.shape {
            Some(shape) => {
                Ok(SandboxRequest { id: self.environment.container_id(self.slot), ..shape.clone() })
            }
            None => self.request(Granted::default().limits(0), "serve", Vec::new()),
        }
    }

    /// Runs one job; a failure of the sandbox is tried once more with a fresh launcher.
    pub(super) fn run(&mut self, job: &Job, queued: Duration) -> Result<Finished, SandboxError> {
        match self.attempt(job, queued) {
            Ok(finished) => Ok(finished),
            Err(error) if no_time_again(job) => Err(error),
            Err(error) => {
                tracing::warn!(job = job.id, %error, "the sandbox failed; trying once more");
                self.attempt(job, queued)
            }
        }
    }

    fn attempt(&mut self, job: &Job, queued: Duration) -> Result<Finished, SandboxError> {
        let result = self.judge(job, queued);
        if let Err(error) = &result
            && !matches!(error, SandboxError::Fault { .. })
            && let Some(mut launcher) = self.launcher.take()
        {
            // It may still be busy with a container that nobody waits for.
            launcher.kill();
        }
        result
    }

    fn judge(&mut self, job: &Job, queued: Duration) -> Result<Finished, SandboxError> {
        let source = job.code.as_bytes();
        let mut tally = Tally {
            usage: Usage { queue_secs: queued.as_secs_f64(), ..Usage::default() },
            ..Tally::default()
        };
        let mut judged: Option<Judged> = None;
        let mut ran = None;
        if let Some(script) = &job.script {
            let (judged_script, ran_script) = self.run_script(job, script, source, &mut tally)?;
            (judged, ran) = (Some(judged_script), Some(ran_script));
        }
        if !job.tests.is_empty() {
            let (mut first, mut pressed) = self.run_tests(job, source, &mut tally)?;
            if pressed {
                tally.events.retries += 1;
                (first, pressed) = self.run_tests(job, source, &mut tally)?;
            }
            tally.events.pressure |= pressed;
            judged = Some(first);
        }
        if !job.stdio.is_empty() {
            let decided = judged.as_ref().is_some_and(|first| first.verdict != Verdict::Passed);
            let second = match job.early_stop && decided {
                true => judge::not_run(job.stdio.len()),
                false => self.run_stdio(job, source, &mut tally)?,
            };
            judged = Some(match judged.take() {
                Some(first) => judge::both(first, second),
                None => second,
            });
        }
        let judged = match judged {
            Some(judged) => judged,
            None => {
                let program = Program { mode: "run", stdin: "", script: None };
                judge::run_only(&self.run_fairly(job, source, program, &mut tally)?.outcome)
            }
        };
        let mut judged = judged;
        if tally.events.seccomp > 0 {
            let detail = format!("{} calls refused: {}", tally.events.seccomp, tally.refused.join(", "));
            judged.tampering.push(Tampering { kind: Kind::ForbiddenSyscall, detail });
        }
        Ok(Finished {
            job_id: job.id.clone(),
            granted: job.granted,
            judged,
            usage: tally.usage,
            events: tally.events,
            stdout: tally.stdout,
            stderr: tally.stderr,
            ran,
        })
    }

    fn launcher(&mut self) -> Result<&Launcher, SandboxError> {
        if self.launcher.is_none() {
            self.launcher = Some(Launcher::start_for_snippets(&self.environment, self.slot)?);
        }
        self.launcher.as_ref().ok_or_else(|| SandboxError::Spawn { reason: "no launcher".into() })
    }

    fn request(
        &self,
        limits: Limits,
        mode: &str,
        descriptors: Vec<DescriptorRole>,
    ) -> Result<SandboxRequest, SandboxError> {
        let bundle = self.environment.home.bundle("snippet");
        Ok(SandboxRequest {
            id: self.environment.container_id(self.slot),
            bundle: bundle.map_err(SandboxError::system("finding the snippet's bundle"))?,
            args: Some(DRIVER.iter().map(|part| (*part).to_owned()).chain([mode.to_owned()]).collect()),
            env: Vec::new(),
            mounts: Vec::new(),
            warm: self.environment.warmth.is_some(),
            limits,
            count_refused: true,
            stdio: Stdio::Capture,
            descriptors,
        })
    }

    /// Runs the program as a script.
    fn run_program(
        &mut self,
        job: &Job,
        source: &[u8],
        program: Program<'_>,
    ) -> Result<ProgramRun, SandboxError> {
        let code = sealed(c"rlox-source", source)?;
        let input = sealed(c"rlox-stdin", program.stdin.as_bytes())?;
        let (ended, ending) = watched_pipe()?;
        let plan = program.script.map(plan).transpose()?;
        let wanted = program.script.map_or(0, |script| script.wanted.len());
        let back = (wanted > 0).then(fetch_file).transpose()?;
        let mut descriptors = vec![input.as_fd(), code.as_fd(), ending.as_fd()];
        descriptors.extend(plan.as_ref().map(AsFd::as_fd));
        descriptors.extend(back.as_ref().map(AsFd::as_fd));
        let mut roles = vec![DescriptorRole::Stdin];
        roles.resize(descriptors.len(), DescriptorRole::Preserve);
        let request = self.request(job.limits(), program.mode, roles)?;
        self.asked_for(&request);
        let launcher = self.launcher()?;
        launcher.run(request, &descriptors)?;
        drop(ending);
        let outcome = wait_outcome(launcher, Instant::now() + job.granted.wall_most() + LATE)?;
        let fetched = back.map_or(Ok(Vec::new()), |file| fetched(&file, wanted))?;
        Ok(ProgramRun { outcome, told: written(ended)?, fetched })
    }

    /// Runs the program as a script; once more where the load of the machine may have cost it its time.
    fn run_fairly(
        &mut self,
        job: &Job,
        source: &[u8],
        program: Program<'_>,
        tally: &mut Tally,
    ) -> Result<ProgramRun, SandboxError> {
        let mut run = self.run_program(job, source, program)?;
        tally.add(&run.outcome, job.granted.output_bytes);
        let mut pressed = judge::under_pressure(&run.outcome);
        if pressed && !no_time_again(job) {
            tally.events.retries += 1;
            run = self.run_program(job, source, program)?;
            tally.add(&run.outcome, job.granted.output_bytes);
            pressed = judge::under_pressure(&run.outcome);
        }
        tally.events.pressure |= pressed;
        Ok(run)
    }

    fn run_script(
        &mut self,
        job: &Job,
        script: &Script,
        source: &[u8],
        tally: &mut Tally,
    ) -> Result<(Judged, Ran), SandboxError> {
        let program = Program { mode: "script", stdin: &script.stdin, script: Some(script) };
        let ProgramRun { outcome, told, fetched } = self.run_fairly(job, source, program, tally)?;
        let (told, stray) = told_of(&told);
        let mut judged = judge::script(&outcome, told, script.exits);
        judged.tampering.extend(stray);
        let ran = Ran {
            ending: outcome.ending,
            told,
            wall_secs: outcome.wall_secs,
            cpu_secs: outcome.cpu_secs,
            fetched,
            stdout_bytes: outcome.stdout.total,
            stderr_bytes: outcome.stderr.total,
        };
        Ok((judged, ran))
    }

    fn run_stdio(&mut self, job: &Job, source: &[u8], tally: &mut Tally) -> Result<Judged, SandboxError> {
        let mut runs = Vec::with_capacity(job.stdio.len());
        let mut strays = Vec::new();
        for test in &job.stdio {
            let program = Program { mode: "judged", stdin: &test.stdin, script: None };
            let ProgramRun { outcome, told, fetched: _ } = self.run_fairly(job, source, program, tally)?;
            let ended = told == ENDED;
            if !ended {
                strays.extend(stray_write(&told));
            }
            runs.push(StdioRun { outcome, expected: &test.stdout, ended });
            if job.early_stop && judge::stdio(&runs).verdict != Verdict::Passed {
                break;
            }
        }
        let mut judged = judge::stdio(&runs);
        judged.leave_out_rest(job.stdio.len());
        judged.tampering.extend(strays.into_iter().take(1));
        Ok(judged)
    }

    /// Loads the program in its container and lets the grader run the statements against it. Also says whether the
    /// load of the machine may have cost the program its time.
    fn run_tests(
        &mut self,
        job: &Job,
        source: &[u8],
        tally: &mut Tally,
    ) -> Result<(Judged, bool), SandboxError> {
        let code = sealed(c"rlox-source", source)?;
        let (snippet_end, grader_end) = stream_pair().map_err(SandboxError::system("making a channel"))?;
        let (mut reporting, report_end) = Reporting::open()?;
        let key = random_bytes::<32>().map_err(SandboxError::system("making a key"))?;
        let (trap, trap_end) = watched_pipe()?;
        let roles = vec![DescriptorRole::Preserve; 3];
        let request = self.request(job.limits(), "serve", roles)?;
        self.asked_for(&request);
        let grader = Arc::clone(&self.grader);
        let launcher = self.launcher()?;
        // The grader first: a program must not spend its time waiting for a grader that starts again.
        grader.submit(&key, job, grader_end.as_fd(), report_end.as_fd())?;
        drop((grader_end, report_end));
        launcher.run(request, &[code.as_fd(), snippet_end.as_fd(), trap_end.as_fd()])?;
        drop((snippet_end, trap_end));
        reporting.started(job.granted.timeout);
        let waited = wait_both(launcher, reporting, Instant::now() + job.granted.wall_most() + LATE);
        if let Err(SandboxError::Stuck { .. }) = &waited {
            self.environment.reports.count(Refused::Late);
        }
        let (outcome, bytes) = waited?;
        let pressed = |judged: &Judged| judged.verdict == Verdict::Timeout && judge::under_pressure(&outcome);
        let report = match authenticate(&key, &bytes) {
            Ok(report) => report,
            Err(refused) => {
                self.environment.reports.count(refused);
                let reason = format!("grader: its report is {}", refused.word());
                // The program was ended from outside before there could be a report: that decides.
                let judged = judge::without_report(&outcome, job.tests.len(), &reason);
                tally.add(&outcome, job.granted.output_bytes);
                let judged = judged.ok_or(SandboxError::Grader { reason })?;
                let pressed = pressed(&judged);
                return Ok((judged, pressed));
            }
        };
        tally.add(&outcome, job.granted.output_bytes);
        let mut judged = judge::tests(&outcome, &report, job.tests.len());
        judged.tampering.extend(stray_write(&written(trap)?));
        let pressed = pressed(&judged);
        Ok((judged, pressed))
    }
}

/// Whether a second run of this job would only end when nobody waits for it any more.
fn no_time_again(job: &Job) -> bool {
    job.script.as_ref().is_some_and(|script| script.too_late(job.granted.timeout))
}

/// What the driver says of a script's end; anything but its own words is a stray write.
fn told_of(bytes: &[u8]) -> (Told, Option<Tampering>) {
    if bytes == ENDED {
        return (Told::End, None);
    }
    let line = std::str::from_utf8(bytes).ok().and_then(|text| text.strip_prefix("exit "));
    match line.and_then(|line| line.strip_suffix('\n')?.parse().ok()) {
        Some(line) => (Told::Exit(line), None),
        None => (Told::Nothing, stray_write(bytes)),
    }
}

/// A pipe whose reading end, kept here, never blocks.
fn watched_pipe() -> Result<(File, OwnedFd), SandboxError> {
    let (kept, given) =
        nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(SandboxError::system("making a pipe"))?;
    fcntl(kept.as_raw_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))
        .map_err(SandboxError::system("preparing a pipe"))?;
    Ok((File::from(kept), given))
}

/// What is in a watched pipe, up to a bound.
fn written(mut pipe: File) -> Result<Vec<u8>, SandboxError> {
    let mut buffer = [0u8; 256];
    match pipe.read(&mut buffer) {
        Ok(count) => Ok(buffer[..count].to_vec()),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(Vec::new()),
        Err(error) => Err(SandboxError::System { action: "reading a pipe", reason: error.to_string() }),
    }
}

/// Bytes on a descriptor of which no program was told.
fn stray_write(bytes: &[u8]) -> Option<Tampering> {
    let detail = || format!("{} bytes or more to a descriptor that is not the program's", bytes.len());
    (!bytes.is_empty()).then(|| Tampering { kind: Kind::DescriptorWrite, detail: detail() })
}

fn wait_outcome(launcher: &Launcher, deadline: Instant) -> Result<Outcome, SandboxError> {
    loop {
        match launcher.wait_reply(deadline)? {
            Some(Reply::Outcome(outcome)) => return Ok(*outcome),
            Some(Reply::Fault(fault)) => return Err(SandboxError::Fault { message: fault.message }),
            Some(_) => {}
            None if Instant::now() >= deadline => return Err(stuck(launcher)),
            None => {}
        }
    }
}

fn stuck(launcher: &Launcher) -> SandboxError {
    SandboxError::Stuck { slot: launcher.slot(), seconds: LATE.as_secs_f64() }
}

/// Waits for the grader's report and the container's outcome, in whichever order they come.
fn wait_both(
    launcher: &Launcher,
    mut reporting: Reporting,
    deadline: Instant,
) -> Result<(Outcome, Vec<u8>), SandboxError> {
    let mut outcome = None;
    while reporting.descriptor().is_some() || outcome.is_none() {
        let ready = wait_either(launcher, &reporting, outcome.is_none(), deadline)?;
        if outcome.is_none() {
            reporting.tell(launcher)?;
        }
        if ready.report && reporting.read()? && outcome.is_none() {
            launcher.tell(&Command::Finish { grace_ms: GRACE_MS }, &[])?;
        }
        if ready.reply {
            match launcher.reply()? {
                Some(Reply::Outcome(done)) => outcome = Some(*done),
                Some(Reply::Fault(fault)) => return Err(SandboxError::Fault { message: fault.message }),
                Some(_) | None => {}
            }
        }
        if Instant::now() >= deadline {
            return Err(stuck(launcher));
        }
    }
    outcome.map(|outcome| (outcome, reporting.into_bytes())).ok_or_else(|| stuck(launcher))
}

struct Ready {
    reply: bool,
    report: bool,
}

fn wait_either(
    launcher: &Launcher,
    reporting: &Reporting,
    want_reply: bool,
    deadline: Instant,
) -> Result<Ready, SandboxError> {
    let socket = launcher.descriptor().filter(|_| want_reply);
    let report = reporting.descriptor();
    let polled = socket.into_iter().chain(report);
    let mut polled: Vec<_> = polled.map(|each| PollFd::new(each, PollFlags::POLLIN)).collect();
    // A launcher whose program has ended is told nothing more.
    let until = if want_reply { reporting.until(deadline) } else { deadline };
    match poll(&mut polled, timeout(until)) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(SandboxError::System { action: "poll", reason: errno.to_string() }),
    }
    let fired: Vec<bool> = polled.iter().map(|each| each.any().unwrap_or(false)).collect();
    let reply = want_reply && fired.first() == Some(&true);
    let report = report.is_some() && fired.last() == Some(&true) && fired.len() > usize::from(want_reply);
    Ok(Ready { reply, report })
}
