//! A full queue, clients that leave, and clients that never finish.

use std::io::{Read, Write};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::host::wait_until;
use crate::support::http::{Address, head};
use crate::support::service::{post_apart, slow};
use crate::support::{SOON, Service, nothing_left, ready};

#[test]
fn a_full_queue_is_429_with_a_time_to_come_back() {
    if !ready() {
        return;
    }
    let service = Service::with(&["--workers", "1", "--queue", "1", "--timeout-secs", "4"]);
    let endless = json!({ "code": "while True: pass" });
    let running = post_apart(&service, &endless);
    service.wait_busy(1, 0);
    let waiting = post_apart(&service, &endless);
    service.wait_busy(1, 1);
    for _ in 0..3 {
        let answer = service.post("/verify", &endless);
        answer.is_problem(429);
        assert!(
            answer.header("retry-after").is_some_and(|secs| secs.parse::<u32>().is_ok_and(|secs| secs > 0)),
            "{answer:?}"
        );
    }
    for taken in [running, waiting] {
        let answer = taken.join().unwrap();
        assert_eq!((answer.status, answer.json()["verdict"].as_str()), (200, Some("timeout")));
    }
    assert!(service.get("/metrics").body.contains("rlox_rejected_total 3\n"));
    service.is_well();
    service.stop();
}

#[test]
fn a_batch_waits_for_room_where_a_single_request_is_refused() {
    if !ready() {
        return;
    }
    let service = Service::with(&["--workers", "1", "--queue", "1"]);
    let results = service.batch(&vec![slow(0.0); 12]);
    assert!(results.iter().all(|result| result["verdict"] == "passed"), "{results:?}");
    service.stop();
}

#[test]
fn time_in_the_queue_does_not_count_as_time_of_the_program() {
    if !ready() {
        return;
    }
    let service = Service::with(&["--workers", "1", "--timeout-secs", "3"]);
    let results = service.batch(&vec![slow(1.2); 4]);
    for result in &results {
        assert_eq!(result["verdict"], "passed", "{result}");
    }
    let longest =
        results.iter().filter_map(|result| result["usage"]["queue_secs"].as_f64()).fold(0.0, f64::max);
    assert!(longest > 3.0, "{longest}");
    service.stop();
}

#[test]
fn a_client_that_leaves_costs_nobody_anything() {
    if !ready() {
        return;
    }
    let service = Service::with(&["--workers", "1"]);
    for _ in 0..3 {
        let body = slow(1.0).to_string();
        let mut stream = Address::connect_tcp(service.port).unwrap();
        stream
            .write_all(
                head("POST", "/verify", &[("Content-Type", "application/json")], body.len()).as_bytes(),
            )
            .unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        service.wait_busy(1, 0);
        drop(stream);
        service.is_well();
    }
    service.wait_busy(0, 0);
    service.stop();
}

#[test]
fn garbage_and_half_requests_cost_nobody_anything() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let mut garbage = Address::connect_tcp(service.port).unwrap();
    garbage.write_all(b"\x16\x03\x01\x02\x00 this is no HTTP\r\n\r\n").unwrap();
    let mut text = String::new();
    garbage.read_to_string(&mut text).unwrap();
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 400"), "{text}");
    let mut halves = Vec::new();
    for _ in 0..20 {
        let mut half = Address::connect_tcp(service.port).unwrap();
        half.write_all(
            b"POST /verify HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
        )
        .unwrap();
        halves.push(half);
    }
    service.is_well();
    drop(halves);
    service.stop();
}

/// An operator's stop must not depend on a client's good will.
#[track_caller]
fn stops_despite(unfinished: &[u8]) {
    if !ready() {
        return;
    }
    let mut service = Service::with(&["--workers", "1"]);
    let mut stream = Address::connect_tcp(service.port).unwrap();
    stream.write_all(unfinished).unwrap();
    service.is_well();
    service.signal(Signal::SIGTERM);
    assert_eq!(service.ended().code(), Some(0));
    nothing_left(service.id(), service.scratch.path());
    drop(stream);
}

#[test]
fn a_connection_without_a_request_does_not_hold_up_the_stop() {
    stops_despite(b"");
}

#[test]
fn a_connection_that_was_answered_does_not_hold_up_the_stop() {
    stops_despite(b"GET /health HTTP/1.1\r\nHost: test\r\n\r\n");
}

#[test]
fn half_a_head_does_not_hold_up_the_stop() {
    stops_despite(b"POST /verify HTTP/1.1\r\nContent-Le");
}

#[test]
fn half_a_body_does_not_hold_up_the_stop() {
    stops_despite(b"POST /verify HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{");
}

#[test]
fn after_a_request_of_another_shape_a_container_is_made_ahead_again() {
    if !ready() {
        return;
    }
    let service = Service::with(&["--workers", "1"]);
    let pool = |what: &str| service.get("/health").json()["pool"][what].as_u64();
    wait_until("the first container", SOON, || pool("waiting") == Some(1));
    for memory_mb in [128, 256] {
        let (made, misses) = (pool("made"), pool("misses"));
        let answer = service.verify(&json!({ "code": "print(1)", "memory_mb": memory_mb }));
        assert_eq!(answer["verdict"], "completed", "{answer}");
        // The one that waited had another limit: it went, and its place is taken.
        assert!(pool("misses") > misses);
        wait_until("a container in its place", SOON, || pool("made") > made && pool("waiting") == Some(1));
    }
    service.stop();
}
