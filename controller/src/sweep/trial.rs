//! One attempt at a trial: started by an engine, watched from outside, recorded.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rlox_report::{MetricsRow, TrialKey};

use super::engine::{Attempt, Engine, EngineError, Facts, Look, Order};
use super::files::{self, FileError, LOG, read_untrusted};
use super::outside::Sampler;
use super::record::{Seen, Stopped, summary};
use super::stop::Stop;
use super::store::{Job, Store, StoreError, named};
use super::tail::Tail;
use super::tree;
use super::view::Happening;

const METRICS: &str = "metrics.jsonl";
/// Made by the trainer right before its first step.
const BEGAN: &str = ".began";
const LOOK: Duration = Duration::from_millis(250);

/// An attempt has no record; says nothing about the trainer.
#[derive(Debug, thiserror::Error)]
pub(super) enum TrialError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("reading the trial's files failed: {0}")]
    Report(#[from] rlox_report::ReportError),
    /// The trainer ended before its first step began: its set-up failed, which measures nothing.
    #[error("the trainer did not begin ({exit_status}); the end of {log}:\n{tail}")]
    NeverBegan { exit_status: String, log: PathBuf, tail: String },
    /// The sweep is to end: not recorded, so that it runs again.
    #[error("stopped")]
    Stopped,
    /// The disk was full while it ran, and that is not the trial's doing.
    #[error("the disk was full")]
    DiskFull,
}

impl TrialError {
    /// There was no room on the disk.
    pub(super) fn is_full(&self) -> bool {
        match self {
            Self::DiskFull => true,
            Self::Store(error) => error.is_full(),
            Self::File(error) => error.is_full(),
            Self::Engine(_) | Self::Report(_) | Self::NeverBegan { .. } | Self::Stopped => false,
        }
    }
}

/// An attempt that ended, to be recorded.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) summary: serde_json::Value,
    pub(super) survived: bool,
}

/// What an attempt is made with.
pub(super) struct Watch<'a> {
    pub(super) engine: &'a dyn Engine,
    pub(super) store: &'a Store,
    pub(super) job: &'a Job,
    pub(super) stop: &'a Stop,
    pub(super) key: TrialKey,
    pub(super) lane: u16,
}

/// What was seen while it ran.
struct Watched {
    facts: Facts,
    stopped: Option<Stopped>,
    sampler: Sampler,
    /// The disk was full at some moment.
    squeezed: bool,
    /// Its first step began.
    began: bool,
}

impl Watch<'_> {
    /// Makes one attempt. The caller has not begun it; this does, and the caller records or leaves it.
    pub(super) fn run(&self) -> Result<Ended, TrialError> {
        let (job, key) = (self.job, self.key);
        let handle = self.engine.name(self.lane);
        let number = self.store.begin_trial(&job.id, key, Some(&handle))?;
        let directory = job.folder.begin(key)?;
        let order = Order { handle: &handle, plan: &job.plan, key, directory: &directory, lane: self.lane };
        let mut attempt = self.engine.start(&order)?;
        let watched = self.watch(&mut *attempt, &directory, number);
        drop(attempt);
        self.judge(&watched?, &directory)
    }

    /// Follows the attempt until its end; ends it where it stalls, grows or the sweep is stopped.
    fn watch(&self, attempt: &mut dyn Attempt, directory: &Path, number: u32) -> Result<Watched, TrialError> {
        let limits = &self.job.plan.limits;
        let metrics = directory.join(METRICS);
        let length = || std::fs::symlink_metadata(&metrics).map_or(0, |found| found.len());
        let (mut last_length, mut last_progress, mut began) = (0, Instant::now(), false);
        let (mut stopped, mut cancelled, mut squeezed) = (None, false, false);
        let mut tail = Tail::new(metrics.clone(), self.job.plan.max_steps);
        let mut sampler = Sampler::new();
        loop {
            let look = attempt.look(Instant::now() + LOOK)?;
            if matches!(look, Look::Started) {
                last_progress = Instant::now();
            }
            let mut told = self.tell_steps(&mut tail, number);
            squeezed |= files::full(directory);
            if let Look::Ended(facts) = look {
                // There is no next look: the rest now, in as many pieces as it takes.
                while told > 0 {
                    told = self.tell_steps(&mut tail, number);
                }
                if cancelled {
                    return Err(TrialError::Stopped);
                }
                // Seen while it ran, or by what it wrote: what lies there at the end is the trainer's to remove.
                let began = began || tail.steps() > 0 || marked(directory);
                return Ok(Watched { facts: *facts, stopped, sampler, squeezed, began });
            }
            let begins = !began && marked(directory);
            began |= begins;
            sampler.look(attempt.process(), began, tail.steps());
            let now = length();
            if begins || now > last_length {
                (last_length, last_progress) = (now, Instant::now());
            }
            let patience = limits.patience(began);
            if stopped.is_none() && !cancelled {
                if self.stop.asked() {
                    cancelled = true;
                } else if last_progress.elapsed() > patience {
                    stopped = Some(Stopped::Stalled { secs: patience.as_secs() });
                } else if tree::size_mb(directory) > limits.disk_mb {
                    stopped = Some(Stopped::Disk { limit_mb: limits.disk_mb });
                }
                if cancelled || stopped.is_some() {
                    attempt.end()?;
                }
            }
        }
    }

    /// Makes events of the next steps that ended, in one transaction: a trainer that writes many holds nobody up.
    /// Returns how many. What cannot be written now comes again at the next look.
    fn tell_steps(&self, tail: &mut Tail, number: u32) -> usize {
        let happening = |row: &MetricsRow| Happening::Step {
            trial_id: named(&self.job.id, self.key),
            name: self.key.to_string(),
            attempt: number,
            step: row.step,
            reward: row.reward,
            reward_clean: row.reward_clean,
            entropy: row.entropy,
            kl: row.kl,
            gpu_util: row.gpu_util,
            step_time_secs: row.step_time_secs,
            verify_secs: row.verify_secs,
            vm_rss_bytes: row.vm_rss_bytes,
            open_fds: row.open_fds,
            threads: row.threads,
            children: row.children,
            injected: row.injected,
            masked: row.masked,
            forged: row.forged,
        };
        let told = tail.look(|rows| {
            let last = rows.last().map_or(0, |row| row.step);
            let happenings: Vec<_> = rows.iter().map(happening).collect();
            self.store.steps(&self.job.id, self.key, &happenings, last)
        });
        told.unwrap_or_else(|error| {
            tracing::debug!(trial = %self.key, %error, "steps' events are written later");
            0
        })
    }

    fn judge(&self, watched: &Watched, directory: &Path) -> Result<Ended, TrialError> {
        let Watched { facts, stopped, sampler, squeezed, began } = watched;
        let own_doing = stopped.is_some_and(|stopped| matches!(stopped, Stopped::Disk { .. }))
            || tree::size_mb(directory) > self.job.plan.limits.disk_mb;
        if !began && stopped.is_none() {
            if *squeezed {
                return Err(TrialError::DiskFull);
            }
            let log = directory.join(LOG);
            let tail = last_lines(&log);
            return Err(TrialError::NeverBegan { exit_status: facts.exit_status.clone(), log, tail });
        }
        let sweep = rlox_report::load(self.job.folder.root())?;
        let rows = sweep.trials.iter().find(|trial| trial.key == self.key).map(|trial| &trial.metrics.rows);
        let seen = Seen {
            key: self.key,
            facts,
            stopped: *stopped,
            rows: rows.map_or(&[][..], Vec::as_slice),
            readings: sampler.readings(),
            checkpoint: has_checkpoint(directory),
            max_steps: self.job.plan.max_steps,
        };
        let summary = summary(&seen);
        let survived = summary["survived"] == true;
        if !survived && *squeezed && !own_doing {
            return Err(TrialError::DiskFull);
        }
        Ok(Ended { summary, survived })
    }
}

/// Whether the mark is there that the trainer makes before its first step.
fn marked(directory: &Path) -> bool {
    std::fs::symlink_metadata(directory.join(BEGAN)).is_ok()
}

/// The last lines of the trainer's log.
fn last_lines(path: &Path) -> String {
    const MOST: u64 = 2000;
    let length = std::fs::symlink_metadata(path).map_or(0, |found| found.len());
    match read_untrusted(path, length.saturating_sub(MOST), MOST) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("(cannot be read: {error})"),
    }
}

fn has_checkpoint(directory: &Path) -> bool {
    std::fs::symlink_metadata(directory.join("checkpoint_final.pt"))
        .is_ok_and(|found| found.is_file() && found.len() > 0)
}
