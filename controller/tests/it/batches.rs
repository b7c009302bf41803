//! Batches line by line.

use serde_json::{Value, json};

use crate::support::http::Lines;
use crate::support::service::honest;
use crate::support::{Service, ready};

const JSON: (&str, &str) = ("Content-Type", "application/json");
const ACCEPT: (&str, &str) = ("Accept", "application/x-ndjson");

/// It can only end at its limit.
fn sleeper(secs: u64) -> Value {
    json!({ "code": "import time\nwhile True: time.sleep(100)", "timeout_secs": secs })
}

fn wrong() -> Value {
    json!({ "code": "def f(a, b):\n    return 0\n", "tests": ["assert f(2, 3) == 5"] })
}

#[test]
fn each_result_comes_as_soon_as_it_is_there() {
    if !ready() {
        return;
    }
    let service = Service::with(&["--workers", "2", "--timeout-secs", "8"]);
    let body = json!({ "requests": [sleeper(8), honest()] });
    let mut lines = Lines::request(service.port, "/verify/batch", &[JSON, ACCEPT], &body).unwrap();
    let head = lines.head.to_ascii_lowercase();
    assert!(
        head.starts_with("http/1.1 200") && head.contains("content-type: application/x-ndjson"),
        "{head}"
    );
    let first = lines.next().unwrap().unwrap();
    assert_eq!((&first["index"], &first["verdict"]), (&json!(1), &json!("passed")), "{first}");
    // The other one still runs: the line did not wait for it.
    assert_eq!(service.get("/health").json()["pool"]["busy"], 1);
    let second = lines.next().unwrap().unwrap();
    assert_eq!((&second["index"], &second["verdict"]), (&json!(0), &json!("timeout")), "{second}");
    assert_eq!(lines.next().unwrap(), Some(json!({ "done": true, "count": 2 })));
    assert_eq!(lines.next().unwrap(), None);
    service.stop();
}

#[test]
fn lines_are_the_results_of_the_document_and_end_with_the_advantages() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let body = json!({ "requests": [honest(), wrong(), wrong(), wrong()], "group_size": 2 });
    let mut lines = Lines::request(service.port, "/verify/batch", &[JSON, ACCEPT], &body).unwrap();
    let mut seen: Vec<Value> = (0..4).map(|_| lines.next().unwrap().unwrap()).collect();
    seen.sort_by_key(|line| line["index"].as_u64());
    for (index, (line, verdict)) in seen.iter().zip(["passed", "failed", "failed", "failed"]).enumerate() {
        assert_eq!((&line["index"], &line["verdict"]), (&json!(index), &json!(verdict)), "{line}");
        assert!(line["containment"]["limits"].is_object() && line["tests"].is_array(), "{line}");
    }
    let last = lines.next().unwrap().unwrap();
    assert_eq!(last, json!({ "done": true, "count": 4, "advantages": [1.0, -1.0, 0.0, 0.0] }));
    let mut empty =
        Lines::request(service.port, "/verify/batch", &[JSON, ACCEPT], &json!({ "requests": [] })).unwrap();
    assert_eq!(empty.next().unwrap(), Some(json!({ "done": true, "count": 0 })));
    // Who does not name lines gets the document.
    for accept in ["*/*", "application/json", "application/x-ndjson;q=0"] {
        let headers = [JSON, ("Accept", accept)];
        let answer =
            service.address.request("POST", "/verify/batch", &headers, body.to_string().as_bytes()).unwrap();
        assert_eq!(answer.json()["results"].as_array().map(Vec::len), Some(4), "{accept}: {answer:?}");
    }
    service.stop();
}

#[test]
fn a_wrong_batch_is_a_problem_document_also_for_who_wants_lines() {
    if !ready() {
        return;
    }
    let service = Service::start();
    for body in [
        json!({ "requests": [honest(), honest()], "group_size": 3 }),
        json!({ "requests": [honest(), { "code": "", "early_stop": "yes" }] }),
        json!({ "requests": [{ "code": "", "timeout_secs": 600 }] }),
        json!({ "requests": [], "stream": true }),
    ] {
        let answer = service
            .address
            .request("POST", "/verify/batch", &[JSON, ACCEPT], body.to_string().as_bytes())
            .unwrap();
        answer.is_problem(422);
    }
    assert!(service.get("/metrics").body.contains("rlox_verify_seconds_count 0\n"));
    service.stop();
}

/// What has not begun goes with the client; one of these alone would hold the only worker for two minutes.
#[test]
fn a_client_that_leaves_takes_its_waiting_jobs_along() {
    if !ready() {
        return;
    }
    let service = Service::with(&["--workers", "1", "--timeout-secs", "3"]);
    for accept in ["application/x-ndjson", "application/json"] {
        let body = json!({ "requests": vec![sleeper(3); 40] });
        let headers = [JSON, ("Accept", accept)];
        let stream = match accept {
            "application/json" => {
                use std::io::Write;
                let text = body.to_string();
                let mut stream = crate::support::http::Address::connect_tcp(service.port).unwrap();
                let head = crate::support::http::head("POST", "/verify/batch", &headers, text.len());
                stream.write_all(head.as_bytes()).unwrap();
                stream.write_all(text.as_bytes()).unwrap();
                Ok(stream)
            }
            _ => Err(Lines::request(service.port, "/verify/batch", &headers, &body).unwrap()),
        };
        service.wait_busy(1, 39);
        drop(stream);
        service.wait_busy(0, 0);
        service.is_well();
    }
    service.stop();
}
