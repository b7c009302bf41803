//! `config.json`: from its text to the spec that libcontainer gets, in both forms of the command line.
//!
//! Each adaptation is taken back by hand, field by field, with the reason why it may differ; the rest of the spec has
//! to be the one that was read.

use std::path::Path;

use oci_spec::runtime::{
    Capabilities, Linux, LinuxCapabilities, LinuxIdMapping, LinuxNamespaceType, LinuxResources, LinuxSeccomp,
    LinuxSeccompAction, LinuxSeccompOperator, Mount, PosixRlimit, PosixRlimitType, Process, Spec,
};
use rlox_host::{CgroupHome, IDS_PER_SLOT};
use rlox_protocol::Limits;

use super::{reads_back, refused, there};
use crate::bundles::{Bundle, take_filter};
use crate::cgroup::group::Group;
use crate::cgroup::limits::{Check, InForce, Setting, list, v1, v2};
use crate::oci::adapt::{Adapted, adapt as adapt_oci};
use crate::oci::create::parse;
use crate::redirect;
use crate::refused::watch_calls;
use crate::spec::{Adaptation, IdMap, absolute, adapt, is_bind};

const BUNDLE: &str = "/nonexistent/bundle";
const LIMITS: Limits = Limits {
    cpu_ms: 5000,
    wall_ms: 5000,
    wall_most_ms: 5000,
    memory_bytes: 64 << 20,
    pids: 16,
    cpu_millis: 500,
    output_bytes: 1,
    flood_bytes: 2,
    file_bytes: 3,
    open_files: 64,
};

/// Decodes and adapts a `config.json`.
pub fn config(data: &[u8]) {
    let spec = match parse(&Path::new(BUNDLE).join("config.json"), data) {
        Ok(spec) => spec,
        Err(error) => return refused(&error),
    };
    reads_back(&spec);
    limits(&spec);
    filter_taken(&spec);
    for (euid, egid) in [(0, 0), (1000, 1001)] {
        for cgroup in [None, Some(Path::new("/c"))] {
            oci(&spec, cgroup, euid, egid);
        }
    }
    for ids in [IdMap::Range { first: 70_000 }, IdMap::Caller { uid: 1000, gid: 1001 }] {
        sandbox(&spec, ids, None);
        sandbox(&spec, ids, Some(&LIMITS));
    }
}

/// The form that engines use.
fn oci(asked: &Spec, cgroup: Option<&Path>, euid: u32, egid: u32) {
    let Adapted { spec: got, copy_up } = match adapt_oci(asked, Path::new(BUNDLE), cgroup, euid, egid) {
        Ok(adapted) => adapted,
        Err(error) => return refused(&error),
    };
    reads_back(&got);
    own_mounts(&got);
    if let Err(error) = redirect::refuse(&got) {
        refused(&error);
    }
    let mut undone = got.clone();
    let asked = absolute(asked.clone(), Path::new(BUNDLE));
    let (mut process, process_asked) = (there(got.process()), there(asked.process()));
    take_defaults_back(&mut process, &process_asked);
    undone.set_process(Some(process));

    let (mut linux, linux_asked) = (there(got.linux()), there(asked.linux()));
    same_ids(linux.uid_mappings(), linux_asked.uid_mappings(), euid);
    same_ids(linux.gid_mappings(), linux_asked.gid_mappings(), egid);
    take_mappings_back(&mut linux, &linux_asked);
    take_mode_back(&mut linux, &linux_asked, "");
    assert_eq!(linux.cgroups_path().as_deref(), cgroup);
    linux.set_cgroups_path(linux_asked.cgroups_path().clone());
    // The limits were written before; the rules for devices are still to be.
    let rules = |linux: &Linux| linux.resources().as_ref().and_then(|all| all.devices().clone());
    assert_eq!(rules(&linux), rules(&linux_asked));
    linux.set_resources(linux_asked.resources().clone());
    same_filter(linux.seccomp().as_ref(), linux_asked.seccomp().as_ref());
    linux.set_seccomp(linux_asked.seccomp().clone());
    undone.set_linux(Some(linux));

    let (mounts, mounts_asked) = (there(got.mounts()), asked.mounts().clone().unwrap_or_default());
    assert_eq!(mounts.len(), mounts_asked.len());
    for (mount, wanted) in mounts.iter().zip(&mounts_asked) {
        same_place(mount, wanted);
        same_options(mount, wanted);
        let copied = |option: &&String| *option == "tmpcopyup";
        if wanted.typ().as_deref() == Some("tmpfs") && wanted.options().iter().flatten().any(|o| copied(&o)) {
            assert!(copy_up.contains(mount.destination()));
        }
        same_rest(mount, wanted);
    }
    undone.set_mounts(asked.mounts().clone());
    assert_eq!(undone, asked, "something else was changed");
}

/// The form for one untrusted program.
fn sandbox(asked: &Spec, ids: IdMap, limits: Option<&Limits>) {
    let home = CgroupHome::V1;
    let adaptation = Adaptation { id: "t", home: &home, ids, limits, args: None, env: &[], mounts: &[] };
    let asked = absolute(asked.clone(), Path::new(BUNDLE));
    let got = match adapt(asked.clone(), &adaptation) {
        Ok(got) => got,
        Err(error) => return refused(&error),
    };
    reads_back(&got);
    own_mounts(&got);
    let mut undone = got.clone();
    let (mut process, process_asked) = (there(got.process()), there(asked.process()));
    let (mut linux, linux_asked) = (there(got.linux()), there(asked.linux()));
    let own_ids = linux_asked
        .namespaces()
        .iter()
        .flatten()
        .any(|namespace| namespace.typ() == LinuxNamespaceType::User && namespace.path().is_none());
    take_defaults_back(&mut process, &process_asked);
    if own_ids {
        let size = |list: &Option<Vec<LinuxIdMapping>>| match list.as_deref() {
            Some([only]) => only.size(),
            other => panic!("{other:?}"),
        };
        let wanted = if matches!(ids, IdMap::Caller { .. }) { 1 } else { IDS_PER_SLOT };
        assert_eq!((size(linux.uid_mappings()), size(linux.gid_mappings())), (wanted, wanted));
        take_mappings_back(&mut linux, &linux_asked);
        process.set_user(process_asked.user().clone());
    }
    take_mode_back(&mut linux, &linux_asked, "private");
    assert_eq!(linux.cgroups_path().as_deref(), Some(Path::new("/rlox-t")));
    linux.set_cgroups_path(linux_asked.cgroups_path().clone());
    if let Some(limits) = limits {
        limited(&there(linux.resources()), linux_asked.resources().as_ref(), limits);
        linux.set_resources(linux_asked.resources().clone());
        rlimits(process.rlimits().as_deref().unwrap_or_default(), process_asked.rlimits().as_deref());
        process.set_rlimits(process_asked.rlimits().clone());
    }
    same_filter(linux.seccomp().as_ref(), linux_asked.seccomp().as_ref());
    if let Some(filter) = linux.seccomp() {
        same_refusals(filter);
    }
    linux.set_seccomp(linux_asked.seccomp().clone());
    undone.set_linux(Some(linux)).set_process(Some(process));
    let (mounts, mounts_asked) = (there(got.mounts()), asked.mounts().clone().unwrap_or_default());
    assert_eq!(mounts.len(), mounts_asked.len());
    for (mount, wanted) in mounts.iter().zip(&mounts_asked) {
        let tmpfs = mount.typ().as_deref() == Some("tmpfs") && !is_bind(mount);
        if let Some(limits) = limits.filter(|_| tmpfs) {
            let size = last_size(mount).expect("a tmpfs has a size");
            assert!(size.is_some_and(|size| (1..=limits.memory_bytes / 4).contains(&size)), "{mount:?}");
            let sized = |option: &&String| !option.starts_with("size=") && !option.starts_with("nr_blocks=");
            let rest = |mount: &Mount| -> Vec<String> {
                mount.options().iter().flatten().filter(sized).cloned().collect()
            };
            assert_eq!(rest(mount), rest(wanted));
        } else {
            same_options(mount, wanted);
        }
        same_place(mount, wanted);
        same_rest(mount, wanted);
    }
    undone.set_mounts(asked.mounts().clone());
    assert_eq!(undone, asked, "something else was changed");
}

/// The last size among the options, as the kernel splits them; `Some(None)` for one that is no plain number of bytes.
fn last_size(mount: &Mount) -> Option<Option<u64>> {
    let text = mount.options().iter().flatten().cloned().collect::<Vec<_>>().join(",");
    let last = text.split(',').rfind(|part| part.starts_with("size=") || part.starts_with("nr_blocks="))?;
    let Some(digits) = last.strip_prefix("size=") else { return Some(None) };
    let bytes = |digits: &str, unit: u128| {
        let size = digits.parse::<u128>().ok()?.checked_mul(unit)?;
        u64::try_from(size).ok()
    };
    let size = match digits.to_ascii_lowercase().split_at_checked(digits.len().saturating_sub(1)) {
        Some((digits, "k")) => bytes(digits, 1 << 10),
        Some((digits, "m")) => bytes(digits, 1 << 20),
        Some((digits, "g")) => bytes(digits, 1 << 30),
        Some(_) | None => bytes(digits, 1),
    };
    Some(size)
}

fn same_place(mount: &Mount, wanted: &Mount) {
    assert!(mount.destination().is_absolute());
    assert_eq!(mount.destination(), &Path::new("/").join(wanted.destination()));
    assert!(mount.source().is_some() && (wanted.source().is_none() || mount.source() == wanted.source()));
}

/// The same options; what asks for a copy of what is hidden is for us and not for the kernel.
fn same_options(mount: &Mount, wanted: &Mount) {
    let kept: Vec<_> = wanted.options().iter().flatten().filter(|option| *option != "tmpcopyup").collect();
    assert_eq!(mount.options().iter().flatten().collect::<Vec<_>>(), kept);
}

fn same_rest(mount: &Mount, wanted: &Mount) {
    let mut rest = mount.clone();
    rest.set_destination(wanted.destination().clone()).set_source(wanted.source().clone());
    rest.set_options(wanted.options().clone());
    assert_eq!(&rest, wanted);
}

/// "False" and nothing are the same; "true" is neither lost nor added. Every capability was asked for.
fn take_defaults_back(process: &mut Process, asked: &Process) {
    assert_eq!(process.no_new_privileges() == Some(true), asked.no_new_privileges() == Some(true));
    process.set_no_new_privileges(asked.no_new_privileges());
    let profile = |process: &Process| process.apparmor_profile().clone().unwrap_or_default();
    assert_eq!(profile(process), profile(asked));
    process.set_apparmor_profile(asked.apparmor_profile().clone());
    same_capabilities(process.capabilities().as_ref(), asked.capabilities().as_ref());
    process.set_capabilities(asked.capabilities().clone());
}

/// Each set is the one asked for; one that was not asked for is empty.
fn same_capabilities(got: Option<&LinuxCapabilities>, asked: Option<&LinuxCapabilities>) {
    let got = got.expect("no set is left to libcontainer");
    let sets: [fn(&LinuxCapabilities) -> &Option<Capabilities>; 5] = [
        LinuxCapabilities::bounding,
        LinuxCapabilities::effective,
        LinuxCapabilities::permitted,
        LinuxCapabilities::inheritable,
        LinuxCapabilities::ambient,
    ];
    for set in sets {
        let wanted = asked.and_then(|asked| set(asked).clone()).unwrap_or_default();
        assert_eq!(set(got).as_ref(), Some(&wanted));
    }
}

/// Whatever is mounted is the container's own.
fn own_mounts(spec: &Spec) {
    let linux = there(spec.linux());
    let mut list = linux.namespaces().iter().flatten();
    assert!(list.any(|namespace| namespace.typ() == LinuxNamespaceType::Mount), "the host's mounts");
}

/// The same ids of the container for the same ids of the host; where none were named, the caller's own as 0.
fn same_ids(got: &Option<Vec<LinuxIdMapping>>, asked: &Option<Vec<LinuxIdMapping>>, own: u32) {
    let joined = |list: &[LinuxIdMapping]| {
        let mut joined: Vec<(u64, u64, u64)> = Vec::new();
        for mapping in list {
            let (inside, outside, size) =
                (mapping.container_id().into(), mapping.host_id().into(), mapping.size().into());
            match joined.last_mut() {
                Some(last) if last.0 + last.2 == inside && last.1 + last.2 == outside => last.2 += size,
                Some(_) | None => joined.push((inside, outside, size)),
            }
        }
        joined
    };
    let (got, asked) =
        (joined(got.as_deref().unwrap_or_default()), joined(asked.as_deref().unwrap_or_default()));
    assert!(got == asked || asked.is_empty() && got == [(0, own.into(), 1)], "{asked:?} became {got:?}");
}

fn take_mappings_back(linux: &mut Linux, asked: &Linux) {
    linux.set_uid_mappings(asked.uid_mappings().clone()).set_gid_mappings(asked.gid_mappings().clone());
}

/// The same mode of propagation by its short name, or the usual one where none was named.
fn take_mode_back(linux: &mut Linux, asked: &Linux, usual: &str) {
    let mode = |linux: &Linux| linux.rootfs_propagation().clone().unwrap_or_default();
    let (got, wanted) = (mode(linux), mode(asked));
    let same = if wanted.is_empty() { got == usual } else { wanted == got || wanted == format!("r{got}") };
    assert!(same, "{wanted:?} became {got:?}");
    linux.set_rootfs_propagation(asked.rootfs_propagation().clone());
}

/// The same rules in the same order, with mask and value of masked comparisons in libcontainer's places.
fn same_filter(got: Option<&LinuxSeccomp>, asked: Option<&LinuxSeccomp>) {
    let (got, asked) = match (got, asked) {
        (None, None) => return,
        (Some(got), Some(asked)) => (got, asked),
        (got, asked) => panic!("{asked:?} became {got:?}"),
    };
    let rules = |filter: &LinuxSeccomp| filter.syscalls().clone().unwrap_or_default();
    let (rules_got, rules_asked) = (rules(got), rules(asked));
    assert_eq!(rules_got.len(), rules_asked.len());
    for (got, asked) in rules_got.iter().zip(&rules_asked) {
        let (args_got, args) = (got.args().clone(), asked.args().clone());
        assert_eq!(args_got.as_ref().map(Vec::len), args.as_ref().map(Vec::len));
        for (got, asked) in args_got.iter().flatten().zip(args.iter().flatten()) {
            assert_eq!((got.index(), got.op()), (asked.index(), asked.op()));
            let mask = (asked.value(), asked.value_two().unwrap_or_default());
            if asked.op() == LinuxSeccompOperator::ScmpCmpMaskedEq {
                assert_eq!((got.value_two().unwrap_or_default(), got.value()), mask);
            } else {
                assert_eq!(got, asked);
            }
        }
        let mut rest = got.clone();
        rest.set_args(args);
        assert_eq!(&rest, asked);
    }
    let mut rest = got.clone();
    rest.set_syscalls(asked.syscalls().clone());
    assert_eq!(&rest, asked);
}

/// A launcher's filter is taken out of the spec as a whole, or stays there as it was.
fn filter_taken(asked: &Spec) {
    let section = |spec: &Spec| spec.linux().as_ref().and_then(|linux| linux.seccomp().clone());
    let names = section(asked)
        .iter()
        .flat_map(LinuxSeccomp::syscalls)
        .flatten()
        .map(|rule| rule.names().len())
        .sum::<usize>();
    // Compiling takes its time.
    if names > 8 {
        return;
    }
    match take_filter(asked.clone(), true) {
        Ok(Bundle { spec, filter: Some(_) }) => {
            assert!(section(asked).is_some() && section(&spec).is_none());
            let mut undone = spec;
            let mut linux = there(undone.linux());
            linux.set_seccomp(section(asked));
            undone.set_linux(Some(linux));
            assert_eq!(&undone, asked);
        }
        Ok(Bundle { spec, filter: None }) => assert_eq!(&spec, asked),
        Err(error) => refused(&error),
    }
}

/// Counting calls changes who refuses them and nothing else.
fn same_refusals(filter: &LinuxSeccomp) {
    let flat = |filter: &LinuxSeccomp| {
        let mut flat = Vec::new();
        for rule in filter.syscalls().iter().flatten() {
            let asked = rule.action() == LinuxSeccompAction::ScmpActNotify && rule.errno_ret().is_none();
            let action = match asked {
                true => (LinuxSeccompAction::ScmpActErrno, Some(libc::EPERM.unsigned_abs())),
                false => (rule.action(), rule.errno_ret()),
            };
            flat.extend(rule.names().iter().map(|name| format!("{name} {action:?} {:?}", rule.args())));
        }
        flat.sort();
        flat
    };
    let mut watched = filter.clone();
    match watch_calls(&mut watched) {
        Ok(_) => assert_eq!(flat(&watched), flat(filter)),
        Err(error) => refused(&error),
    }
}

/// The request's limits in place of the bundle's, and what else the bundle limits besides.
fn limited(got: &LinuxResources, asked: Option<&LinuxResources>, limits: &Limits) {
    let memory = there(got.memory());
    let bytes = i64::try_from(limits.memory_bytes).ok();
    assert_eq!((memory.limit(), memory.swap()), (bytes, bytes));
    assert_eq!(Some(there(got.pids()).limit()), i64::try_from(limits.pids).ok());
    let cpu = there(got.cpu());
    assert_eq!((cpu.quota(), cpu.period()), (Some(50_000), Some(100_000)));
    let mut rest = got.clone();
    let asked = asked.cloned().unwrap_or_default();
    rest.set_memory(*asked.memory()).set_pids(*asked.pids()).set_cpu(asked.cpu().clone());
    assert_eq!(rest, asked);
}

fn rlimits(got: &[PosixRlimit], asked: Option<&[PosixRlimit]>) {
    let ours = [
        PosixRlimitType::RlimitNofile,
        PosixRlimitType::RlimitFsize,
        PosixRlimitType::RlimitCpu,
        PosixRlimitType::RlimitCore,
    ];
    for kind in ours {
        let found: Vec<_> = got.iter().filter(|limit| limit.typ() == kind).collect();
        assert!(matches!(found[..], [one] if one.soft() == one.hard()), "{found:?}");
    }
    let others = |list: &[PosixRlimit]| -> Vec<PosixRlimit> {
        list.iter().filter(|limit| !ours.contains(&limit.typ())).copied().collect()
    };
    assert_eq!(others(got), others(asked.unwrap_or_default()));
}

/// What is written to the cgroup: names of its files only, and each limit asked for is among it.
fn limits(spec: &Spec) {
    let linux = spec.linux().clone().unwrap_or_default();
    if let Some(Err(reason)) = linux.cgroups_path().as_deref().map(Group::check) {
        refused(&reason);
    }
    let Some(resources) = linux.resources() else { return };
    for settings in [v1(resources), v2(resources, InForce::default())] {
        let settings = match settings {
            Ok(settings) => settings,
            Err(reason) => return refused(&reason),
        };
        settings.iter().for_each(setting);
        let memory = resources.memory().as_ref().and_then(|memory| memory.limit()).filter(|limit| *limit > 0);
        is_there(&settings, "memory.limit", memory.map(|limit| limit.to_string()));
        let pids = resources.pids().as_ref().map(|pids| pids.limit()).filter(|limit| *limit > 0);
        is_there(&settings, "pids.limit", pids.map(|limit| limit.to_string()));
        let quota = resources.cpu().as_ref().and_then(|cpu| cpu.quota()).filter(|quota| *quota > 0);
        is_there(&settings, "cpu.quota", quota.map(|quota| quota.to_string()));
    }
}

fn setting(setting: &Setting) {
    assert!(!setting.file.contains('/') && setting.file.contains('.'), "{setting:?}");
    assert!(!setting.file.starts_with('.') && !setting.file.contains('\0'), "{setting:?}");
    assert!(!setting.file.starts_with("cgroup.procs") && !setting.controller.is_empty(), "{setting:?}");
    // Where the kernel shows what was written, that is what was asked for; a list in another spelling, too.
    let listed = setting.check != Check::List || list(&setting.value).is_some();
    if setting.check != Check::Line && listed {
        assert!(setting.holds(&format!("{}\n", setting.value)), "{setting:?}");
    }
}

fn is_there(settings: &[Setting], name: &str, value: Option<String>) {
    let Some(value) = value else { return };
    let found = settings.iter().find(|setting| setting.name == name);
    let holds = |setting: &Setting| setting.value.split_whitespace().next() == Some(value.as_str());
    assert!(found.is_some_and(holds), "{name} = {value} is not in {settings:?}");
}
