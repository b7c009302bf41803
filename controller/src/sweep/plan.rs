//! Which trials a sweep has and what each runs. Pure.

use std::time::Duration;

use clap::ValueEnum;
use rlox_report::{Condition, Fraction, TrialKey};
use serde::{Deserialize, Serialize};

/// Sizes of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    /// The published grid: 2 conditions, 3 seeds, 4 fractions, 24 trials of 30 steps.
    Full,
    /// A quick look at the whole path: 2 conditions, 1 seed, 0 and 10 %, 4 trials.
    Smoke,
}

/// A sweep's settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) conditions: Vec<String>,
    pub(crate) seeds: Vec<u32>,
    pub(crate) percents: Vec<String>,
    pub(crate) max_steps: u64,
    /// Arguments for the trial script beyond those that name the trial.
    pub(crate) trainer_args: Vec<String>,
    pub(crate) limits: TrialLimits,
}

/// What one trial's container may use, and how long it may take.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct TrialLimits {
    /// Memory in MiB.
    pub(crate) memory_mb: u64,
    /// Tasks.
    pub(crate) pids: u64,
    /// Wall clock of the whole trial in seconds.
    pub(crate) wall_secs: u64,
    /// Longest time without an ended step, in seconds.
    pub(crate) stall_secs: u64,
    /// Longest time until training begins: imports and loading of the model.
    pub(crate) start_secs: u64,
    /// Largest output directory in MiB.
    pub(crate) disk_mb: u64,
}

impl Default for TrialLimits {
    fn default() -> Self {
        Self { memory_mb: 3072, pids: 128, wall_secs: 1800, stall_secs: 30, start_secs: 120, disk_mb: 256 }
    }
}

impl TrialLimits {
    /// How long the trial may go without a sign of progress.
    pub(crate) fn patience(&self, training_began: bool) -> Duration {
        Duration::from_secs(if training_began { self.stall_secs } else { self.start_secs })
    }
}

impl Plan {
    /// The plan of a profile.
    pub(crate) fn of(profile: Profile) -> Self {
        let (seeds, percents): (Vec<u32>, &[&str]) = match profile {
            Profile::Full => (vec![0, 1, 2], &["0", "1", "5", "10"]),
            Profile::Smoke => (vec![0], &["0", "10"]),
        };
        Self {
            conditions: Condition::ALL.iter().map(ToString::to_string).collect(),
            seeds,
            percents: percents.iter().map(|percent| (*percent).to_owned()).collect(),
            max_steps: 30,
            trainer_args: Vec::new(),
            limits: TrialLimits::default(),
        }
    }

    /// Every trial, in the order of running: one condition after the other, so that no trial of one shares the
    /// machine with a trial of the other that blows up.
    pub(crate) fn trials(&self) -> Result<Vec<TrialKey>, String> {
        let fractions: Vec<Fraction> = self
            .percents
            .iter()
            .map(|text| {
                Fraction::parse_percent(text).ok_or_else(|| {
                    format!("{text:?} is no percentage; write 0 to 100 with at most two decimals")
                })
            })
            .collect::<Result<_, _>>()?;
        let conditions: Vec<Condition> = self
            .conditions
            .iter()
            .map(|name| {
                Condition::ALL
                    .into_iter()
                    .find(|condition| condition.as_str() == name)
                    .ok_or_else(|| format!("{name:?} is no condition; there are in_loop and rlox"))
            })
            .collect::<Result<_, _>>()?;
        let mut keys = Vec::new();
        for &condition in &conditions {
            for &seed in &self.seeds {
                keys.extend(fractions.iter().map(|&fraction| TrialKey { condition, fraction, seed }));
            }
        }
        Ok(keys)
    }

    /// The trial script's arguments.
    pub(crate) fn arguments(&self, key: TrialKey, server: &str, output: &str) -> Vec<String> {
        let mut arguments: Vec<String> = [
            "--backend",
            key.condition.as_str(),
            "--adversarial-fraction",
            &key.fraction.share().to_string(),
            "--seed",
            &key.seed.to_string(),
            "--max-steps",
            &self.max_steps.to_string(),
            "--rlox-server-url",
            server,
            "--output-dir",
            output,
        ]
        .map(str::to_owned)
        .to_vec();
        arguments.extend(self.trainer_args.iter().cloned());
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_profile_is_the_published_grid() {
        let keys = Plan::of(Profile::Full).trials().unwrap();
        assert_eq!(keys.len(), 24);
        let names: std::collections::BTreeSet<_> = keys.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), 24);
        assert!(names.contains("in_loop_seed0_fraction5") && names.contains("rlox_seed2_fraction10"));
    }

    #[test]
    fn one_condition_runs_after_the_other() {
        let keys = Plan::of(Profile::Smoke).trials().unwrap();
        let conditions: Vec<_> = keys.iter().map(|key| key.condition.as_str()).collect();
        assert_eq!(conditions, ["in_loop", "in_loop", "rlox", "rlox"]);
    }

    #[test]
    fn both_conditions_get_the_same_arguments_but_for_the_backend() {
        let plan = Plan::of(Profile::Full);
        let keys = plan.trials().unwrap();
        let arguments = |key| plan.arguments(key, "unix:/s", "/out");
        let differing: Vec<_> = arguments(keys[2])
            .into_iter()
            .zip(arguments(keys[14]))
            .filter(|(left, right)| left != right)
            .collect();
        assert_eq!(differing, [("in_loop".to_owned(), "rlox".to_owned())]);
    }

    #[test]
    fn nonsense_is_named() {
        let mut plan = Plan::of(Profile::Smoke);
        plan.percents = vec!["500".into()];
        assert!(plan.trials().unwrap_err().contains("500"));
    }
}
