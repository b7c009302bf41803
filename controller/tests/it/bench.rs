//! The measurements from outside: what they find, what they leave, and that they could find something else.

use std::time::Duration;

use serde_json::Value;

use crate::support::{controller, nothing_left, output_within, ready, stderr, stdout};

/// Programs of a short run: enough that usual ways are fooled.
const FEW: usize = 12;
const PATIENCE: Duration = Duration::from_secs(180);

/// Runs `bench` with a file for its results; returns code, output and results.
#[track_caller]
fn bench(arguments: &[&str]) -> (Option<i32>, String, Value) {
    let (scratch, results) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
    let file = results.path().to_str().unwrap();
    let arguments = [&["bench"], arguments, &["--json", file]].concat();
    let (pid, output) = output_within(&mut controller(scratch.path(), &arguments), PATIENCE);
    nothing_left(pid, scratch.path());
    let text = std::fs::read_to_string(results.path()).unwrap();
    let value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{}", stderr(&output)));
    (output.status.code(), stdout(&output), value)
}

/// The tally of one way.
fn tally<'a>(results: &'a Value, way: &str) -> &'a Value {
    results["ways"].as_array().unwrap().iter().find(|each| each["way"] == way).unwrap()
}

#[test]
fn verify_is_not_fooled_where_usual_ways_are() {
    if !ready() {
        return;
    }
    // More time than by default: other tests run beside this one.
    let few = FEW.to_string();
    let (code, text, results) =
        bench(&["integrity", "--limit", &few, "--timeout-secs", "5", "--workers", "2"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(results["programs"].as_array().unwrap().len(), FEW);
    let ours = tally(&results, "verify");
    let (wrong, honest) = (ours["forged"]["of"].as_u64().unwrap(), ours["refused"]["of"].as_u64().unwrap());
    assert!(wrong >= 4 && honest >= 4 && wrong + honest == 12, "{ours}");
    assert_eq!((&ours["forged"]["count"], &ours["refused"]["count"]), (&0.into(), &0.into()), "{results:#}");
    assert_eq!(ours["unknown"], 0, "{results:#}");
    // The same programs fool the usual ways: the zeros above are no property of the programs.
    for way in ["in_process", "exit_code", "nonce"] {
        let usual = tally(&results, way);
        assert!(usual["forged"]["count"].as_u64().unwrap() > 0, "{way}: {results:#}");
        assert!(usual["refused"]["count"].as_u64().unwrap() < honest, "{way}: {results:#}");
    }
    for part in ["| rlox: `/verify`", "subprocess, exit code 0", "/verify rewarded 0 of"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_family_that_is_not_there_is_named_before_anything_runs() {
    let scratch = tempfile::tempdir().unwrap();
    let mut command = controller(scratch.path(), &["bench", "integrity", "--family", "nonsense"]);
    let (pid, output) = output_within(&mut command, PATIENCE);
    nothing_left(pid, scratch.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("equality"), "{}", stderr(&output));
}

#[test]
fn the_cost_of_a_verdict_is_measured_in_all_its_parts() {
    if !ready() {
        return;
    }
    let (code, text, results) = bench(&["cost", "--rounds", "2", "--each", "10"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(results["runs_each"], 20);
    let part = |kind: &str, name: &str| results[kind][name].as_f64().unwrap();
    // Only that it is counted: how much depends on the machine.
    assert!(part("with_tests", "grader") > 0.0 && part("alone", "sandbox") > 0.0, "{results:#}");
    assert!(part("with_tests", "cpu") > part("with_tests", "container"), "{results:#}");
    assert!(text.contains("times the CPU time"), "{text}");
}
