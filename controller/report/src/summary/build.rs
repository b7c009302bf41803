//! From a loaded sweep to its [`Summary`]. Pure: the same sweep gives the same bytes.

use super::parity::{FINAL_STEPS, MIN_PAIRS, PARITY_MARGIN, guardrail};
use super::{
    Gpu, Headline, Integrity, Method, RewardCell, StepTime, StepTimeRatio, Summary, SurvivalCell, TrialLine,
    TrialOutcome, UnjudgedTrial,
};
use crate::metrics::MetricsRow;
use crate::model::{Condition, Fraction, Problem, Sweep, Trial, TrialState};
use crate::published::PUBLISHED;
use crate::run_summary::RunSummary;
use crate::stats::{BOOTSTRAP_RESAMPLES, BOOTSTRAP_SEED, bootstrap_mean, mean, quantile, wilson};

/// States what a sweep says.
#[must_use]
pub fn summarise(sweep: &Sweep) -> Summary {
    let fractions = sweep.fractions();
    let cells: Vec<(Condition, Fraction)> =
        Condition::ALL.into_iter().flat_map(|c| fractions.iter().map(move |&f| (c, f))).collect();
    let scopes: Vec<(Condition, Option<Fraction>)> = cells
        .iter()
        .map(|&(c, f)| (c, Some(f)))
        .chain(Condition::ALL.into_iter().map(|c| (c, None)))
        .collect();
    let headline = |condition| {
        fractions.iter().map(|&f| (f, count_survivors(sweep, condition, Some(f)))).collect::<Vec<_>>()
    };
    let step_time: Vec<StepTime> = scopes.iter().map(|&(c, f)| step_time(sweep, c, f)).collect();
    let (guardrail, parity) = guardrail(sweep);
    Summary {
        p3_headline: Headline { in_loop: headline(Condition::InLoop), rlox: headline(Condition::Rlox) },
        quality_parity_guardrail: guardrail,
        parity,
        survival: scopes
            .iter()
            .map(|&(condition, fraction)| {
                let [survived, total] = count_survivors(sweep, condition, fraction);
                SurvivalCell { condition, fraction, survived, total, interval: wilson(survived, total) }
            })
            .collect(),
        rewards: cells.iter().map(|&(c, f)| rewards(sweep, c, f)).collect(),
        reward_integrity: Condition::ALL.into_iter().map(|c| integrity(sweep, c)).collect(),
        step_time_ratio: fractions
            .iter()
            .map(|&f| Some(f))
            .chain([None])
            .map(|fraction| ratio(&step_time, fraction))
            .collect(),
        step_time,
        gpu: Condition::ALL.into_iter().map(|c| gpu(sweep, c)).collect(),
        trials: sweep.trials.iter().map(trial_line).collect(),
        missing_trials: unjudged(sweep),
        method: method(),
        published: PUBLISHED,
    }
}

/// The trials of a cell, or of a whole condition.
fn scope(sweep: &Sweep, condition: Condition, fraction: Option<Fraction>) -> impl Iterator<Item = &Trial> {
    sweep
        .trials
        .iter()
        .filter(move |t| t.key.condition == condition && fraction.is_none_or(|f| f == t.key.fraction))
}

fn count_survivors(sweep: &Sweep, condition: Condition, fraction: Option<Fraction>) -> [u32; 2] {
    scope(sweep, condition, fraction)
        .filter_map(Trial::finished)
        .fold([0, 0], |[survived, total], run| [survived + u32::from(run.survived), total + 1])
}

fn rewards(sweep: &Sweep, condition: Condition, fraction: Fraction) -> RewardCell {
    let of_survivors = |reward: fn(&RunSummary) -> Option<f64>| -> Vec<f64> {
        sweep.cell(condition, fraction).filter_map(|trial| reward(trial.survivor()?)).collect()
    };
    let first: Vec<f64> = sweep.cell(condition, fraction).filter_map(first_reward).collect();
    let finals = of_survivors(|run| run.final_reward);
    let clean = of_survivors(|run| run.final_reward_clean);
    RewardCell {
        condition,
        fraction,
        first_reward: mean(&first),
        survivors: finals.len(),
        final_reward: mean(&finals),
        final_reward_interval: bootstrap_mean(&finals),
        final_reward_clean: mean(&clean),
        final_reward_clean_interval: bootstrap_mean(&clean),
        final_rewards: finals,
    }
}

fn first_reward(trial: &Trial) -> Option<f64> {
    trial.finished().and_then(|run| run.first_reward).or_else(|| trial.metrics.first()?.reward)
}

/// A counter from the summary, or, where a run died without writing it, from its steps.
fn counter(
    trial: &Trial,
    run: fn(&RunSummary) -> Option<u64>,
    row: fn(&MetricsRow) -> Option<u64>,
) -> Option<u64> {
    trial.finished().and_then(run).or_else(|| {
        let mut steps = trial.metrics.rows.iter().filter_map(row).peekable();
        steps.peek()?;
        Some(steps.fold(0, u64::saturating_add))
    })
}

fn injected(trial: &Trial) -> Option<u64> {
    counter(trial, |run| run.injected_samples, |row| row.injected)
}

fn forged(trial: &Trial) -> Option<u64> {
    counter(trial, |run| run.forged_rewards, |row| row.forged)
}

fn masked(trial: &Trial) -> Option<u64> {
    counter(trial, |run| run.masked_samples, |row| row.masked)
}

fn integrity(sweep: &Sweep, condition: Condition) -> Integrity {
    let sum = |part: fn(&Trial) -> Option<u64>| {
        scope(sweep, condition, None).filter_map(part).fold(0, u64::saturating_add)
    };
    let contagion = |trial: &Trial| trial.finished().and_then(|run| run.contagion_events);
    let (injected_samples, forged_rewards) = (sum(injected), sum(forged));
    Integrity {
        condition,
        injected_samples,
        forged_rewards,
        forged_share: (injected_samples > 0).then(|| forged_rewards as f64 / injected_samples as f64),
        masked_samples: sum(masked),
        contagion_events: sum(contagion),
        trials_with_contagion: scope(sweep, condition, None)
            .filter(|trial| contagion(trial).is_some_and(|events| events > 0))
            .count(),
    }
}

fn step_time(sweep: &Sweep, condition: Condition, fraction: Option<Fraction>) -> StepTime {
    let of_steps = |part: fn(&MetricsRow) -> Option<f64>| -> Vec<f64> {
        scope(sweep, condition, fraction).flat_map(|t| &t.metrics.rows).filter_map(part).collect()
    };
    let times = of_steps(|row| row.step_time_secs);
    StepTime {
        condition,
        fraction,
        steps: times.len(),
        median_secs: quantile(&times, 0.5),
        p99_secs: quantile(&times, 0.99),
        max_secs: quantile(&times, 1.0),
        verify_median_secs: quantile(&of_steps(|row| row.verify_secs), 0.5),
    }
}

fn ratio(times: &[StepTime], fraction: Option<Fraction>) -> StepTimeRatio {
    let of = |part: fn(&StepTime) -> Option<f64>| {
        let side = |condition| {
            times.iter().find(|t| t.condition == condition && t.fraction == fraction).and_then(part)
        };
        let (baseline, treatment) = (side(Condition::InLoop)?, side(Condition::Rlox)?);
        (treatment > 0.0).then_some(baseline / treatment)
    };
    StepTimeRatio { fraction, median: of(|t| t.median_secs), p99: of(|t| t.p99_secs) }
}

fn gpu(sweep: &Sweep, condition: Condition) -> Gpu {
    let samples: Vec<f64> = scope(sweep, condition, None)
        .flat_map(|trial| &trial.metrics.rows)
        .filter_map(|row| row.gpu_util)
        .collect();
    Gpu { condition, samples: samples.len(), mean_percent: mean(&samples) }
}

fn trial_line(trial: &Trial) -> TrialLine {
    let run = trial.finished();
    let (outcome, problem) = match &trial.state {
        TrialState::Finished(run) if run.survived => (TrialOutcome::Survived, None),
        TrialState::Finished(_) => (TrialOutcome::Died, None),
        TrialState::Unfinished => (TrialOutcome::Unfinished, None),
        TrialState::Unusable(problem) => {
            (TrialOutcome::Unusable, Some(format!("run_summary.json: {problem}")))
        }
    };
    let told = run.and_then(|run| match (&run.contradiction, &run.reason) {
        (Some(contradiction), Some(reason)) => Some(format!("{contradiction} ({reason})")),
        (contradiction, reason) => contradiction.clone().or_else(|| reason.clone()),
    });
    TrialLine {
        trial: trial.key,
        outcome,
        exit_status: run.map(|run| run.exit_status.clone()),
        reason: told.or(problem),
        steps_completed: run.and_then(|run| run.steps_completed),
        max_steps: run.and_then(|run| run.max_steps),
        wall_secs: run.and_then(|run| run.wall_secs),
        first_reward: first_reward(trial),
        final_reward: run.and_then(|run| run.final_reward),
        final_reward_clean: run.and_then(|run| run.final_reward_clean),
        contagion_events: run.and_then(|run| run.contagion_events),
        injected_samples: injected(trial),
        forged_rewards: forged(trial),
        masked_samples: masked(trial),
        memory_peak_bytes: run.and_then(|run| run.memory_peak_bytes),
        pids_peak: run.and_then(|run| run.pids_peak),
        metrics_rows: trial.metrics.rows.len(),
        metrics_garbage_lines: trial.metrics.garbage_lines,
        metrics_truncated_tail: trial.metrics.truncated_tail,
        metrics_cut: trial.metrics.cut,
        metrics_problem: trial.metrics.problem.as_ref().map(Problem::to_string),
    }
}

fn unjudged(sweep: &Sweep) -> Vec<UnjudgedTrial> {
    sweep
        .expected()
        .into_iter()
        .filter_map(|key| {
            let why = match sweep.trials.iter().find(|trial| trial.key == key).map(|trial| &trial.state) {
                Some(TrialState::Finished(_)) => return None,
                Some(TrialState::Unfinished) => "not finished: no run_summary.json".to_owned(),
                Some(TrialState::Unusable(problem)) => format!("run_summary.json: {problem}"),
                None if sweep.refused_entries.contains(&key) => "not a directory".to_owned(),
                None => "no directory".to_owned(),
            };
            Some(UnjudgedTrial { trial: key, why })
        })
        .collect()
}

fn method() -> Method {
    Method {
        confidence: 0.95,
        survival_interval: "Wilson score",
        mean_interval: "percentile bootstrap over seeds; none for fewer than two",
        bootstrap_resamples: BOOTSTRAP_RESAMPLES,
        bootstrap_seed: BOOTSTRAP_SEED,
        parity_margin: PARITY_MARGIN,
        parity_rule: format!(
            "at 0 %, over survivors paired by seed: MET where (a) the interval of the mean paired difference \
             includes 0 or the mean difference is at most {PARITY_MARGIN}, and (b) in at least 2/3 of the \
             pairs the intervals of the last {FINAL_STEPS} rewards overlap or the final rewards differ by at \
             most {PARITY_MARGIN}; INCOMPLETE where a seed lacks a side or there are fewer than {MIN_PAIRS} \
             pairs"
        ),
        parity_final_steps: FINAL_STEPS,
    }
}
