//! Percentiles by nearest rank, and how sure a ratio of two medians is.

use serde::Serialize;

/// Seed of the resampling: the same samples give the same interval.
pub(super) const SEED: u64 = 20_261_129;
/// Resamples of an interval.
pub(super) const RESAMPLES: u32 = 2_000;

/// The smallest of the values that at least `percent` of them do not exceed.
pub(super) fn percentile(values: &[f64], percent: u32) -> Option<f64> {
    let mut sorted = values.to_vec();
    let at = rank(sorted.len(), percent)?;
    Some(*sorted.select_nth_unstable_by(at, f64::total_cmp).1)
}

/// Index of that value among so many sorted ones.
fn rank(count: usize, percent: u32) -> Option<usize> {
    let above = usize::try_from(percent).ok()?.checked_mul(count)?.div_ceil(100);
    (count > 0).then(|| above.clamp(1, count) - 1)
}

/// A ratio of medians with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Ratio {
    pub(super) value: f64,
    /// None from fewer than two rounds.
    pub(super) interval: Option<[f64; 2]>,
}

/// The ratio of the medians of all values in two series of rounds that were run beside each other.
///
/// What is resampled are rounds, the same ones on both sides: values of one round resemble each other, and what
/// disturbed a round disturbed both of its sides.
pub(super) fn ratio(values: &[Vec<f64>], base: &[Vec<f64>]) -> Option<Ratio> {
    let rounds = values.len().min(base.len());
    let all: Vec<_> = (0..rounds).collect();
    let value = of_rounds(values, base, &all)?;
    if rounds < 2 {
        return Some(Ratio { value, interval: None });
    }
    let mut random = SplitMix(SEED);
    let mut found: Vec<f64> = (0..RESAMPLES)
        .filter_map(|_| {
            let drawn: Vec<_> = (0..rounds).map(|_| random.below(rounds)).collect();
            of_rounds(values, base, &drawn)
        })
        .collect();
    found.sort_by(f64::total_cmp);
    let end = |per_mille: usize| {
        let at = (per_mille * found.len()).div_ceil(1000).max(1) - 1;
        found.get(at).copied()
    };
    Some(Ratio { value, interval: end(25).zip(end(975)).map(|(low, high)| [low, high]) })
}

fn of_rounds(values: &[Vec<f64>], base: &[Vec<f64>], rounds: &[usize]) -> Option<f64> {
    let median = |series: &[Vec<f64>]| {
        let drawn = rounds.iter().filter_map(|round| series.get(*round)).flatten();
        percentile(&drawn.copied().collect::<Vec<_>>(), 50)
    };
    let (above, below) = (median(values)?, median(base)?);
    (below > 0.0).then(|| above / below)
}

/// SplitMix64: enough to draw rounds and requests, and the same on every machine.
#[derive(Debug, Clone)]
pub(super) struct SplitMix(pub(super) u64);

impl SplitMix {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is above 0.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % bound).unwrap_or_default()
    }

    /// Uniform in 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are a number's precision")]
    pub(super) fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&values, 50), Some(50.0));
        assert_eq!(percentile(&values, 99), Some(99.0));
        assert_eq!(percentile(&values, 100), Some(100.0));
        assert_eq!(percentile(&values, 0), Some(1.0));
        assert_eq!(percentile(&[15.0, 20.0, 35.0, 40.0, 50.0], 30), Some(20.0));
        assert_eq!(percentile(&[7.0], 99), Some(7.0));
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn the_interval_holds_the_ratio_and_is_the_same_each_time() {
        let base: Vec<Vec<f64>> = (0..20).map(|round| vec![10.0 + f64::from(round % 3), 10.5]).collect();
        let twice: Vec<Vec<f64>> =
            base.iter().map(|round| round.iter().map(|each| each * 2.0).collect()).collect();
        let found = ratio(&twice, &base).unwrap();
        // Disturbances that both sides share cancel out in every resample.
        assert_eq!(found, Ratio { value: 2.0, interval: Some([2.0, 2.0]) });
        let noisy: Vec<Vec<f64>> = (0..20).map(|round| vec![15.0 + f64::from(round)]).collect();
        let (first, second) = (ratio(&noisy, &base), ratio(&noisy, &base));
        assert_eq!(first, second);
        let Some(Ratio { value, interval: Some([low, high]) }) = first else { panic!("{first:?}") };
        assert!(low < value && value < high, "{first:?}");
    }

    #[test]
    fn one_round_has_a_ratio_and_no_interval_and_nothing_has_neither() {
        assert_eq!(ratio(&[vec![3.0]], &[vec![1.5]]), Some(Ratio { value: 2.0, interval: None }));
        assert_eq!(ratio(&[], &[]), None);
        assert_eq!(ratio(&[vec![1.0]], &[vec![0.0]]), None);
    }

    #[test]
    fn drawn_numbers_stay_below_their_bound() {
        let mut random = SplitMix(SEED);
        assert!((0..1000).all(|_| random.below(7) < 7));
        assert!((0..1000).map(|_| random.fraction()).all(|each| (0.0..1.0).contains(&each)));
    }
}
