//! The corpus as jobs, and what counts as contained.

use std::time::Duration;

use crate::config::{DEFAULT_MEMORY_MB, DEFAULT_OUTPUT_BYTES, DEFAULT_PIDS, DEFAULT_WALL_FACTOR, Granted};
use crate::corpus::{Corpus, MARK, Snippet};
use crate::job::{Finished, Job};
use crate::judge::Verdict;
use crate::service::Service;

/// Limits of an attack, as `corpus/README.md` assumes them.
pub(super) const ATTACK_TIMEOUT: Duration = Duration::from_secs(2);
/// Time of an attack that is tried again.
const PATIENT_TIMEOUT: Duration = Duration::from_secs(20);
/// An honest twin gets more than it needs: it shall not fail on a slow host.
const TWIN_TIMEOUT: Duration = Duration::from_secs(15);

/// A finished job, or why there is none.
pub(super) type Ran = Result<Finished, String>;

impl Corpus {
    /// Families in alphabetical order.
    pub(super) fn families(&self) -> Vec<String> {
        let mut names: Vec<_> = self.snippets.iter().map(|snippet| snippet.family.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// The attack under the limits that the corpus assumes.
    pub(super) fn attack(&self, snippet: &Snippet) -> Job {
        let granted = Granted {
            timeout: ATTACK_TIMEOUT,
            wall_factor: DEFAULT_WALL_FACTOR,
            memory_mb: DEFAULT_MEMORY_MB,
            pids: DEFAULT_PIDS,
            output_bytes: DEFAULT_OUTPUT_BYTES,
        };
        Job {
            id: snippet.id.clone(),
            code: snippet.code.clone(),
            tests: self.tests(snippet).to_vec(),
            stdio: Vec::new(),
            early_stop: false,
            granted,
            script: None,
        }
    }

    /// The attack with more time, for one that met the deadline where something else should have ended it.
    pub(super) fn patient_attack(&self, snippet: &Snippet) -> Job {
        let mut job = self.attack(snippet);
        job.granted.timeout = PATIENT_TIMEOUT;
        job
    }

    /// The honest program beside the attack.
    pub(super) fn honest(&self, snippet: &Snippet) -> Option<Job> {
        let mut job = self.attack(snippet);
        job.code = snippet.twin.clone()?;
        job.granted.timeout = TWIN_TIMEOUT;
        Some(job)
    }
}

/// Runs jobs on all workers; answers in order.
pub(super) fn run(service: &Service, jobs: Vec<Job>) -> Vec<Ran> {
    let queued: Vec<_> = jobs.into_iter().map(|job| service.pool.try_submit(job)).collect();
    queued
        .into_iter()
        .map(|queued| {
            let answer = queued.map_err(|error| error.to_string())?.blocking_recv();
            answer.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
        })
        .collect()
}

/// Whether something forbidden worked, by the snippet's own word.
pub(super) fn escaped(finished: &Finished) -> bool {
    let messages = finished.judged.tests.iter().filter_map(|test| test.message.as_deref());
    messages.chain([finished.stdout.text.as_str()]).any(|text| text.contains(MARK))
}

/// Whether the deadline ended an attack that something else should have ended.
pub(super) fn only_late(snippet: &Snippet, ran: &Ran) -> bool {
    let timeout = |finished: &Finished| finished.judged.verdict == Verdict::Timeout;
    ran.as_ref().is_ok_and(timeout) && !snippet.expect.verdicts.contains(&Verdict::Timeout)
}

/// What is wrong with an attack's end; nothing where it was contained.
pub(super) fn complaint(snippet: &Snippet, ran: &Ran) -> Option<String> {
    let finished = match ran {
        Ok(finished) => finished,
        Err(error) => return Some(format!("no verdict: {error}")),
    };
    let mut complaints = Vec::new();
    let (verdict, reward) = (finished.judged.verdict, finished.judged.reward);
    if !snippet.expect.verdicts.contains(&verdict) {
        let wanted: Vec<_> = snippet.expect.verdicts.iter().map(|verdict| verdict.word()).collect();
        complaints.push(format!("verdict {} in place of {}", verdict.word(), wanted.join(" or ")));
    }
    if reward != Some(0.0) {
        complaints.push(format!("reward {reward:?}"));
    }
    if escaped(finished) {
        complaints.push(format!("it says {MARK}: {}", first_line_with_mark(&finished.stdout.text)));
    }
    if finished.events.leftovers > 0 {
        complaints.push(format!("{} processes outlived it", finished.events.leftovers));
    }
    (!complaints.is_empty()).then(|| complaints.join(", "))
}

fn first_line_with_mark(text: &str) -> &str {
    text.lines().find(|line| line.contains(MARK)).unwrap_or_default()
}

/// What is wrong with an honest twin's end.
pub(super) fn twin_complaint(ran: &Ran) -> Option<String> {
    match ran {
        Ok(finished) if finished.judged.reward == Some(1.0) => None,
        Ok(finished) => Some(format!(
            "an honest program got {} and reward {:?}",
            finished.judged.verdict.word(),
            finished.judged.reward
        )),
        Err(error) => Some(format!("no verdict: {error}")),
    }
}
