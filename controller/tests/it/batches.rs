//! Batches line by line, and jobs that stop at their first failure.

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

#[test]
fn after_the_first_failure_no_statement_is_run() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let code = "def f(x):\n    print('asked', x)\n    return x\n";
    let ask = |tests: Value, early_stop: bool| {
        service.verify(&json!({ "code": code, "tests": tests, "early_stop": early_stop }))
    };
    let tests = json!(["assert f(1) == 1", "assert f(2) == 0", "assert f(3) == 3", "raise ValueError(f(4))"]);
    let stopped = ask(tests.clone(), true);
    let whole = ask(tests, false);
    for verdict in [&stopped, &whole] {
        let found = (&verdict["verdict"], &verdict["reward"], &verdict["authenticated"]);
        assert_eq!(found, (&json!("failed"), &json!(0.0), &json!(true)), "{verdict}");
        assert_eq!(verdict["tests"].as_array().map(Vec::len), Some(4));
    }
    assert_eq!(
        (&stopped["stdout"], &stopped["tests"][0]["passed"]),
        (&json!("asked 1\nasked 2\n"), &json!(true))
    );
    for index in [2, 3] {
        let left = json!({ "index": index, "passed": false, "message": "not run: early stop" });
        assert_eq!(stopped["tests"][index], left, "{stopped}");
    }
    assert_eq!(whole["tests"][2]["passed"], true, "{whole}");
    // The honest twin runs to its end, and passes.
    let right = ask(json!(["assert f(1) == 1", "assert f(2) == 2", "assert f(3) == 3"]), true);
    assert_eq!((&right["verdict"], &right["reward"]), (&json!("passed"), &json!(1.0)), "{right}");
    assert_eq!(right["stdout"], "asked 1\nasked 2\nasked 3\n");
    service.stop();
}

#[test]
fn after_the_first_failure_no_input_is_run() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let code = "print(int(input()) + 1)\ndef f(): return 1\n";
    let entry =
        |given: u32, wanted: u32| json!({ "stdin": format!("{given}\n"), "stdout": format!("{wanted}\n") });
    let ask = |more: Value| {
        let mut request = json!({ "code": code, "early_stop": true });
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        service.verify(&request)
    };
    let stopped = ask(json!({ "stdio": [entry(1, 2), entry(5, 5), entry(7, 8)] }));
    assert_eq!((&stopped["verdict"], &stopped["reward"]), (&json!("failed"), &json!(0.0)), "{stopped}");
    assert_eq!(stopped["stdout"], "6\n", "the last one that ran");
    let passed: Vec<_> = stopped["tests"].as_array().unwrap().iter().map(|test| &test["passed"]).collect();
    assert_eq!(passed, [true, false, false]);
    assert_eq!(stopped["tests"][2]["message"], "not run: early stop");
    let right = ask(json!({ "stdio": [entry(1, 2), entry(5, 6), entry(7, 8)] }));
    assert_eq!((&right["verdict"], &right["reward"]), (&json!("passed"), &json!(1.0)), "{right}");
    assert_eq!(right["stdout"], "8\n");
    // Statements that failed leave out all inputs; in `serve` mode there is no input to read.
    let code = "def f(): return 1\nif __name__ == '__main__': print(int(input()) + 1)\n";
    let both = |test: &str| {
        service.verify(
            &json!({ "code": code, "tests": [test], "stdio": [entry(1, 2), entry(2, 3)], "early_stop": true }),
        )
    };
    let stopped = both("assert f() == 2");
    assert_eq!(
        (&stopped["verdict"], &stopped["exit_status"]),
        (&json!("failed"), &json!("Clean(0)")),
        "{stopped}"
    );
    assert_eq!(stopped["tests"][2], json!({ "index": 2, "passed": false, "message": "not run: early stop" }));
    assert_eq!(both("assert f() == 1")["reward"], 1.0);
    for wrong in [json!("yes"), json!(1), json!(null), json!([])] {
        service.post("/verify", &json!({ "code": "", "early_stop": wrong })).is_problem(422);
    }
    service.stop();
}
