//! Small-sample statistics: Wilson intervals for counts, percentile bootstrap for means, quantiles.
//! Everything is deterministic: the resampling generator starts from a stated seed at every call.

use serde::Serialize;

/// Resamples of every bootstrap interval.
pub const BOOTSTRAP_RESAMPLES: usize = 10_000;
/// Seed of every bootstrap interval.
pub const BOOTSTRAP_SEED: u64 = 20_240_917;

/// Quantile of the standard normal distribution at 97.5 %.
const Z: f64 = 1.959_963_984_540_054;

/// A 95 % interval; in JSON `[low, high]`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(into = "[f64; 2]")]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl From<Interval> for [f64; 2] {
    fn from(interval: Interval) -> Self {
        [interval.low, interval.high]
    }
}

impl Interval {
    /// Whether both intervals share a value.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }

    /// Whether `value` lies inside, ends included.
    #[must_use]
    pub fn contains(self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// Wilson's score interval for `successes` of `total`, 95 %. Unlike the normal approximation it is sensible
/// at 3 of 3. `None` for an empty cell.
#[must_use]
pub fn wilson(successes: u32, total: u32) -> Option<Interval> {
    if total == 0 || successes > total {
        return None;
    }
    let n = f64::from(total);
    let p = f64::from(successes) / n;
    let denominator = 1.0 + Z * Z / n;
    let centre = (p + Z * Z / (2.0 * n)) / denominator;
    let half = Z / denominator * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    // The exact ends at 0 and at all; rounding must not leave 1e-17 there.
    let low = if successes == 0 { 0.0 } else { (centre - half).max(0.0) };
    let high = if successes == total { 1.0 } else { (centre + half).min(1.0) };
    Some(Interval { low, high })
}

/// Arithmetic mean; `None` of nothing.
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / to_f64(values.len()))
}

/// Percentile bootstrap interval of the mean, 95 %. `None` for fewer than two values: one value says
/// nothing about spread.
pub(crate) fn bootstrap_mean(values: &[f64]) -> Option<Interval> {
    if values.len() < 2 {
        return None;
    }
    let mut rng = Rng::new(BOOTSTRAP_SEED);
    let mut means: Vec<f64> = (0..BOOTSTRAP_RESAMPLES)
        .map(|_| {
            let sum: f64 = values.iter().map(|_| values[rng.below(values.len())]).sum();
            sum / to_f64(values.len())
        })
        .collect();
    means.sort_unstable_by(f64::total_cmp);
    Some(Interval { low: quantile_sorted(&means, 0.025)?, high: quantile_sorted(&means, 0.975)? })
}

/// Quantile with linear interpolation between order statistics.
pub(crate) fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    quantile_sorted(&sorted, q)
}

fn quantile_sorted(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let position = q.clamp(0.0, 1.0) * to_f64(last);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 0 ..= last")]
    let below = (position.floor() as usize).min(last);
    let (low, high) = (sorted.get(below)?, sorted.get((below + 1).min(last))?);
    Some(low + (high - low) * (position - position.floor()))
}

/// A length as a number; exact below 2^53.
pub(crate) fn to_f64(length: usize) -> f64 {
    length as f64
}

/// SplitMix64: enough for resampling, and the same on every machine and version.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0. The bias of the multiplication is below 2^-50 here.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let wide = u128::from(self.next()) * bound as u128;
        usize::try_from(wide >> 64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(interval: Option<Interval>, low: f64, high: f64) {
        let interval = interval.unwrap();
        assert!((interval.low - low).abs() < 5e-5 && (interval.high - high).abs() < 5e-5, "{interval:?}");
    }

    #[test]
    fn wilson_agrees_with_published_values() {
        close(wilson(3, 3), 0.4385, 1.0);
        close(wilson(2, 3), 0.2077, 0.9385);
        close(wilson(1, 3), 0.0615, 0.7923);
        close(wilson(0, 3), 0.0, 0.5615);
        close(wilson(12, 12), 0.7575, 1.0);
        // Newcombe (1998), table I: 81 of 263, and 15 of 148.
        close(wilson(81, 263), 0.2553, 0.3662);
        close(wilson(15, 148), 0.0624, 0.1605);
        assert_eq!(wilson(0, 0), None);
        assert_eq!(wilson(4, 3), None);
    }

    #[test]
    fn bootstrap_is_deterministic_and_brackets_the_mean() {
        let values = [0.90, 0.92, 0.93, 0.88, 0.95];
        let first = bootstrap_mean(&values).unwrap();
        assert_eq!(Some(first), bootstrap_mean(&values));
        let mean = mean(&values).unwrap();
        assert!(first.low < mean && mean < first.high && first.low >= 0.88 && first.high <= 0.95);
        assert_eq!(bootstrap_mean(&[0.5, 0.5, 0.5]), Some(Interval { low: 0.5, high: 0.5 }));
        assert_eq!(bootstrap_mean(&[0.5]), None);
        assert_eq!(bootstrap_mean(&[]), None);
    }

    #[test]
    fn bootstrap_of_many_values_approaches_the_normal_interval() {
        let mut rng = Rng::new(1);
        let values: Vec<f64> = (0..400).map(|_| to_f64(rng.below(1000)) / 1000.0).collect();
        let interval = bootstrap_mean(&values).unwrap();
        // Uniform: standard error = 1/sqrt(12 * 400) = 0.01443, so the width is near 0.0566.
        assert!((interval.high - interval.low - 0.0566).abs() < 0.004, "{interval:?}");
    }

    #[test]
    fn quantiles_interpolate() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(quantile(&values, 0.5), Some(2.5));
        assert_eq!(quantile(&values, 0.0), Some(1.0));
        assert_eq!(quantile(&values, 1.0), Some(4.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn the_generator_is_splitmix64() {
        // Reference output of Vigna's splitmix64.c for seed 1234567.
        let mut rng = Rng::new(1_234_567);
        assert_eq!([rng.next(), rng.next()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
        assert!((0..1000).map(|_| rng.below(3)).all(|n| n < 3));
    }
}
