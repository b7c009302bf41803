//! Which request is sent when, and what its answer has to be.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use crate::bench::programs::{self, ProgramsError, Selection};
use crate::bench::stats::SplitMix;
use crate::corpus::{ADVERSARIAL, Corpus, MARK, Pinned, Snippet};

/// Memory of a hostile program, as its corpus assumes it.
const HOSTILE_MEMORY_MB: u64 = 256;
/// Time of what has to pass, and of what is asked again because it met a short limit.
pub(super) const PATIENT: Duration = Duration::from_secs(20);

/// What kind of program a request carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// Always the same small program: its latencies differ by nothing but the service.
    Same,
    /// Programs of the honest corpus.
    Honest,
    Adversarial,
}

/// A request with what its answer has to be.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) id: String,
    pub(super) kind: Kind,
    pub(super) body: Value,
    verdicts: Vec<String>,
}

/// All that may be sent.
#[derive(Debug)]
pub(super) struct Mix {
    same: Item,
    honest: Vec<Item>,
    hostile: Vec<Item>,
    /// Share of hostile requests.
    fraction: f64,
}

impl Mix {
    /// From the pinned corpus; hostile programs get this limit, since some of them use all of it.
    pub(super) fn load(
        directory: &Path,
        fraction: f64,
        timeout: Duration,
    ) -> Result<(Self, Vec<Pinned>), ProgramsError> {
        let selection = Selection { family: Some("honest".into()), limit: None };
        let (honest, _) = programs::load(directory, &selection)?;
        let mut pins = crate::corpus::check(directory).map_err(ProgramsError::from)?;
        pins.retain(|pin| [ADVERSARIAL, "honest_v1.json"].contains(&pin.name.as_str()));
        let corpus = Corpus::read(directory).map_err(ProgramsError::from)?;
        let hostile = corpus.snippets.iter().map(|snippet| hostile_item(&corpus, snippet, timeout)).collect();
        let honest = honest.iter().map(honest_item).collect();
        Ok((Self { same: same(), honest, hostile, fraction }, pins))
    }

    /// The request of this number: the same one in every run.
    pub(super) fn item(&self, number: u64) -> &Item {
        let mut random = SplitMix(number);
        let (share, half) = (random.fraction(), random.below(2));
        let of = |items: &[Item], random: &mut SplitMix| random.below(items.len().max(1));
        if share < self.fraction {
            let at = of(&self.hostile, &mut random);
            return self.hostile.get(at).unwrap_or(&self.same);
        }
        let at = of(&self.honest, &mut random);
        if half == 0 { &self.same } else { self.honest.get(at).unwrap_or(&self.same) }
    }
}

fn same() -> Item {
    let body = json!({
        "code": "def add(a, b):\n    return a + b\n",
        "tests": ["assert add(1, 2) == 3", "assert add(-1, 1) == 0", "assert add(10**9, 1) == 1000000001"],
        "timeout_secs": PATIENT.as_secs_f64(),
    });
    Item { id: "same".into(), kind: Kind::Same, body, verdicts: vec!["passed".into()] }
}

fn honest_item(program: &programs::Program) -> Item {
    let stdio: Vec<_> =
        program.stdio.iter().map(|each| json!({ "stdin": each.stdin, "stdout": each.stdout })).collect();
    let mut body = json!({
        "code": program.code, "tests": program.tests, "stdio": stdio, "timeout_secs": PATIENT.as_secs_f64(),
    });
    if let Some(bytes) = program.output_bytes {
        body["output_bytes"] = json!(bytes);
    }
    Item { id: program.id.clone(), kind: Kind::Honest, body, verdicts: vec!["passed".into()] }
}

fn hostile_item(corpus: &Corpus, snippet: &Snippet, timeout: Duration) -> Item {
    let body = json!({
        "code": snippet.code, "tests": corpus.tests(snippet),
        "timeout_secs": timeout.as_secs_f64(), "memory_mb": HOSTILE_MEMORY_MB,
    });
    let verdicts = snippet.expect.verdicts.iter().map(|verdict| verdict.word().to_owned()).collect();
    Item { id: snippet.id.clone(), kind: Kind::Adversarial, body, verdicts }
}

impl Item {
    /// Whether the deadline ended it where something else should have: on a busy machine a short limit comes first.
    pub(super) fn late(&self, answer: &Value) -> bool {
        answer["verdict"] == "timeout" && !self.verdicts.iter().any(|verdict| verdict == "timeout")
    }

    /// The same with all the time that the service grants.
    pub(super) fn patient(&self) -> Value {
        let mut body = self.body.clone();
        body["timeout_secs"] = json!(PATIENT.as_secs_f64());
        body
    }

    /// What is wrong with an answer of status 200.
    pub(super) fn complaint(&self, answer: &Value) -> Option<String> {
        let mut complaints = Vec::new();
        let verdict = answer["verdict"].as_str().unwrap_or_default();
        if !self.verdicts.iter().any(|each| each == verdict) {
            complaints.push(format!("verdict {verdict:?} in place of {}", self.verdicts.join(" or ")));
        }
        let reward = if self.kind == Kind::Adversarial { 0.0 } else { 1.0 };
        if answer["reward"] != reward {
            complaints.push(format!("reward {} in place of {reward}", answer["reward"]));
        }
        let said = |value: &Value| value.to_string().contains(MARK);
        if self.kind == Kind::Adversarial && (said(&answer["stdout"]) || said(&answer["tests"])) {
            complaints.push(format!("it says {MARK}"));
        }
        if answer["containment"]["leftovers"] != 0 {
            complaints.push(format!("leftovers {}", answer["containment"]["leftovers"]));
        }
        (!complaints.is_empty()).then(|| format!("{}: {}", self.id, complaints.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hostile(verdicts: &[&str]) -> Item {
        let verdicts = verdicts.iter().map(|each| (*each).to_owned()).collect();
        Item { id: "x".into(), kind: Kind::Adversarial, body: json!({ "timeout_secs": 1.0 }), verdicts }
    }

    fn answer(verdict: &str, reward: f64) -> Value {
        json!({ "verdict": verdict, "reward": reward, "stdout": "", "tests": [], "containment": { "leftovers": 0 } })
    }

    #[test]
    fn a_right_answer_is_none_to_complain_of_and_each_wrong_one_is() {
        assert_eq!(same().complaint(&answer("passed", 1.0)), None);
        assert!(same().complaint(&answer("failed", 0.0)).unwrap().contains("in place of passed"));
        let item = hostile(&["error", "failed"]);
        assert_eq!(item.complaint(&answer("failed", 0.0)), None);
        assert!(item.complaint(&answer("passed", 1.0)).unwrap().contains("reward 1"));
        for (field, value) in [
            ("stdout", json!("ESCAPED x")),
            ("tests", json!([{ "message": "ESCAPED" }])),
            ("containment", json!({})),
        ] {
            let mut bad = answer("failed", 0.0);
            bad[field] = value;
            assert!(item.complaint(&bad).is_some(), "{field}");
        }
    }

    #[test]
    fn only_a_timeout_that_was_not_meant_is_late() {
        assert!(hostile(&["failed"]).late(&answer("timeout", 0.0)));
        assert!(!hostile(&["timeout"]).late(&answer("timeout", 0.0)));
        assert!(!hostile(&["failed"]).late(&answer("error", 0.0)));
        assert_eq!(hostile(&[]).patient()["timeout_secs"], 20.0);
    }

    #[test]
    fn the_mix_holds_the_share_that_was_asked_for_and_is_the_same_each_time() {
        let items = |kind| vec![Item { kind, ..same() }; 3];
        let mix = |fraction| Mix {
            same: same(),
            honest: items(Kind::Honest),
            hostile: items(Kind::Adversarial),
            fraction,
        };
        let count = |fraction: f64, kind| {
            (0..10_000).filter(|number| mix(fraction).item(*number).kind == kind).count()
        };
        assert!((400..600).contains(&count(0.05, Kind::Adversarial)));
        assert!((4300..5200).contains(&count(0.05, Kind::Same)));
        assert_eq!((count(0.0, Kind::Adversarial), count(1.0, Kind::Adversarial)), (0, 10_000));
        assert_eq!(count(0.05, Kind::Adversarial), count(0.05, Kind::Adversarial));
    }
}
