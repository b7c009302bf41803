//! What a container's cgroup counted, in the shape that `events --stats` promises its readers.

use std::path::Path;

use rlox_host::read_bounded;
use serde_json::{Map, Value, json};

use super::group::Group;

impl Group {
    /// All counters as one JSON object.
    pub(crate) fn stats(&self) -> Value {
        if self.is_v2() { self.stats_v2() } else { self.stats_v1() }
    }

    /// Memory kills so far.
    pub(crate) fn oom_kills(&self) -> u64 {
        let (directory, file) =
            if self.is_v2() { ("", "memory.events") } else { ("memory", "memory.oom_control") };
        keyed(&self.directory(directory).join(file), "oom_kill")
    }

    fn stats_v2(&self) -> Value {
        let at = |file: &str| self.directory("").join(file);
        let cpu = |key: &str| keyed(&at("cpu.stat"), key);
        let usage = number(&at("memory.current"));
        let limit = number(&at("memory.max"));
        let raw = table(&at("memory.stat"));
        let cache = raw.get("file").cloned().unwrap_or_default();
        json!({
            "cpu": {
                "usage": {
                    "total": cpu("usage_usec") * 1000,
                    "kernel": cpu("system_usec") * 1000,
                    "user": cpu("user_usec") * 1000,
                },
                "throttling": {
                    "periods": cpu("nr_periods"),
                    "throttledPeriods": cpu("nr_throttled"),
                    "throttledTime": cpu("throttled_usec") * 1000,
                },
            },
            "memory": {
                "cache": cache,
                "usage": {
                    "limit": limit,
                    "usage": usage,
                    "max": number(&at("memory.peak")),
                    "failcnt": keyed(&at("memory.events"), "max"),
                },
                "swap": {
                    "limit": limit.saturating_add(number(&at("memory.swap.max"))),
                    "usage": usage + number(&at("memory.swap.current")),
                    "failcnt": keyed(&at("memory.swap.events"), "fail"),
                },
                "kernel": {"limit": u64::MAX, "usage": raw.get("kernel").cloned().unwrap_or_default(), "failcnt": 0},
                "kernelTCP": {"limit": u64::MAX, "usage": raw.get("sock").cloned().unwrap_or_default(), "failcnt": 0},
                "raw": raw,
            },
            "pids": {"current": number(&at("pids.current")), "limit": limit_or_zero(&at("pids.max"))},
            "blkio": {"ioServiceBytesRecursive": io_v2(&at("io.stat"))},
            "hugetlb": {},
            "intel_rdt": {},
            "network_interfaces": Value::Null,
        })
    }

    fn stats_v1(&self) -> Value {
        let at = |controller: &str, file: &str| self.directory(controller).join(file);
        let raw = table(&at("memory", "memory.stat"));
        let ticks = |key: &str| keyed(&at("cpuacct", "cpuacct.stat"), key) * 10_000_000;
        let percpu: Vec<u64> = read_bounded(&at("cpuacct", "cpuacct.usage_percpu"))
            .unwrap_or_default()
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        let memory = |name: &str| {
            json!({
                "limit": number(&at("memory", &format!("memory.{name}limit_in_bytes"))),
                "usage": number(&at("memory", &format!("memory.{name}usage_in_bytes"))),
                "max": number(&at("memory", &format!("memory.{name}max_usage_in_bytes"))),
                "failcnt": number(&at("memory", &format!("memory.{name}failcnt"))),
            })
        };
        json!({
            "cpu": {
                "usage": {
                    "total": number(&at("cpuacct", "cpuacct.usage")),
                    "percpu": percpu,
                    "kernel": ticks("system"),
                    "user": ticks("user"),
                },
                "throttling": {
                    "periods": keyed(&at("cpu", "cpu.stat"), "nr_periods"),
                    "throttledPeriods": keyed(&at("cpu", "cpu.stat"), "nr_throttled"),
                    "throttledTime": keyed(&at("cpu", "cpu.stat"), "throttled_time"),
                },
            },
            "memory": {
                "cache": raw.get("cache").cloned().unwrap_or_default(),
                "usage": memory(""),
                "swap": memory("memsw."),
                "kernel": memory("kmem."),
                "kernelTCP": memory("kmem.tcp."),
                "raw": raw,
            },
            "pids": {
                "current": number(&at("pids", "pids.current")),
                "limit": limit_or_zero(&at("pids", "pids.max")),
            },
            "blkio": {"ioServiceBytesRecursive": io_v1(&at("blkio", "blkio.throttle.io_service_bytes_recursive"))},
            "hugetlb": {},
            "intel_rdt": {},
            "network_interfaces": Value::Null,
        })
    }
}

/// A number; `max` is the largest, an absent file 0.
fn number(path: &Path) -> u64 {
    match read_bounded(path).unwrap_or_default().trim() {
        "max" => u64::MAX,
        text => text.parse().unwrap_or_default(),
    }
}

/// A number where `max` means that there is no limit, which readers expect as 0.
fn limit_or_zero(path: &Path) -> u64 {
    read_bounded(path).unwrap_or_default().trim().parse().unwrap_or_default()
}

fn keyed(path: &Path, key: &str) -> u64 {
    table(path).get(key).and_then(Value::as_u64).unwrap_or_default()
}

fn table(path: &Path) -> Map<String, Value> {
    let text = read_bounded(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(key, value)| Some((key.to_owned(), value.trim().parse::<u64>().ok()?.into())))
        .collect()
}

fn io_v2(path: &Path) -> Vec<Value> {
    let text = read_bounded(path).unwrap_or_default();
    let mut entries = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some((major, minor)) = words.next().and_then(device) else { continue };
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            let op = match key {
                "rbytes" => "Read",
                "wbytes" => "Write",
                _ => continue,
            };
            entries.push(json!({"major": major, "minor": minor, "op": op, "value": value.parse::<u64>().unwrap_or_default()}));
        }
    }
    entries
}

fn io_v1(path: &Path) -> Vec<Value> {
    let text = read_bounded(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (major, minor) = device(words.next()?)?;
            let (op, value) = (words.next()?, words.next()?.parse::<u64>().ok()?);
            Some(json!({"major": major, "minor": minor, "op": op, "value": value}))
        })
        .collect()
}

fn device(word: &str) -> Option<(u64, u64)> {
    let (major, minor) = word.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
