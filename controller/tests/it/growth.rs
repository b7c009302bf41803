//! Hundreds of verifications leave descriptors, memory and processes as they were.

use serde_json::json;

use crate::support::host::{traces, wait_until};
use crate::support::service::honest;
use crate::support::{SOON, Service, ready};

fn descriptors(pid: i32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

fn resident_kib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok())
        .unwrap()
}

#[test]
fn three_hundred_verifications_leave_nothing_open() {
    if !ready() {
        return;
    }
    let service = Service::start();
    let kinds = [
        honest(),
        json!({ "code": "x = 1" }),
        json!({ "code": "raise SystemExit(1)", "tests": ["assert True"] }),
        json!({ "code": "print(input())", "stdio": [{ "stdin": "a\n", "stdout": "a\n" }] }),
        json!({ "code": "import ctypes\nctypes.string_at(0)", "tests": ["assert True"] }),
    ];
    let round = |count: usize| service.batch(&kinds.iter().cycle().take(count).cloned().collect::<Vec<_>>());
    round(50);
    let watched: Vec<i32> = [Some(i32::try_from(service.id()).unwrap())]
        .into_iter()
        .chain((0..=2).map(|slot| service.launcher(slot)))
        .map(Option::unwrap)
        .collect();
    let count = || {
        let open = watched.iter().map(|pid| descriptors(*pid));
        (open.collect::<Vec<_>>(), traces(service.id()).len())
    };
    wait_until("idle workers", SOON, || service.get("/health").json()["pool"]["busy"] == 0);
    // A connection that was just closed may take a moment, and so may the next container of an idle worker; a process
    // of the grader goes when it has had nothing to do for five seconds. The count that stays for longer than that is
    // the one to come back to.
    let mut open = count();
    let mut same = 0;
    wait_until("the number of descriptors and traces to stay", SOON, || {
        let now = count();
        same = if now == open { same + 1 } else { 0 };
        open = now;
        same == 350
    });
    let size: Vec<_> = watched.iter().map(|pid| resident_kib(*pid)).collect();
    for _ in 0..6 {
        round(50);
    }
    wait_until(&format!("descriptors and traces {:?} to be {open:?} again", count()), SOON, || {
        count() == open
    });
    for (pid, before) in watched.iter().zip(size) {
        let now = resident_kib(*pid);
        assert!(now < before + 16 * 1024, "process {pid} grew from {before} to {now} KiB");
    }
    service.stop();
}
