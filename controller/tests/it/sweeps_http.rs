//! Sweeps over HTTP: asked for once, queued, watched, ended, resumed, and gone on with after a crash. Trials are short
//! programs in real containers.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::disk::SmallDisk;
use crate::support::host::{need, wait_until};
use crate::support::http::{Answer, Lines};
use crate::support::tiny::TinyHome;
use crate::support::{Service, ready};

const LONG: Duration = Duration::from_secs(120);

fn service(home: &TinyHome, state: &Path, more: &[&str]) -> Service {
    let scratch = tempfile::tempdir().unwrap();
    let state = state.to_str().unwrap();
    let arguments = ["serve", "--port", "0", "--workers", "1", "--pool", "0", "--interpreter", "exec"];
    let arguments = [&arguments[..], &["--state-dir", state], more].concat();
    let command = home.controller(scratch.path(), &arguments);
    Service::spawned(command, scratch)
}

/// Four trials of three steps.
fn body(pause: &str) -> Value {
    json!({ "seeds": [0], "percents": [0, 10], "max_steps": 3, "parallel": 2, "trainer_args": ["--pause", pause] })
}

#[track_caller]
fn create(service: &Service, body: &Value) -> Value {
    let answer = service.post("/v1/sweeps", body);
    assert_eq!(answer.status, 201, "{answer:?}");
    let sweep = answer.json();
    assert_eq!(answer.header("location"), Some(&*format!("/v1/sweeps/{}", id(&sweep))));
    sweep
}

fn id(sweep: &Value) -> String {
    sweep["id"].as_str().unwrap().to_owned()
}

fn sweep(service: &Service, id: &str) -> Value {
    service.get(&format!("/v1/sweeps/{id}")).json()
}

#[track_caller]
fn becomes(service: &Service, id: &str, state: &str) {
    wait_until(&format!("state {state}; log:\n{}", service.log()), LONG, || {
        sweep(service, id)["state"] == state
    });
}

fn post(service: &Service, path: &str) -> Answer {
    service.address.request("POST", path, &[], b"").unwrap()
}

/// Reads events until one of this state of the sweep.
fn events(service: &Service, id: &str, after: Option<i64>, state: &str) -> Vec<Value> {
    let after = after.map(|after| after.to_string());
    let headers: Vec<_> = after.iter().map(|after| ("Last-Event-ID", after.as_str())).collect();
    let mut lines = Lines::get(service.port, &format!("/v1/sweeps/{id}/events"), &headers).unwrap();
    assert!(lines.head.to_lowercase().contains("content-type: text/event-stream"), "{}", lines.head);
    let (mut found, mut named) = (Vec::new(), Value::Null);
    while let Some(line) = lines.line().unwrap() {
        if let Some(number) = line.strip_prefix("id: ") {
            named = number.parse::<i64>().unwrap().into();
        }
        let Some(data) = line.strip_prefix("data: ") else { continue };
        let event: Value = serde_json::from_str(data).unwrap();
        assert_eq!(event["id"], named);
        found.push(event);
        let last = &found[found.len() - 1];
        if last["kind"] == "sweep" && last["state"] == state {
            return found;
        }
    }
    panic!("the stream ended before {state}: {found:?}");
}

#[test]
fn a_sweep_is_asked_for_watched_and_summed_up() {
    if !ready() {
        return;
    }
    let (home, state) = (TinyHome::new(), tempfile::tempdir().unwrap());
    let service = service(&home, &state.path().join("sweeps"), &[]);
    assert_eq!(service.get("/v1/sweeps").json(), json!({ "sweeps": [] }));
    assert!(!state.path().join("sweeps").exists(), "a look makes no files");

    let key = [("Content-Type", "application/json"), ("Idempotency-Key", "mine-1")];
    let send = |body: &Value| {
        service.address.request("POST", "/v1/sweeps", &key, body.to_string().as_bytes()).unwrap()
    };
    let first = send(&body("0.02"));
    assert_eq!(first.status, 201, "{first:?}");
    let again = send(&body("0.02"));
    assert_eq!((again.status, id(&again.json())), (200, id(&first.json())), "{again:?}");
    send(&body("0.03")).is_problem(422);
    let id = id(&first.json());
    assert_eq!(first.json()["plan"]["limits"]["memory_mb"], 3072, "what is left out is the tutorial's");

    let all = events(&service, &id, None, "finished");
    let of = |kind: &str| all.iter().filter(|event| event["kind"] == kind).collect::<Vec<_>>();
    let states: Vec<_> = of("sweep").iter().map(|event| event["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["queued", "running", "finished"]);
    assert_eq!(of("step").len(), 12);
    let ended: Vec<_> = of("trial").into_iter().filter(|event| event["state"] == "finished").collect();
    assert!(ended.len() == 4 && ended.iter().all(|event| event["survived"] == true), "{ended:?}");
    // A reader that comes back gets the rest, no more and no less.
    let middle = all[all.len() / 2]["id"].as_i64().unwrap();
    assert_eq!(events(&service, &id, Some(middle), "finished"), all[all.len() / 2 + 1..]);

    let seen = sweep(&service, &id);
    assert_eq!((&seen["state"], &seen["trials"]["survived"]), (&"finished".into(), &4.into()), "{seen}");
    assert_eq!(seen["last_event_id"], all[all.len() - 1]["id"]);
    assert_eq!(service.get("/v1/sweeps").json()["sweeps"][0]["id"], seen["id"]);
    let trials = service.get(&format!("/v1/sweeps/{id}/trials")).json();
    let trial = &trials["trials"][3];
    assert_eq!(
        (&trial["name"], &trial["steps_completed"]),
        (&"rlox_seed0_fraction10".into(), &3.into()),
        "{trial}"
    );
    assert_eq!(trial["summary"]["survived"], true);
    let summary = service.get(&format!("/v1/sweeps/{id}/summary")).json();
    assert_eq!(summary["p3_headline"]["in_loop"], json!({ "0": [1, 1], "10": [1, 1] }), "{summary}");
    let directory = Path::new(seen["directory"].as_str().unwrap());
    for file in ["metrics.jsonl", "run_summary.json", "checkpoint_final.pt", "trainer.log"] {
        assert!(directory.join("rlox_seed0_fraction0").join(file).is_file(), "{file}");
    }

    let logs = format!("/v1/trials/{}/logs", trial["id"].as_str().unwrap());
    let whole = service.get(&logs);
    assert_eq!(whole.body, "trial 0\nstep 1\nstep 2\nstep 3\n");
    assert_eq!(whole.header("rlox-next-offset"), Some("29"));
    assert_eq!(whole.header("x-content-type-options"), Some("nosniff"));
    let piece = service.get(&format!("{logs}?offset=8&limit=6"));
    assert_eq!((piece.body.as_str(), piece.header("rlox-next-offset")), ("step 1", Some("14")));
    let mut lines = Lines::get(service.port, &format!("{logs}?follow=1&offset=22"), &[]).unwrap();
    assert_eq!(lines.line().unwrap().as_deref(), Some("step 3"));
    assert_eq!(lines.line().unwrap(), None, "it is over");
    post(&service, &format!("/v1/sweeps/{id}/resume")).is_problem(409);
    post(&service, &format!("/v1/sweeps/{id}/cancel")).is_problem(409);
    service.stop();
}

#[test]
fn sweeps_wait_their_turn_and_are_cancelled_and_resumed() {
    if !ready() {
        return;
    }
    let (home, state) = (TinyHome::new(), tempfile::tempdir().unwrap());
    let service = service(&home, state.path(), &[]);
    let first = id(&create(&service, &body("20")));
    becomes(&service, &first, "running");
    let second = id(&create(&service, &body("0.02")));
    let third = id(&create(&service, &body("0.02")));
    assert_eq!(sweep(&service, &second)["state"], "queued");
    let cancelled = post(&service, &format!("/v1/sweeps/{second}/cancel")).json();
    assert_eq!((&cancelled["state"], &cancelled["trials"]["cancelled"]), (&"cancelled".into(), &4.into()));
    wait_until("running trials", LONG, || sweep(&service, &first)["trials"]["running"] == 2);
    // A log is followed while it grows.
    let trials = service.get(&format!("/v1/sweeps/{first}/trials")).json();
    let logs = format!("/v1/trials/{}/logs?follow=1", trials["trials"][0]["id"].as_str().unwrap());
    let mut lines = Lines::get(service.port, &logs, &[]).unwrap();
    assert_eq!(lines.line().unwrap().as_deref(), Some("trial 0"));
    let answer = post(&service, &format!("/v1/sweeps/{first}/cancel"));
    assert_eq!(answer.status, 200, "{answer:?}");
    becomes(&service, &first, "cancelled");
    assert_eq!(lines.line().unwrap(), None, "the trial is over");
    assert_eq!(sweep(&service, &first)["trials"]["cancelled"], 4, "{}", service.log());
    becomes(&service, &third, "finished");
    assert_eq!(post(&service, &format!("/v1/sweeps/{second}/resume")).status, 200);
    becomes(&service, &second, "finished");
    let trials = service.get(&format!("/v1/sweeps/{second}/trials")).json();
    assert!(trials["trials"].as_array().unwrap().iter().all(|trial| trial["attempts"] == 1), "{trials}");
    service.stop();
}

#[test]
fn a_service_that_is_killed_or_stopped_goes_on_when_it_starts_again() {
    if !ready() {
        return;
    }
    let (home, state) = (TinyHome::new(), tempfile::tempdir().unwrap());
    let mut first = service(&home, state.path(), &[]);
    let id = id(&create(
        &first,
        &json!({ "seeds": [0, 1, 2], "max_steps": 3, "parallel": 2, "trainer_args": ["--pause", "0.1"] }),
    ));
    wait_until("finished trials", LONG, || sweep(&first, &id)["trials"]["finished"].as_u64() >= Some(2));
    let last = sweep(&first, &id)["last_event_id"].as_i64().unwrap();
    first.signal(Signal::SIGKILL);
    first.ended();
    let second = service(&home, state.path(), &[]);
    wait_until("more finished trials", LONG, || {
        sweep(&second, &id)["trials"]["finished"].as_u64() >= Some(8)
    });
    // A reader of events does not hold the end up.
    let mut reader = Lines::get(second.port, &format!("/v1/sweeps/{id}/events"), &[]).unwrap();
    assert!(reader.line().unwrap().is_some());
    second.stop();
    while reader.line().unwrap().is_some() {}
    let third = service(&home, state.path(), &[]);
    becomes(&third, &id, "finished");
    let rest = events(&third, &id, Some(last), "finished");
    let sweeps: Vec<_> = rest
        .iter()
        .filter(|event| event["kind"] == "sweep")
        .map(|event| event["state"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(sweeps, ["interrupted", "queued", "running", "interrupted", "queued", "running", "finished"]);
    let trials = third.get(&format!("/v1/sweeps/{id}/trials")).json();
    let all = events(&third, &id, None, "finished");
    for trial in trials["trials"].as_array().unwrap() {
        let finished = all.iter().filter(|event| {
            event["kind"] == "trial" && event["name"] == trial["name"] && event["state"] == "finished"
        });
        assert_eq!(finished.count(), 1, "{}", trial["name"]);
    }
    third.stop();
}

#[test]
fn a_trial_that_cannot_be_run_stops_no_other_and_says_why() {
    if !ready() {
        return;
    }
    let (home, state) = (TinyHome::new(), tempfile::tempdir().unwrap());
    let service = service(&home, state.path(), &[]);
    let mut wrong = body("0.02");
    wrong["trainer_args"] = json!(["--fail", "in_loop"]);
    let id = id(&create(&service, &wrong));
    becomes(&service, &id, "failed");
    let seen = sweep(&service, &id);
    assert_eq!((&seen["trials"]["failed"], &seen["trials"]["finished"]), (&2.into(), &2.into()), "{seen}");
    assert!(seen["problem"].as_str().unwrap().contains("2 of 4"), "{seen}");
    let trials = service.get(&format!("/v1/sweeps/{id}/trials")).json();
    let reason = trials["trials"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("did not begin (Clean(3))"), "{reason}");
    service.stop();
}

#[test]
fn a_log_that_the_trainer_replaced_is_not_followed() {
    if !ready() {
        return;
    }
    let (home, state) = (TinyHome::new(), tempfile::tempdir().unwrap());
    let secret = state.path().join("secret");
    std::fs::write(&secret, "of the host").unwrap();
    let service = service(&home, &state.path().join("sweeps"), &[]);
    let mut hostile = body("0.02");
    hostile["trainer_args"] = json!(["--link", secret]);
    let id = id(&create(&service, &hostile));
    becomes(&service, &id, "finished");
    for path in ["logs", "logs?follow=1"] {
        let answer = service.get(&format!("/v1/trials/{id}.rlox_seed0_fraction0/{path}"));
        answer.is_problem(409);
        assert!(!answer.body.contains("of the host"), "{answer:?}");
    }
    service.stop();
}

#[test]
fn requests_that_make_no_sense_are_problems_and_leave_nothing() {
    if !ready() {
        return;
    }
    let (home, state) = (TinyHome::new(), tempfile::tempdir().unwrap());
    let token = state.path().join("token");
    std::fs::write(&token, "0123456789abcdef").unwrap();
    let service = service(&home, &state.path().join("sweeps"), &["--token-file", token.to_str().unwrap()]);
    let bearer = ("Authorization", "Bearer 0123456789abcdef");
    let kind = ("Content-Type", "application/json");
    let send = |method: &str, path: &str, body: &str| {
        service.address.request(method, path, &[bearer, kind], body.as_bytes()).unwrap()
    };
    for (method, path) in [("GET", "/v1/sweeps"), ("POST", "/v1/sweeps"), ("GET", "/v1/trials/x/logs")] {
        service.address.request(method, path, &[kind], b"{}").unwrap().is_problem(401);
    }
    for (bad, says) in [
        (r#"{"seeds": [0, 0]}"#, "twice"),
        (r#"{"seed": [0]}"#, "unknown field"),
        (r#"{"percents": ["101"]}"#, "101"),
        (r#"{"task_set": "none"}"#, "none.jsonl"),
        (r#"{"engine": "docker"}"#, "docker"),
        (r#"{"limits": {"disk_mb": 0}}"#, "disk_mb"),
        ("[]", "object"),
    ] {
        let problem = send("POST", "/v1/sweeps", bad).is_problem(422);
        assert!(problem["detail"].as_str().unwrap().contains(says), "{bad}: {problem}");
    }
    send("POST", "/v1/sweeps", "{").is_problem(400);
    send("POST", "/v1/sweeps", &format!("{{\"model\": {:?}}}", "x".repeat(300 << 10))).is_problem(413);
    for path in [
        "/v1/sweeps/0000000000000000",
        "/v1/sweeps/0000000000000000/trials",
        "/v1/sweeps/0000000000000000/events",
        "/v1/sweeps/0000000000000000/summary",
        "/v1/trials/0000000000000000.rlox_seed0_fraction0/logs",
        "/v1/trials/..%2F..%2Fetc%2Fpasswd/logs",
    ] {
        send("GET", path, "").is_problem(404);
    }
    send("GET", "/v1/sweeps?limit=0", "").is_problem(422);
    send("GET", "/v1/sweeps?limits=1", "").is_problem(422);
    send("DELETE", "/v1/sweeps", "").is_problem(405);
    assert!(!state.path().join("sweeps").exists(), "a refused request made files");
    // The description needs no token, and is the committed one.
    let described = service.address.request("GET", "/openapi.json", &[], b"").unwrap();
    assert!(described.status == 200 && described.json()["paths"]["/v1/sweeps"].is_object());
    service.stop();
}

#[test]
fn silence_is_broken_by_comments() {
    if !ready() {
        return;
    }
    let (home, state) = (TinyHome::new(), tempfile::tempdir().unwrap());
    let service = service(&home, state.path(), &[]);
    let sweep = create(&service, &body("0.01"));
    becomes(&service, &id(&sweep), "finished");
    let last = service.get(&format!("/v1/sweeps/{}", id(&sweep))).json()["last_event_id"].to_string();
    let path = format!("/v1/sweeps/{}/events?after={last}", id(&sweep));
    let mut lines = Lines::get(service.port, &path, &[]).unwrap();
    assert_eq!(lines.line().unwrap().as_deref(), Some(": keep-alive"));
    service.stop();
}

#[test]
fn a_full_disk_refuses_new_sweeps_and_still_shows_the_old_ones() {
    if !ready() {
        return;
    }
    let (home, state) = (TinyHome::new(), tempfile::tempdir().unwrap());
    let Some(disk) = SmallDisk::mounted(state.path().join("disk"), 16) else {
        need(false, "the right to mount a tmpfs");
        return;
    };
    let service = service(&home, &disk.path().join("sweeps"), &[]);
    let small = json!({ "seeds": [0], "percents": [0], "max_steps": 3, "limits": { "disk_mb": 1 } });
    // No store yet, and no room for one.
    let filler = disk.fill();
    service.post("/v1/sweeps", &small).is_problem(507);
    std::fs::remove_file(&filler).unwrap();
    let first = id(&create(&service, &small));
    becomes(&service, &first, "finished");
    let filler = disk.fill();
    let problem = service.post("/v1/sweeps", &small).is_problem(507);
    assert!(problem["detail"].as_str().unwrap().contains("no space"), "{problem}");
    assert_eq!(sweep(&service, &first)["trials"]["survived"], 2);
    assert_eq!(
        service.get("/v1/sweeps").json()["sweeps"].as_array().unwrap().len(),
        1,
        "half a sweep was made"
    );
    std::fs::remove_file(&filler).unwrap();
    let second = id(&create(&service, &small));
    becomes(&service, &second, "finished");
    service.stop();
}

#[test]
fn a_cancel_that_was_answered_is_not_undone_by_a_kill() {
    if !ready() {
        return;
    }
    let (home, state) = (TinyHome::new(), tempfile::tempdir().unwrap());
    let mut first = service(&home, state.path(), &[]);
    let id = id(&create(&first, &body("20")));
    wait_until("running trials", LONG, || sweep(&first, &id)["trials"]["running"] == 2);
    assert_eq!(post(&first, &format!("/v1/sweeps/{id}/cancel")).status, 200);
    first.signal(Signal::SIGKILL);
    first.ended();
    let second = service(&home, state.path(), &[]);
    // Not gone on with: it is over as soon as it can be seen.
    let seen = sweep(&second, &id);
    assert_eq!((&seen["state"], &seen["trials"]["running"]), (&"cancelled".into(), &0.into()), "{seen}");
    assert_eq!(post(&second, &format!("/v1/sweeps/{id}/resume")).status, 200);
    wait_until("running trials again", LONG, || sweep(&second, &id)["trials"]["running"] == 2);
    second.stop();
}
