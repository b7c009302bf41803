//! Limits: written before the program exists, read back, changed, and refused where the host cannot give them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::support::{Container, SOON, world};
use crate::support::host::{need, wait_until};

fn unified() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

/// The file of a limit in the container's own cgroup.
fn file(container: &Container<'_>, controller: &str, name: &str) -> PathBuf {
    let pid = container.state()["pid"].as_i64().unwrap();
    let membership = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let line = membership.lines().find(|line| {
        let names = line.split(':').nth(1).unwrap();
        if unified() { names.is_empty() } else { names.split(',').any(|each| each == controller) }
    });
    let path = line.unwrap().splitn(3, ':').nth(2).unwrap().trim_start_matches('/').to_owned();
    let root = Path::new("/sys/fs/cgroup");
    if unified() { root.join(path).join(name) } else { root.join(controller).join(path).join(name) }
}

fn value(container: &Container<'_>, controller: &str, v1: &str, v2: &str) -> String {
    let name = if unified() { v2 } else { v1 };
    fs::read_to_string(file(container, controller, name)).unwrap().trim().to_owned()
}

fn memory(container: &Container<'_>) -> String {
    value(container, "memory", "memory.limit_in_bytes", "memory.max")
}

fn pids(container: &Container<'_>) -> String {
    value(container, "pids", "pids.max", "pids.max")
}

fn quota(container: &Container<'_>) -> String {
    let text = value(container, "cpu", "cpu.cfs_quota_us", "cpu.max");
    text.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn limits_are_in_force_before_the_program_starts() {
    let Some(world) = world() else { return };
    world.configure(|config| {
        config["linux"]["resources"] = json!({
            "memory": {"limit": 50_331_648, "swap": 50_331_648},
            "pids": {"limit": 17},
            "cpu": {"quota": 30_000, "period": 60_000, "shares": 512}
        });
    });
    let container = world.created();
    assert_eq!((memory(&container).as_str(), pids(&container).as_str()), ("50331648", "17"));
    assert_eq!(quota(&container), "30000");
    // 512 shares on v1; its weight on v2 by the curve through 1024 and 100.
    assert_eq!(value(&container, "cpu", "cpu.shares", "cpu.weight"), if unified() { "59" } else { "512" });
}

#[test]
fn every_flag_of_update_is_written() {
    let Some(world) = world() else { return };
    let container = world.running();
    let id = container.id.as_str();
    world.ok(&["update", "--memory", "64m", "--pids-limit", "33", id]);
    assert_eq!((memory(&container).as_str(), pids(&container).as_str()), ("67108864", "33"));
    world.ok(&["update", "--cpu-quota", "20000", "--cpu-period", "40000", "--cpu-share", "1024", id]);
    assert_eq!(quota(&container), "20000");
    assert_eq!(value(&container, "cpu", "cpu.shares", "cpu.weight"), if unified() { "100" } else { "1024" });
    world.ok(&["update", "--memory", "128m", id]);
    assert_eq!(memory(&container), "134217728");
    world.ok(&["update", "--memory-reservation", "32m", id]);
    assert_eq!(value(&container, "memory", "memory.soft_limit_in_bytes", "memory.low"), "33554432");
    world.ok(&["update", "--pids-limit", "-1", "--cpu-quota", "-1", id]);
    assert_eq!(pids(&container), "max");
    assert_eq!(quota(&container), if unified() { "max" } else { "-1" });
    let cpus = if unified() { file(&container, "cpuset", "cpuset.cpus").exists() } else { true };
    if need(cpus, "the cpuset controller") {
        world.ok(&["update", "--cpuset-cpus", "0", id]);
        assert_eq!(value(&container, "cpuset", "cpuset.cpus", "cpuset.cpus"), "0");
    }
    assert!(world.refused(&["update", id]).contains("no limit named"));
}

#[test]
fn update_reads_a_file_or_standard_input() {
    let Some(world) = world() else { return };
    let container = world.running();
    let file = world.path("resources.json");
    fs::write(&file, json!({"memory": {"limit": 83_886_080}, "pids": {"limit": 12}}).to_string()).unwrap();
    world.ok(&["update", "--resources", file.to_str().unwrap(), &container.id]);
    assert_eq!((memory(&container).as_str(), pids(&container).as_str()), ("83886080", "12"));
    let mut child =
        world.command(&["update", "-r", "-", &container.id]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(br#"{"pids": {"limit": 13}}"#).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(pids(&container), "13");
    fs::write(&file, "[").unwrap();
    world.refused(&["update", "--resources", file.to_str().unwrap(), &container.id]);
}

#[test]
fn a_limit_that_the_host_cannot_give_is_an_error_with_its_name() {
    let Some(world) = world() else { return };
    let bundle = world.bundle();
    let cases = [
        ("cpu.cpus", json!({"cpu": {"cpus": "4000"}})),
        ("hugepageLimits", json!({"hugepageLimits": [{"pageSize": "3MB", "limit": 1}]})),
        ("unified", json!({"unified": {"no_such.max": "1"}})),
        ("blockIO", json!({"blockIO": {"leafWeight": 100}})),
    ];
    for (name, resources) in cases {
        world.configure(|config| config["linux"]["resources"] = resources.clone());
        let message = world.refused(&["create", "--bundle", bundle.to_str().unwrap(), "refused"]);
        assert!(message.contains(name), "{name}: {message}");
        assert_eq!(world.ok(&["list", "-q"]), "");
    }
}

#[test]
fn a_fork_bomb_meets_its_limit_and_events_count_it() {
    let Some(world) = world() else { return };
    let (code, out, err) = {
        world.python(
            "import errno, os, time\n\
             made, why = 0, 'none'\n\
             for _ in range(100):\n\
             \x20   try: pid = os.fork()\n\
             \x20   except OSError as error:\n\
             \x20       why = errno.errorcode[error.errno]; break\n\
             \x20   if pid == 0: time.sleep(60); os._exit(0)\n\
             \x20   made += 1\n\
             print(made, why)",
            |config| config["linux"]["resources"]["pids"] = json!({"limit": 10}),
        );
        world.run()
    };
    assert_eq!((code, out.as_str()), (0, "9 EAGAIN"), "{err}");
}

#[test]
fn events_print_the_counters() {
    let Some(world) = world() else { return };
    world.configure(|config| {
        config["linux"]["resources"] = json!({"pids": {"limit": 25}, "memory": {"limit": 100_663_296}})
    });
    let container = world.running();
    let event: Value = serde_json::from_str(&world.ok(&["events", "--stats", &container.id])).unwrap();
    assert_eq!((&event["type"], &event["id"]), (&json!("stats"), &json!(container.id)));
    let data = &event["data"];
    assert_eq!((&data["pids"]["current"], &data["pids"]["limit"]), (&json!(1), &json!(25)));
    assert_eq!(data["memory"]["usage"]["limit"], 100_663_296);
    assert!(data["memory"]["usage"]["usage"].as_u64().unwrap() > 0);
    assert!(data["cpu"]["usage"]["total"].as_u64().unwrap() > 0);
    assert!(data["memory"]["raw"].as_object().is_some_and(|raw| !raw.is_empty()));
}

#[test]
fn events_tell_of_memory_kills_and_end_with_the_container() {
    let Some(world) = world() else { return };
    world.python(
        "import os, time\n\
         def bomb():\n\
         \x20   held = []\n\
         \x20   while True: held.append(b'x' * (4 << 20))\n\
         time.sleep(2)\n\
         pid = os.fork()\n\
         if pid == 0: bomb()\n\
         os.waitpid(pid, 0)\n\
         time.sleep(300)",
        |config| config["linux"]["resources"] = json!({"memory": {"limit": 67_108_864, "swap": 67_108_864}}),
    );
    let container = world.running();
    let mut child =
        world.command(&["events", "--interval", "1h", &container.id]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut reader = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
    let event: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(event, json!({"type": "oom", "id": container.id}));
    world.ok(&["kill", &container.id, "KILL"]);
    assert!(child.wait().unwrap().success());
}

#[test]
fn pause_stops_and_resume_continues() {
    let Some(world) = world() else { return };
    let file = world.path("ticks");
    fs::write(&file, "").unwrap();
    world.python(
        "import time\n\
         while True:\n\
         \x20   open('/ticks', 'a').write('x'); time.sleep(0.01)",
        |config| {
            config["root"]["path"] = json!(world.own_rootfs());
            let mounts = config["mounts"].as_array_mut().unwrap();
            mounts.push(json!({"destination": "/ticks", "source": file, "options": ["bind", "rw"]}));
        },
    );
    let container = world.running();
    let ticks = || fs::metadata(&file).unwrap().len();
    wait_until("ticks", SOON, || ticks() > 3);
    world.ok(&["pause", &container.id]);
    assert_eq!(container.status(), "paused");
    let stopped = ticks();
    // Longer than many ticks; a container that runs would show.
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(ticks(), stopped);
    world.ok(&["resume", &container.id]);
    wait_until("more ticks", SOON, || ticks() > stopped);
}

#[test]
fn kill_all_reaches_every_process_and_a_paused_container_can_be_deleted() {
    let Some(world) = world() else { return };
    world.configure(|config| {
        config["process"]["args"] = json!(["/bin/sh", "-c", "sleep 300 & sleep 300 & sleep 300 & wait"]);
    });
    let container = world.running();
    let count = || {
        let text = world.ok(&["ps", "--format", "json", &container.id]);
        serde_json::from_str::<Vec<i32>>(&text).unwrap().len()
    };
    wait_until("four processes", SOON, || count() == 4);
    world.ok(&["kill", "--all", &container.id, "KILL"]);
    container.wait_for("stopped");
    wait_until("none", SOON, || count() == 0);
    let paused = world.running();
    world.ok(&["pause", &paused.id]);
    assert!(world.refused(&["delete", &paused.id]).contains("paused"));
    world.ok(&["delete", "--force", &paused.id]);
}

#[test]
fn a_memory_bomb_dies_at_its_limit_and_the_kill_is_counted() {
    let Some(world) = world() else { return };
    world.python(
        "import os, time\n\
         pid = os.fork()\n\
         if pid == 0:\n\
         \x20   held = []\n\
         \x20   while True: held.append(b'x' * (4 << 20))\n\
         print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)\n\
         open('/result/done', 'w').write('x')\n\
         time.sleep(300)",
        |config| {
            config["linux"]["resources"] = json!({"memory": {"limit": 67_108_864, "swap": 67_108_864}});
            let rootfs = world.own_rootfs();
            fs::create_dir(rootfs.join("result")).unwrap();
            config["root"] = json!({"path": rootfs});
        },
    );
    let container = world.running();
    wait_until("the end of the bomb", SOON * 3, || world.path("rootfs/result/done").exists());
    let text = value(&container, "memory", "memory.oom_control", "memory.events");
    let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill ")).unwrap().to_owned();
    assert_eq!(kills, "1", "{text}");
    let peak: u64 =
        value(&container, "memory", "memory.max_usage_in_bytes", "memory.current").parse().unwrap();
    assert!(peak <= 67_108_864, "{peak}");
    assert_eq!(container.status(), "running", "only the bomb died");
}

#[test]
fn a_quota_bounds_the_time_of_all_processes() {
    let Some(world) = world() else { return };
    let start = |quota: Option<i64>| {
        world.python("import os\nos.fork()\nwhile True: pass", |config| {
            if let Some(quota) = quota {
                config["linux"]["resources"]["cpu"] = json!({"quota": quota, "period": 100_000});
            }
        });
        world.running()
    };
    let cpu = |container: &Container<'_>| -> Value {
        let event: Value = serde_json::from_str(&world.ok(&["events", "--stats", &container.id])).unwrap();
        event["data"]["cpu"].clone()
    };
    let used = |container: &Container<'_>| cpu(container)["usage"]["total"].as_u64().unwrap();
    let bounded = start(Some(20_000));
    let (begun, before) = (Instant::now(), used(&bounded));
    wait_until("a second of CPU time", SOON * 3, || used(&bounded) > before + 1_000_000_000);
    // A fifth of a CPU: a second of it takes five, but for what one period more may add.
    assert!(begun.elapsed() > Duration::from_secs(4), "{:?}", begun.elapsed());
    assert!(cpu(&bounded)["throttling"]["throttledPeriods"].as_u64().unwrap() > 0);
    let free = start(None);
    let before = used(&free);
    wait_until("a second of CPU time", SOON * 3, || used(&free) > before + 1_000_000_000);
    assert_eq!(cpu(&free)["throttling"]["throttledPeriods"], 0);
}
