//! The data of a sweep as it was read: which trials exist and what each left behind.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::metrics::Metrics;
use crate::run_summary::RunSummary;

/// Where the untrusted code ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// In the trainer's own process, unprotected: the baseline.
    InLoop,
    /// In a fresh sandbox for each completion: the treatment.
    Rlox,
}

impl Condition {
    /// Both, baseline first.
    pub const ALL: [Self; 2] = [Self::InLoop, Self::Rlox];

    /// The name used in directories and in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InLoop => "in_loop",
            Self::Rlox => "rlox",
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Share of completions that were replaced by adversarial code, in hundredths of a percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fraction(u32);

impl Fraction {
    /// No adversarial code.
    pub const ZERO: Self = Self(0);

    /// From percent as a directory name writes it: `0`, `5`, `0.5`. At most two decimals, no leading zeros.
    #[must_use]
    pub fn parse_percent(text: &str) -> Option<Self> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        if whole.is_empty() || whole.len() > 3 || decimals.len() > 2 {
            return None;
        }
        let digits = format!("{whole}{decimals:0<2}");
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let fraction = Self(digits.parse().ok()?);
        (fraction.0 <= 10_000 && fraction.to_string() == text).then_some(fraction)
    }

    /// In percent.
    #[must_use]
    pub fn percent(self) -> f64 {
        f64::from(self.0) / 100.0
    }

    /// As a share between 0 and 1.
    #[must_use]
    pub fn share(self) -> f64 {
        f64::from(self.0) / 10_000.0
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 100, self.0 % 100);
        match (rest, rest % 10) {
            (0, _) => write!(f, "{whole}"),
            (_, 0) => write!(f, "{whole}.{}", rest / 10),
            _ => write!(f, "{whole}.{rest:02}"),
        }
    }
}

impl Serialize for Fraction {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Which trial: one condition, one adversarial fraction, one seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrialKey {
    /// Where the code ran.
    pub condition: Condition,
    /// How much of it was adversarial.
    pub fraction: Fraction,
    /// The seed, which pairs the trials of both conditions.
    pub seed: u32,
}

impl TrialKey {
    /// From a directory's name; `None` where it is not one that [`fmt::Display`] writes.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let (condition, rest) = name.split_once("_seed")?;
        let condition = Condition::ALL.into_iter().find(|c| c.as_str() == condition)?;
        let (seed, percent) = rest.split_once("_fraction")?;
        let key = Self { condition, fraction: Fraction::parse_percent(percent)?, seed: seed.parse().ok()? };
        (key.to_string() == name).then_some(key)
    }
}

impl fmt::Display for TrialKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_seed{}_fraction{}", self.condition, self.seed, self.fraction)
    }
}

impl Serialize for TrialKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What is wrong with one file of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// A symbolic link, a directory, a pipe or a device stands where a file should.
    NotARegularFile,
    /// Larger than the limit.
    TooLarge {
        /// Most bytes that are read.
        limit_bytes: u64,
    },
    /// The system refused to open or read it.
    Unreadable {
        /// The kind of refusal.
        kind: std::io::ErrorKind,
    },
    /// Not a JSON object.
    NotJson,
    /// A required field is absent or has the wrong type.
    BadField {
        /// Its name.
        field: &'static str,
    },
    /// Condition, seed or fraction differ from the directory's name.
    OtherTrial {
        /// The first field that differs.
        field: &'static str,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotARegularFile => f.write_str("not a regular file"),
            Self::TooLarge { limit_bytes } => write!(f, "larger than {limit_bytes} bytes"),
            Self::Unreadable { kind } => write!(f, "unreadable: {kind}"),
            Self::NotJson => f.write_str("not a JSON object"),
            Self::BadField { field } => write!(f, "field `{field}` is absent or of the wrong type"),
            Self::OtherTrial { field } => write!(f, "field `{field}` differs from the directory's name"),
        }
    }
}

impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// How far a trial got, judged by its `run_summary.json`.
#[derive(Debug, Clone, PartialEq)]
pub enum TrialState {
    /// There is no summary: never started, still running, or its record was lost.
    Unfinished,
    /// There is a summary that cannot be used. Not counted as survived, nor as dead.
    Unusable(Problem),
    /// It ended and was recorded.
    Finished(Box<RunSummary>),
}

/// One trial directory.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// From the directory's name, which the scheduler chose.
    pub key: TrialKey,
    /// From `run_summary.json`.
    pub state: TrialState,
    /// From `metrics.jsonl`.
    pub metrics: Metrics,
}

impl Trial {
    /// The record of a finished trial.
    #[must_use]
    pub fn finished(&self) -> Option<&RunSummary> {
        match &self.state {
            TrialState::Finished(run) => Some(run),
            TrialState::Unfinished | TrialState::Unusable(_) => None,
        }
    }

    /// The record of a trial that survived.
    #[must_use]
    pub fn survivor(&self) -> Option<&RunSummary> {
        self.finished().filter(|run| run.survived)
    }
}

/// A sweep as it was read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sweep {
    /// In the order condition, fraction, seed; at most one per key.
    pub trials: Vec<Trial>,
    /// Trials that were planned, if known. Without a plan, the grid is every combination of the
    /// fractions and seeds that were seen with both conditions.
    pub plan: Option<Vec<TrialKey>>,
    /// Entries of the sweep directory that look like trials and are not directories.
    pub refused_entries: Vec<TrialKey>,
}

impl Sweep {
    /// States which trials were planned, so that one that left no directory is listed as missing.
    #[must_use]
    pub fn with_plan(mut self, plan: impl IntoIterator<Item = TrialKey>) -> Self {
        let mut keys: Vec<_> = plan.into_iter().collect();
        keys.sort_unstable();
        keys.dedup();
        self.plan = Some(keys);
        self
    }

    /// Every trial that should exist.
    #[must_use]
    pub fn expected(&self) -> Vec<TrialKey> {
        let mut keys = self.plan.clone().unwrap_or_else(|| {
            let (fractions, seeds) = (self.seen(|key| key.fraction), self.seen(|key| key.seed));
            Condition::ALL
                .into_iter()
                .flat_map(|condition| {
                    let seeds = &seeds;
                    fractions.iter().flat_map(move |&fraction| {
                        seeds.iter().map(move |&seed| TrialKey { condition, fraction, seed })
                    })
                })
                .collect()
        });
        keys.extend(self.trials.iter().map(|trial| trial.key));
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// The fractions of this sweep, ascending.
    #[must_use]
    pub fn fractions(&self) -> Vec<Fraction> {
        let mut fractions: Vec<_> = self.expected().into_iter().map(|key| key.fraction).collect();
        fractions.sort_unstable();
        fractions.dedup();
        fractions
    }

    /// The trials of one cell, by seed.
    pub fn cell(&self, condition: Condition, fraction: Fraction) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(move |t| t.key.condition == condition && t.key.fraction == fraction)
    }

    fn seen<T: Ord>(&self, part: impl Fn(TrialKey) -> T) -> Vec<T> {
        let mut parts: Vec<T> = self.trials.iter().map(|trial| part(trial.key)).collect();
        parts.extend(self.refused_entries.iter().map(|&key| part(key)));
        parts.sort_unstable();
        parts.dedup();
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_names_round_trip_and_impostors_are_refused() {
        for name in ["in_loop_seed0_fraction0", "rlox_seed4294967295_fraction10", "rlox_seed1_fraction0.5"] {
            assert_eq!(TrialKey::parse(name).map(|key| key.to_string()).as_deref(), Some(name));
        }
        for name in [
            "rlox_seed01_fraction5",
            "rlox_seed+1_fraction5",
            "rlox_seed1_fraction05",
            "rlox_seed1_fraction5.0",
            "rlox_seed1_fraction101",
            "rlox_seed1_fraction",
            "rlox_seed1_fraction5/..",
            "vllm_seed1_fraction5",
            "rlox_seed4294967296_fraction5",
            "rlox_seed1_fraction٥",
        ] {
            assert_eq!(TrialKey::parse(name), None, "{name}");
        }
    }

    #[test]
    fn fractions_order_by_value_not_by_text() {
        let mut fractions = ["10", "0.25", "5", "0"].map(|text| Fraction::parse_percent(text).unwrap());
        fractions.sort_unstable();
        assert_eq!(fractions.map(|f| f.to_string()), ["0", "0.25", "5", "10"]);
    }
}
