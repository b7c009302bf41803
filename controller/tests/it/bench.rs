//! The measurements from outside: what they find, what they leave, and that they could find something else.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::support::host::{traces, wait_until};
use crate::support::{SOON, Service, controller, nothing_left, output_within, ready, stderr, stdout};

/// Programs of a short run: enough that usual ways are fooled.
const FEW: usize = 12;
const PATIENCE: Duration = Duration::from_secs(180);

/// Runs `bench` with a file for its results; returns code, output and results.
#[track_caller]
fn bench(arguments: &[&str]) -> (Option<i32>, String, Value) {
    bench_with(arguments, None)
}

/// The same where programs are looked for in this directory only.
#[track_caller]
fn bench_with(arguments: &[&str], path: Option<&std::path::Path>) -> (Option<i32>, String, Value) {
    let (scratch, results) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
    let file = results.path().to_str().unwrap();
    let arguments = [&["bench"], arguments, &["--json", file]].concat();
    let mut command = controller(scratch.path(), &arguments);
    if let Some(path) = path {
        command.env("PATH", path);
    }
    let (pid, output) = output_within(&mut command, PATIENCE);
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

/// Quick and small: how long anything takes is not looked at.
const TINY: [&str; 8] = ["--rounds", "2", "--each", "2", "--clients", "1,3", "--duration-secs", "0.1"];

#[test]
fn speed_compares_what_is_there_and_names_what_is_missing() {
    if !ready() {
        return;
    }
    let nowhere = tempfile::tempdir().unwrap();
    let (code, text, results) = bench_with(&[&["speed"][..], &TINY].concat(), Some(nowhere.path()));
    assert_eq!(code, Some(0), "{text}");
    let trivial = &results["workloads"][0];
    assert_eq!((&trivial["workload"]["name"], &trivial["base"]), (&"trivial".into(), &"bare".into()));
    let rows = trivial["ways"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["way"].as_str().unwrap()).collect();
    let warm = names.contains(&"verify-warm");
    let forks = ["verify-cold", "verify-warm"].into_iter().filter(|_| warm);
    let expected = ["bare", "python", "subprocess", "rlox-runtime", "verify-exec"].into_iter().chain(forks);
    assert_eq!(names, expected.collect::<Vec<_>>(), "{results:#}");
    for row in rows {
        let each = if row["way"].as_str().unwrap().starts_with("verify") { 8 } else { 2 };
        assert_eq!((&row["wall_ms"]["n"], &row["cpu_ms"]["n"]), (&(2 * each).into(), &2.into()), "{row:#}");
        assert_eq!(row["walls"][1].as_array().unwrap().len(), each, "{row:#}");
        assert!(row["cpu_ms"]["p50"].as_f64().unwrap() > 0.0 && row["failed"] == 0, "{row:#}");
        let crowds = row["throughput"].as_array().unwrap();
        let clients: Vec<_> = crowds.iter().map(|crowd| crowd["clients"].as_u64().unwrap()).collect();
        assert_eq!(clients, [1, 3], "{row:#}");
        assert!(crowds.iter().all(|crowd| crowd["per_second"].as_f64().unwrap() > 0.0), "{row:#}");
        let [low, high] = [0, 1].map(|end| row["wall_ratio"]["interval"][end].as_f64().unwrap());
        assert!(low <= high && low > 0.0, "{row:#}");
    }
    let missing = results["missing"].as_array().unwrap();
    for (way, remedy) in [("bwrap", "bubblewrap"), ("runc", "runc"), ("runsc", "runsc"), ("podman", "podman")]
    {
        let found = missing.iter().find(|each| each["way"] == way && each["workload"].is_null());
        let found = found.unwrap_or_else(|| panic!("{way}: {results:#}"));
        assert_eq!(found["why"], "not installed");
        assert!(found["remedy"].as_str().unwrap().contains(remedy), "{found}");
        assert!(text.contains(&format!("install it: {}", found["remedy"].as_str().unwrap())), "{text}");
    }
    // Where this host's Python cannot be embedded, that is said.
    assert_eq!(!warm, missing.iter().any(|each| each["way"] == "verify-warm" && each["workload"].is_null()));
    // A program that imports numpy was run by every way, or the way is named.
    let able = results["workloads"][1]["ways"].as_array().unwrap().len();
    let unable = missing.iter().filter(|each| each["workload"] == "imports").count();
    assert_eq!(able + unable, rows.len(), "{results:#}");
    assert!(text.contains("| `python3 -I -S FILE` ") && text.contains("Next: "), "{text}");
}

#[test]
fn a_way_whose_program_fails_is_named_with_its_words() {
    if !ready() {
        return;
    }
    let programs = tempfile::tempdir().unwrap();
    let broken = programs.path().join("runc");
    std::fs::write(&broken, "#!/bin/sh\necho no such luck >&2\nexit 9\n").unwrap();
    std::fs::set_permissions(&broken, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let arguments = [&["speed", "--only", "runc"][..], &TINY].concat();
    let (code, text, results) = bench_with(&arguments, Some(programs.path()));
    assert_eq!(code, Some(0), "{text}");
    let rows = results["workloads"][0]["ways"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| &row["way"]).collect::<Vec<_>>(), ["bare"], "{results:#}");
    assert!(text.contains("does not work here: code 9: no such luck"), "{text}");
}

/// Seconds that the daemon below works for, by its own clock of CPU time.
const BURNT: f64 = 0.3;

#[test]
fn the_time_of_a_daemon_that_left_its_parent_is_counted() {
    let burn = format!("import time\nwhile time.process_time() < {BURNT}: pass");
    let plain = "echo 42".to_owned();
    // Its parent is gone long before it ends, as conmon's is.
    let daemon = format!("(setsid python3 -I -S -c '{burn}' >/dev/null 2>&1 &) ; echo 42");
    let batch = |line: &str| json!({ "argv": ["/bin/sh", "-c", line], "cleanup": [], "expect": "42\n", "clients": 1, "count": 1, "secs": 0.0 });
    let scratch = tempfile::tempdir().unwrap();
    let mut meter = controller(scratch.path(), &["bench", "meter"]);
    let mut meter = meter.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = meter.stdin.take().unwrap();
    let mut output = BufReader::new(meter.stdout.take().unwrap()).lines();
    let mut cpu = |line: &str| {
        writeln!(input, "{}", batch(line)).unwrap();
        let answer: Value = serde_json::from_str(&output.next().unwrap().unwrap()).unwrap();
        assert_eq!(
            (answer["failed"].as_u64(), answer["walls"].as_array().unwrap().len()),
            (Some(0), 1),
            "{answer}"
        );
        answer["cpu"].as_f64().unwrap()
    };
    let (without, with) = (cpu(&plain), cpu(&daemon));
    assert!(with >= BURNT && without < BURNT / 2.0, "{with} with the daemon, {without} without");
    drop(input);
    assert!(meter.wait().unwrap().success());
}

/// All that a process started, and what those started.
fn descendants(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = tasks.flat_map(|task| {
        let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        text.split_whitespace().filter_map(|word| word.parse::<u32>().ok()).collect::<Vec<_>>()
    });
    children.flat_map(|child| [vec![child], descendants(child)].concat()).collect()
}

/// A long measurement that has begun, and what it had started by then.
fn begun(scratch: &std::path::Path) -> (Child, Vec<u32>) {
    let arguments =
        ["bench", "speed", "--rounds", "300", "--each", "1", "--only", "subprocess", "runc", "verify-exec"];
    let mut child =
        controller(scratch, &arguments).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("batches")), "it ended");
    // What it says from now on goes nowhere, and is no reason to end.
    std::thread::spawn(move || lines.for_each(drop));
    let started = descendants(child.id());
    // A spawner, a Python, a service with its grader: at least these.
    assert!(started.len() >= 4, "{started:?}");
    (child, started)
}

fn all_gone(started: &[u32]) -> bool {
    started.iter().all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists())
}

#[test]
fn an_interrupted_measurement_leaves_nothing() {
    if !ready() {
        return;
    }
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let scratch = tempfile::tempdir().unwrap();
        let (mut child, started) = begun(scratch.path());
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
        wait_until("the measurement's end", SOON, || child.try_wait().unwrap().is_some());
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert!(all_gone(&started), "{started:?}");
        nothing_left(child.id(), scratch.path());
    }
}

#[test]
fn what_a_killed_measurement_started_ends_by_itself() {
    if !ready() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let (mut child, started) = begun(scratch.path());
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    wait_until("the end of what it started", SOON, || all_gone(&started));
    // Its files go with the next start of a service.
    Service::start().stop();
    assert_eq!(traces(child.id()), Vec::<String>::new());
}

#[test]
fn a_soak_judges_every_answer_and_counts_what_the_service_holds() {
    if !ready() {
        return;
    }
    let (code, text, results) =
        bench(&["soak", "--verifications", "60", "--clients", "4", "--workers", "2", "--adversarial", "0.3"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(
        (&results["wrong"], results["complaints"].as_array().unwrap().len()),
        (&0.into(), 0),
        "{results:#}"
    );
    let latencies = results["latencies"].as_array().unwrap();
    let count =
        |kind: &Value| latencies.iter().find(|each| each["kind"] == *kind).unwrap()["n"].as_u64().unwrap();
    let (all, hostile) = (count(&Value::Null), count(&"adversarial".into()));
    assert_eq!(all, 60);
    assert_eq!(count(&"same".into()) + count(&"honest".into()) + hostile, all);
    assert!((5..=40).contains(&hostile), "{results:#}");
    let growth = results["growth"].as_array().unwrap();
    let what: Vec<_> = growth.iter().map(|each| each["what"].as_str().unwrap()).collect();
    assert_eq!(what, ["resident memory, KiB", "descriptors", "processes", "mounts", "cgroups"]);
    for each in growth {
        let number = |name: &str| each[name].as_u64().unwrap();
        assert!(number("before") > 0 && number("after") <= number("allowed"), "{each}");
    }
    assert!(text.contains("Every verdict was right and nothing grew"), "{text}");
}
