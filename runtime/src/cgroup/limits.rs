//! From `linux.resources` to kernel files: what to write, and what has to read back.
//!
//! The same list serves `create`, `update` and the check before the start, so no limit can be written without being
//! verified. A limit that has no file on this kind of cgroup is an error here, not an omission.

use std::collections::BTreeSet;

use oci_spec::runtime::{LinuxBlockIo, LinuxCpu, LinuxMemory, LinuxResources, LinuxThrottleDevice};

const DEFAULT_PERIOD_US: u64 = 100_000;

/// How a value that was written has to read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Check {
    /// The same words.
    Exact,
    /// Bytes, rounded down to whole pages by the kernel.
    Pages,
    /// A list of processors or memory nodes, in whatever spelling.
    List,
    /// One line of several begins with these words.
    Line,
    /// The kernel spells it in a way of its own; that the write succeeded has to do.
    Written,
}

/// One limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    /// Name in `config.json`, for messages.
    pub(crate) name: &'static str,
    /// The controller that has to be there.
    pub(crate) controller: String,
    pub(crate) file: String,
    pub(crate) value: String,
    pub(crate) check: Check,
    /// A limit of swap: trivially in force where the host has no swap at all.
    pub(crate) swap: bool,
}

impl Setting {
    fn new(name: &'static str, file: impl Into<String>, value: impl ToString, check: Check) -> Self {
        let file = file.into();
        let controller = file.split('.').next().unwrap_or_default().to_owned();
        Self { name, controller, file, value: value.to_string(), check, swap: false }
    }

    /// Whether `found` is what was asked for.
    pub(crate) fn holds(&self, found: &str) -> bool {
        let found = found.trim();
        match self.check {
            Check::Exact => found.split_whitespace().eq(self.value.split_whitespace()),
            Check::Pages => match (found.parse::<u64>(), self.value.parse::<u64>()) {
                (Ok(found), Ok(wanted)) => found <= wanted && wanted - found < 65_536,
                // v1 writes "no limit" as the largest multiple of a page.
                (Ok(found), Err(_)) => self.value == "-1" && found >= u64::MAX / 4,
                (Err(_), _) => found == self.value,
            },
            Check::List => list(&self.value).is_some_and(|wanted| list(found) == Some(wanted)),
            Check::Line => found.lines().any(|line| {
                let words: BTreeSet<_> = line.split_whitespace().collect();
                self.value.split_whitespace().all(|word| words.contains(word))
            }),
            Check::Written => true,
        }
    }
}

/// `0-2,5` as a set; `None` for what is no list of a kernel's, which knows fewer processors and nodes than this type.
pub(crate) fn list(text: &str) -> Option<BTreeSet<u16>> {
    let mut set = BTreeSet::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        set.extend(first.trim().parse::<u16>().ok()?..=last.trim().parse::<u16>().ok()?);
    }
    Some(set)
}

/// What is in force already; an update that names half of a pair keeps the other half.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct InForce {
    pub(crate) memory: Option<i64>,
    pub(crate) quota: Option<i64>,
    pub(crate) period: Option<u64>,
}

/// The settings of cgroup v2.
pub(crate) fn v2(resources: &LinuxResources, in_force: InForce) -> Result<Vec<Setting>, String> {
    let mut settings = Vec::new();
    if let Some(memory) = resources.memory() {
        memory_v2(memory, in_force, &mut settings)?;
    }
    if let Some(cpu) = resources.cpu() {
        cpu_v2(cpu, in_force, &mut settings)?;
    }
    if let Some(pids) = resources.pids().as_ref().and_then(|pids| count(pids.limit())) {
        settings.push(Setting::new("pids.limit", "pids.max", pids, Check::Exact));
    }
    if let Some(io) = resources.block_io() {
        io_v2(io, &mut settings)?;
    }
    for huge in resources.hugepage_limits().iter().flatten() {
        let file = format!("hugetlb.{}.max", huge.page_size());
        let value = count(huge.limit()).unwrap_or_else(|| "0".into());
        settings.push(Setting::new("hugepageLimits", file, value, Check::Pages));
    }
    rdma(resources, &mut settings);
    if resources.network().as_ref().is_some_and(|network| {
        network.class_id().is_some_and(|id| id != 0)
            || network.priorities().as_ref().is_some_and(|list| !list.is_empty())
    }) {
        return Err("network: cgroup v2 has no class ids and no interface priorities".into());
    }
    for (file, value) in resources.unified().iter().flatten() {
        if file.contains('/') || !file.contains('.') || file.starts_with('.') {
            return Err(format!("unified: {file:?} is no name of a cgroup file"));
        }
        if file.starts_with("cgroup.") && !file.starts_with("cgroup.max.") {
            // They move, stop and kill processes; a frozen cgroup would hold up the creation for ever.
            return Err(format!("unified: {file:?} is no limit"));
        }
        settings.push(Setting::new("unified", file, value, Check::Written));
    }
    Ok(settings)
}

/// The settings of cgroup v1.
pub(crate) fn v1(resources: &LinuxResources) -> Result<Vec<Setting>, String> {
    let mut settings = Vec::new();
    if let Some(memory) = resources.memory() {
        memory_v1(memory, &mut settings);
    }
    if let Some(cpu) = resources.cpu() {
        cpu_v1(cpu, &mut settings);
    }
    if let Some(pids) = resources.pids().as_ref().and_then(|pids| count(pids.limit())) {
        settings.push(Setting::new("pids.limit", "pids.max", pids, Check::Exact));
    }
    if let Some(io) = resources.block_io() {
        io_v1(io, &mut settings)?;
    }
    for huge in resources.hugepage_limits().iter().flatten() {
        let file = format!("hugetlb.{}.limit_in_bytes", huge.page_size());
        settings.push(Setting::new("hugepageLimits", file, huge.limit(), Check::Pages));
    }
    if let Some(network) = resources.network() {
        if let Some(id) = network.class_id() {
            settings.push(Setting::new("network.classID", "net_cls.classid", id, Check::Exact));
        }
        for each in network.priorities().iter().flatten() {
            let value = format!("{} {}", each.name(), each.priority());
            settings.push(Setting::new("network.priorities", "net_prio.ifpriomap", value, Check::Line));
        }
    }
    rdma(resources, &mut settings);
    if resources.unified().as_ref().is_some_and(|unified| !unified.is_empty()) {
        return Err("unified: this host has cgroup v1".into());
    }
    Ok(settings)
}

/// A count where 0 says nothing and a negative number lifts the limit.
fn count(limit: i64) -> Option<String> {
    match limit {
        0 => None,
        ..=-1 => Some("max".into()),
        1.. => Some(limit.to_string()),
    }
}

fn memory_v2(memory: &LinuxMemory, in_force: InForce, settings: &mut Vec<Setting>) -> Result<(), String> {
    let limit = memory.limit().filter(|limit| *limit != 0);
    if let Some(limit) = limit.and_then(count) {
        settings.push(Setting::new("memory.limit", "memory.max", limit, Check::Pages));
    }
    if let Some(swap) = memory.swap().filter(|swap| *swap != 0) {
        let value = match (swap, limit.or(in_force.memory)) {
            (..=-1, _) => "max".to_owned(),
            (1.., Some(limit @ 1..)) if swap >= limit => (swap - limit).to_string(),
            (1.., Some(1..)) => {
                return Err("memory.swap: smaller than memory.limit, which it includes".into());
            }
            (_, _) => return Err("memory.swap: needs memory.limit, which it includes".into()),
        };
        let mut setting = Setting::new("memory.swap", "memory.swap.max", value, Check::Pages);
        setting.swap = true;
        settings.push(setting);
    }
    if let Some(reservation) = memory.reservation().and_then(count) {
        settings.push(Setting::new("memory.reservation", "memory.low", reservation, Check::Pages));
    }
    if memory.swappiness().is_some() {
        return Err("memory.swappiness: cgroup v2 has none".into());
    }
    if memory.disable_oom_killer() == Some(true) {
        return Err("memory.disableOOMKiller: cgroup v2 cannot".into());
    }
    warn_of_kernel_memory(memory);
    if memory.kernel_tcp().is_some_and(|limit| limit > 0) {
        return Err("memory.kernelTCP: cgroup v2 has none".into());
    }
    Ok(())
}

/// No kernel since 5.16 has this limit, and callers of old still name it: the specification lets it be ignored.
fn warn_of_kernel_memory(memory: &LinuxMemory) {
    if memory.kernel().is_some_and(|limit| limit > 0) {
        tracing::warn!("memory.kernel is not a limit any longer: kernel memory counts against memory.limit");
    }
}

fn memory_v1(memory: &LinuxMemory, settings: &mut Vec<Setting>) {
    warn_of_kernel_memory(memory);
    let mut push = |name, file: &str, value: Option<i64>, swap| {
        if let Some(value) = value.filter(|value| *value != 0) {
            let mut setting = Setting::new(name, file, value.max(-1), Check::Pages);
            setting.swap = swap;
            settings.push(setting);
        }
    };
    push("memory.limit", "memory.limit_in_bytes", memory.limit(), false);
    push("memory.swap", "memory.memsw.limit_in_bytes", memory.swap(), true);
    push("memory.reservation", "memory.soft_limit_in_bytes", memory.reservation(), false);
    push("memory.kernelTCP", "memory.kmem.tcp.limit_in_bytes", memory.kernel_tcp(), false);
    if let Some(swappiness) = memory.swappiness() {
        settings.push(Setting::new("memory.swappiness", "memory.swappiness", swappiness, Check::Exact));
    }
    if memory.disable_oom_killer() == Some(true) {
        let mut setting = Setting::new("memory.disableOOMKiller", "memory.oom_control", "1", Check::Written);
        setting.controller = "memory".into();
        settings.push(setting);
    }
}

/// The weight of v2 for shares of v1, through the three points 2 to 1, 1024 to 100 and 262144 to 10000.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "clamped to 2..=262144 before and 1..=10000 after"
)]
pub(crate) fn weight(shares: u64) -> u64 {
    let exponent = (shares.clamp(2, 262_144) as f64).log2();
    let power = (exponent * exponent + 125.0 * exponent) / 612.0 - 7.0 / 34.0;
    (10f64.powf(power).ceil() as u64).clamp(1, 10_000)
}

fn cpu_v2(cpu: &LinuxCpu, in_force: InForce, settings: &mut Vec<Setting>) -> Result<(), String> {
    if cpu.quota().is_some_and(|quota| quota != 0) || cpu.period().is_some_and(|period| period != 0) {
        let quota = cpu.quota().filter(|quota| *quota != 0).or(in_force.quota);
        let quota =
            quota.filter(|quota| *quota > 0).map_or_else(|| "max".to_owned(), |quota| quota.to_string());
        let period = cpu.period().filter(|period| *period != 0).or(in_force.period);
        let value = format!("{quota} {}", period.unwrap_or(DEFAULT_PERIOD_US));
        settings.push(Setting::new("cpu.quota", "cpu.max", value, Check::Exact));
    }
    if let Some(burst) = cpu.burst() {
        settings.push(Setting::new("cpu.burst", "cpu.max.burst", burst, Check::Exact));
    }
    if let Some(idle) = cpu.idle() {
        settings.push(Setting::new("cpu.idle", "cpu.idle", idle, Check::Exact));
    }
    if let Some(shares) = cpu.shares().filter(|shares| *shares != 0 && cpu.idle() != Some(1)) {
        settings.push(Setting::new("cpu.shares", "cpu.weight", weight(shares), Check::Exact));
    }
    if cpu.realtime_runtime().is_some_and(|value| value != 0)
        || cpu.realtime_period().is_some_and(|value| value != 0)
    {
        return Err("cpu.realtimeRuntime: cgroup v2 has no budget for real-time tasks".into());
    }
    cpuset(cpu, settings);
    Ok(())
}

fn cpu_v1(cpu: &LinuxCpu, settings: &mut Vec<Setting>) {
    // The period first: a quota has to fit it.
    if let Some(period) = cpu.period().filter(|period| *period != 0) {
        settings.push(Setting::new("cpu.period", "cpu.cfs_period_us", period, Check::Exact));
    }
    if let Some(quota) = cpu.quota().filter(|quota| *quota != 0) {
        settings.push(Setting::new("cpu.quota", "cpu.cfs_quota_us", quota.max(-1), Check::Exact));
    }
    if let Some(burst) = cpu.burst() {
        settings.push(Setting::new("cpu.burst", "cpu.cfs_burst_us", burst, Check::Exact));
    }
    if let Some(idle) = cpu.idle() {
        settings.push(Setting::new("cpu.idle", "cpu.idle", idle, Check::Exact));
    }
    if let Some(shares) = cpu.shares().filter(|shares| *shares != 0 && cpu.idle() != Some(1)) {
        settings.push(Setting::new("cpu.shares", "cpu.shares", shares.clamp(2, 262_144), Check::Exact));
    }
    if let Some(period) = cpu.realtime_period().filter(|period| *period != 0) {
        settings.push(Setting::new("cpu.realtimePeriod", "cpu.rt_period_us", period, Check::Exact));
    }
    if let Some(runtime) = cpu.realtime_runtime().filter(|runtime| *runtime != 0) {
        settings.push(Setting::new("cpu.realtimeRuntime", "cpu.rt_runtime_us", runtime, Check::Exact));
    }
    cpuset(cpu, settings);
}

fn cpuset(cpu: &LinuxCpu, settings: &mut Vec<Setting>) {
    if let Some(cpus) = cpu.cpus().as_ref().filter(|cpus| !cpus.is_empty()) {
        settings.push(Setting::new("cpu.cpus", "cpuset.cpus", cpus, Check::List));
    }
    if let Some(mems) = cpu.mems().as_ref().filter(|mems| !mems.is_empty()) {
        settings.push(Setting::new("cpu.mems", "cpuset.mems", mems, Check::List));
    }
}

fn io_v2(io: &LinuxBlockIo, settings: &mut Vec<Setting>) -> Result<(), String> {
    if let Some(weight) = io.weight().filter(|weight| *weight != 0) {
        // From 10..=1000 to 1..=10000.
        let scaled = 1 + (u64::from(weight).saturating_sub(10)) * 9999 / 990;
        let value = format!("default {scaled}");
        settings.push(Setting::new("blockIO.weight", "io.weight", value, Check::Line));
    }
    let throttles = [
        ("blockIO.throttleReadBpsDevice", "rbps", io.throttle_read_bps_device()),
        ("blockIO.throttleWriteBpsDevice", "wbps", io.throttle_write_bps_device()),
        ("blockIO.throttleReadIOPSDevice", "riops", io.throttle_read_iops_device()),
        ("blockIO.throttleWriteIOPSDevice", "wiops", io.throttle_write_iops_device()),
    ];
    for (name, key, devices) in throttles {
        for device in devices.iter().flatten() {
            let rate = if device.rate() == 0 { "max".into() } else { device.rate().to_string() };
            let value = format!("{}:{} {key}={rate}", device.major(), device.minor());
            let check = if device.rate() == 0 { Check::Written } else { Check::Line };
            settings.push(Setting::new(name, "io.max", value, check));
        }
    }
    no_device_weights(io)
}

fn io_v1(io: &LinuxBlockIo, settings: &mut Vec<Setting>) -> Result<(), String> {
    if let Some(weight) = io.weight().filter(|weight| *weight != 0) {
        settings.push(Setting::new("blockIO.weight", "blkio.weight", weight, Check::Exact));
    }
    let mut throttle = |name, file: &str, devices: &Option<Vec<LinuxThrottleDevice>>| {
        for device in devices.iter().flatten() {
            let value = format!("{}:{} {}", device.major(), device.minor(), device.rate());
            let check = if device.rate() == 0 { Check::Written } else { Check::Line };
            settings.push(Setting::new(name, format!("blkio.throttle.{file}_device"), value, check));
        }
    };
    throttle("blockIO.throttleReadBpsDevice", "read_bps", io.throttle_read_bps_device());
    throttle("blockIO.throttleWriteBpsDevice", "write_bps", io.throttle_write_bps_device());
    throttle("blockIO.throttleReadIOPSDevice", "read_iops", io.throttle_read_iops_device());
    throttle("blockIO.throttleWriteIOPSDevice", "write_iops", io.throttle_write_iops_device());
    no_device_weights(io)
}

fn no_device_weights(io: &LinuxBlockIo) -> Result<(), String> {
    if io.weight_device().as_ref().is_some_and(|list| !list.is_empty())
        || io.leaf_weight().is_some_and(|weight| weight != 0)
    {
        return Err("blockIO.weightDevice and leafWeight: the kernel's CFQ scheduler is gone".into());
    }
    Ok(())
}

fn rdma(resources: &LinuxResources, settings: &mut Vec<Setting>) {
    for (device, limit) in resources.rdma().iter().flatten() {
        let mut value = device.clone();
        for (key, limit) in [("hca_handle", limit.hca_handles()), ("hca_object", limit.hca_objects())] {
            if let Some(limit) = limit {
                value.push_str(&format!(" {key}={limit}"));
            }
        }
        settings.push(Setting::new("rdma", "rdma.max", value, Check::Line));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn resources(value: Value) -> LinuxResources {
        serde_json::from_value(value).unwrap()
    }

    fn pairs(settings: &[Setting]) -> Vec<(&str, &str)> {
        settings.iter().map(|setting| (setting.file.as_str(), setting.value.as_str())).collect()
    }

    #[test]
    fn every_field_becomes_a_file_of_v2() {
        let asked = resources(json!({
            "memory": {"limit": 67_108_864, "swap": 100_663_296, "reservation": 33_554_432},
            "cpu": {"quota": 50_000, "period": 100_000, "shares": 1024, "cpus": "0-1", "mems": "0"},
            "pids": {"limit": 32},
            "unified": {"memory.high": "64M"}
        }));
        assert_eq!(
            pairs(&v2(&asked, InForce::default()).unwrap()),
            [
                ("memory.max", "67108864"),
                ("memory.swap.max", "33554432"),
                ("memory.low", "33554432"),
                ("cpu.max", "50000 100000"),
                ("cpu.weight", "100"),
                ("cpuset.cpus", "0-1"),
                ("cpuset.mems", "0"),
                ("pids.max", "32"),
                ("memory.high", "64M"),
            ]
        );
    }

    #[test]
    fn every_field_becomes_a_file_of_v1() {
        let asked = resources(json!({
            "memory": {"limit": 67_108_864, "swap": 67_108_864, "swappiness": 10},
            "cpu": {"quota": 50_000, "period": 100_000, "shares": 512},
            "pids": {"limit": -1},
            "hugepageLimits": [{"pageSize": "2MB", "limit": 4_194_304}]
        }));
        assert_eq!(
            pairs(&v1(&asked).unwrap()),
            [
                ("memory.limit_in_bytes", "67108864"),
                ("memory.memsw.limit_in_bytes", "67108864"),
                ("memory.swappiness", "10"),
                ("cpu.cfs_period_us", "100000"),
                ("cpu.cfs_quota_us", "50000"),
                ("cpu.shares", "512"),
                ("pids.max", "max"),
                ("hugetlb.2MB.limit_in_bytes", "4194304"),
            ]
        );
    }

    #[test]
    fn shares_and_weights_meet_at_the_documented_points() {
        assert_eq!([weight(2), weight(1024), weight(262_144)], [1, 100, 10_000]);
        assert_eq!([weight(0), weight(u64::MAX)], [1, 10_000]);
    }

    #[test]
    fn what_v2_cannot_give_is_refused_by_name() {
        for (asked, name) in [
            (json!({"memory": {"swappiness": 10}}), "memory.swappiness"),
            (json!({"memory": {"swap": 5}}), "memory.swap"),
            (json!({"memory": {"limit": 10, "swap": 5}}), "memory.swap"),
            (json!({"memory": {"disableOOMKiller": true}}), "memory.disableOOMKiller"),
            (json!({"cpu": {"realtimeRuntime": 5}}), "cpu.realtimeRuntime"),
            (json!({"network": {"classID": 5}}), "network"),
            (json!({"unified": {"../x": "1"}}), "unified"),
            (json!({"unified": {"..": "1"}}), "unified"),
            (json!({"unified": {"cgroup.freeze": "1"}}), "unified"),
        ] {
            let error = v2(&resources(asked), InForce::default()).unwrap_err();
            assert!(error.starts_with(name), "{error}");
        }
    }

    #[test]
    fn half_a_pair_keeps_the_other_half() {
        let in_force = InForce { memory: Some(100), quota: Some(20_000), period: Some(50_000) };
        let of = |value| v2(&resources(value), in_force).unwrap();
        assert_eq!(pairs(&of(json!({"cpu": {"period": 40_000}}))), [("cpu.max", "20000 40000")]);
        assert_eq!(pairs(&of(json!({"cpu": {"quota": 10_000}}))), [("cpu.max", "10000 50000")]);
        assert_eq!(pairs(&of(json!({"cpu": {"quota": -1}}))), [("cpu.max", "max 50000")]);
        assert_eq!(pairs(&of(json!({"memory": {"swap": 150}}))), [("memory.swap.max", "50")]);
    }

    #[test]
    fn values_read_back_in_the_kernels_spelling() {
        let setting = |value: &str, check| Setting::new("x", "memory.max", value, check);
        assert!(setting("65537", Check::Pages).holds("65536\n"));
        assert!(!setting("65536", Check::Pages).holds("max\n"));
        assert!(setting("-1", Check::Pages).holds("9223372036854771712"));
        assert!(setting("0,1", Check::List).holds("0-1\n"));
        assert!(!setting("0", Check::List).holds("0-1\n"));
        assert!(!setting("x", Check::List).holds("y\n"));
        assert!(!setting("0-4294967295", Check::List).holds("0-1\n"));
        assert!(setting("8:0 rbps=100", Check::Line).holds("8:0 rbps=100 wbps=max\n"));
        assert!(!setting("50000 100000", Check::Exact).holds("max 100000\n"));
    }
}
