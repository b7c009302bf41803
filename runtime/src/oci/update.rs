//! `update`: new limits for a container, written and read back like those it was created with.

use std::io::Read;
use std::path::Path;

use oci_spec::runtime::{LinuxBlockIo, LinuxCpu, LinuxMemory, LinuxPidsBuilder, LinuxResources};
use rlox_host::read_bounded;

use super::Context;
use super::args::UpdateArgs;
use super::create::settings;
use super::error::OciError;
use super::store::{Status, Store};
use crate::cgroup::group::Group;
use crate::cgroup::limits::InForce;

/// Changes limits.
pub(crate) fn update(context: &Context, args: &UpdateArgs) -> Result<(), OciError> {
    let entry = Store::open(context.globals.root.as_deref()).entry(&args.id)?;
    let record = entry.record()?;
    let status = record.status();
    if matches!(status, Status::Stopped | Status::Creating) {
        return Err(OciError::Status { id: args.id.clone(), action: "update", status: status.name() });
    }
    let resources = match &args.resources {
        Some(path) => from_file(path)?,
        None => from_flags(args)?,
    };
    let fail = |reason: String| OciError::Cgroup { id: args.id.clone(), reason };
    let group = record.group.as_ref().ok_or_else(|| fail("it has none, so it has no limits".into()))?;
    refuse_instant_death(group, &resources).map_err(fail)?;
    let settings = settings(group, Some(&resources), in_force(group)).map_err(fail)?;
    if let Some(unit) = &record.unit {
        // First: systemd writes the cgroup, too, and the last word is ours.
        super::scope::limit(unit, &args.id, &resources).map_err(fail)?;
    }
    group.apply(&settings).and_then(|()| group.verify(&settings)).map_err(fail)
}

fn from_file(path: &Path) -> Result<LinuxResources, OciError> {
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).map_err(OciError::system("reading standard input"))?;
    } else {
        text =
            std::fs::read_to_string(path).map_err(OciError::system(format!("reading {}", path.display())))?;
    }
    serde_json::from_str(&text)
        .map_err(|error| OciError::Config { path: path.to_owned(), reason: error.to_string() })
}

fn from_flags(args: &UpdateArgs) -> Result<LinuxResources, OciError> {
    let mut resources = LinuxResources::default();
    if args.memory.is_some() || args.memory_reservation.is_some() || args.memory_swap.is_some() {
        let mut memory = LinuxMemory::default();
        memory.set_limit(args.memory).set_reservation(args.memory_reservation).set_swap(args.memory_swap);
        resources.set_memory(Some(memory));
    }
    let mut cpu = LinuxCpu::default();
    cpu.set_quota(args.cpu_quota)
        .set_period(args.cpu_period)
        .set_burst(args.cpu_burst)
        .set_shares(args.cpu_share)
        .set_idle(args.cpu_idle)
        .set_realtime_period(args.cpu_rt_period)
        .set_realtime_runtime(args.cpu_rt_runtime)
        .set_cpus(args.cpuset_cpus.clone())
        .set_mems(args.cpuset_mems.clone());
    if cpu != LinuxCpu::default() {
        resources.set_cpu(Some(cpu));
    }
    if let Some(limit) = args.pids_limit {
        let pids = LinuxPidsBuilder::default().limit(limit).build();
        resources.set_pids(Some(pids.map_err(|error| OciError::invalid(error.to_string()))?));
    }
    if args.blkio_weight.is_some() {
        let mut io = LinuxBlockIo::default();
        io.set_weight(args.blkio_weight);
        resources.set_block_io(Some(io));
    }
    if resources == LinuxResources::default() {
        return Err(OciError::invalid("update: no limit named"));
    }
    Ok(resources)
}

/// On v2 a limit below what is in use kills at once, where v1 refuses it.
fn refuse_instant_death(group: &Group, resources: &LinuxResources) -> Result<(), String> {
    let Some(limit) =
        resources.memory().as_ref().and_then(|memory| memory.limit()).filter(|limit| *limit > 0)
    else {
        return Ok(());
    };
    if !group.is_v2() {
        return Ok(());
    }
    let usage = number(&group.directory("memory").join("memory.current")).unwrap_or_default();
    if usage > limit {
        return Err(format!("limit memory.limit: {limit} is less than the {usage} bytes in use"));
    }
    Ok(())
}

fn in_force(group: &Group) -> InForce {
    if !group.is_v2() {
        return InForce::default();
    }
    let directory = group.directory("");
    let cpu = read_bounded(&directory.join("cpu.max")).unwrap_or_default();
    let mut words = cpu.split_whitespace();
    InForce {
        memory: number(&directory.join("memory.max")),
        quota: words.next().and_then(|word| word.parse().ok()),
        period: words.next().and_then(|word| word.parse().ok()),
    }
}

fn number(path: &Path) -> Option<i64> {
    read_bounded(path).ok()?.trim().parse().ok()
}

/// Bytes, with an optional suffix; -1 lifts the limit.
pub(crate) fn bytes(text: &str) -> Result<i64, String> {
    let wrong = || format!("{text:?}: a number of bytes, with k, m or g if need be, or -1");
    if text == "-1" {
        return Ok(-1);
    }
    let lower = text.to_ascii_lowercase();
    let bare = lower.trim_end_matches('b').trim_end_matches('i');
    let shift = match bare.chars().last().ok_or_else(wrong)? {
        'k' => 10,
        'm' => 20,
        'g' => 30,
        't' => 40,
        _ => 0,
    };
    let digits = if shift == 0 { bare } else { &bare[..bare.len() - 1] };
    let number: i64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).filter(|number| *number >= 0).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_suffix() {
        for (text, wanted) in
            [("-1", -1), ("4096", 4096), ("64m", 64 << 20), ("1GiB", 1 << 30), ("2kb", 2048)]
        {
            assert_eq!(bytes(text).unwrap(), wanted, "{text}");
        }
        for bad in ["", "x", "-5", "1.5g", "99999999999g"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }
}
