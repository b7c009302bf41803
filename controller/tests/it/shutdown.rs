//! The service is asked to stop: what was taken is finished, the exit code is 0, nothing is left.

use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::support::service::{honest, post_apart, slow};
use crate::support::{SOON, Service, controller, host, nothing_left, ready};

#[test]
fn jobs_in_flight_and_in_the_queue_are_finished() {
    if !ready() {
        return;
    }
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let mut service = Service::with(&["--workers", "2"]);
        let jobs: Vec<_> = (0..3).map(|_| post_apart(&service, &slow(1.5))).collect();
        service.wait_busy(2, 1);
        service.signal(signal);
        for job in jobs {
            let answer = job.join().unwrap();
            assert_eq!(
                (answer.status, answer.json()["verdict"].as_str()),
                (200, Some("passed")),
                "{signal}: {answer:?}"
            );
        }
        assert_eq!(service.ended().code(), Some(0), "{signal}: {}", service.log());
        nothing_left(service.id(), service.scratch.path());
    }
}

#[test]
fn no_new_request_is_taken_meanwhile() {
    if !ready() {
        return;
    }
    let mut service = Service::with(&["--workers", "1"]);
    let job = post_apart(&service, &slow(3.0));
    service.wait_busy(1, 0);
    service.signal(Signal::SIGTERM);
    host::wait_until("the listener's end", SOON, || {
        let body = honest().to_string();
        service
            .address
            .request("POST", "/verify", &[("Content-Type", "application/json")], body.as_bytes())
            .is_err()
    });
    assert_eq!(job.join().unwrap().json()["verdict"], "passed");
    assert_eq!(service.ended().code(), Some(0));
    nothing_left(service.id(), service.scratch.path());
}

#[test]
fn a_request_to_stop_during_the_start_leaves_nothing() {
    if !ready() {
        return;
    }
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let scratch = tempfile::tempdir().unwrap();
        let mut command = controller(scratch.path(), &["serve", "--port", "0", "--workers", "1"]);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let (pid, number) = (child.id(), i32::try_from(child.id()).unwrap());
        // Its run directory is the first that it makes; the self-test comes later.
        host::wait_until("the first trace", SOON, || !host::traces(pid).is_empty());
        kill(Pid::from_raw(number), signal).unwrap();
        host::wait_until("the service's end", SOON, || child.try_wait().unwrap().is_some());
        nothing_left(pid, scratch.path());
    }
}

#[test]
fn a_second_request_to_stop_changes_nothing() {
    if !ready() {
        return;
    }
    let mut service = Service::with(&["--workers", "1"]);
    let job = post_apart(&service, &slow(2.0));
    service.wait_busy(1, 0);
    service.signal(Signal::SIGINT);
    service.signal(Signal::SIGINT);
    service.signal(Signal::SIGTERM);
    let answer = job.join().unwrap();
    assert_eq!((answer.status, &answer.json()["verdict"]), (200, &json!("passed")));
    assert_eq!(service.ended().code(), Some(0));
    nothing_left(service.id(), service.scratch.path());
}
