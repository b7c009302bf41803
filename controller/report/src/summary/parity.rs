//! The quality-parity guardrail: do both conditions reach the same reward when nothing attacks?

use super::{Guardrail, GuardrailStatus, Pair, Parity};
use crate::model::{Condition, Fraction, Sweep, Trial};
use crate::stats::{bootstrap_mean, mean};

/// Final rewards closer than this agree.
pub const PARITY_MARGIN: f64 = 0.05;
/// Steps whose rewards make a pair's intervals.
pub(crate) const FINAL_STEPS: usize = 5;
/// Fewer pairs than this judge nothing.
pub(crate) const MIN_PAIRS: usize = 2;

pub(super) fn guardrail(sweep: &Sweep) -> (Guardrail, Parity) {
    let parity = parity(sweep);
    let finals = |condition| {
        let rewards: Vec<f64> = sweep
            .cell(condition, Fraction::ZERO)
            .filter_map(|trial| trial.survivor()?.final_reward)
            .collect();
        mean(&rewards).map(round3)
    };
    let guardrail = Guardrail {
        final_reward_in_loop: finals(Condition::InLoop),
        final_reward_rlox: finals(Condition::Rlox),
        status: status(&parity),
    };
    (guardrail, parity)
}

fn status(parity: &Parity) -> GuardrailStatus {
    match (parity.means_agree, parity.two_thirds_agree) {
        (Some(means), Some(pairs))
            if parity.seeds_without_pair.is_empty() && parity.pairs.len() >= MIN_PAIRS =>
        {
            if means && pairs {
                GuardrailStatus::Met
            } else {
                GuardrailStatus::NotMet
            }
        }
        _ => GuardrailStatus::Incomplete,
    }
}

fn parity(sweep: &Sweep) -> Parity {
    let mut seeds: Vec<u32> =
        sweep.expected().into_iter().filter(|k| k.fraction == Fraction::ZERO).map(|k| k.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let (mut pairs, mut seeds_without_pair) = (Vec::new(), Vec::new());
    for seed in seeds {
        match pair(sweep, seed) {
            Some(pair) => pairs.push(pair),
            None => seeds_without_pair.push(seed),
        }
    }
    let differences: Vec<f64> = pairs.iter().map(|pair| pair.difference).collect();
    let mean_difference = mean(&differences);
    let difference_interval = bootstrap_mean(&differences);
    let pairs_agreeing = pairs.iter().filter(|pair| pair.agrees).count();
    Parity {
        mean_difference,
        difference_interval,
        means_agree: mean_difference.map(|difference| {
            within_margin(difference) || difference_interval.is_some_and(|interval| interval.contains(0.0))
        }),
        pairs_agreeing,
        two_thirds_agree: (!pairs.is_empty()).then_some(3 * pairs_agreeing >= 2 * pairs.len()),
        equivalent_within_margin: difference_interval
            .map(|interval| within_margin(interval.low) && within_margin(interval.high)),
        pairs,
        seeds_without_pair,
    }
}

fn pair(sweep: &Sweep, seed: u32) -> Option<Pair> {
    let side = |condition| -> Option<(f64, &Trial)> {
        let trial = sweep.cell(condition, Fraction::ZERO).find(|trial| trial.key.seed == seed)?;
        Some((trial.survivor()?.final_reward?, trial))
    };
    let ((in_loop, baseline), (rlox, treatment)) = (side(Condition::InLoop)?, side(Condition::Rlox)?);
    let interval_in_loop = bootstrap_mean(&baseline.metrics.last_rewards(FINAL_STEPS));
    let interval_rlox = bootstrap_mean(&treatment.metrics.last_rewards(FINAL_STEPS));
    let difference = rlox - in_loop;
    let overlap = matches!((interval_in_loop, interval_rlox), (Some(a), Some(b)) if a.overlaps(b));
    let agrees = overlap || within_margin(difference);
    Some(Pair { seed, in_loop, rlox, difference, interval_in_loop, interval_rlox, agrees })
}

/// With room for the rounding of decimal rewards: 0.95 - 0.90 is within 0.05.
fn within_margin(difference: f64) -> bool {
    difference.abs() <= PARITY_MARGIN + 1e-9
}

fn round3(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
