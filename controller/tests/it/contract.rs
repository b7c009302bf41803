//! The HTTP contract: what `/health` says, how a wrong request is refused, batches, counters.

use serde_json::{Value, json};

use crate::support::service::{honest, post};
use crate::support::{Service, ready};

const JSON: (&str, &str) = ("Content-Type", "application/json");

#[test]
fn health_names_version_isolation_pool_and_queue() {
    if !ready() {
        return;
    }
    let service = Service::with(&["--workers", "3", "--queue", "7"]);
    let answer = service.get("/health");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    let body = answer.json();
    assert_eq!((&body["status"], &body["version"]), (&json!("ok"), &json!(env!("CARGO_PKG_VERSION"))));
    let isolation = &body["isolation"];
    // Landlock stands behind other layers: a kernel without it is named and serves all the same.
    let missing = isolation["missing"].as_array().unwrap();
    let landlock = isolation["landlock"] == true;
    assert!(missing.iter().all(|line| line.as_str().unwrap().starts_with("landlock:")), "{body}");
    assert_eq!(
        (missing.is_empty(), &isolation["tier"]),
        (landlock, &json!(if landlock { "full" } else { "reduced" }))
    );
    assert_eq!(landlock, isolation["landlock_abi"].as_u64().is_some_and(|abi| abi >= 2), "{body}");
    assert_eq!((&isolation["userns"], &isolation["seccomp"]), (&json!(true), &json!(true)));
    assert!(
        ["v1", "v2"].contains(&isolation["cgroup"].as_str().unwrap()) && isolation["landlock"].is_boolean(),
        "{body}"
    );
    assert_eq!((&body["pool"]["workers"], &body["pool"]["busy"]), (&json!(3), &json!(0)));
    assert_eq!(body["queue"], json!({ "waiting": 0, "capacity": 7 }));
    service.stop();
}

#[test]
fn a_wrong_request_is_a_problem_document_with_reward_null() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let post =
        |path: &str, body: &str| service.address.request("POST", path, &[JSON], body.as_bytes()).unwrap();
    for (body, status, word) in [
        ("{", 400, ""),
        ("", 400, ""),
        ("nonsense", 400, ""),
        ("[]", 422, ""),
        (r#"{"tests": []}"#, 422, "code"),
        (r#"{"code": 7}"#, 422, ""),
        (r#"{"code": "", "timeout": 1}"#, 422, "timeout"),
        (r#"{"code": "", "reward": 1.0}"#, 422, "reward"),
        (r#"{"code": "", "tests": "assert True"}"#, 422, ""),
        (r#"{"code": "", "stdio": [{"stdin": "", "stdout": "", "x": 1}]}"#, 422, "x"),
    ] {
        let problem = post("/verify", body).is_problem(status);
        assert!(problem["detail"].as_str().unwrap().contains(word), "{body}: {problem}");
    }
    // Without the media type nothing is parsed.
    service.address.request("POST", "/verify", &[], b"{}").unwrap().is_problem(415);
    service
        .address
        .request("POST", "/verify", &[("Content-Type", "text/plain")], b"{}")
        .unwrap()
        .is_problem(415);
    for (method, path, status) in [
        ("GET", "/verify", 405),
        ("PUT", "/verify", 405),
        ("GET", "/verify/batch", 405),
        ("POST", "/health", 405),
        ("DELETE", "/metrics", 405),
        ("GET", "/nothing", 404),
        ("POST", "/verify/", 404),
        ("GET", "/../etc/passwd", 404),
    ] {
        service.address.request(method, path, &[], b"").unwrap().is_problem(status);
    }
    service.is_well();
    service.stop();
}

/// RFC 9110: a 405 has to say which methods there are.
#[test]
fn a_wrong_method_is_told_the_right_ones() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let answer = service.get("/verify");
    answer.is_problem(405);
    assert!(answer.header("allow").is_some_and(|allow| allow.contains("POST")), "{answer:?}");
    service.stop();
}

#[test]
fn limits_beyond_the_servers_are_refused_and_not_clipped() {
    if !ready() {
        return;
    }
    let service = Service::with(&[
        "--workers",
        "1",
        "--timeout-secs",
        "3",
        "--max-memory-mb",
        "1024",
        "--max-pids",
        "100",
    ]);
    for (name, refused, granted) in [
        ("timeout_secs", vec![json!(3.1), json!(60), json!(0), json!(-1), json!(0.001)], json!(3)),
        ("memory_mb", vec![json!(1025), json!(1u64 << 40), json!(0), json!(-1), json!(1.5)], json!(1024)),
        ("pids", vec![json!(101), json!(0), json!(1)], json!(100)),
        ("output_bytes", vec![json!((1 << 20) + 1), json!(-1)], json!(1 << 20)),
    ] {
        for value in refused {
            let problem = service.post("/verify", &json!({ "code": "", name: value })).is_problem(422);
            assert!(problem["detail"].as_str().unwrap().contains(name), "{name} {value}: {problem}");
        }
        let mut request = honest();
        request[name] = granted.clone();
        let verdict = service.verify(&request);
        assert_eq!(verdict["verdict"], "passed", "{name}: {verdict}");
        assert_eq!(verdict["containment"]["limits"][name].as_f64(), granted.as_f64(), "{name}: {verdict}");
    }
    // The server's own limit is also what a request gets that names none.
    let verdict = service.verify(&json!({ "code": "while True: pass" }));
    assert_eq!(
        (&verdict["verdict"], &verdict["containment"]["limits"]["timeout_secs"]),
        (&json!("timeout"), &json!(3.0))
    );
    // Of CPU time: how long that takes is the machine's affair, and under pressure it is tried twice.
    let number = |group: &Value, name: &str| group[name].as_f64().unwrap();
    let tries = 1.0 + number(&verdict["containment"]["events"], "retries");
    assert!(number(&verdict["usage"], "wall_secs") > 2.5 * tries, "{verdict}");
    assert!(number(&verdict["usage"], "cpu_secs") < 4.0 * tries, "{verdict}");
    service.stop();
}

#[test]
fn a_body_that_is_too_large_is_413() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let long = |bytes: usize| json!({ "code": "x".repeat(bytes) }).to_string();
    let answer = service.address.request("POST", "/verify", &[JSON], long(8 << 20).as_bytes()).unwrap();
    answer.is_problem(413);
    // Just below it the program is taken, whatever it then is.
    let verdict = service.verify(&json!({ "code": format!("#{}\nx = 1", "x".repeat((8 << 20) - 100)) }));
    assert_eq!(verdict["verdict"], "completed", "{}", verdict["stderr"]);
    service.stop();
}

#[test]
fn a_batch_answers_in_order() {
    if !ready() {
        return;
    }
    let service = Service::with(&["--workers", "4"]);
    // The first ones take longest.
    let requests: Vec<Value> = (0..8)
        .map(|number| {
            let code = format!(
                "import time\ntime.sleep({})\nprint('number', {number})\ndef f(): return {number}\n",
                f64::from(8 - number) * 0.05
            );
            json!({ "code": code, "tests": [format!("assert f() == {}", number - number % 2)] })
        })
        .collect();
    for (number, result) in service.batch(&requests).iter().enumerate() {
        assert_eq!(result["stdout"], format!("number {number}\n"));
        let wanted = if number % 2 == 0 { "passed" } else { "failed" };
        assert_eq!(result["verdict"], wanted, "{result}");
    }
    let empty = service.post("/verify/batch", &json!({ "requests": [] }));
    assert_eq!((empty.status, empty.json()), (200, json!({ "results": [] })));
    service.stop();
}

#[test]
fn advantages_are_relative_to_the_group() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let wrong = json!({ "code": "def f(a, b):\n    return 0\n", "tests": ["assert f(2, 3) == 5"] });
    let requests =
        [honest(), wrong.clone(), honest(), honest(), wrong.clone(), wrong.clone(), wrong.clone(), wrong];
    let batch =
        |size: Value| service.post("/verify/batch", &json!({ "requests": requests, "group_size": size }));
    let answer = batch(json!(2)).json();
    assert_eq!(answer["advantages"], json!([1.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]), "{answer}");
    let answer = batch(json!(4)).json();
    let advantages: Vec<f64> = serde_json::from_value(answer["advantages"].clone()).unwrap();
    // Three of four are right: mean 3/4, population deviation sqrt(3)/4.
    let (right, wrong) = (1.0 / 3f64.sqrt(), -(3f64.sqrt()));
    for (got, wanted) in advantages.iter().zip([right, wrong, right, right, 0.0, 0.0, 0.0, 0.0]) {
        assert!((got - wanted).abs() < 1e-6, "{advantages:?}");
    }
    for size in [json!(0), json!(3), json!(16), json!(-1), json!(1.5), json!("2")] {
        batch(size).is_problem(422);
    }
    service.stop();
}

#[test]
fn a_batch_with_one_wrong_entry_runs_nothing() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let batch = |requests: Value| {
        post(&service.address, "/verify/batch", &json!({ "requests": requests })).is_problem(422)
    };
    batch(json!([honest(), { "code": "", "unknown": 1 }]));
    batch(json!([honest(), { "code": "", "timeout_secs": 600 }]));
    batch(Value::Array(vec![json!({ "code": "" }); 4097]));
    assert!(service.get("/metrics").body.contains("rlox_verify_seconds_count 0\n"));
    service.stop();
}

#[test]
fn metrics_count_what_happened() {
    if !ready() {
        return;
    }
    let service = Service::start();
    service.is_well();
    service.is_well();
    service.verify(&json!({ "code": "def f(): return 1", "tests": ["assert f() == 2"] }));
    service.verify(&json!({ "code": "x = 1" }));
    service
        .verify(&json!({ "code": "held = []\nwhile True: held.append(b'x' * (8 << 20))", "memory_mb": 64 }));
    let answer = service.get("/metrics");
    assert!(answer.header("content-type").is_some_and(|kind| kind.starts_with("text/plain")), "{answer:?}");
    for line in [
        "rlox_verdicts_total{verdict=\"passed\"} 2",
        "rlox_verdicts_total{verdict=\"failed\"} 1",
        "rlox_verdicts_total{verdict=\"completed\"} 1",
        "rlox_verdicts_total{verdict=\"oom_killed\"} 1",
        "rlox_verdicts_total{verdict=\"timeout\"} 0",
        "rlox_verify_seconds_count 5",
        "rlox_verify_seconds_bucket{le=\"+Inf\"} 5",
        "rlox_oom_kills_total 1",
        "rlox_leftovers_total 0",
        "rlox_sandbox_faults_total 0",
        "rlox_rejected_total 0",
        "rlox_workers 2",
        "rlox_queue_waiting 0",
    ] {
        assert!(answer.body.lines().any(|each| each == line), "no {line:?} in\n{}", answer.body);
    }
    for line in answer.body.lines().filter(|line| !line.starts_with('#')) {
        let (_, number) = line.rsplit_once(' ').unwrap();
        assert!(number.parse::<f64>().is_ok(), "{line}");
    }
    service.stop();
}
