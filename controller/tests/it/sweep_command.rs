//! The command line of sweeps: files, JSON, logs, a service that is asked or started. Trials are short programs.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::host::wait_until;
use crate::support::tiny::Ground;
use crate::support::{nothing_left, output_within, ready, stderr, stdout};

const LONG: Duration = Duration::from_secs(120);
const SMALL: [&str; 6] = ["--workers", "1", "--pool", "0", "--interpreter", "exec"];

impl Ground {
    fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name).to_str().unwrap().to_owned()
    }

    #[track_caller]
    fn output(&self, arguments: &[&str]) -> Output {
        let (pid, output) = output_within(&mut self.home.controller(self.scratch.path(), arguments), LONG);
        nothing_left(pid, self.scratch.path());
        output
    }

    #[track_caller]
    fn says(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}{}", stdout(&output), stderr(&output));
        stdout(&output)
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let text = self.says(arguments);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

const FILE: &str = "seeds = [3]\npercents = [0, 0.5]\nmax_steps = 3\nparallel = 2\n";

#[test]
fn a_sweep_in_a_file_is_planned_run_and_shown_to_programs() {
    if !ready() {
        return;
    }
    let ground = Ground::new();
    let file = ground.file("sweep.toml", FILE);
    let sweep = ground.path("sweep_out");
    let at = ["--sweep-dir", sweep.to_str().unwrap()];
    let planned = ground.json(&["sweep", "plan", "--file", &file, "--json"]);
    let names: Vec<_> =
        planned["trials"].as_array().unwrap().iter().map(|trial| trial["name"].clone()).collect();
    let expected = [
        "in_loop_seed3_fraction0",
        "in_loop_seed3_fraction0.5",
        "rlox_seed3_fraction0",
        "rlox_seed3_fraction0.5",
    ];
    assert_eq!(names, expected);
    assert_eq!(planned["trials"][0]["command"][2], "--backend");
    assert_eq!(planned["plan"]["limits"]["memory_mb"], 3072);
    let toml = ground.says(&["sweep", "plan", "--toml"]);
    assert!(toml.contains("percents = [") && toml.contains("[limits]"), "{toml}");
    let again = ground.file("again.toml", &toml);
    assert_eq!(ground.says(&["sweep", "plan", "--file", &again]), ground.says(&["sweep", "plan"]));

    let arguments = [&["sweep", "run", "--file", &file, "--json"][..], &at, &SMALL].concat();
    let ended = ground.json(&arguments);
    assert_eq!((&ended["state"], &ended["trials"]["survived"]), (&"finished".into(), &4.into()), "{ended}");
    let status = ground.json(&[&["sweep", "status", "--json"][..], &at].concat());
    assert_eq!((&status["sweep"], &status["process"]), (&ended, &Value::Null));
    assert_eq!(status["trials"][1]["percent"], "0.5");
    let text = ground.says(&[&["sweep", "status"][..], &at].concat());
    assert!(text.contains("survived, Clean(0), 3 steps") && text.contains("4 of 4 recorded"), "{text}");
    let logs = [&["sweep", "logs", "rlox_seed3_fraction0"][..], &at].concat();
    assert_eq!(ground.says(&logs), "trial 3\nstep 1\nstep 2\nstep 3\n");
    assert_eq!(ground.says(&[&logs[..], &["-f"]].concat()), "trial 3\nstep 1\nstep 2\nstep 3\n");
    assert!(ground.json(&[&logs[..], &["--json"]].concat())["log"].as_str().unwrap().starts_with("trial 3"));
    let summary = ground.json(&[&["sweep", "aggregate", "--json"][..], &at].concat());
    assert!(Path::new(summary["json"].as_str().unwrap()).is_file(), "{summary}");
    let figures = ground.json(&[&["sweep", "plot", "--json"][..], &at].concat());
    assert_eq!(figures["figures"].as_array().unwrap().len(), 4);

    let wrong = ground.file("wrong.toml", "seeds = [3]\nseed = 1\n");
    let output = ground.output(&["sweep", "run", "--file", &wrong]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("wrong.toml") && stderr(&output).contains("seed"),
        "{}",
        stderr(&output)
    );
    let none = ground.output(&[&["sweep", "logs", "rlox_seed9_fraction0"][..], &at].concat());
    assert!(stderr(&none).contains("rlox_seed9_fraction0"), "{}", stderr(&none));
}

/// A sweep that runs, with its standard error.
fn begin(ground: &Ground, arguments: &[&str]) -> Child {
    let mut command = ground.home.controller(ground.scratch.path(), arguments);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
}

#[test]
fn the_first_interrupt_ends_in_order_and_the_second_at_once_and_neither_loses_anything() {
    if !ready() {
        return;
    }
    let ground = Ground::new();
    let sweep = ground.path("sweep_out");
    let at = ["--sweep-dir", sweep.to_str().unwrap()];
    let file = ground.file(
        "sweep.toml",
        "seeds = [0, 1]\nmax_steps = 3\nparallel = 2\ntrainer_args = [\"--pause\", \"0.1\"]\n",
    );
    let arguments = [&["sweep", "run", "--file", &file][..], &at, &SMALL].concat();
    let status = || ground.json(&[&["sweep", "status", "--json"][..], &at].concat());
    let finished = |status: &Value| status["sweep"]["trials"]["finished"].as_u64().unwrap();
    let mut child = begin(&ground, &arguments);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("survived") && line.contains("2/16")), "two trials");
    signal(&child, Signal::SIGINT);
    let rest: String = lines.collect::<Vec<_>>().join("\n");
    assert!(rest.contains("stopping the running trials"), "{rest}");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    nothing_left(child.id(), ground.scratch.path());
    let first = status();
    assert_eq!(first["sweep"]["state"], "cancelled");
    assert!(finished(&first) >= 2 && finished(&first) < 16, "{}", first["sweep"]);

    // A launcher that is stopped holds the orderly end up, and the second interrupt does not wait for it.
    let mut child = begin(&ground, &arguments);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let more = format!("{}/16", finished(&first) + 1);
    assert!(lines.any(|line| line.contains(&more)), "one more");
    signal(&child, Signal::SIGINT);
    assert!(lines.any(|line| line.contains("once more: stop at once")), "word of the second");
    signal(&child, Signal::SIGINT);
    let ended = child.wait().unwrap();
    // It may have ended in order before the second came.
    let at_once = std::os::unix::process::ExitStatusExt::signal(&ended) == Some(9);
    assert!(at_once || ended.code() == Some(130), "{ended:?}");

    let ended = ground.json(&[&["sweep", "resume", "--json"][..], &at, &SMALL].concat());
    assert_eq!((&ended["state"], &ended["trials"]["finished"]), (&"finished".into(), &16.into()), "{ended}");
    let told = status();
    let attempts = told["trials"].as_array().unwrap().iter().filter(|trial| trial["attempts"] == 1).count();
    assert!(attempts as u64 >= finished(&first), "a finished trial was run again: {told}");
}

#[test]
fn a_sweep_is_handed_over_to_a_service_that_is_started_for_it() {
    if !ready() {
        return;
    }
    let ground = Ground::new();
    let state = ground.path("state");
    // A port that is free now; another test may take it, and then this one fails aloud.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = format!("http://127.0.0.1:{port}");
    let at = ["--server", &server];
    let file = ground.file("sweep.toml", &format!("{FILE}trainer_args = [\"--pause\", \"0.3\"]\n"));
    let absent = ground.output(&[&["sweep", "status"][..], &at].concat());
    assert!(stderr(&absent).contains("no service at"), "{}", stderr(&absent));
    let arguments =
        ["sweep", "run", "--file", &file, "--detach", "--json", "--state-dir", state.to_str().unwrap()];
    let output =
        ground.home.controller(ground.scratch.path(), &[&arguments[..], &at].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stderr(&output);
    let service: i32 =
        text.split("process ").nth(1).and_then(|rest| rest.split(',').next()).unwrap().parse().unwrap();
    let ended = Ended(service);
    let sweep: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let id = sweep["id"].as_str().unwrap();
    assert!(Path::new(sweep["directory"].as_str().unwrap()).starts_with(&state), "{sweep}");

    let run = |arguments: &[&str]| {
        let mut command = ground.home.controller(ground.scratch.path(), &[arguments, &at].concat());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
        stdout(&output)
    };
    let status = || serde_json::from_str::<Value>(&run(&["sweep", "status", id, "--json"])).unwrap();
    // Follows the log of a trial that has not begun, until it is over.
    let trial = format!("{id}.rlox_seed3_fraction0");
    assert_eq!(run(&["sweep", "logs", "-f", &trial]), "trial 3\nstep 1\nstep 2\nstep 3\n");
    wait_until("the sweep's end", LONG, || status()["sweep"]["state"] == "finished");
    assert!(run(&["sweep", "status"]).contains(id));
    assert!(run(&["sweep", "status", id]).contains("4 of 4 recorded, 4 survived, finished"));
    let again =
        ground.home.controller(ground.scratch.path(), &[&["sweep", "cancel", id][..], &at].concat()).output();
    let again = again.unwrap();
    assert!(again.status.code() == Some(1) && stderr(&again).contains("409"), "{}", stderr(&again));
    // A second one goes to the same service, and is stopped by its id.
    let slow = ground.file("slow.toml", &format!("{FILE}trainer_args = [\"--pause\", \"20\"]\n"));
    let second: Value =
        serde_json::from_str(&run(&["sweep", "run", "--file", &slow, "--detach", "--json"])).unwrap();
    let second = second["id"].as_str().unwrap();
    run(&["sweep", "cancel", second]);
    wait_until("the second's end", LONG, || {
        run(&["sweep", "status", second]).contains("cancelled")
            && run(&["sweep", "status", second]).ends_with("survived, cancelled\n")
    });
    drop(ended);
    nothing_left(u32::try_from(service).unwrap(), ground.scratch.path());
}

/// A service that the command started; it ends with the test.
struct Ended(i32);

impl Drop for Ended {
    fn drop(&mut self) {
        kill(Pid::from_raw(self.0), Signal::SIGTERM).unwrap_or_default();
        let gone = || kill(Pid::from_raw(self.0), None).is_err();
        let zombie = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
        };
        wait_until("the started service's end", Duration::from_secs(60), || gone() || zombie());
    }
}
