//! From directories to `p3_summary.json` and `p3_summary.md`.

use std::fs;

use crate::made::{Made, full, write, write_all};
use rlox_report::{Condition, Fraction, GuardrailStatus, TrialKey, load, summarise, write_summary};
use serde_json::{Value, json};
use tempfile::tempdir;

/// The tutorial's example output, character by character.
const TUTORIAL: &str = r#"{
  "p3_headline": {
    "in_loop": {
      "0": [3, 3],
      "1": [3, 3],
      "5": [2, 3],
      "10": [1, 3]
    },
    "rlox": {
      "0": [3, 3],
      "1": [3, 3],
      "5": [3, 3],
      "10": [3, 3]
    }
  },
  "quality_parity_guardrail": {
    "final_reward_in_loop": 0.917,
    "final_reward_rlox": 0.917,
    "status": "MET"
  }
}
"#;

#[test]
fn the_first_two_keys_are_the_tutorials_to_the_letter() {
    let (sweep, out) = (tempdir().unwrap(), tempdir().unwrap());
    write_all(sweep.path(), &full(false));
    let summary = summarise(&load(sweep.path()).unwrap());
    let files = write_summary(&summary, out.path()).unwrap();
    let text = fs::read_to_string(&files.json).unwrap();
    assert!(text.starts_with(TUTORIAL.trim_end().trim_end_matches("\n}")), "{}", &text[..600]);
    let json: Value = serde_json::from_str(&text).unwrap();
    let tutorial: Value = serde_json::from_str(TUTORIAL).unwrap();
    assert_eq!(json["p3_headline"], tutorial["p3_headline"]);
    assert_eq!(json["quality_parity_guardrail"], tutorial["quality_parity_guardrail"]);
    assert_eq!(json["published"]["in_loop"], tutorial["p3_headline"]["in_loop"]);
    assert!(json["published"]["note"].as_str().unwrap().contains("not measured here"));
}

#[test]
fn the_rest_of_the_summary_states_intervals_integrity_and_every_exit() {
    let sweep = tempdir().unwrap();
    write_all(sweep.path(), &full(false));
    let sweep = load(sweep.path()).unwrap();
    let summary = summarise(&sweep);
    assert_eq!(summary, summarise(&sweep), "pure and deterministic");
    let json = serde_json::to_value(&summary).unwrap();
    let all = json["survival"].as_array().unwrap().iter().find(|c| c["fraction"] == "all").unwrap();
    assert_eq!((&all["survived"], &all["total"]), (&json!(9), &json!(12)));
    assert!(all["interval"][0].as_f64().unwrap() > 0.4);
    let integrity = &json["reward_integrity"];
    assert!(integrity[0]["forged_rewards"].as_u64().unwrap() > 0);
    assert_eq!(integrity[1]["forged_rewards"], 0);
    assert!(integrity[1]["injected_samples"].as_u64().unwrap() > 0);
    let exits: Vec<&str> =
        json["trials"].as_array().unwrap().iter().map(|t| t["exit_status"].as_str().unwrap()).collect();
    assert_eq!(exits.len(), 24);
    assert!(exits.contains(&"Timeout") && exits.contains(&"Signaled(9)"));
    assert_eq!(json["missing_trials"], json!([]));
    let ratio = json["step_time_ratio"].as_array().unwrap().iter().find(|r| r["fraction"] == "5").unwrap();
    assert!(ratio["p99"].as_f64().unwrap() > 2.0);
    assert_eq!(json["method"]["bootstrap_resamples"], 10_000);
    assert!(summary.trials.iter().filter(|t| t.metrics_truncated_tail).count() == 3);
}

#[test]
fn the_page_shows_measured_beside_published_and_the_caveats() {
    let (sweep, out) = (tempdir().unwrap(), tempdir().unwrap());
    write_all(sweep.path(), &full(false));
    let files = write_summary(&summarise(&load(sweep.path()).unwrap()), out.path()).unwrap();
    let page = fs::read_to_string(files.markdown).unwrap();
    for part in [
        "| `in_loop`, measured | **3/3** [44–100 %] | **3/3** [44–100 %] | **2/3** [21–94 %] | **1/3** [6–79 %] |",
        "| `in_loop`, *published* | *3/3* | *3/3* | *2/3* | *1/3* | – |",
        "Status: **MET**",
        "not measured here",
        "| `in_loop_seed2_fraction10` | **died** | Clean(0) | 5/30 |",
        "476k parameters",
        "Code 0 is no survival",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
}

#[test]
fn a_partial_sweep_lists_what_is_missing_and_judges_no_parity() {
    let sweep = tempdir().unwrap();
    for made in full(false).into_iter().filter(|m| m.seed == 0 && m.percent != "1" && m.percent != "10") {
        write(sweep.path(), made);
    }
    fs::remove_dir_all(sweep.path().join("rlox_seed0_fraction5")).unwrap();
    fs::create_dir(sweep.path().join("in_loop_seed0_fraction1")).unwrap();
    fs::create_dir(sweep.path().join("figures")).unwrap();
    let summary = summarise(&load(sweep.path()).unwrap());
    assert_eq!(summary.quality_parity_guardrail.status, GuardrailStatus::Incomplete);
    let missing: Vec<String> =
        summary.missing_trials.iter().map(|m| format!("{}: {}", m.trial, m.why)).collect();
    assert_eq!(
        missing,
        [
            "in_loop_seed0_fraction1: not finished: no run_summary.json",
            "rlox_seed0_fraction1: no directory",
            "rlox_seed0_fraction5: no directory",
        ]
    );
    let five = Fraction::parse_percent("5").unwrap();
    assert_eq!(summary.p3_headline.cell(Condition::InLoop, five), [1, 1]);
    assert_eq!(summary.p3_headline.cell(Condition::Rlox, five), [0, 0]);
}

#[test]
fn a_plan_names_trials_that_left_nothing_at_all() {
    let sweep = tempdir().unwrap();
    write(sweep.path(), full(false)[0]);
    let plan = ["in_loop_seed0_fraction0", "in_loop_seed7_fraction10"].map(|n| TrialKey::parse(n).unwrap());
    let summary = summarise(&load(sweep.path()).unwrap().with_plan(plan));
    assert_eq!(summary.missing_trials.len(), 1);
    assert_eq!(summary.missing_trials[0].trial, plan[1]);
}

#[test]
fn no_trials_is_an_empty_summary_and_no_directory_is_an_error() {
    let (sweep, out) = (tempdir().unwrap(), tempdir().unwrap());
    let summary = summarise(&load(sweep.path()).unwrap());
    write_summary(&summary, &out.path().join("made/too")).unwrap();
    let missing = sweep.path().join("nowhere");
    let error = load(&missing).unwrap_err();
    assert!(error.to_string().contains(missing.to_str().unwrap()), "{error}");
}

/// At 0 %, three seeds; the treatment's final reward of each seed lowered by what is given.
fn parity_of(lowered: [f64; 3]) -> GuardrailStatus {
    let sweep = tempdir().unwrap();
    for made in full(false).into_iter().filter(|made| made.percent == "0") {
        write(sweep.path(), made);
        if let Made { condition: "rlox", seed, .. } = made {
            let directory = sweep.path().join(format!("rlox_seed{seed}_fraction0"));
            let path = directory.join("run_summary.json");
            let mut json: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            let lower = lowered[seed as usize];
            json["final_reward"] = json!(json["final_reward"].as_f64().unwrap() - lower);
            fs::write(path, json.to_string()).unwrap();
            let line = |step: u64| format!("{{\"step\":{step},\"reward\":{}}}\n", 0.9 - lower);
            fs::write(directory.join("metrics.jsonl"), (1..=30).map(line).collect::<String>()).unwrap();
        }
    }
    summarise(&load(sweep.path()).unwrap()).quality_parity_guardrail.status
}

#[test]
fn parity_needs_agreeing_means_and_two_thirds_of_the_pairs() {
    assert_eq!(parity_of([0.0, 0.0, 0.0]), GuardrailStatus::Met);
    assert_eq!(parity_of([0.05, 0.05, 0.05]), GuardrailStatus::Met, "within the margin");
    assert_eq!(parity_of([0.3, 0.25, 0.35]), GuardrailStatus::NotMet, "all lower");
    assert_eq!(parity_of([-0.4, 0.4, 0.0]), GuardrailStatus::NotMet, "means agree, pairs do not");
}
