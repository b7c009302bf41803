//! Every verdict with its reward and exit status, exactly.

use serde_json::{Value, json};

use crate::support::{Service, ready};

/// Verifies and compares verdict, reward and exit status; whatever happened, nothing is left.
#[track_caller]
fn expect(service: &Service, request: &Value, verdict: &str, reward: Value, exit_status: &str) -> Value {
    let got = service.verify(request);
    let found = (&got["verdict"], &got["reward"], &got["exit_status"]);
    assert_eq!(found, (&json!(verdict), &reward, &json!(exit_status)), "{request}: {got}");
    assert_eq!((&got["containment"]["leftovers"], &got["authenticated"]), (&json!(0), &json!(true)), "{got}");
    got
}

fn tested(code: &str) -> Value {
    json!({ "code": code, "tests": ["assert f(2, 3) == 5", "assert f(-1, 1) == 0"], "timeout_secs": 2, "memory_mb": 128 })
}

fn only_run(code: &str) -> Value {
    json!({ "code": code, "timeout_secs": 2, "memory_mb": 128 })
}

#[test]
fn of_programs_with_tests() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let passed =
        expect(&service, &tested("def f(a, b):\n    return a + b"), "passed", json!(1.0), "Clean(0)");
    assert_eq!(
        passed["tests"],
        json!([{ "index": 0, "passed": true, "message": null }, { "index": 1, "passed": true, "message": null }])
    );
    assert_eq!(passed["tampering"], json!([]));
    let failed = expect(&service, &tested("def f(a, b):\n    return 5"), "failed", json!(0.0), "Clean(0)");
    assert_eq!((&failed["tests"][0]["passed"], &failed["tests"][1]["passed"]), (&json!(true), &json!(false)));
    assert!(failed["tests"][1]["message"].as_str().unwrap().contains("AssertionError"), "{failed}");
    expect(&service, &tested("x = 1"), "failed", json!(0.0), "Clean(0)");
    expect(&service, &tested("def f(a, b):\n    raise ValueError"), "failed", json!(0.0), "Clean(0)");
    let error = expect(&service, &tested("raise ValueError('on purpose')"), "error", json!(0.0), "Clean(1)");
    assert!(error["stderr"].as_str().unwrap().contains("ValueError: on purpose"), "{error}");
    expect(&service, &tested("def f(a, b:\n"), "error", json!(0.0), "Clean(1)");
    expect(&service, &tested("import sys\nsys.exit(0)"), "error", json!(0.0), "Clean(0)");
    expect(&service, &tested("import os\ndef f(a, b):\n    os._exit(0)"), "error", json!(0.0), "Clean(0)");
    expect(&service, &tested("import os\nos._exit(7)"), "error", json!(0.0), "Clean(7)");
    expect(&service, &tested("while True: pass"), "timeout", json!(0.0), "Timeout");
    expect(&service, &tested("def f(a, b):\n    while True: pass"), "timeout", json!(0.0), "Timeout");
    expect(
        &service,
        &tested("held = []\nwhile True: held.append(b'x' * (8 << 20))"),
        "oom_killed",
        json!(0.0),
        "OomKilled",
    );
    expect(&service, &tested("import ctypes\nctypes.string_at(0)"), "killed", json!(0.0), "Signaled(11)");
    expect(&service, &tested("while True: print('x' * 10000)"), "output_limit", json!(0.0), "Signaled(9)");
    service.is_well();
    service.stop();
}

#[test]
fn of_programs_that_are_only_run() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let done = expect(
        &service,
        &only_run("import sys\nprint('out')\nprint('err', file=sys.stderr)"),
        "completed",
        Value::Null,
        "Clean(0)",
    );
    assert_eq!(
        (&done["stdout"], &done["stderr"], &done["tests"]),
        (&json!("out\n"), &json!("err\n"), &json!([]))
    );
    expect(&service, &only_run(""), "completed", Value::Null, "Clean(0)");
    expect(&service, &only_run("raise SystemExit(3)"), "error", Value::Null, "Clean(3)");
    expect(&service, &only_run("while True: pass"), "timeout", Value::Null, "Timeout");
    expect(
        &service,
        &only_run("held = []\nwhile True: held.append(b'x' * (8 << 20))"),
        "oom_killed",
        Value::Null,
        "OomKilled",
    );
    expect(&service, &only_run("import ctypes\nctypes.string_at(0)"), "killed", Value::Null, "Signaled(11)");
    expect(&service, &only_run("while True: print('x' * 10000)"), "output_limit", Value::Null, "Signaled(9)");
    service.stop();
}

#[test]
fn of_programs_with_input_and_output() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let sum = "a, b = map(int, input().split())\nprint(a + b)";
    let with = |code: &str, entries: Value| json!({ "code": code, "stdio": entries, "timeout_secs": 2, "memory_mb": 128 });
    let right = json!([{ "stdin": "1 2\n", "stdout": "3\n" }, { "stdin": "5 5\n", "stdout": "10" }]);
    expect(&service, &with(sum, right.clone()), "passed", json!(1.0), "Clean(0)");
    let wrong = json!([{ "stdin": "1 2\n", "stdout": "3\n" }, { "stdin": "5 5\n", "stdout": "11\n" }]);
    let failed = expect(&service, &with(sum, wrong), "failed", json!(0.0), "Clean(0)");
    assert_eq!((&failed["tests"][0]["passed"], &failed["tests"][1]["passed"]), (&json!(true), &json!(false)));
    expect(
        &service,
        &with("print(3)\nraise SystemExit(1)", json!([{ "stdin": "", "stdout": "3\n" }])),
        "error",
        json!(0.0),
        "Clean(1)",
    );
    expect(
        &service,
        &with("while True: pass", json!([{ "stdin": "", "stdout": "" }])),
        "timeout",
        json!(0.0),
        "Timeout",
    );
    // Both kinds together: every one of them has to pass.
    let mut both = with(
        &format!(
            "def f(a, b):\n    return a + b\nif __name__ == '__main__':\n    {}",
            sum.replace('\n', "\n    ")
        ),
        right,
    );
    both["tests"] = json!(["assert f(2, 2) == 4"]);
    let got = expect(&service, &both, "passed", json!(1.0), "Clean(0)");
    assert_eq!(got["tests"].as_array().map(Vec::len), Some(3), "{got}");
    both["tests"] = json!(["assert f(2, 2) == 5"]);
    let got = expect(&service, &both, "failed", json!(0.0), "Clean(0)");
    assert_eq!(
        (&got["tests"][0]["passed"], &got["tests"][2]["passed"]),
        (&json!(false), &json!(true)),
        "{got}"
    );
    service.stop();
}

#[test]
fn output_is_kept_to_its_limit_and_said_to_be_cut() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let mut request = only_run("import sys\nprint('0123456789' * 10)\nsys.stderr.write('short')");
    request["output_bytes"] = json!(20);
    let got = expect(&service, &request, "completed", Value::Null, "Clean(0)");
    assert_eq!((&got["stdout"], &got["stdout_truncated"]), (&json!("01234567890123456789"), &json!(true)));
    assert_eq!((&got["stderr"], &got["stderr_truncated"]), (&json!("short"), &json!(false)));
    // Bytes that are no UTF-8 do not break the answer.
    let got = expect(
        &service,
        &only_run("import os\nos.write(1, b'\\xff\\x00ok')"),
        "completed",
        Value::Null,
        "Clean(0)",
    );
    assert_eq!(got["stdout"], "\u{fffd}\u{0}ok");
    service.stop();
}

#[test]
fn usage_and_containment_are_reported() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let code = "import os\nheld = b'x' * (60 << 20)\nfor _ in range(3):\n    if os.fork() == 0:\n        os._exit(0)\n    os.wait()\nsum(range(3000000))";
    let got = expect(&service, &only_run(code), "completed", Value::Null, "Clean(0)");
    let usage = &got["usage"];
    for name in ["queue_secs", "setup_secs", "wall_secs", "cpu_secs"] {
        assert!((0.0..30.0).contains(&usage[name].as_f64().unwrap()), "{name}: {usage}");
    }
    assert!(
        usage["wall_secs"].as_f64().unwrap() > 0.0 && usage["cpu_secs"].as_f64().unwrap() > 0.0,
        "{usage}"
    );
    let peak = usage["memory_peak_bytes"].as_u64().unwrap();
    assert!((60 << 20..=128 << 20).contains(&peak), "{usage}");
    let containment = &got["containment"];
    assert_eq!(containment["tier"], service.get("/health").json()["isolation"]["tier"]);
    assert_eq!(
        (&containment["limits"]["memory_mb"], &containment["limits"]["pids"]),
        (&json!(128), &json!(64))
    );
    assert_eq!(
        (&containment["events"]["oom_kill"], &containment["events"]["pids_max"]),
        (&json!(0), &json!(0))
    );
    let ids: std::collections::HashSet<_> =
        (0..3).map(|_| service.verify(&only_run(""))["id"].to_string()).collect();
    assert_eq!(ids.len(), 3);
    service.stop();
}

/// A program for which one test is asked, with what `tampering` has to name.
fn tampering(service: &Service, code: &str) -> (Value, Vec<String>) {
    let got = service.verify(&json!({ "code": code, "tests": ["assert f() == 1"], "timeout_secs": 5 }));
    let kinds = got["tampering"].as_array().unwrap().iter();
    let kinds = kinds.map(|each| each["kind"].as_str().unwrap().to_owned()).collect();
    (got, kinds)
}

#[test]
fn what_was_tried_is_named_counted_and_an_honest_twin_is_not() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let honest = "import os, subprocess, sys, threading\ndef f():\n    t = threading.Thread(target=print)\n    t.start()\n    t.join()\n    subprocess.run([sys.executable, '-c', 'pass'])\n    return 1\n";
    let (got, kinds) = tampering(&service, honest);
    assert_eq!((&got["verdict"], kinds.len()), (&json!("passed"), 0), "{got}");
    for (code, kind) in [
        ("import os\nos._exit(0)", "exit_while_loading"),
        ("import os\ndef f():\n    os._exit(0)", "exit_in_call"),
        ("import sys\ndef f():\n    sys.exit(0)", "exit_in_call"),
        ("import os\nos.write(4, b'nonsense nonsense')\ndef f():\n    return 1", "malformed_frame"),
        ("import os\nos.write(5, b'verdict: passed')\ndef f():\n    return 1", "descriptor_write"),
        (
            "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.unshare(0x10000000)\nlibc.ptrace(0, 0, 0, 0)\ndef f():\n    return 1",
            "forbidden_syscall",
        ),
    ] {
        let (got, kinds) = tampering(&service, code);
        assert!(kinds.iter().any(|each| each == kind), "{kind} is not named for {code:?}: {got}");
    }
    let lying = json!({
        "code": "class V:\n    def __init__(self, x): self.x = x\n    def __add__(self, o): return V(0)\n    def __eq__(self, o): return True\n",
        "tests": ["assert V(1) + V(2) == V(3)"],
    });
    let got = service.verify(&lying);
    assert_eq!((&got["reward"], &got["tampering"][0]["kind"]), (&json!(0.0), &json!("lying_type")), "{got}");
    let early = json!({
        "code": "import os\nprint(3, flush=True)\nos._exit(0)",
        "stdio": [{"stdin": "", "stdout": "3"}],
    });
    let got = service.verify(&early);
    let seen = (&got["verdict"], &got["exit_status"], &got["tampering"][0]["kind"]);
    assert_eq!(seen, (&json!("error"), &json!("Clean(0)"), &json!("exit_before_end")), "{got}");
    let calls = service.verify(&json!({ "code": "import ctypes\nctypes.CDLL(None).unshare(0x10000000)" }));
    assert_eq!(calls["containment"]["events"]["seccomp"], 1, "{calls}");
    let metrics = service.get("/metrics").body;
    for family in ["exit", "equality", "output", "kernel"] {
        let line = format!("rlox_tampering_total{{family=\"{family}\"}} ");
        let count = metrics.lines().find_map(|each| each.strip_prefix(&line)?.parse::<u64>().ok());
        assert!(count.is_some_and(|count| count > 0), "{family}: {metrics}");
    }
    service.stop();
}
