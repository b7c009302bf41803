//! Latencies by kind, growth and whether it is more than noise; as a table and in JSON.

use serde::Serialize;

use super::mix::Kind;
use super::run::{Answers, Plan};
use crate::bench::footprint::Footprint;
use crate::bench::stats::percentile;
use crate::bench::table::markdown;

/// Memory may be so much larger at the end: allocators keep what they once had.
const MEMORY_SHARE: u64 = 10;
const MEMORY_KIB: u64 = 16 * 1024;

/// Latencies of one kind, as its client saw them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Latency {
    /// None for all kinds together.
    kind: Option<Kind>,
    n: usize,
    p50_ms: f64,
    p99_ms: f64,
    p99_to_p50: f64,
}

/// One thing that the service holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Growth {
    what: &'static str,
    before: u64,
    after: u64,
    /// The most that is no growth.
    allowed: u64,
}

/// What a soak found.
#[derive(Debug, Serialize)]
pub(crate) struct SoakResults {
    plan: Plan,
    warm_up: u64,
    elapsed_secs: f64,
    per_second: f64,
    latencies: Vec<Latency>,
    wrong: u64,
    late: u64,
    complaints: Vec<String>,
    growth: Vec<Growth>,
}

impl SoakResults {
    pub(super) fn of(
        plan: Plan,
        answers: Answers,
        elapsed_secs: f64,
        warm_up: u64,
        before: Footprint,
        after: Footprint,
    ) -> Self {
        let kinds = [None, Some(Kind::Same), Some(Kind::Honest), Some(Kind::Adversarial)];
        let count = f64::from(u32::try_from(answers.secs.len()).unwrap_or(u32::MAX));
        Self {
            plan,
            warm_up,
            elapsed_secs,
            per_second: count / elapsed_secs,
            latencies: kinds.into_iter().filter_map(|kind| latency(&answers.secs, kind)).collect(),
            wrong: answers.wrong,
            late: answers.late,
            complaints: answers.complaints,
            growth: growth(before, after),
        }
    }

    /// No wrong verdict, and nothing grew.
    pub(crate) fn good(&self) -> bool {
        self.wrong == 0 && self.growth.iter().all(Growth::none)
    }

    /// Tables.
    pub(crate) fn text(&self) -> String {
        let words = |line: &[&str]| line.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let mut times = vec![words(&["latency, ms", "p50", "p99", "p99/p50", "n"])];
        for each in &self.latencies {
            let (p50, p99) = (format!("{:.1}", each.p50_ms), format!("{:.1}", each.p99_ms));
            let ratio = format!("{:.2}", each.p99_to_p50);
            times.push(vec![name(each.kind).to_owned(), p50, p99, ratio, each.n.to_string()]);
        }
        let mut held = vec![words(&["held by the service while idle", "warmed up", "at the end", "allowed"])];
        for each in &self.growth {
            let numbers = [each.before, each.after, each.allowed].map(|number| number.to_string());
            held.push([vec![each.what.to_owned()], numbers.to_vec()].concat());
        }
        let mut text = format!("{}\n{}\n", markdown(&times), markdown(&held));
        for complaint in &self.complaints {
            text += &format!("wrong: {complaint}\n");
        }
        text + &format!(
            "{} verifications from {} clients, {:.1} a second; {} wrong; {} hostile ones met their limit of {} s and \
             were right with more time.\n",
            self.plan.verifications,
            self.plan.clients,
            self.per_second,
            self.wrong,
            self.late,
            self.plan.timeout_secs
        )
    }

    /// The last line.
    pub(crate) fn verdict(&self) -> String {
        let grown: Vec<_> = self.growth.iter().filter(|each| !each.none()).map(|each| each.what).collect();
        match (self.wrong, grown.is_empty()) {
            (0, true) => {
                "Every verdict was right and nothing grew. Next: the same with more --verifications.".into()
            }
            (0, false) => format!(
                "Grew: {}. Next: the same again with twice the --verifications; what leaks grows twice as much.",
                grown.join(", ")
            ),
            (wrong, _) => format!(
                "{wrong} verdicts were wrong. Next: send the named programs alone with `rlox-controller verify`, or \
                 run `rlox-controller doctor --prove`."
            ),
        }
    }
}

impl Growth {
    fn none(&self) -> bool {
        self.after <= self.allowed
    }
}

fn name(kind: Option<Kind>) -> &'static str {
    match kind {
        None => "all",
        Some(Kind::Same) => "honest, always the same small program",
        Some(Kind::Honest) => "honest, programs of the corpus",
        Some(Kind::Adversarial) => "adversarial",
    }
}

fn latency(secs: &[(Kind, f64)], kind: Option<Kind>) -> Option<Latency> {
    let these = secs.iter().filter(|(each, _)| kind.is_none_or(|kind| kind == *each));
    let values: Vec<f64> = these.map(|(_, secs)| *secs).collect();
    let (p50, p99) = (percentile(&values, 50)?, percentile(&values, 99)?);
    Some(Latency { kind, n: values.len(), p50_ms: 1000.0 * p50, p99_ms: 1000.0 * p99, p99_to_p50: p99 / p50 })
}

/// What can be counted may not grow at all; memory by a tenth, or by 16 MiB where that is more.
fn growth(before: Footprint, after: Footprint) -> Vec<Growth> {
    let memory = before.resident_kib;
    let allowed = memory + (memory / MEMORY_SHARE).max(MEMORY_KIB);
    let first = Growth { what: "resident memory, KiB", before: memory, after: after.resident_kib, allowed };
    let counts = before.counts().into_iter().zip(after.counts());
    let counts = counts.map(|((what, before), (_, after))| Growth { what, before, after, allowed: before });
    [first].into_iter().chain(counts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: Footprint =
        Footprint { resident_kib: 100_000, descriptors: 60, processes: 7, mounts: 200, cgroups: 4 };

    fn results(answers: Answers, after: Footprint) -> SoakResults {
        let plan = Plan {
            verifications: 3,
            clients: 2,
            adversarial: 0.5,
            timeout_secs: 1.0,
            workers: None,
            allow_missing_cgroup: false,
        };
        SoakResults::of(plan, answers, 2.0, 20, HELD, after)
    }

    fn answers(wrong: u64) -> Answers {
        let secs = vec![(Kind::Same, 0.010), (Kind::Adversarial, 1.0), (Kind::Same, 0.020)];
        Answers {
            secs,
            wrong,
            complaints: vec!["x: bad".into(); usize::from(wrong > 0)],
            ..Answers::default()
        }
    }

    #[test]
    fn memory_may_breathe_and_counts_may_not() {
        assert!(results(answers(0), Footprint { resident_kib: 116_384, cgroups: 3, ..HELD }).good());
        for after in [
            Footprint { resident_kib: 116_385, ..HELD },
            Footprint { descriptors: 61, ..HELD },
            Footprint { processes: 8, ..HELD },
            Footprint { mounts: 201, ..HELD },
            Footprint { cgroups: 5, ..HELD },
        ] {
            let found = results(answers(0), after);
            assert!(!found.good() && found.verdict().starts_with("Grew: "), "{after:?}");
        }
    }

    #[test]
    fn a_wrong_verdict_is_named_and_decides() {
        let found = results(answers(1), HELD);
        assert!(
            !found.good()
                && found.text().contains("wrong: x: bad")
                && found.verdict().starts_with("1 verdicts")
        );
        assert!(results(answers(0), HELD).verdict().starts_with("Every verdict"));
    }

    #[test]
    fn latencies_are_by_kind_and_over_all() {
        let found = results(answers(0), HELD);
        let of = |kind| found.latencies.iter().find(|each| each.kind == kind);
        assert_eq!(of(Some(Kind::Same)).map(|each| (each.n, each.p99_to_p50)), Some((2, 2.0)));
        assert_eq!(of(None).map(|each| (each.n, each.p99_ms)), Some((3, 1000.0)));
        assert_eq!(of(Some(Kind::Honest)), None);
        let text = found.text();
        assert!(text.contains("| honest, always the same small program "), "{text}");
        assert!(text.contains("1.5 a second"), "{text}");
    }
}
