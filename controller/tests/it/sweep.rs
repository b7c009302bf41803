//! The sweep: which trials, recorded once, stopped and continued, summed up and drawn. Trials are real and short.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, SystemTime};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::host::{need, wait_until};
use crate::support::{SOON, controller, host, nothing_left, output_within, ready, runtime, stderr, stdout};

/// Two trials of two steps take half a minute on two idle cores.
const LONG: Duration = Duration::from_secs(300);
/// The two trials of this plan.
const NAMES: [&str; 2] = ["in_loop_seed0_fraction10", "rlox_seed0_fraction10"];
const PLAN: [&str; 8] = ["--seeds", "0", "--percents", "10", "--max-steps", "2", "--stall-secs", "120"];

fn trainer() -> bool {
    ready()
        && need(
            host::checkout().join("harness/.venv/bin/python").exists(),
            "trainer environment harness/.venv",
        )
        && need(
            runtime().with_file_name("librlox_rl_ops_ffi.so").is_file(),
            "librlox_rl_ops_ffi.so beside rlox-runtime (cargo build --release)",
        )
}

/// A sweep's directory with the directory for temporary files beside it.
struct Place {
    root: tempfile::TempDir,
    scratch: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap(), scratch: tempfile::tempdir().unwrap() }
    }

    fn sweep(&self) -> PathBuf {
        self.root.path().join("sweep_out")
    }

    fn arguments(&self, command: &str, more: &[&str]) -> Vec<String> {
        let sweep = self.sweep().display().to_string();
        ["sweep", command, "--sweep-dir", &sweep].iter().chain(more).map(|part| (*part).to_owned()).collect()
    }

    #[track_caller]
    fn run(&self, command: &str, more: &[&str]) -> Output {
        let arguments = self.arguments(command, more);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let (pid, output) = output_within(&mut controller(self.scratch.path(), &arguments), LONG);
        nothing_left(pid, self.scratch.path());
        output
    }

    #[track_caller]
    fn succeeds(&self, command: &str, more: &[&str]) -> String {
        let output = self.run(command, more);
        assert_eq!(output.status.code(), Some(0), "{command}: {}{}", stdout(&output), stderr(&output));
        stdout(&output)
    }

    fn begin(&self, command: &str, more: &[&str]) -> Child {
        let arguments = self.arguments(command, more);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let mut command = controller(self.scratch.path(), &arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }
}

fn summary(place: &Place, name: &str) -> Value {
    let path = place.sweep().join(name).join("run_summary.json");
    serde_json::from_str(
        &std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())),
    )
    .unwrap()
}

/// Each file of a directory tree with its time of change.
fn times(directory: &Path) -> BTreeMap<PathBuf, SystemTime> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.extend(times(&entry.path()));
        } else if entry.file_name() != ".lock"
            && !entry.file_name().to_string_lossy().starts_with(".sweeps.db")
        {
            found.insert(entry.path(), entry.metadata().unwrap().modified().unwrap());
        }
    }
    found
}

#[test]
fn trials_are_recorded_once_summed_up_and_drawn() {
    if !trainer() {
        return;
    }
    let place = Place::new();
    let said = place.succeeds("run", &PLAN);
    assert!(said.contains("2 of 2 trials recorded") && said.contains("sweep aggregate"), "{said}");
    for name in NAMES {
        let run = summary(&place, name);
        assert_eq!(run["recorded_by"], "rlox-controller", "{run}");
        assert_eq!(
            (run["seed"].as_u64(), run["adversarial_fraction"].as_f64()),
            (Some(0), Some(0.1)),
            "{run}"
        );
        assert_eq!(run["leftovers"], 0, "{run}");
        assert!(place.sweep().join(name).join("trainer.log").is_file());
    }
    let run = summary(&place, NAMES[1]);
    assert_eq!(
        (&run["condition"], &run["survived"], &run["exit_status"]),
        (&"rlox".into(), &true.into(), &"Clean(0)".into()),
        "{run}"
    );
    assert_eq!(
        (run["steps_completed"].as_u64(), run["contagion_events"].as_u64()),
        (Some(2), Some(0)),
        "{run}"
    );
    let metrics = std::fs::read_to_string(place.sweep().join(NAMES[1]).join("metrics.jsonl")).unwrap();
    let rows: Vec<Value> = metrics.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.iter().map(|row| row["step"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(2)]);
    for field in ["reward", "entropy", "kl", "gpu_util", "step_time_secs", "vm_rss_bytes", "open_fds"] {
        assert!(rows[0].get(field).is_some(), "no {field} in {}", rows[0]);
    }

    // Again: everything is there, nothing is done, nothing is touched.
    let before = times(&place.sweep());
    let said = place.succeeds("run", &PLAN);
    assert!(said.contains("2 of 2 trials recorded"), "{said}");
    assert_eq!(times(&place.sweep()), before);
    // Other settings in the same directory are another sweep.
    let output = place.run("run", &["--seeds", "0", "--percents", "10", "--max-steps", "3"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("other settings"), "{}", stderr(&output));
    let status = place.succeeds("status", &[]);
    assert!(status.contains("2 of 2 recorded") && status.contains("not running"), "{status}");

    place.succeeds("aggregate", &[]);
    let path = place.root.path().join("p3_summary.json");
    let text: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert!(text["p3_headline"].is_object() && text.get("quality_parity_guardrail").is_some(), "{text}");
    assert!(std::fs::read_to_string(place.root.path().join("p3_summary.md")).unwrap().contains("in_loop"));
    place.succeeds("plot", &[]);
    for name in ["p3_survival", "quality_parity", "step_time_stall", "gpu_util"] {
        let bytes = std::fs::read(place.root.path().join("figures").join(format!("{name}.png"))).unwrap();
        assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n") && bytes.len() > 1000, "{name}");
    }
    let mut parts: Vec<_> =
        std::fs::read_dir(place.root.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    parts.sort();
    assert_eq!(parts, ["figures", "p3_summary.json", "p3_summary.md", "sweep_out"]);
}

/// Trainers in containers of this controller.
fn trainers(child: &Child) -> usize {
    let line = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let all = host::processes(&format!("rlox-{}.", child.id()));
    all.iter().filter(|pid| line(pid).contains("trl_grpo_run.py")).count()
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
}

#[track_caller]
fn cancelled(place: &Place, mut child: Child) {
    let mut status = None;
    wait_until("the sweep's end", Duration::from_secs(60), || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.and_then(|status| status.code()), Some(130));
    nothing_left(child.id(), place.scratch.path());
}

#[test]
fn a_sweep_is_locked_cancelled_and_resumed() {
    if !trainer() {
        return;
    }
    let place = Place::new();
    // Both trainers run, those of an earlier attempt do not count.
    let running = |child: &Child| {
        wait_until("running trials", Duration::from_secs(90), || trainers(child) == NAMES.len());
    };
    let first = place.begin("run", &[&PLAN[..], &["--parallel", "2"]].concat());
    running(&first);

    let second = place.run("run", &PLAN);
    assert_eq!(second.status.code(), Some(1));
    let text = stderr(&second);
    assert!(
        text.contains("in use by another sweep") && text.contains(&format!("process {}", first.id())),
        "{text}"
    );
    let status = place.succeeds("status", &[]);
    assert!(status.contains(&format!("running (process {})", first.id())), "{status}");
    place.succeeds("cancel", &[]);
    cancelled(&place, first);
    assert!(
        NAMES.iter().all(|name| !place.sweep().join(name).join("run_summary.json").exists()),
        "a stopped trial was recorded"
    );

    // Nothing runs any more: there is nothing to cancel.
    assert_eq!(place.run("cancel", &[]).status.code(), Some(1));
    let third = place.begin("resume", &["--parallel", "2"]);
    running(&third);
    signal(&third, Signal::SIGTERM);
    cancelled(&place, third);

    let said = place.succeeds("resume", &["--parallel", "2"]);
    assert!(said.contains("2 of 2 trials recorded"), "{said}");
    assert_eq!(summary(&place, NAMES[1])["survived"], true);
}

#[test]
fn the_full_plan_has_the_published_24_trials() {
    let place = Place::new();
    let plan = place.succeeds("plan", &[]);
    let lines: Vec<_> = plan.lines().filter(|line| line.contains("trl_grpo_run.py")).collect();
    assert_eq!((lines.len(), plan.lines().count()), (24, 24), "{plan}");
    for backend in ["in_loop", "rlox"] {
        assert_eq!(lines.iter().filter(|line| line.contains(&format!("--backend {backend} "))).count(), 12);
    }
    for fraction in ["0", "0.01", "0.05", "0.1"] {
        assert_eq!(
            lines.iter().filter(|line| line.contains(&format!("--adversarial-fraction {fraction} "))).count(),
            6,
            "{fraction}"
        );
    }
    assert!(lines.iter().all(|line| line.contains("--max-steps 30 ") && line.contains("--rlox-server-url ")));
    let outputs: std::collections::HashSet<_> =
        lines.iter().filter_map(|line| line.split("--output-dir ").nth(1)).collect();
    assert_eq!(outputs.len(), 24);
    assert_eq!(place.succeeds("plan", &["--profile", "smoke"]).lines().count(), 4);
    assert!(!place.sweep().exists(), "a plan writes nothing");
    for (flag, value) in [("--percents", "500"), ("--conditions", "none"), ("--percents", "a")] {
        let output = place.run("plan", &[flag, value]);
        assert_eq!(output.status.code(), Some(1), "{flag} {value}");
        assert!(stderr(&output).contains(value), "{}", stderr(&output));
    }
}

#[test]
fn a_changed_corpus_stops_the_sweep_before_anything_runs() {
    let place = Place::new();
    let home = tempfile::tempdir().unwrap();
    for name in ["bundles", "harness"] {
        std::os::unix::fs::symlink(host::checkout().join(name), home.path().join(name)).unwrap();
    }
    let corpus = home.path().join("corpus");
    std::fs::create_dir(&corpus).unwrap();
    for entry in std::fs::read_dir(host::checkout().join("corpus")).unwrap().flatten() {
        std::fs::copy(entry.path(), corpus.join(entry.file_name())).unwrap();
    }
    let path = corpus.join("adversarial_corpus_v1.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen("sys.exit(0)", "sys.exit(1)", 1)).unwrap();
    let arguments = place.arguments("run", &PLAN);
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let mut command = controller(place.scratch.path(), &arguments);
    let (pid, output) = output_within(command.env("RLOX_HOME", home.path()), SOON);
    nothing_left(pid, place.scratch.path());
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    let sums = std::fs::read_to_string(corpus.join("SHA256SUMS")).unwrap();
    let pinned = sums.lines().find_map(|line| line.strip_suffix("  adversarial_corpus_v1.json")).unwrap();
    let digests: Vec<_> =
        text.split(|each: char| !each.is_ascii_hexdigit()).filter(|word| word.len() == 64).collect();
    assert!(digests.len() == 2 && digests.contains(&pinned) && digests[0] != digests[1], "{text}");
    assert!(!place.sweep().exists(), "something was begun");
}

#[test]
fn commands_on_a_directory_without_a_sweep_say_so() {
    let place = Place::new();
    std::fs::create_dir(place.sweep()).unwrap();
    for command in ["resume", "cancel"] {
        let output = place.run(command, &[]);
        assert_eq!(output.status.code(), Some(1), "{command}");
        assert!(stderr(&output).contains("sweep"), "{command}: {}", stderr(&output));
    }
}
