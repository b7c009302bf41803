//! From samples to rows: percentiles, ratios, throughput.

use serde::Serialize;

use super::meter::Measured;
use super::ways::BASE;
use crate::bench::stats::{Ratio, percentile, ratio};

/// All that was measured of one way with one workload.
#[derive(Debug, Clone, Default)]
pub(super) struct Samples {
    pub(super) key: &'static str,
    pub(super) label: &'static str,
    pub(super) command: Option<Vec<String>>,
    pub(super) rounds: Vec<Measured>,
    /// Batches of so many clients each.
    pub(super) crowds: Vec<(u32, Measured)>,
}

/// Two percentiles, in milliseconds, of so many values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) n: usize,
    pub(super) p50: f64,
    pub(super) p99: f64,
}

/// How many verifications a second so many clients got.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Throughput {
    pub(super) clients: u32,
    pub(super) per_second: f64,
    /// Seen by a client.
    pub(super) wall_ms: Spread,
    pub(super) cpu_ms: f64,
}

/// One way, one workload.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    pub(super) way: &'static str,
    #[serde(skip)]
    pub(super) label: &'static str,
    pub(super) command: Option<Vec<String>>,
    /// Of single verifications.
    pub(super) wall_ms: Spread,
    /// Of rounds' means.
    pub(super) cpu_ms: Spread,
    pub(super) cpu_ms_mean: f64,
    /// To the base.
    pub(super) wall_ratio: Option<Ratio>,
    pub(super) cpu_ratio: Option<Ratio>,
    pub(super) throughput: Vec<Throughput>,
    /// Calls that did not end as they have to; they are in no other number.
    pub(super) failed: u32,
    pub(super) why: String,
    /// Seconds of every verification, by round.
    pub(super) walls: Vec<Vec<f64>>,
    /// CPU seconds of a verification, by round.
    pub(super) cpus: Vec<f64>,
}

/// The ratio of two ways that set up the same.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Pair {
    pub(super) way: &'static str,
    pub(super) to: &'static str,
    pub(super) wall_ratio: Option<Ratio>,
    pub(super) cpu_ratio: Option<Ratio>,
}

/// Ways whose ratio to each other is asked for, where both were measured.
const PAIRS: [(&str, &str); 5] = [
    ("rlox-runtime", "runc"),
    ("verify-exec", "subprocess"),
    ("verify-cold", "runc"),
    ("verify-warm", "subprocess"),
    ("verify-warm", "verify-cold"),
];

impl Samples {
    fn walls(&self) -> Vec<Vec<f64>> {
        self.rounds.iter().map(|round| round.walls.clone()).collect()
    }

    /// A failed call costs as well; a round in which every call failed has no mean.
    fn cpus(&self) -> Vec<Vec<f64>> {
        self.rounds.iter().map(|round| mean_cpu(round).into_iter().collect()).collect()
    }
}

fn mean_cpu(measured: &Measured) -> Option<f64> {
    let calls = u32::try_from(measured.walls.len()).ok()? + measured.failed;
    (!measured.walls.is_empty()).then(|| measured.cpu / f64::from(calls))
}

/// The way that ratios are to: the base, or where it cannot run the program, the first that can.
pub(super) fn base(samples: &[Samples]) -> Option<&Samples> {
    let measured = |each: &&Samples| each.rounds.iter().any(|round| !round.walls.is_empty());
    let named = samples.iter().filter(measured).find(|each| each.key == BASE);
    named.or_else(|| samples.iter().find(measured))
}

/// Rows in the order of the samples; a way without a single good call has none.
pub(super) fn rows(samples: &[Samples]) -> Vec<Row> {
    let base = base(samples);
    samples.iter().filter_map(|each| row(each, base?)).collect()
}

pub(super) fn pairs(samples: &[Samples]) -> Vec<Pair> {
    let find = |key: &str| samples.iter().find(|each| each.key == key);
    let pair = |(way, to): (&'static str, &'static str)| {
        let (above, below) = (find(way)?, find(to)?);
        let wall_ratio = ratio(&above.walls(), &below.walls());
        wall_ratio.map(|_| Pair { way, to, wall_ratio, cpu_ratio: ratio(&above.cpus(), &below.cpus()) })
    };
    PAIRS.into_iter().filter_map(pair).collect()
}

fn row(samples: &Samples, base: &Samples) -> Option<Row> {
    let (walls, cpus) = (samples.walls(), samples.cpus());
    let flat = |rounds: &[Vec<f64>]| rounds.iter().flatten().copied().collect::<Vec<_>>();
    let means = flat(&cpus);
    let all = samples.rounds.iter().chain(samples.crowds.iter().map(|(_, measured)| measured));
    let failed = all.clone().map(|each| each.failed).sum();
    let why = all.map(|each| each.why.as_str()).find(|why| !why.is_empty()).unwrap_or_default().to_owned();
    Some(Row {
        way: samples.key,
        label: samples.label,
        command: samples.command.clone(),
        wall_ms: spread(&flat(&walls))?,
        cpu_ms: spread(&means)?,
        cpu_ms_mean: 1000.0 * means.iter().sum::<f64>() / f64::from(u32::try_from(means.len()).ok()?),
        wall_ratio: ratio(&walls, &base.walls()),
        cpu_ratio: ratio(&cpus, &base.cpus()),
        throughput: throughput(&samples.crowds),
        failed,
        why,
        walls,
        cpus: means,
    })
}

fn spread(secs: &[f64]) -> Option<Spread> {
    let ms = |percent| percentile(secs, percent).map(|value| 1000.0 * value);
    Some(Spread { n: secs.len(), p50: ms(50)?, p99: ms(99)? })
}

/// Batches of as many clients belong together, in the order in which they were first met.
fn throughput(crowds: &[(u32, Measured)]) -> Vec<Throughput> {
    let mut sizes: Vec<u32> = crowds.iter().map(|(clients, _)| *clients).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let of = |clients: u32| {
        let same = crowds.iter().filter(|(each, _)| *each == clients).map(|(_, measured)| measured);
        let walls: Vec<f64> = same.clone().flat_map(|each| each.walls.iter().copied()).collect();
        let (elapsed, cpu) =
            same.clone().fold((0.0, 0.0), |sum, each| (sum.0 + each.elapsed, sum.1 + each.cpu));
        let failed: u32 = same.map(|each| each.failed).sum();
        let good = f64::from(u32::try_from(walls.len()).ok()?);
        let (per_second, cpu_ms) = (good / elapsed, 1000.0 * cpu / (good + f64::from(failed)));
        Some(Throughput { clients, per_second, wall_ms: spread(&walls)?, cpu_ms })
    };
    sizes.into_iter().filter_map(of).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn samples(key: &'static str, label: &'static str, factor: f64) -> Samples {
        let round = |number: u32| Measured {
            walls: (0..4).map(|call| factor * (0.010 + 0.001 * f64::from(call + number))).collect(),
            cpu: 4.0 * factor * 0.008,
            elapsed: 0.05,
            ..Measured::default()
        };
        let crowd = Measured { walls: vec![0.1; 30], elapsed: 2.0, cpu: 3.0, ..Measured::default() };
        let crowds = vec![(8, crowd.clone()), (1, crowd.clone()), (8, crowd)];
        Samples { key, label, command: None, rounds: (0..3).map(round).collect(), crowds }
    }

    fn near(found: f64, expected: f64) -> bool {
        (found - expected).abs() < 1e-9
    }

    #[test]
    fn a_row_has_percentiles_of_calls_and_ratios_of_medians() {
        let rows = rows(&[samples("bare", "bare", 1.0), samples("runc", "runc", 3.0)]);
        let (base, other) = (&rows[0], &rows[1]);
        assert!(
            near(base.wall_ms.p50, 12.0) && near(base.wall_ms.p99, 15.0) && base.wall_ms.n == 12,
            "{base:?}"
        );
        assert!(near(base.cpu_ms.p50, 8.0) && base.cpu_ms.n == 3, "{base:?}");
        assert!(near(other.wall_ratio.unwrap().value, 3.0) && near(other.cpu_ratio.unwrap().value, 3.0));
        assert!(near(base.cpu_ratio.unwrap().value, 1.0));
    }

    #[test]
    fn batches_of_as_many_clients_are_added_up() {
        let found = throughput(&samples("bare", "bare", 1.0).crowds);
        assert_eq!(found.iter().map(|each| each.clients).collect::<Vec<_>>(), [1, 8]);
        assert!(near(found[1].per_second, 15.0) && near(found[1].cpu_ms, 100.0), "{found:?}");
        assert_eq!(found[1].wall_ms.n, 60);
    }

    #[test]
    fn a_way_that_never_worked_has_no_row_and_another_becomes_the_base() {
        let mut broken = samples("bare", "bare", 1.0);
        for round in &mut broken.rounds {
            round.failed = u32::try_from(round.walls.len()).unwrap();
            round.walls.clear();
        }
        let found = [broken, samples("python", "python", 2.0), samples("runc", "runc", 4.0)];
        assert_eq!(base(&found).unwrap().key, "python");
        let rows = rows(&found);
        assert_eq!(rows.iter().map(|row| row.way).collect::<Vec<_>>(), ["python", "runc"]);
        assert!(near(rows[1].wall_ratio.unwrap().value, 2.0));
    }

    #[test]
    fn pairs_are_those_that_were_measured() {
        let found = pairs(&[samples("runc", "runc", 2.0), samples("rlox-runtime", "ours", 1.0)]);
        assert_eq!((found.len(), found[0].to), (1, "runc"));
        assert!(near(found[0].cpu_ratio.unwrap().value, 0.5));
    }
}
