//! Time is CPU time first: a loaded machine takes no right answer, and no program gains time by its own doing.
//!
//! No test here compares wall-clock times: the load is made by programs in containers, and what counts is verdicts and
//! CPU seconds.

use serde_json::{Value, json};

use crate::support::{Service, ready};

/// Computes until it has used so much CPU time, then answers.
fn computes(secs: f64) -> String {
    format!("import time\nwhile time.process_time() < {secs}: pass\ndef f(x): return x + 1\nprint('done')\n")
}

const BUSY: &str = "while True: pass";

/// More busy programs than the machine has CPUs for.
fn crowd() -> usize {
    3 * std::thread::available_parallelism().map_or(2, usize::from) + 2
}

fn cpu(verdict: &Value) -> f64 {
    verdict["usage"]["cpu_secs"].as_f64().unwrap()
}

fn wall(verdict: &Value) -> f64 {
    verdict["usage"]["wall_secs"].as_f64().unwrap()
}

#[test]
fn who_sleeps_ends_by_the_wall_clock_and_who_computes_by_cpu_time() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let limited = |code: &str| service.verify(&json!({ "code": code, "timeout_secs": 1.5 }));
    let sleeper = limited("import time\nwhile True: time.sleep(100)");
    assert_eq!(
        (&sleeper["verdict"], &sleeper["exit_status"]),
        (&json!("timeout"), &json!("Timeout")),
        "{sleeper}"
    );
    assert!(wall(&sleeper) >= 1.5 && cpu(&sleeper) < 1.0, "{sleeper}");
    let busy = limited(BUSY);
    assert_eq!(busy["verdict"], "timeout", "{busy}");
    assert_eq!(busy["containment"]["limits"]["wall_secs"], 6.0, "{busy}");
    // Both below their limits.
    let honest = limited("import time\ntime.sleep(0.2)\nwhile time.process_time() < 0.4: pass");
    assert_eq!(honest["verdict"], "completed", "{honest}");
    service.stop();
}

/// Forty processes wait for each other nearly all the time; that is their own doing.
#[test]
fn a_crowd_of_its_own_processes_ends_by_the_cpu_time_of_all_together() {
    if !ready() {
        return;
    }
    let service = Service::with(&["--workers", "2", "--wall-factor", "100"]);
    let forks = |count: u32, each: &str| {
        format!("import os, time\nfor _ in range({count}):\n    if os.fork() == 0: break\n{each}")
    };
    let hostile = json!({ "code": forks(40, BUSY), "timeout_secs": 2 });
    let verdict = service.verify(&hostile);
    assert_eq!(
        (&verdict["verdict"], &verdict["containment"]["leftovers"]),
        (&json!("timeout"), &json!(0)),
        "{verdict}"
    );
    // One limit for all of them; and where others have most of the CPUs, one second try.
    let retries = verdict["containment"]["events"]["retries"].as_u64().unwrap();
    let tries = f64::from(u32::try_from(retries).unwrap() + 1);
    assert!(tries <= 2.0 && cpu(&verdict) < 1.5 * 2.0 * tries, "{verdict}");
    let twin = json!({ "code": forks(10, "while time.process_time() < 0.05: pass"), "timeout_secs": 2 });
    assert_eq!(service.verify(&twin)["verdict"], "completed");
    service.stop();
}

/// They need three fifths of their limit of CPU time, and get it in several times their limit of wall clock.
#[test]
fn a_crowded_machine_takes_no_right_answer() {
    if !ready() {
        return;
    }
    let crowd = crowd();
    let workers = (crowd + 5).to_string();
    let service = Service::with(&["--workers", &workers, "--timeout-secs", "2", "--wall-factor", "60"]);
    let mut requests = vec![json!({ "code": BUSY }); crowd];
    let code = computes(1.2);
    requests.push(json!({ "code": code }));
    requests.push(json!({ "code": code, "tests": ["assert f(1) == 2", "assert f(2) == 3"] }));
    requests.push(json!({ "code": code, "stdio": [{ "stdin": "", "stdout": "done\n" }] }));
    // The time is used in a call: the grader waits, and computes itself between two calls.
    let late = "import time\ndef f(x):\n    end = time.process_time() + 0.1\n    while time.process_time() < end: pass\n    return x + 1\n";
    let tests: Vec<_> = (0..10).map(|number| format!("assert f({number}) == {number} + 1")).collect();
    requests.push(json!({ "code": late, "tests": tests }));
    // The statement computes, in the grader, and the program waits for it.
    let slow = "import time\nend = time.process_time() + 1.2\nwhile time.process_time() < end: pass\nassert f(1) == 2";
    requests.push(json!({ "code": "def f(x): return x + 1", "tests": [slow, "assert f(2) == 3"] }));
    let results = service.batch(&requests);
    let (busy, honest) = results.split_at(crowd);
    for (verdict, wanted) in honest.iter().zip(["completed", "passed", "passed", "passed", "passed"]) {
        assert_eq!(verdict["verdict"], wanted, "{verdict}");
        assert_eq!(verdict["containment"]["pressure"], false, "{verdict}");
    }
    assert!(busy.iter().all(|verdict| verdict["verdict"] == "timeout"), "{busy:?}");
    let waited = |verdict: &Value| verdict["containment"]["events"]["cpu_wait_secs"].as_f64().unwrap();
    assert!(busy.iter().any(|verdict| waited(verdict) > 0.5), "nobody waited: {busy:?}");
    service.stop();
}

/// With no room to stretch, the wall clock ends programs that had no CPU; that is tried once more, and told.
#[test]
fn a_timeout_under_pressure_is_tried_again_told_and_counted() {
    if !ready() {
        return;
    }
    let crowd = crowd();
    let workers = crowd.to_string();
    let service = Service::with(&["--workers", &workers, "--timeout-secs", "2", "--wall-factor", "1"]);
    let health = service.get("/health").json();
    assert_eq!(health["time"], json!({ "timeout_secs": 2.0, "wall_factor": 1.0, "waits": "schedstat" }));
    let busy = json!({ "code": BUSY });
    let tested = json!({ "code": "def f():\n    while True: pass", "tests": ["assert f() == 1"] });
    let requests: Vec<_> =
        (0..crowd).map(|number| if number % 2 == 0 { &busy } else { &tested }.clone()).collect();
    let results = service.batch(&requests);
    assert!(results.iter().all(|verdict| verdict["verdict"] == "timeout"), "{results:?}");
    let pressed = results.iter().filter(|verdict| verdict["containment"]["pressure"] == true).count();
    let retries: u64 =
        results.iter().map(|verdict| verdict["containment"]["events"]["retries"].as_u64().unwrap()).sum();
    assert!(pressed > 0 && retries >= pressed as u64, "{results:?}");
    for each in [1, 0] {
        let of_kind = results.iter().skip(each).step_by(2);
        assert!(
            of_kind.clone().any(|verdict| verdict["containment"]["events"]["retries"] == 1),
            "{results:?}"
        );
    }
    let metrics = service.get("/metrics").body;
    for line in [
        format!("rlox_timeouts_under_pressure_total {pressed}"),
        format!("rlox_retries_total{{reason=\"pressure\"}} {retries}"),
    ] {
        assert!(metrics.lines().any(|each| each == line), "no {line:?} in\n{metrics}");
    }
    service.stop();
}
