//! What a sweep says, as plain data. [`summarise`] fills it; its serialised form is `p3_summary.json`,
//! whose first two keys keep the tutorial's shape exactly.

mod build;
mod parity;

use serde::ser::{SerializeMap, Serializer};
use serde::{Serialize, ser};

use crate::model::{Condition, Fraction, TrialKey};
use crate::published::Published;
use crate::run_summary::ExitStatus;
use crate::stats::Interval;

pub use build::summarise;
pub use parity::PARITY_MARGIN;

/// Everything that the report states. Field order is the order in the file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Survivors and trials by condition and percent.
    pub p3_headline: Headline,
    /// Whether both conditions learn equally well without adversarial code.
    pub quality_parity_guardrail: Guardrail,
    /// How the guardrail's status came about.
    pub parity: Parity,
    /// Survival with intervals; a cell each, then each condition as a whole.
    pub survival: Vec<SurvivalCell>,
    /// Rewards by cell.
    pub rewards: Vec<RewardCell>,
    /// Forged rewards, masked samples and contagion by condition.
    pub reward_integrity: Vec<Integrity>,
    /// Step times by cell, then each condition as a whole.
    pub step_time: Vec<StepTime>,
    /// Baseline over treatment, by fraction and as a whole.
    pub step_time_ratio: Vec<StepTimeRatio>,
    /// GPU utilisation by condition.
    pub gpu: Vec<Gpu>,
    /// A line a trial directory.
    pub trials: Vec<TrialLine>,
    /// Trials that are in no count above, with the reason.
    pub missing_trials: Vec<UnjudgedTrial>,
    /// How the numbers were made.
    pub method: Method,
    /// The tutorial's result: not measured here.
    pub published: Published,
}

/// Survivors and trials: condition → percent → `[survived, total]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Headline {
    /// Baseline.
    pub in_loop: Vec<(Fraction, [u32; 2])>,
    /// Treatment.
    pub rlox: Vec<(Fraction, [u32; 2])>,
}

impl Headline {
    /// One condition's cells, ascending by fraction.
    #[must_use]
    pub fn condition(&self, condition: Condition) -> &[(Fraction, [u32; 2])] {
        match condition {
            Condition::InLoop => &self.in_loop,
            Condition::Rlox => &self.rlox,
        }
    }

    /// One cell; `[0, 0]` where nothing was judged.
    #[must_use]
    pub fn cell(&self, condition: Condition, fraction: Fraction) -> [u32; 2] {
        self.condition(condition).iter().find(|(f, _)| *f == fraction).map_or([0, 0], |(_, cell)| *cell)
    }
}

impl Serialize for Headline {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Row<'a>(&'a [(Fraction, [u32; 2])]);
        impl Serialize for Row<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.0.iter().map(|(fraction, cell)| (fraction, cell)))
            }
        }
        let mut map = serializer.serialize_map(Some(2))?;
        for condition in Condition::ALL {
            map.serialize_entry(condition.as_str(), &Row(self.condition(condition)))?;
        }
        ser::SerializeMap::end(map)
    }
}

/// Whether learning is unharmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum GuardrailStatus {
    /// Both conditions agree.
    Met,
    /// They do not.
    NotMet,
    /// A pair of seeds lacks a side, or there are too few pairs.
    Incomplete,
}

impl GuardrailStatus {
    /// As in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Met => "MET",
            Self::NotMet => "NOT_MET",
            Self::Incomplete => "INCOMPLETE",
        }
    }
}

/// The tutorial's guardrail; means over the surviving seeds at 0 %, rounded to three decimals.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Guardrail {
    /// Baseline.
    pub final_reward_in_loop: Option<f64>,
    /// Treatment.
    pub final_reward_rlox: Option<f64>,
    /// The judgement, made on unrounded values.
    pub status: GuardrailStatus,
}

/// One seed's final rewards in both conditions at 0 %.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pair {
    /// The seed.
    pub seed: u32,
    /// Baseline's final reward.
    pub in_loop: f64,
    /// Treatment's final reward.
    pub rlox: f64,
    /// Treatment less baseline.
    pub difference: f64,
    /// Bootstrap interval of the baseline's last rewards.
    pub interval_in_loop: Option<Interval>,
    /// Bootstrap interval of the treatment's last rewards.
    pub interval_rlox: Option<Interval>,
    /// The intervals overlap, or the difference is within the margin.
    pub agrees: bool,
}

/// What the guardrail's status rests on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Parity {
    /// Pairs with both sides.
    pub pairs: Vec<Pair>,
    /// Seeds at 0 % that lack a side.
    pub seeds_without_pair: Vec<u32>,
    /// Mean of the paired differences, treatment less baseline.
    pub mean_difference: Option<f64>,
    /// Its bootstrap interval.
    pub difference_interval: Option<Interval>,
    /// The interval includes 0, or the mean difference is within the margin.
    pub means_agree: Option<bool>,
    /// Pairs that agree by themselves.
    pub pairs_agreeing: usize,
    /// At least two thirds of the pairs agree.
    pub two_thirds_agree: Option<bool>,
    /// Stricter than the status needs: the whole interval lies within the margin.
    pub equivalent_within_margin: Option<bool>,
}

/// Survival of a cell, or of a whole condition.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SurvivalCell {
    /// Which condition.
    pub condition: Condition,
    /// Which fraction; `all` for the whole condition.
    #[serde(serialize_with = "fraction_or_all")]
    pub fraction: Option<Fraction>,
    /// Trials that survived.
    pub survived: u32,
    /// Trials that ended and could be judged.
    pub total: u32,
    /// Wilson interval of the share.
    pub interval: Option<Interval>,
}

/// Rewards of one cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RewardCell {
    /// Which condition.
    pub condition: Condition,
    /// Which fraction.
    pub fraction: Fraction,
    /// Mean reward of step 1 over every trial that reached it, dead ones included.
    pub first_reward: Option<f64>,
    /// Survivors with a final reward; the fields below are over these alone.
    pub survivors: usize,
    /// Mean final reward, all samples.
    pub final_reward: Option<f64>,
    /// Its bootstrap interval over seeds.
    pub final_reward_interval: Option<Interval>,
    /// Mean final reward of the model's own samples.
    pub final_reward_clean: Option<f64>,
    /// Its bootstrap interval over seeds.
    pub final_reward_clean_interval: Option<Interval>,
    /// Each survivor's final reward, by seed.
    pub final_rewards: Vec<f64>,
}

/// What adversarial code achieved against one condition.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Integrity {
    /// Which condition.
    pub condition: Condition,
    /// Adversarial samples that ran.
    pub injected_samples: u64,
    /// Those that got a positive reward.
    pub forged_rewards: u64,
    /// Share of those.
    pub forged_share: Option<f64>,
    /// Samples left out of updates for want of a verdict.
    pub masked_samples: u64,
    /// Traces of adversarial code in the trainer.
    pub contagion_events: u64,
    /// Trials with at least one.
    pub trials_with_contagion: usize,
}

/// Seconds a step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StepTime {
    /// Which condition.
    pub condition: Condition,
    /// Which fraction; `all` for the whole condition.
    #[serde(serialize_with = "fraction_or_all")]
    pub fraction: Option<Fraction>,
    /// Steps that were timed.
    pub steps: usize,
    /// Median.
    pub median_secs: Option<f64>,
    /// 99th percentile.
    pub p99_secs: Option<f64>,
    /// Longest.
    pub max_secs: Option<f64>,
    /// Median of the part that went to verification.
    pub verify_median_secs: Option<f64>,
}

/// Baseline's step time over the treatment's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StepTimeRatio {
    /// Which fraction; `all` for the whole sweep.
    #[serde(serialize_with = "fraction_or_all")]
    pub fraction: Option<Fraction>,
    /// Of the medians.
    pub median: Option<f64>,
    /// Of the 99th percentiles.
    pub p99: Option<f64>,
}

/// GPU utilisation of one condition.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gpu {
    /// Which condition.
    pub condition: Condition,
    /// Steps with a sample; 0 where no GPU was there to be sampled.
    pub samples: usize,
    /// Mean percent.
    pub mean_percent: Option<f64>,
}

/// What became of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialOutcome {
    /// Did all of its steps.
    Survived,
    /// Ended before.
    Died,
    /// No record of an end.
    Unfinished,
    /// A record that cannot be used.
    Unusable,
}

/// One trial, as its files tell it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrialLine {
    /// Its directory.
    pub trial: TrialKey,
    /// What became of it.
    pub outcome: TrialOutcome,
    /// How its process ended.
    pub exit_status: Option<ExitStatus>,
    /// The recorder's explanation, or why its claim was not believed.
    pub reason: Option<String>,
    /// Steps done.
    pub steps_completed: Option<u64>,
    /// Steps asked for.
    pub max_steps: Option<u64>,
    /// Wall-clock seconds.
    pub wall_secs: Option<f64>,
    /// Reward of step 1.
    pub first_reward: Option<f64>,
    /// Reward at the end, all samples.
    pub final_reward: Option<f64>,
    /// Reward at the end, the model's own samples.
    pub final_reward_clean: Option<f64>,
    /// Traces of adversarial code in the trainer.
    pub contagion_events: Option<u64>,
    /// Adversarial samples.
    pub injected_samples: Option<u64>,
    /// Those with a positive reward.
    pub forged_rewards: Option<u64>,
    /// Samples without a verdict.
    pub masked_samples: Option<u64>,
    /// Most memory held.
    pub memory_peak_bytes: Option<u64>,
    /// Most tasks held.
    pub pids_peak: Option<u64>,
    /// Steps in `metrics.jsonl`.
    pub metrics_rows: usize,
    /// Lines in it that are no step.
    pub metrics_garbage_lines: u64,
    /// Its last line is torn.
    pub metrics_truncated_tail: bool,
    /// It is larger than was read.
    pub metrics_cut: bool,
    /// Why it could not be read.
    pub metrics_problem: Option<String>,
}

/// A trial that is in no count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnjudgedTrial {
    /// Which.
    pub trial: TrialKey,
    /// Why.
    pub why: String,
}

/// How the numbers were made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Method {
    /// Level of every interval.
    pub confidence: f64,
    /// Interval of survival.
    pub survival_interval: &'static str,
    /// Interval of means.
    pub mean_interval: &'static str,
    /// Resamples of each.
    pub bootstrap_resamples: usize,
    /// Seed of each.
    pub bootstrap_seed: u64,
    /// Final rewards closer than this agree.
    pub parity_margin: f64,
    /// The guardrail in words.
    pub parity_rule: String,
    /// Steps whose rewards make a pair's intervals.
    pub parity_final_steps: usize,
}

fn fraction_or_all<S: Serializer>(fraction: &Option<Fraction>, serializer: S) -> Result<S::Ok, S::Error> {
    match fraction {
        Some(fraction) => fraction.serialize(serializer),
        None => serializer.serialize_str("all"),
    }
}
