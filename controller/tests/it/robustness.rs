//! Parts of the service are killed while it works: a job is retried or has no reward, and the next one works.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::support::host::{processes, traces, wait_until};
use crate::support::http::Answer;
use crate::support::service::{honest, post_apart, slow};
use crate::support::{SOON, Service, nothing_left, ready, runtime};

fn kill_now(pid: i32) {
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

/// A job that met a failure of ours: judged rightly after all, or no verdict and no reward.
#[track_caller]
fn retried_or_unknown(answer: &Answer) {
    match answer.status {
        200 => assert_eq!(answer.json()["verdict"], "passed", "{answer:?}"),
        _ => drop(answer.is_problem(503)),
    }
}

#[track_caller]
fn recovers(service: &Service) {
    wait_until("an honest program to pass again", SOON, || {
        let answer = service.post("/verify", &honest());
        retried_or_unknown(&answer);
        answer.status == 200
    });
    service.is_well();
}

#[test]
fn a_launcher_is_killed_while_its_job_runs() {
    if !ready() {
        return;
    }
    let service = Service::with(&["--workers", "1"]);
    for _ in 0..3 {
        let job = post_apart(&service, &slow(1.5));
        wait_until("a running container", SOON, || !service.contained(1).is_empty());
        let orphans = service.contained(1);
        kill_now(service.launcher(1).unwrap());
        retried_or_unknown(&job.join().unwrap());
        // The container of the dead launcher went with it; it holds the job's source.
        wait_until("the end of its container", SOON, || {
            !service.contained(1).iter().any(|pid| orphans.contains(pid))
        });
        service.is_well();
    }
    service.stop();
}

#[test]
fn an_idle_launcher_is_killed() {
    if !ready() {
        return;
    }
    let service = Service::with(&["--workers", "1"]);
    kill_now(service.launcher(1).unwrap());
    let answer = service.post("/verify", &honest());
    assert_eq!(
        (answer.status, answer.json()["verdict"].as_str()),
        (200, Some("passed")),
        "not tried again: {answer:?}"
    );
    service.stop();
}

/// The first process of the grader's container.
fn grader_init(service: &Service) -> i32 {
    let is_init = |pid: &&i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().any(|line| {
            line.starts_with("NSpid:") && line.split_whitespace().count() > 2 && line.ends_with("\t1")
        })
    };
    *service.contained(0).iter().find(is_init).unwrap()
}

#[test]
fn the_grader_is_killed_while_nothing_runs() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let first = grader_init(&service);
    kill_now(first);
    recovers(&service);
    assert_ne!(grader_init(&service), first);
    service.stop();
}

#[test]
fn the_grader_is_killed_while_a_job_runs() {
    if !ready() {
        return;
    }
    let service = Service::with(&["--workers", "1"]);
    let job = post_apart(&service, &slow(1.5));
    wait_until("a running container", SOON, || {
        !service.contained(1).is_empty() && service.contained(0).len() > 1
    });
    kill_now(grader_init(&service));
    retried_or_unknown(&job.join().unwrap());
    recovers(&service);
    service.stop();
}

#[test]
fn the_graders_launcher_is_killed() {
    if !ready() {
        return;
    }
    let service = Service::start();
    kill_now(service.launcher(0).unwrap());
    recovers(&service);
    service.stop();
}

#[test]
fn a_program_is_killed_from_outside() {
    if !ready() {
        return;
    }
    let service = Service::with(&["--workers", "1"]);
    let job = post_apart(&service, &slow(3.0));
    wait_until("a running container", SOON, || !service.contained(1).is_empty());
    for pid in service.contained(1) {
        kill_now(pid);
    }
    // Who sent the signal cannot be told: it counts as the program's end, and never as a success.
    let answer = job.join().unwrap().json();
    assert_eq!((&answer["verdict"], &answer["reward"]), (&json!("killed"), &json!(0.0)), "{answer}");
    service.is_well();
    service.stop();
}

#[test]
fn the_controller_is_killed_and_the_next_one_cleans_up() {
    if !ready() {
        return;
    }
    let mut service = Service::start();
    let (pid, token) = (service.id(), format!("rlox-{}.", service.id()));
    let jobs = [
        post_while_dying(&service, &slow(4.0)),
        post_while_dying(&service, &json!({ "code": "while True: pass" })),
    ];
    wait_until("two running containers", SOON, || {
        !service.contained(1).is_empty() && !service.contained(2).is_empty()
    });
    service.signal(Signal::SIGKILL);
    service.ended();
    // Nobody tells the launchers but their closed sockets.
    wait_until("launchers and containers to leave", Duration::from_secs(10), || processes(&token).is_empty());
    for job in jobs {
        job.join().unwrap();
    }
    let next = Service::start();
    next.is_well();
    assert_eq!(traces(pid), Vec::<String>::new(), "left by the killed controller");
    next.stop();
}

/// Sends a request to which no answer may come.
fn post_while_dying(service: &Service, body: &Value) -> std::thread::JoinHandle<()> {
    let (address, body) = (service.address.clone(), body.to_string());
    std::thread::spawn(move || {
        drop(address.request("POST", "/verify", &[("Content-Type", "application/json")], body.as_bytes()))
    })
}

#[test]
fn a_killed_runtime_is_cleaned_up_by_the_next_service() {
    if !ready() {
        return;
    }
    let mut child = std::process::Command::new(runtime())
        .arg("run")
        .arg(crate::support::host::checkout().join("bundles/snippet"))
        .args(["--", "/bin/sh", "-c", "sleep 600 & sleep 600"])
        .spawn()
        .unwrap();
    let (pid, token) = (child.id(), format!("rlox-{}.", child.id()));
    wait_until("a running container", SOON, || processes(&token).len() >= 2);
    child.kill().unwrap();
    child.wait().unwrap();
    let service = Service::start();
    // Killed processes leave their cgroup a moment later than the service goes on.
    wait_until(&format!("the end of {:?}", traces(pid)), SOON, || traces(pid).is_empty());
    service.stop();
}

#[test]
fn a_living_service_is_not_cleaned_up_by_another() {
    if !ready() {
        return;
    }
    let service = Service::with(&["--workers", "1"]);
    let job = post_apart(&service, &slow(3.0));
    wait_until("a running container", SOON, || !service.contained(1).is_empty());
    let kept = |trace: &String| !trace.starts_with("process ");
    let before: Vec<_> = traces(service.id()).into_iter().filter(kept).collect();
    let other = Service::with(&["--workers", "1"]);
    let after: Vec<_> = traces(service.id()).into_iter().filter(kept).collect();
    assert_eq!(after, before);
    other.stop();
    let answer = job.join().unwrap();
    assert_eq!((answer.status, answer.json()["verdict"].as_str()), (200, Some("passed")), "{answer:?}");
    service.stop();
}

#[test]
fn what_a_service_has_is_seen_by_these_tests() {
    if !ready() {
        return;
    }
    // Else a search that finds nothing would pass everywhere.
    let service = Service::with(&["--workers", "1"]);
    let found = traces(service.id());
    for kind in ["cgroup ", "directory ", "process "] {
        assert!(found.iter().any(|trace| trace.starts_with(kind)), "no {kind}in {found:?}");
    }
    assert!(
        !found.iter().any(|trace| trace.starts_with("mount ")),
        "mounts are visible on the host: {found:?}"
    );
    let pid = service.id();
    service.stop();
    let scratch = tempfile::tempdir().unwrap();
    nothing_left(pid, scratch.path());
}
