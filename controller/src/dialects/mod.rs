//! Other servers' requests and answers, so that a trainer changes one URL.
//!
//! `bytes → request of the dialect → Job → Finished → answer of the dialect`. A dialect decodes into a job that runs a
//! script, in the same queue and the same containers as everything else, and encodes what is known of its end. It
//! decides nothing: which ends are the program's own is `judge::script`. Status codes are in `api::dialects`.

mod counters;
mod files;
mod languages;
mod limits;
pub(crate) mod piston;
pub(crate) mod sandbox_fusion;
pub(crate) mod submit;
#[cfg(test)]
mod testing;

use crate::job::{Finished, Job};
use crate::judge::Verdict;

pub(crate) use counters::{Counters, Outcome};
pub(crate) use limits::{Server, Terms};

/// Which server's clients ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    SandboxFusion,
    Piston,
}

impl Dialect {
    pub(crate) const ALL: [Self; 2] = [Self::SandboxFusion, Self::Piston];

    /// The word in metrics.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::SandboxFusion => "sandbox_fusion",
            Self::Piston => "piston",
        }
    }
}

/// A decoded request: what is run, and what its answer needs besides.
#[derive(Debug, Clone)]
pub(crate) struct Decoded<F> {
    pub(crate) job: Job,
    pub(crate) frame: F,
}

impl<F> Decoded<F> {
    pub(crate) fn split(self) -> (Job, F) {
        (self.job, self.frame)
    }
}

/// A request that is not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// It asks for what there is not, or makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// More than the server takes.
    #[error("{0}")]
    TooLarge(String),
    /// A failure of ours.
    #[error("{0}")]
    Fault(String),
}

impl Refusal {
    fn invalid<T>(detail: impl Into<String>) -> Result<T, Self> {
        Err(Self::Invalid(detail.into()))
    }
}

/// Why a finished job has no answer in a dialect: it says nothing of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Undecided {
    /// The load of the machine had the program's time, twice.
    Overloaded,
    /// The program met a limit that is lower than the one it was to have.
    Lowered(String),
}

/// Whether a finished job decides anything under these terms.
fn decided(finished: &Finished, terms: &Terms) -> Result<(), Undecided> {
    match finished.judged.verdict {
        Verdict::Timeout if finished.events.pressure => Err(Undecided::Overloaded),
        Verdict::Timeout => terms.time_decides().map_err(Undecided::Lowered),
        Verdict::OomKilled => terms.memory_decides().map_err(Undecided::Lowered),
        Verdict::Passed
        | Verdict::Failed
        | Verdict::Error
        | Verdict::Killed
        | Verdict::OutputLimit
        | Verdict::Completed => Ok(()),
    }
}

/// What was seen of attempts to cheat, as words.
pub(crate) fn tampering(finished: &Finished) -> Vec<String> {
    let seen = finished.judged.tampering.iter();
    let mut kinds: Vec<String> =
        seen.filter_map(|each| serde_json::to_value(each.kind).ok()?.as_str().map(str::to_owned)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// The first words on why a run is no success; empty for one that is.
fn reason(finished: &Finished, terms: &Terms) -> String {
    let early =
        finished.judged.tampering.iter().find(|each| each.kind == crate::tampering::Kind::ExitBeforeEnd);
    match finished.judged.verdict {
        Verdict::Timeout => format!("time limit of {} s exceeded", terms.timeout().as_secs_f64()),
        Verdict::OomKilled => format!("memory limit of {} MiB exceeded", terms.memory_mb()),
        Verdict::OutputLimit => "more output than any limit allows".to_owned(),
        Verdict::Error => early.map(|seen| seen.detail.clone()).unwrap_or_default(),
        Verdict::Passed | Verdict::Failed | Verdict::Killed | Verdict::Completed => String::new(),
    }
}
