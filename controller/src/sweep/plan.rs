//! Which trials a sweep has and what each runs. Pure.
//!
//! A plan is written by users: as TOML, as a request's body, or by flags. What is absent is the tutorial's.

use std::time::Duration;

use clap::ValueEnum;
use rlox_report::{Condition, Fraction, TrialKey};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// Most trials of one sweep; more directories than that are no sweep for the report either.
const MAX_TRIALS: usize = 1024;
/// As many as the report reads.
const MAX_STEPS: u64 = 20_000;
const MAX_ARGUMENTS: usize = 64;
const MAX_TEXT: usize = 4096;
/// What a launcher allows.
const DAY_SECS: u64 = 24 * 3600;
/// The policy of the benchmark.
const BUILT_IN: &str = "built-in";
/// The tasks of the benchmark.
const TASKS: &str = "tasks_v1";
/// Where the corpus is in a trial's container.
pub(super) const CORPUS: &str = "/opt/rlox/corpus";

/// Sizes of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    /// The published grid: 2 conditions, 3 seeds, 4 fractions, 24 trials of 30 steps.
    Full,
    /// A quick look at the whole path: 2 conditions, 1 seed, 0 and 10 %, 4 trials.
    Smoke,
}

/// What runs trials.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EngineKind {
    /// Containers of `rlox-runtime` on this host.
    #[default]
    Runtime,
}

/// A sweep's settings. Everything may be left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Plan {
    /// `in_loop`, `rlox`.
    pub(crate) conditions: Vec<String>,
    pub(crate) seeds: Vec<u32>,
    /// Hostile completions in percent, at most two decimals; numbers are taken, too.
    #[serde(deserialize_with = "texts_or_numbers")]
    #[schema(example = json!(["0", "1", "5", "10"]))]
    pub(crate) percents: Vec<String>,
    /// Training steps of each trial.
    pub(crate) max_steps: u64,
    /// `built-in`, or what `trl_grpo_run.py --model` takes: a directory that the trial's container holds.
    pub(crate) model: String,
    /// The name of a file of coding tasks in `corpus/`, without its ending.
    pub(crate) task_set: String,
    pub(crate) engine: EngineKind,
    /// Trials at once; left out, one a core, at most 8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parallel: Option<u16>,
    /// Arguments for the trial script beyond those that name the trial.
    pub(crate) trainer_args: Vec<String>,
    pub(crate) limits: TrialLimits,
}

impl Default for Plan {
    fn default() -> Self {
        Self::of(Profile::Full)
    }
}

/// Percentages as JSON and TOML have them.
fn texts_or_numbers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Percent {
        Text(String),
        Whole(u64),
        Number(f64),
    }
    let percents = Vec::<Percent>::deserialize(deserializer)?;
    let text = |percent| match percent {
        Percent::Text(text) => text,
        Percent::Whole(number) => number.to_string(),
        Percent::Number(number) => number.to_string(),
    };
    Ok(percents.into_iter().map(text).collect())
}

/// What one trial's container may use, and how long it may take.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
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
            model: BUILT_IN.into(),
            task_set: TASKS.into(),
            engine: EngineKind::Runtime,
            parallel: None,
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

    /// Checks everything that can be refused before anything runs, and returns the trials.
    pub(crate) fn check(&self) -> Result<Vec<TrialKey>, String> {
        let within = |name: &str, value: u64, least: u64, most: u64| match (least..=most).contains(&value) {
            true => Ok(()),
            false => Err(format!("{name} is {value}; {least} to {most} are possible")),
        };
        within("max_steps", self.max_steps, 1, MAX_STEPS)?;
        within("parallel", self.parallel.unwrap_or(1).into(), 1, 64)?;
        let limits = &self.limits;
        within("limits.memory_mb", limits.memory_mb, 32, 1 << 20)?;
        within("limits.pids", limits.pids, 4, 1 << 15)?;
        within("limits.wall_secs", limits.wall_secs, 1, DAY_SECS)?;
        within("limits.stall_secs", limits.stall_secs, 1, DAY_SECS)?;
        within("limits.start_secs", limits.start_secs, 1, DAY_SECS)?;
        within("limits.disk_mb", limits.disk_mb, 1, 1 << 20)?;
        let plain = |each: char| each.is_ascii_alphanumeric() || each == '_' || each == '-';
        if self.task_set.is_empty() || self.task_set.len() > 64 || !self.task_set.chars().all(plain) {
            return Err(format!("{:?} is no name of a task set, such as {TASKS}", self.task_set));
        }
        let texts = || self.trainer_args.iter().chain([&self.model]);
        if self.trainer_args.len() > MAX_ARGUMENTS
            || texts().any(|text| text.len() > MAX_TEXT || text.contains('\0'))
        {
            return Err(format!(
                "model and trainer_args: at most {MAX_ARGUMENTS} arguments of {MAX_TEXT} bytes, without NUL"
            ));
        }
        if self.model.is_empty() || self.model.starts_with('-') {
            return Err(format!("{:?} is no model", self.model));
        }
        let count =
            self.conditions.len().saturating_mul(self.seeds.len()).saturating_mul(self.percents.len());
        if count == 0 || count > MAX_TRIALS {
            return Err(format!("{count} trials; 1 to {MAX_TRIALS} are possible in one sweep"));
        }
        let keys = self.trials()?;
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != keys.len() {
            return Err("a condition, a seed or a percentage is named twice".into());
        }
        Ok(keys)
    }

    /// Whether two plans make the same trials. How many run at once is no setting of a trial.
    pub(crate) fn same_trials(&self, other: &Self) -> bool {
        let mut other = other.clone();
        other.parallel = self.parallel;
        *self == other
    }

    /// The file of the task set.
    pub(crate) fn tasks_file(&self) -> String {
        format!("{}.jsonl", self.task_set)
    }

    /// How many trials run at once.
    pub(crate) fn at_once(&self) -> u16 {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        self.parallel.unwrap_or_else(|| u16::try_from(cores.min(8)).unwrap_or(1))
    }

    /// The trial script's arguments.
    pub(crate) fn arguments(&self, key: TrialKey, server: &str, output: &str, corpus: &str) -> Vec<String> {
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
        if self.model != BUILT_IN {
            arguments.extend(["--model".into(), self.model.clone()]);
        }
        if self.task_set != TASKS {
            arguments.extend(["--tasks".into(), format!("{corpus}/{}", self.tasks_file())]);
        }
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
        let arguments = |key| plan.arguments(key, "unix:/s", "/out", "/corpus");
        let differing: Vec<_> = arguments(keys[2])
            .into_iter()
            .zip(arguments(keys[14]))
            .filter(|(left, right)| left != right)
            .collect();
        assert_eq!(differing, [("in_loop".to_owned(), "rlox".to_owned())]);
    }

    #[test]
    fn an_empty_body_is_the_tutorials_sweep_and_what_is_unknown_is_refused() {
        assert_eq!(serde_json::from_str::<Plan>("{}").unwrap(), Plan::of(Profile::Full));
        let plan: Plan =
            serde_json::from_str(r#"{"percents": [0, 0.5, "10"], "limits": {"pids": 9}}"#).unwrap();
        assert_eq!((plan.percents, plan.limits.pids), (vec!["0".into(), "0.5".into(), "10".into()], 9));
        assert_eq!(plan.limits.memory_mb, 3072);
        for bad in [r#"{"seed": [1]}"#, r#"{"limits": {"memory": 1}}"#, r#"{"engine": "docker"}"#] {
            assert!(serde_json::from_str::<Plan>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn toml_and_json_say_the_same() {
        let plan = Plan::of(Profile::Smoke);
        let text = toml::to_string_pretty(&plan).unwrap();
        assert_eq!(toml::from_str::<Plan>(&text).unwrap(), plan, "{text}");
        assert_eq!(toml::from_str::<Plan>("").unwrap(), Plan::of(Profile::Full));
    }

    #[test]
    fn what_cannot_be_run_is_refused_before_it_begins() {
        assert_eq!(Plan::of(Profile::Full).check().unwrap().len(), 24);
        let refused = |change: fn(&mut Plan)| {
            let mut plan = Plan::of(Profile::Smoke);
            change(&mut plan);
            plan.check().unwrap_err()
        };
        assert!(refused(|plan| plan.seeds = vec![1, 1]).contains("twice"));
        assert!(refused(|plan| plan.seeds.clear()).contains("0 trials"));
        assert!(refused(|plan| plan.seeds = (0..5000).collect()).contains("20000 trials"));
        assert!(refused(|plan| plan.max_steps = 0).contains("max_steps"));
        assert!(refused(|plan| plan.task_set = "../x".into()).contains("../x"));
        assert!(refused(|plan| plan.trainer_args = vec!["\0".into()]).contains("NUL"));
        assert!(refused(|plan| plan.limits.wall_secs = u64::MAX).contains("limits.wall_secs"));
    }

    #[test]
    fn nonsense_is_named() {
        let mut plan = Plan::of(Profile::Smoke);
        plan.percents = vec!["500".into()];
        assert!(plan.trials().unwrap_err().contains("500"));
    }
}
