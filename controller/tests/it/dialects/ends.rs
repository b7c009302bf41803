//! Output, limits and failures of ours, as each dialect says them.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::{counter, execute, execution, piston_succeeds, run_code, with};
use crate::support::host::wait_until;
use crate::support::service::post;
use crate::support::{SOON, Service, ready};

/// Ends by its wall clock whatever else this machine does; a loop would be given more of it under load.
const SLEEP: &str = "import time\nprint('begun', flush=True)\ntime.sleep(60)\n";
const LOOP: &str = "while True: pass\n";
const BOMB: &str = "held = []\nwhile True: held.append(b'x' * (8 << 20))\n";

#[test]
fn honest_programs_and_their_output() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let code = "import sys\na, b = map(int, input().split())\nprint(a + b)\nprint('note', file=sys.stderr)\n";
    let input = json!({ "stdin": "1 2\n" });
    let body = run_code(&service, code, &input);
    assert_eq!(
        (&body["status"], &body["message"], &body["run_result"]["return_code"]),
        (&json!("Success"), &json!(""), &json!(0))
    );
    assert_eq!(
        (&body["run_result"]["stdout"], &body["run_result"]["stderr"]),
        (&json!("3\n"), &json!("note\n"))
    );
    assert!(body["run_result"]["execution_time"].as_f64().is_some_and(|secs| secs > 0.0), "{body}");
    let body = execute(&service, code, &input);
    let run = &body["run"];
    assert_eq!(
        (&run["stdout"], &run["stderr"], &run["output"]),
        (&json!("3\n"), &json!("note\n"), &json!("3\nnote\n"))
    );
    assert_eq!(
        (&run["code"], &run["signal"], &run["message"], &run["status"]),
        (&json!(0), &json!(null), &json!(null), &json!(null))
    );
    assert!(run["cpu_time"].as_f64().is_some_and(|time| time > 0.0) && run["memory"].is_u64(), "{run}");
    // No input is an empty one.
    for none in [json!({}), json!({ "stdin": null })] {
        let body = run_code(&service, "import sys\nprint(repr(sys.stdin.read()))\n", &none);
        assert_eq!(body["run_result"]["stdout"], "''\n");
    }
    let failed = run_code(&service, "raise ValueError('on purpose')\n", &json!({}));
    assert_eq!((&failed["status"], &failed["run_result"]["return_code"]), (&json!("Failed"), &json!(1)));
    assert!(failed["run_result"]["stderr"].as_str().unwrap().contains("ValueError: on purpose"), "{failed}");
    let broken = execute(&service, "def f(:\n", &json!({}));
    assert!(
        !piston_succeeds(&broken) && broken["run"]["stderr"].as_str().unwrap().contains("SyntaxError"),
        "{broken}"
    );
    let arguments = execute(&service, "import sys\nprint(sys.argv)\n", &json!({ "args": ["-v", "ü"] }));
    assert_eq!(arguments["run"]["stdout"], "['main.py', '-v', 'ü']\n");
    service.stop();
}

#[test]
fn long_output_is_whole_up_to_its_limit_and_bytes_that_are_no_text_are_replaced() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let code = "import sys\nfor n in range(50000):\n    print(n, n)\n    print(n, file=sys.stderr)\n";
    let (mut out, mut err) = (String::new(), String::new());
    for n in 0..50000 {
        out += &format!("{n} {n}\n");
        err += &format!("{n}\n");
    }
    assert!(out.len() > 400_000);
    let body = run_code(&service, code, &json!({}));
    assert_eq!(body["status"], "Success");
    assert!(body["run_result"]["stdout"] == out.as_str() && body["run_result"]["stderr"] == err.as_str());
    let body = execute(&service, code, &json!({}));
    assert!(body["run"]["stdout"] == out.as_str() && piston_succeeds(&body));
    // Beyond it a part is never taken for the whole.
    let long = "print('x' * (5 << 20))\n";
    let body = run_code(&service, long, &json!({}));
    assert_eq!((&body["status"], &body["run_result"]["return_code"]), (&json!("Failed"), &json!(1)));
    assert!(body["message"].as_str().unwrap().contains("output was cut"), "{}", body["message"]);
    assert_eq!(body["run_result"]["stdout"].as_str().unwrap().len(), 4 << 20);
    let body = execute(&service, long, &json!({}));
    assert_eq!((&body["run"]["code"], &body["run"]["status"]), (&json!(null), &json!("OL")));
    let flood = run_code(&service, "while True: print('x' * 10000)\n", &json!({}));
    assert_eq!((&flood["status"], &flood["run_result"]["return_code"]), (&json!("Failed"), &json!(-9)));
    let bytes = "import os\nos.write(1, b'a\\xff\\xfe\\x00b\\n\\xc3\\xbc')\nos.write(2, b'\\x80!')\n";
    let body = run_code(&service, bytes, &json!({}));
    assert_eq!(body["run_result"]["stdout"], "a\u{fffd}\u{fffd}\u{0}b\nü", "{body}");
    assert_eq!((&body["run_result"]["stderr"], &body["status"]), (&json!("\u{fffd}!"), &json!("Success")));
    assert_eq!(execute(&service, bytes, &json!({}))["run"]["stdout"], "a\u{fffd}\u{fffd}\u{0}b\nü");
    service.stop();
}

#[test]
fn time_and_memory_end_a_program_and_are_said() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let body = run_code(&service, SLEEP, &json!({ "run_timeout": 1 }));
    let run = &body["run_result"];
    assert_eq!(
        (&body["status"], &run["status"], &run["return_code"]),
        (&json!("Failed"), &json!("TimeLimitExceeded"), &json!(null))
    );
    assert_eq!((&run["stdout"], &body["message"]), (&json!("begun\n"), &json!("time limit of 1 s exceeded")));
    let run = &execute(&service, SLEEP, &json!({ "run_timeout": 1000 }))["run"];
    assert_eq!(
        (&run["status"], &run["code"], &run["signal"]),
        (&json!("TO"), &json!(null), &json!("SIGKILL")),
        "{run}"
    );
    // CPU time alone, where that is less; a sleeper does not use it.
    let short = json!({ "run_timeout": 20000, "run_cpu_time": 500 });
    assert_eq!(execute(&service, LOOP, &short)["run"]["status"], "TO");
    assert!(piston_succeeds(&execute(&service, "import time\ntime.sleep(1)\n", &short)));
    let body = run_code(&service, BOMB, &json!({ "memory_limit_MB": 128 }));
    let run = &body["run_result"];
    assert_eq!(
        (&body["status"], &run["status"], &run["return_code"]),
        (&json!("Failed"), &json!("Finished"), &json!(-9))
    );
    assert_eq!(body["message"], "memory limit of 128 MiB exceeded");
    let run = &execute(&service, BOMB, &json!({ "run_memory_limit": 128 << 20 }))["run"];
    assert_eq!(
        (&run["code"], &run["signal"], &run["status"]),
        (&json!(null), &json!("SIGKILL"), &json!("SG")),
        "{run}"
    );
    let run = &execute(&service, "import ctypes\nctypes.string_at(0)\n", &json!({}))["run"];
    assert_eq!((&run["code"], &run["signal"]), (&json!(null), &json!("SIGSEGV")), "{run}");
    service.is_well();
    service.stop();
}

#[test]
fn text_of_a_program_does_not_make_the_client_try_again() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let code =
        "import sys\nsys.stderr.write('BlockingIOError: Resource temporarily unavailable')\nsys.exit(1)\n";
    let run = &execute(&service, code, &json!({}))["run"];
    for field in ["stderr", "output"] {
        assert!(!run[field].as_str().unwrap().contains("Resource temporarily unavailable"), "{run}");
    }
    assert!(run["stderr"].as_str().unwrap().starts_with("BlockingIOError: Resource temporarily"), "{run}");
    // Standard output is the answer and stays as it is.
    let run = &execute(&service, "print('Resource temporarily unavailable')\n", &json!({}))["run"];
    assert_eq!(run["stdout"], "Resource temporarily unavailable\n");
    service.stop();
}

#[test]
fn a_limit_of_the_servers_own_never_decides() {
    if !ready() {
        return;
    }
    let service = Service::with(&["--workers", "1", "--dialect-timeout-secs", "1", "--max-memory-mb", "128"]);
    let asked = json!({ "code": SLEEP, "language": "python", "run_timeout": 10, "memory_limit_MB": 1024 });
    let answer = service.post("/run_code", &asked);
    let body = answer.json();
    assert_eq!((&body["status"], &body["run_result"]), (&json!("SandboxError"), &json!(null)), "{body}");
    assert!(body["message"].as_str().unwrap().contains("--dialect-timeout-secs"), "{body}");
    let limits = answer.header("x-rlox-limits").unwrap();
    assert!(
        limits.starts_with("timeout_secs=1, memory_mb=128,")
            && limits.ends_with("lowered=\"timeout memory\""),
        "{limits}"
    );
    let bomb = run_code(&service, BOMB, &json!({ "memory_limit_MB": 1024, "run_timeout": 1 }));
    assert_eq!(bomb["status"], "SandboxError", "{bomb}");
    // Within the lowered limits a result is one; and what the server grants without being asked decides.
    let quick = run_code(&service, "print(1)\n", &json!({ "memory_limit_MB": 1024, "run_timeout": 10 }));
    assert_eq!(quick["status"], "Success", "{quick}");
    assert_eq!(run_code(&service, BOMB, &json!({ "run_timeout": 1 }))["status"], "Failed");
    assert_eq!(
        counter(&service, "rlox_dialect_requests_total{dialect=\"sandbox_fusion\",outcome=\"fault\"}"),
        2
    );
    service.stop();
}

/// Kills the launcher of the only worker whenever it runs a program, until there is an answer.
#[track_caller]
fn answer_of_a_broken_sandbox(
    service: &Service,
    path: &'static str,
    body: &Value,
) -> crate::support::http::Answer {
    let (address, body) = (service.address.clone(), body.clone());
    let asked = std::thread::spawn(move || post(&address, path, &body));
    wait_until("an answer", SOON, || {
        let launcher = service.launcher(1).filter(|_| !service.contained(1).is_empty());
        let busy = service.get("/health").json()["pool"]["busy"] == 1;
        if let Some(pid) = launcher.filter(|_| busy) {
            kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap_or_default();
        }
        asked.is_finished()
    });
    asked.join().unwrap()
}

#[test]
fn a_failure_of_ours_is_no_result() {
    if !ready() {
        return;
    }
    let service = Service::with(&["--workers", "1", "--pool", "0"]);
    let sleeper = "import time\ntime.sleep(8)\nprint(1)\n";
    let body = json!({ "code": sleeper, "language": "python" });
    let answer = answer_of_a_broken_sandbox(&service, "/run_code", &body);
    let got = answer.json();
    assert_eq!(
        (answer.status, &got["status"], &got["run_result"]),
        (200, &json!("SandboxError"), &json!(null)),
        "{got}"
    );
    assert!(!got["message"].as_str().unwrap().is_empty(), "{got}");
    let body = execution(sleeper, &json!({ "run_timeout": 10000 }));
    let answer = answer_of_a_broken_sandbox(&service, "/api/v2/execute", &body);
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.json()["message"].is_string(), "{answer:?}");
    wait_until("an honest program to run again", SOON, || {
        service.post("/run_code", &json!({ "code": "print(1)", "language": "python" })).json()["status"]
            == "Success"
    });
    service.stop();
}

#[test]
fn overload_is_504_while_there_is_time_and_when_there_is_none() {
    if !ready() {
        return;
    }
    let service = Service::with(&["--workers", "1", "--queue", "1"]);
    let apart = |body: Value| {
        let address = service.address.clone();
        std::thread::spawn(move || post(&address, "/run_code", &body))
    };
    let program = |more: Value| with(json!({ "code": SLEEP, "language": "python" }), &more);
    let running = apart(program(json!({ "run_timeout": 15 })));
    service.wait_busy(1, 0);
    // Its client waits for a second, and ten more; by then the first still runs.
    let waiting = apart(program(json!({ "run_timeout": 1, "compile_timeout": 0 })));
    service.wait_busy(1, 1);
    let answer = service.post("/run_code", &program(json!({})));
    answer.is_problem(504);
    let refused = service.post("/api/v2/execute", &execution(SLEEP, &json!({})));
    assert_eq!((refused.status, refused.json()["message"].is_string()), (429, true), "{refused:?}");
    let answer = waiting.join().unwrap();
    answer.is_problem(504);
    assert!(!running.is_finished(), "the answer came too late to be of use");
    assert_eq!(running.join().unwrap().json()["run_result"]["status"], "TimeLimitExceeded");
    assert_eq!(
        counter(&service, "rlox_dialect_requests_total{dialect=\"sandbox_fusion\",outcome=\"overload\"}"),
        2
    );
    service.is_well();
    service.stop();
}
