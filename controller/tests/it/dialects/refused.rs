//! What is wrong with a request, in each dialect's own form; bodies without end; who may ask.

use std::io::{Read, Write};

use serde_json::{Value, json};

use super::{counter, execution, run_code};
use crate::support::http::{Address, head};
use crate::support::{Service, ready};

#[test]
fn wrong_requests_have_a_status_and_a_reason() {
    if !ready() {
        return;
    }
    let service = Service::start();
    for (body, status, why) in [
        (json!({ "code": "1", "language": "cpp" }), 422, "this server runs: python"),
        (json!({ "code": "1" }), 422, "language"),
        (json!({ "code": "1", "language": "python", "run_timeout": -1 }), 422, "run_timeout"),
        (json!({ "code": "1", "language": "python", "files": { "/etc/x": "" } }), 422, "absolute"),
        (json!({ "code": "1", "language": "python", "files": { "a/../../x": "" } }), 422, "leads out"),
        (json!({ "code": "1", "language": "python", "fetch_files": ["../x"] }), 422, "leads out"),
        (json!({ "code": "1", "language": "python", "files": { "d": "", "d/x": "" } }), 422, "directory"),
    ] {
        let problem = service.post("/run_code", &body).is_problem(status);
        assert!(problem["detail"].as_str().unwrap().contains(why), "{body}: {problem}");
    }
    for (more, why) in [
        (json!({ "language": "cms_ioi" }), "cms_ioi-* runtime is unknown"),
        (json!({ "version": "2.7" }), "python-2.7 runtime is unknown"),
        (json!({ "run_timeout": 60000 }), "run_timeout cannot exceed the configured limit of 30000"),
        (json!({ "files": [{ "name": "x", "content": "AA==", "encoding": "base64" }] }), "at least one utf8"),
        (json!({ "files": "x" }), "files"),
        (json!({ "files": [{ "name": "../x.py", "content": "" }] }), "leads out"),
    ] {
        let answer = service.post("/api/v2/execute", &execution("1", &more));
        assert_eq!(answer.status, 400, "{more}: {answer:?}");
        assert!(answer.json()["message"].as_str().unwrap().contains(why), "{more}: {answer:?}");
    }
    let json = [("Content-Type", "application/json")];
    let raw =
        |path: &str, headers: &[(&str, &str)]| service.address.request("POST", path, headers, b"{").unwrap();
    raw("/run_code", &json).is_problem(400);
    raw("/run_code", &[]).is_problem(415);
    assert_eq!(raw("/api/v2/execute", &json).status, 400);
    assert_eq!(raw("/api/v2/execute", &[]).status, 415);
    assert_eq!(service.get("/v1/ping").json(), json!("pong"));
    let runtimes = service.get("/api/v2/runtimes").json();
    assert_eq!(runtimes[0]["language"], "python");
    assert!(runtimes[0]["version"].as_str().unwrap().starts_with("3."), "{runtimes}");
    assert_eq!(
        counter(&service, "rlox_dialect_requests_total{dialect=\"sandbox_fusion\",outcome=\"refused\"}"),
        9
    );
    assert_eq!(counter(&service, "rlox_dialect_requests_total{dialect=\"piston\",outcome=\"refused\"}"), 8);
    assert_eq!(run_code(&service, "print(1)", &json!({}))["status"], "Success");
    service.stop();
}

#[test]
fn a_body_that_is_announced_too_large_is_not_read() {
    if !ready() {
        return;
    }
    let service = Service::start();
    for path in ["/run_code", "/api/v2/execute", "/submit"] {
        let mut stream = Address::connect_tcp(service.port).unwrap();
        let headers = [("Content-Type", "application/json")];
        stream.write_all(head("POST", path, &headers, 97 << 20).as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 413 "), "{path}: {text}");
        let body: Value = serde_json::from_str(text.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        let said = body.get("detail").or(body.get("message")).and_then(Value::as_str);
        assert_eq!(said, Some("at most 96 MiB"), "{path}: {body}");
    }
    // Clients that announce much and send nothing leave room for others.
    let stalled: Vec<_> = (0..6)
        .map(|_| {
            let mut stream = Address::connect_tcp(service.port).unwrap();
            let headers = [("Content-Type", "application/json")];
            stream.write_all(head("POST", "/run_code", &headers, 90 << 20).as_bytes()).unwrap();
            stream
        })
        .collect();
    assert_eq!(run_code(&service, "print(1)", &json!({}))["status"], "Success");
    drop(stalled);
    service.stop();
}

#[test]
fn a_token_is_for_all_but_the_ping() {
    if !ready() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "a token of some length").unwrap();
    let service = Service::with(&["--workers", "1", "--token-file", file.to_str().unwrap()]);
    for path in ["/run_code", "/api/v2/execute", "/submit"] {
        service.post(path, &json!({})).is_problem(401);
    }
    service.get("/api/v2/runtimes").is_problem(401);
    assert_eq!(service.get("/v1/ping").status, 200);
    let headers = [("Content-Type", "application/json"), ("Authorization", "Bearer a token of some length")];
    let body = json!({ "code": "print(1)", "language": "python" }).to_string();
    let answer = service.address.request("POST", "/run_code", &headers, body.as_bytes()).unwrap();
    assert_eq!(answer.json()["status"], "Success", "{answer:?}");
    service.stop();
}
