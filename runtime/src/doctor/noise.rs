//! How steady this host's time is. Noise makes no hole, but it turns honest programs into timeouts.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use rlox_host::read_bounded;
use serde::Serialize;

use super::report::{Layer, Status};

const ROUNDS: usize = 200;
const WORK: u64 = 400_000;
/// A slow round, of twenty the slowest, that takes this much longer than the median is noise.
const STEADY: f64 = 1.25;

/// The same work done many times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Noise {
    rounds: usize,
    median_us: f64,
    /// How much longer one round in twenty takes, as a ratio to the median.
    slow_ratio: f64,
    slowest_ratio: f64,
    /// Share of CPU time that a hypervisor took away while this was measured.
    steal: f64,
    load_per_cpu: Option<f64>,
}

/// Measures for a tenth of a second or so.
pub(super) fn measure() -> Noise {
    let before = stolen();
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            let sum = (0..black_box(WORK)).fold(0u64, |sum, each| sum.wrapping_mul(31).wrapping_add(each));
            black_box(sum);
            begun.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    let after = stolen();
    rounds.sort_by(f64::total_cmp);
    let median = rounds[ROUNDS / 2].max(f64::MIN_POSITIVE);
    let (steal, total) = (after.0 - before.0, after.1 - before.1);
    Noise {
        rounds: ROUNDS,
        median_us: median,
        slow_ratio: rounds[ROUNDS * 19 / 20] / median,
        slowest_ratio: rounds[ROUNDS - 1] / median,
        steal: if total > 0.0 { steal / total } else { 0.0 },
        load_per_cpu: load(),
    }
}

/// Ticks stolen and ticks in all, of all CPUs.
fn stolen() -> (f64, f64) {
    let text = read_bounded(Path::new("/proc/stat")).unwrap_or_default();
    let fields: Vec<f64> = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|field| field.parse().ok())
        .collect();
    (fields.get(7).copied().unwrap_or(0.0), fields.iter().sum())
}

fn load() -> Option<f64> {
    let text = read_bounded(Path::new("/proc/loadavg")).ok()?;
    let load: f64 = text.split_whitespace().next()?.parse().ok()?;
    let cpus = u32::try_from(std::thread::available_parallelism().ok()?.get()).ok()?;
    Some(load / f64::from(cpus))
}

impl Noise {
    pub(super) fn layer(&self) -> Layer {
        const NAME: &str = "steady time";
        let load = self.load_per_cpu.map_or_else(String::new, |load| format!(", load {load:.1} a CPU"));
        let detail = format!(
            "one round in 20 takes {:.2} times the median, the slowest {:.1}{load}",
            self.slow_ratio, self.slowest_ratio
        );
        if self.slow_ratio <= STEADY && self.steal < 0.05 {
            return Layer::ok(NAME, false, detail);
        }
        let governor = read_bounded(Path::new("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
        let remedy = match governor {
            Ok(governor) if governor.trim() != "performance" => {
                "sudo cpupower frequency-set -g performance; otherwise fewer workers: rlox-controller serve --workers 1"
            }
            Ok(_) | Err(_) => {
                "rlox-controller serve --workers 1 --timeout-secs 10   (an honest program must not meet its deadline)"
            }
        };
        Layer::lacking(NAME, false, detail, remedy).with_status(Status::Reduced)
    }
}
