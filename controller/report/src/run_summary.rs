//! `run_summary.json`: how a trial ended. The directory's name says which trial it is; a file that claims
//! to be another one is not used. A claim of survival that the file's own facts contradict is not believed.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::json;
use crate::model::{Problem, TrialKey};

const TEXT_LIMIT: usize = 400;

/// How the trainer's process ended, in the words of the verdicts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExitStatus {
    /// It exited by itself with this code.
    Clean(i32),
    /// A signal ended it.
    Signaled(i32),
    /// The deadline ended it.
    Timeout,
    /// It ran out of memory.
    OomKilled,
    /// Something else, as written.
    Other(String),
}

impl ExitStatus {
    /// From its text.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let inner = |name: &str| -> Option<i32> {
            text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')?.parse().ok()
        };
        match (text, inner("Clean"), inner("Signaled")) {
            ("Timeout", ..) => Self::Timeout,
            ("OomKilled", ..) => Self::OomKilled,
            (_, Some(code), _) => Self::Clean(code),
            (_, _, Some(signal)) => Self::Signaled(signal),
            _ => Self::Other(text.to_owned()),
        }
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clean(code) => write!(f, "Clean({code})"),
            Self::Signaled(signal) => write!(f, "Signaled({signal})"),
            Self::Timeout => f.write_str("Timeout"),
            Self::OomKilled => f.write_str("OomKilled"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl Serialize for ExitStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// How one trial ended.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSummary {
    /// It did all of its steps and exited with code 0.
    pub survived: bool,
    /// Why a claim of survival was not believed.
    pub contradiction: Option<String>,
    /// How its process ended.
    pub exit_status: ExitStatus,
    /// The recorder's explanation.
    pub reason: Option<String>,
    /// Mean reward at the end, all samples.
    pub final_reward: Option<f64>,
    /// Mean reward at the end, the model's own samples only.
    pub final_reward_clean: Option<f64>,
    /// Mean reward of step 1.
    pub first_reward: Option<f64>,
    /// Wall-clock seconds.
    pub wall_secs: Option<f64>,
    /// Steps done.
    pub steps_completed: Option<u64>,
    /// Steps asked for.
    pub max_steps: Option<u64>,
    /// Times that adversarial code left a trace in the trainer.
    pub contagion_events: Option<u64>,
    /// Samples without a verdict, left out of the updates.
    pub masked_samples: Option<u64>,
    /// Adversarial samples that got a positive reward.
    pub forged_rewards: Option<u64>,
    /// Adversarial samples.
    pub injected_samples: Option<u64>,
    /// Most memory that the trial held.
    pub memory_peak_bytes: Option<u64>,
    /// Most tasks that the trial held.
    pub pids_peak: Option<u64>,
}

impl RunSummary {
    /// From a file's bytes.
    pub(crate) fn parse(key: TrialKey, bytes: &[u8]) -> Result<Self, Problem> {
        let map = json::object(bytes).ok_or(Problem::NotJson)?;
        check_key(key, &map)?;
        let claimed =
            map.get("survived").and_then(Value::as_bool).ok_or(Problem::BadField { field: "survived" })?;
        let exit_status = json::text(&map, "exit_status", TEXT_LIMIT)
            .map(|text| ExitStatus::parse(&text))
            .ok_or(Problem::BadField { field: "exit_status" })?;
        let steps_completed = json::count(&map, "steps_completed");
        let max_steps = json::count(&map, "max_steps");
        let contradiction =
            claimed.then(|| contradiction(&exit_status, steps_completed, max_steps)).flatten();
        Ok(Self {
            survived: claimed && contradiction.is_none(),
            contradiction,
            exit_status,
            reason: json::text(&map, "reason", TEXT_LIMIT),
            final_reward: json::number(&map, "final_reward"),
            final_reward_clean: json::number(&map, "final_reward_clean"),
            first_reward: json::number(&map, "first_reward"),
            wall_secs: json::non_negative(&map, "wall_secs"),
            steps_completed,
            max_steps,
            contagion_events: json::count(&map, "contagion_events"),
            masked_samples: json::count(&map, "masked_samples"),
            forged_rewards: json::count(&map, "forged_rewards"),
            injected_samples: json::count(&map, "injected_samples"),
            memory_peak_bytes: json::count(&map, "memory_peak_bytes"),
            pids_peak: json::count(&map, "pids_peak"),
        })
    }
}

fn check_key(key: TrialKey, map: &Map<String, Value>) -> Result<(), Problem> {
    let bad = |field| Problem::BadField { field };
    let condition = map.get("condition").and_then(Value::as_str).ok_or(bad("condition"))?;
    if condition != key.condition.as_str() {
        return Err(Problem::OtherTrial { field: "condition" });
    }
    if json::count(map, "seed").ok_or(bad("seed"))? != u64::from(key.seed) {
        return Err(Problem::OtherTrial { field: "seed" });
    }
    let share = json::number(map, "adversarial_fraction").ok_or(bad("adversarial_fraction"))?;
    // Directory names round to a hundredth of a percent.
    if (share - key.fraction.share()).abs() > 0.51e-4 {
        return Err(Problem::OtherTrial { field: "adversarial_fraction" });
    }
    Ok(())
}

/// Code 0 alone is no survival: `sys.exit(0)` in a completion ends an unprotected trainer with code 0.
fn contradiction(exit: &ExitStatus, done: Option<u64>, asked: Option<u64>) -> Option<String> {
    if *exit != ExitStatus::Clean(0) {
        return Some(format!("claims survival, but ended with {exit}"));
    }
    match (done, asked) {
        (Some(done), Some(asked)) if done < asked => {
            Some(format!("claims survival, but did {done} of {asked} steps"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<RunSummary, Problem> {
        RunSummary::parse(TrialKey::parse("in_loop_seed1_fraction5").unwrap(), json.as_bytes())
    }

    const BASE: &str = r#""condition":"in_loop","seed":1,"adversarial_fraction":0.05"#;

    #[test]
    fn the_five_required_fields_are_enough_and_unknown_ones_are_ignored() {
        let run =
            parse(&format!(r#"{{{BASE},"survived":true,"exit_status":"Clean(0)","host":{{}}}}"#)).unwrap();
        assert!(run.survived);
        assert_eq!(
            (run.exit_status, run.final_reward, run.contagion_events),
            (ExitStatus::Clean(0), None, None)
        );
    }

    #[test]
    fn another_trials_summary_is_refused() {
        for (from, to, field) in [
            ("in_loop", "rlox", "condition"),
            ("\"seed\":1", "\"seed\":2", "seed"),
            ("0.05", "0.1", "adversarial_fraction"),
        ] {
            let json = format!(r#"{{{BASE},"survived":true,"exit_status":"Clean(0)"}}"#).replace(from, to);
            assert_eq!(parse(&json), Err(Problem::OtherTrial { field }));
        }
    }

    #[test]
    fn required_fields_are_required() {
        assert_eq!(parse("[]"), Err(Problem::NotJson));
        assert_eq!(
            parse("{\"condition\":\"in_loop\",\"seed\":\"1\"}"),
            Err(Problem::BadField { field: "seed" })
        );
        assert_eq!(
            parse(&format!(r#"{{{BASE},"survived":"yes","exit_status":"Clean(0)"}}"#)),
            Err(Problem::BadField { field: "survived" })
        );
    }

    #[test]
    fn a_contradicted_claim_of_survival_is_not_believed() {
        for tail in [
            r#""exit_status":"Clean(1)""#,
            r#""exit_status":"Signaled(9)""#,
            r#""exit_status":"Clean(0)","steps_completed":3,"max_steps":30"#,
        ] {
            let run = parse(&format!(r#"{{{BASE},"survived":true,{tail}}}"#)).unwrap();
            assert!(!run.survived && run.contradiction.is_some(), "{tail}");
        }
    }

    #[test]
    fn exit_statuses_keep_their_text() {
        for text in ["Clean(0)", "Clean(137)", "Signaled(9)", "Timeout", "OomKilled", "Clean(x)", "lost"] {
            assert_eq!(ExitStatus::parse(text).to_string(), text);
        }
        assert_eq!(ExitStatus::parse("Clean(x)"), ExitStatus::Other("Clean(x)".into()));
    }
}
