//! What judging costs: CPU time of everything, for a program with three asserts beside the same program alone.
//!
//! One client, one worker. Rounds of both kinds alternate, and the kind that goes first alternates as well, so that
//! a machine that is busy for a while disturbs both. CPU time is counted and not wall clock, since a neighbour's
//! load stretches the one much more than the other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

use super::cpu::{self, Cpu};
use crate::api::VerifyRequest;
use crate::judge::Verdict;
use crate::service::{Service, VerifyError};

const CODE: &str = "def add(a, b):\n    return a + b\n";
const TESTS: [&str; 3] =
    ["assert add(1, 2) == 3", "assert add(-1, 1) == 0", "assert add(10**9, 1) == 1000000001"];
/// The longest that a run may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// Of each kind, before anything is counted.
const WARM_UP: u32 = 5;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) rounds: u32,
    /// Runs of each kind in a round: many, since the kernel counts in hundredths of a second.
    pub(crate) each: u32,
}

/// It could not be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CostError {
    /// The service failed.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// CPU times cannot be read.
    #[error("cannot read CPU times from /proc: {0}")]
    Proc(#[from] std::io::Error),
    /// A run did not end as it has to, so its cost means nothing.
    #[error("a run ended as {verdict:?}; nothing was measured")]
    Verdict {
        /// How.
        verdict: Verdict,
    },
    /// The service does not take such a request.
    #[error("the request was refused: {reason}")]
    Refused {
        /// Why.
        reason: String,
    },
}

/// Medians over rounds, of one run in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Milliseconds {
    cpu: f64,
    service: f64,
    sandbox: f64,
    grader: f64,
    /// Within the snippet's container, from its cgroup; part of `sandbox`.
    container: f64,
    wall: f64,
}

/// Both kinds beside each other.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Cost {
    runs_each: u32,
    with_tests: Milliseconds,
    alone: Milliseconds,
    /// Of the medians of CPU time.
    ratio: f64,
    /// Of the sums of CPU time.
    ratio_of_means: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    WithTests,
    Alone,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    cpu: Cpu,
    container: f64,
    wall: f64,
}

/// Measures with a service that has one worker.
pub(crate) async fn measure(service: &Arc<Service>, plan: Plan) -> Result<Cost, CostError> {
    let warm_up = WARM_UP.min(plan.each);
    for kind in [Kind::WithTests, Kind::Alone] {
        round(service, kind, warm_up).await?;
    }
    let (mut with_tests, mut alone) = (Vec::new(), Vec::new());
    for number in 0..plan.rounds {
        let order = [Kind::WithTests, Kind::Alone];
        let order = if number % 2 == 0 { order } else { [order[1], order[0]] };
        for kind in order {
            let sample = round(service, kind, plan.each).await?;
            match kind {
                Kind::WithTests => with_tests.push(sample),
                Kind::Alone => alone.push(sample),
            }
        }
        eprintln!("round {} of {}", number + 1, plan.rounds);
    }
    Ok(Cost::of(plan, &with_tests, &alone))
}

async fn round(service: &Arc<Service>, kind: Kind, runs: u32) -> Result<Sample, CostError> {
    let (before, begun) = (cpu::read()?, Instant::now());
    let mut container = 0.0;
    for _ in 0..runs {
        container += once(service, kind).await?;
    }
    let wall = begun.elapsed().as_secs_f64();
    let cpu = cpu::read()?.since(before, runs);
    let runs = f64::from(runs);
    Ok(Sample { cpu, container: container / runs, wall: wall / runs })
}

/// One run; the CPU seconds of its container.
async fn once(service: &Arc<Service>, kind: Kind) -> Result<f64, CostError> {
    let refused = |reason: String| CostError::Refused { reason };
    let (body, wanted) = match kind {
        Kind::WithTests => (json!({ "code": CODE, "tests": TESTS }), Verdict::Passed),
        Kind::Alone => (json!({ "code": CODE }), Verdict::Completed),
    };
    let request: VerifyRequest = serde_json::from_value(body).map_err(|error| refused(error.to_string()))?;
    let job =
        request.into_job(&service.config.ceilings).map_err(|problem| refused(format!("{problem:?}")))?;
    let finished = service.verify(job).await?;
    let verdict = finished.judged.verdict;
    if verdict == wanted { Ok(finished.usage.cpu_secs) } else { Err(CostError::Verdict { verdict }) }
}

impl Cost {
    fn of(plan: Plan, with_tests: &[Sample], alone: &[Sample]) -> Self {
        let sum = |samples: &[Sample]| samples.iter().map(|sample| sample.cpu.total()).sum::<f64>();
        let ratio_of_means = sum(with_tests) / sum(alone);
        let (with_tests, alone) = (Milliseconds::of(with_tests), Milliseconds::of(alone));
        Self {
            runs_each: plan.rounds * plan.each,
            with_tests,
            alone,
            ratio: with_tests.cpu / alone.cpu,
            ratio_of_means,
        }
    }

    /// As a Markdown table and a final line.
    pub(crate) fn text(&self) -> String {
        let (judged, alone) = (self.with_tests, self.alone);
        let mut text = "\
            | ms of CPU time for a run, p50                      | 3 asserts | alone |\n\
            | -------------------------------------------------- | --------- | ----- |\n"
            .to_owned();
        for (name, judged, alone) in [
            ("all", judged.cpu, alone.cpu),
            ("controller", judged.service, alone.service),
            ("launcher and container of the snippet", judged.sandbox, alone.sandbox),
            ("of which in the container, as its cgroup counted", judged.container, alone.container),
            ("grader's container, its forks and its launcher", judged.grader, alone.grader),
            ("wall clock, ms", judged.wall, alone.wall),
        ] {
            text += &format!("| {name:50} | {judged:9.1} | {alone:5.1} |\n");
        }
        text + &format!(
            "\nA verification with 3 asserts takes {:.2} times the CPU time of the program alone (p50; {:.2} in \
             the mean), {} runs each.",
            self.ratio, self.ratio_of_means, self.runs_each
        )
    }
}

impl Milliseconds {
    fn of(samples: &[Sample]) -> Self {
        let median = |part: fn(&Sample) -> f64| 1000.0 * median(samples.iter().map(part).collect());
        Self {
            cpu: median(|sample| sample.cpu.total()),
            service: median(|sample| sample.cpu.service),
            sandbox: median(|sample| sample.cpu.sandbox),
            grader: median(|sample| sample.cpu.grader),
            container: median(|sample| sample.container),
            wall: median(|sample| sample.wall),
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    match (values.get(low), values.get(high)) {
        (Some(low), Some(high)) => f64::midpoint(*low, *high),
        (_, None) | (None, _) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(service: f64, sandbox: f64, grader: f64) -> Sample {
        Sample { cpu: Cpu { service, sandbox, grader }, container: sandbox / 2.0, wall: sandbox * 2.0 }
    }

    #[test]
    fn the_ratio_is_of_medians_and_one_slow_round_does_not_move_it() {
        let judged = [sample(0.001, 0.040, 0.019), sample(0.001, 0.040, 0.019), sample(0.001, 0.400, 0.019)];
        let alone = [sample(0.001, 0.039, 0.0), sample(0.001, 0.039, 0.0), sample(0.001, 0.039, 0.0)];
        let cost = Cost::of(Plan { rounds: 3, each: 10 }, &judged, &alone);
        assert!((cost.ratio - 1.5).abs() < 1e-9, "{cost:?}");
        assert!(cost.ratio_of_means > 3.0, "{cost:?}");
        let text = cost.text();
        assert!(text.contains("1.50 times") && text.contains("30 runs each"), "{text}");
        assert!(text.lines().take(8).all(|line| line.matches('|').count() == 4), "{text}");
    }

    #[test]
    fn a_median_of_two_is_between_them() {
        assert!((median(vec![3.0, 1.0]) - 2.0).abs() < 1e-9);
        assert!((median(vec![3.0, 1.0, 9.0]) - 3.0).abs() < 1e-9);
    }
}
