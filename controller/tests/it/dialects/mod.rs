//! Other servers' dialects over HTTP, with real containers. Programs that leave early are hostile ones and run there
//! alone; each has an honest twin.

mod ends;
mod exits;
mod files;
mod refused;
mod submit;

use serde_json::{Value, json};

use crate::support::Service;

/// `POST /run_code` of a Python program; always 200.
#[track_caller]
fn run_code(service: &Service, code: &str, more: &Value) -> Value {
    let answer = service.post("/run_code", &with(json!({ "code": code, "language": "python" }), more));
    assert_eq!(answer.status, 200, "{answer:?}\nlog: {}", service.log());
    let body = answer.json();
    for field in ["status", "message", "compile_result", "run_result", "executor_pod_name", "files"] {
        assert!(body.get(field).is_some(), "{field}: {body}");
    }
    assert!(
        body["message"].is_string() && body["files"].is_object() && body["compile_result"].is_null(),
        "{body}"
    );
    let run = &body["run_result"];
    assert!(run.is_null() || run["stdout"].is_string() && run["stderr"].is_string(), "{body}");
    body
}

/// `POST /api/v2/execute` of a Python program that has a result.
#[track_caller]
fn execute(service: &Service, code: &str, more: &Value) -> Value {
    let answer = service.post("/api/v2/execute", &execution(code, more));
    assert_eq!(answer.status, 200, "{answer:?}\nlog: {}", service.log());
    let body = answer.json();
    assert_eq!((&body["language"], &body["compile"]["code"]), (&json!("python"), &json!(0)), "{body}");
    body
}

fn execution(code: &str, more: &Value) -> Value {
    let body =
        json!({ "language": "python", "version": "*", "files": [{ "name": "main.py", "content": code }] });
    with(body, more)
}

fn with(mut body: Value, more: &Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// What a client of SandboxFusion takes for a success: verl and Tinker look at the first, its own at the second.
fn sandbox_fusion_succeeds(body: &Value) -> bool {
    let run = &body["run_result"];
    body["status"] == "Success" || run["status"] == "Finished" && run["return_code"] == 0
}

/// What a client of Piston takes for a success.
fn piston_succeeds(body: &Value) -> bool {
    body["run"]["code"] == 0
}

/// The value of a counter in `/metrics`.
#[track_caller]
fn counter(service: &Service, name: &str) -> u64 {
    let text = service.get("/metrics").body;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    line.unwrap_or_else(|| panic!("{name} is not in {text}"))
}
