//! From a bundle's `config.json` to the spec of one run. Pure.
//!
//! The committed bundles say what a program may see; the request says how much it may use, in place of the bundle's
//! own limits; the host decides how ids are mapped and where the cgroup is. Nothing here adds a capability, a namespace to share or a writable
//! path that bundle and request did not name.

use std::path::{Path, PathBuf};

use oci_spec::runtime::{
    Linux, LinuxCpuBuilder, LinuxIdMapping, LinuxIdMappingBuilder, LinuxMemoryBuilder, LinuxNamespaceType,
    LinuxPidsBuilder, LinuxResources, LinuxSeccomp, LinuxSeccompArgBuilder, LinuxSeccompOperator, Mount,
    MountBuilder, PosixRlimit, PosixRlimitBuilder, PosixRlimitType, Process, Spec, UserBuilder,
};
use rlox_host::{CgroupHome, HOST_ID_BASE, IDS_PER_SLOT};
use rlox_protocol::{BindMount, Limits};

use crate::cgroup::limits::{InForce, v1, v2};
use crate::error::RuntimeError;
use crate::files::read_regular;
use crate::oci::adapt::{adapt_mount, check_linux, process_defaults, propagation};
use crate::oci::create::check;

const CPU_PERIOD_US: u64 = 100_000;
/// A longer `config.json` is none.
pub(crate) const CONFIG_BYTES: u64 = 16 << 20;

/// A bundle's `config.json`.
pub(crate) fn load(bundle: &Path) -> Result<Spec, RuntimeError> {
    let refuse = |reason: String| RuntimeError::Bundle {
        bundle: bundle.to_owned(),
        reason: format!("cannot load config.json: {reason}"),
    };
    let text =
        read_regular(&bundle.join("config.json"), CONFIG_BYTES).map_err(|error| refuse(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| refuse(error.to_string()))
}

/// How user ids of the container map to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdMap {
    /// Real root: a range of its own for each launcher, so that two containers share no host id.
    Range {
        /// First host id.
        first: u32,
    },
    /// An ordinary user: id 0 in the container is the caller.
    Caller {
        /// The caller's user id.
        uid: u32,
        /// The caller's group id.
        gid: u32,
    },
}

impl IdMap {
    /// The mapping of a launcher slot for this caller.
    pub(crate) fn for_slot(slot: u16) -> Self {
        let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
        if uid.is_root() {
            Self::Range { first: HOST_ID_BASE + u32::from(slot) * IDS_PER_SLOT }
        } else {
            Self::Caller { uid: uid.as_raw(), gid: gid.as_raw() }
        }
    }

    fn mappings(self) -> Result<[Vec<LinuxIdMapping>; 2], RuntimeError> {
        let one = |host: u32, size: u32| {
            LinuxIdMappingBuilder::default()
                .container_id(0u32)
                .host_id(host)
                .size(size)
                .build()
                .map(|mapping| vec![mapping])
                .map_err(invalid)
        };
        match self {
            Self::Range { first } => Ok([one(first, IDS_PER_SLOT)?, one(first, IDS_PER_SLOT)?]),
            Self::Caller { uid, gid } => Ok([one(uid, 1)?, one(gid, 1)?]),
        }
    }
}

/// Everything that turns a bundle's spec into the spec of one run.
pub(crate) struct Adaptation<'a> {
    pub(crate) id: &'a str,
    pub(crate) home: &'a CgroupHome,
    pub(crate) ids: IdMap,
    pub(crate) limits: Option<&'a Limits>,
    pub(crate) args: Option<&'a [String]>,
    pub(crate) env: &'a [String],
    pub(crate) mounts: &'a [BindMount],
}

fn invalid(error: impl std::fmt::Display) -> RuntimeError {
    RuntimeError::Request { reason: error.to_string() }
}

/// Builds the spec of one run.
pub(crate) fn adapt(mut spec: Spec, adaptation: &Adaptation<'_>) -> Result<Spec, RuntimeError> {
    let mut linux = spec.linux().clone().ok_or_else(|| invalid("config.json has no linux section"))?;
    let mut process = spec.process().clone().ok_or_else(|| invalid("config.json has no process section"))?;
    let root = spec.root().as_ref().map(|root| root.path().clone()).unwrap_or_default();
    let refuse = |reason: String| RuntimeError::Bundle { bundle: root.clone(), reason };
    check(&spec).map_err(refuse)?;
    check_linux(&linux).map_err(refuse)?;
    adapt_ids(&mut linux, &mut process, adaptation.ids)?;
    adapt_program(&mut process, adaptation);
    if process.args().as_ref().is_none_or(Vec::is_empty) {
        return Err(refuse("process.args is empty".into()));
    }
    process_defaults(&mut process).map_err(refuse)?;
    linux.set_cgroups_path(Some(adaptation.home.container_path(adaptation.id)));
    let mode = propagation(linux.rootfs_propagation().as_deref()).map_err(refuse)?;
    // What is mounted on the host later is none of the program's business; the default would let it in.
    linux.set_rootfs_propagation(Some(mode.unwrap_or_else(|| "private".into())));
    if let Some(limits) = adaptation.limits {
        linux.set_resources(Some(resources(&linux, limits)?));
        process.set_rlimits(Some(rlimits(&process, limits)?));
    }
    if let Some(resources) = linux.resources() {
        // libcontainer leaves out what this kind of cgroup has not; a limit is given or refused.
        let limits = match adaptation.home {
            CgroupHome::V2 { .. } => v2(resources, InForce::default()),
            CgroupHome::V1 => v1(resources),
            CgroupHome::None { .. } => Ok(Vec::new()),
        };
        limits.map_err(refuse)?;
    }
    if matches!(adaptation.home, CgroupHome::None { .. }) {
        // The operator allowed running without: the sections must go, or libcontainer fails on them.
        linux.set_resources(None);
        linux.set_cgroups_path(None);
    }
    if let Some(seccomp) = linux.seccomp().clone() {
        linux.set_seccomp(Some(for_libcontainer(seccomp)?));
    }
    let mut mounts = spec.mounts().clone().unwrap_or_default();
    let mut copy_up = Vec::new();
    mounts.iter_mut().try_for_each(|mount| adapt_mount(mount, &mut copy_up)).map_err(refuse)?;
    if let [first, ..] = &copy_up[..] {
        return Err(refuse(format!("mount {}: only the OCI commands know tmpcopyup", first.display())));
    }
    if let Some(limits) = adaptation.limits {
        // A size of 0 would be none at all.
        let most = (limits.memory_bytes / 4).max(1);
        mounts.iter_mut().for_each(|mount| shrink_tmpfs(mount, most));
    }
    for bind in adaptation.mounts {
        mounts.push(bind_mount(bind)?);
    }
    spec.set_linux(Some(linux)).set_process(Some(process)).set_mounts(Some(mounts));
    Ok(spec)
}

fn adapt_ids(linux: &mut Linux, process: &mut Process, ids: IdMap) -> Result<(), RuntimeError> {
    let has_userns = linux
        .namespaces()
        .iter()
        .flatten()
        .any(|namespace| namespace.typ() == LinuxNamespaceType::User && namespace.path().is_none());
    if !has_userns {
        return Ok(());
    }
    let [uids, gids] = ids.mappings()?;
    linux.set_uid_mappings(Some(uids)).set_gid_mappings(Some(gids));
    if matches!(ids, IdMap::Caller { .. }) {
        // Only id 0 is mapped. It holds no capability: the bundle's sets are empty.
        process.set_user(UserBuilder::default().uid(0u32).gid(0u32).build().map_err(invalid)?);
    }
    Ok(())
}

fn adapt_program(process: &mut Process, adaptation: &Adaptation<'_>) {
    if let Some(args) = adaptation.args {
        process.set_args(Some(args.to_vec()));
    }
    if !adaptation.env.is_empty() {
        let mut env = process.env().clone().unwrap_or_default();
        env.extend_from_slice(adaptation.env);
        process.set_env(Some(env));
    }
}

fn resources(linux: &Linux, limits: &Limits) -> Result<LinuxResources, RuntimeError> {
    let memory = i64::try_from(limits.memory_bytes).map_err(invalid)?;
    let quota = i64::try_from(limits.cpu_millis * CPU_PERIOD_US / 1000).map_err(invalid)?;
    let mut resources = linux.resources().clone().unwrap_or_default();
    resources
        .set_memory(Some(LinuxMemoryBuilder::default().limit(memory).swap(memory).build().map_err(invalid)?))
        .set_pids(Some(
            LinuxPidsBuilder::default()
                .limit(i64::try_from(limits.pids).map_err(invalid)?)
                .build()
                .map_err(invalid)?,
        ))
        .set_cpu(Some(
            LinuxCpuBuilder::default().quota(quota).period(CPU_PERIOD_US).build().map_err(invalid)?,
        ));
    Ok(resources)
}

/// CPU seconds after which the kernel ends a process: they back the wall clock up in case the supervisor itself is
/// starved.
pub(crate) fn cpu_secs(limits: &Limits) -> u64 {
    (limits.wall_ms * limits.cpu_millis.max(1000) / 1_000_000).saturating_add(2)
}

fn rlimits(process: &Process, limits: &Limits) -> Result<Vec<PosixRlimit>, RuntimeError> {
    let ours = [
        (PosixRlimitType::RlimitNofile, limits.open_files),
        (PosixRlimitType::RlimitFsize, limits.file_bytes),
        (PosixRlimitType::RlimitCpu, cpu_secs(limits)),
        (PosixRlimitType::RlimitCore, 0),
    ];
    let mut list: Vec<_> = process.rlimits().clone().unwrap_or_default();
    list.retain(|limit| ours.iter().all(|(typ, _)| *typ != limit.typ()));
    for (typ, value) in ours {
        list.push(PosixRlimitBuilder::default().typ(typ).soft(value).hard(value).build().map_err(invalid)?);
    }
    Ok(list)
}

/// Exchanges mask and value of masked comparisons. OCI and runc write the mask into `value`; libcontainer 0.7 hands
/// `valueTwo` to libseccomp as the mask. Unchanged, "no namespace flag" becomes a mask of 0, which matches every
/// call: the filter would load and refuse nothing.
pub(crate) fn for_libcontainer(mut seccomp: LinuxSeccomp) -> Result<LinuxSeccomp, RuntimeError> {
    let mut rules = seccomp.syscalls().clone().unwrap_or_default();
    for rule in &mut rules {
        let Some(args) = rule.args().clone() else { continue };
        let exchanged = args.into_iter().map(|arg| {
            if arg.op() != LinuxSeccompOperator::ScmpCmpMaskedEq {
                return Ok(arg);
            }
            LinuxSeccompArgBuilder::default()
                .index(arg.index())
                .op(arg.op())
                .value(arg.value_two().unwrap_or_default())
                .value_two(arg.value())
                .build()
                .map_err(invalid)
        });
        let exchanged = exchanged.collect::<Result<Vec<_>, _>>()?;
        rule.set_args(Some(exchanged));
    }
    seccomp.set_syscalls(Some(rules));
    Ok(seccomp)
}

/// Pages of a tmpfs count as memory: one that could hold more than its share would turn a full disk into an
/// out-of-memory kill.
fn shrink_tmpfs(mount: &mut Mount, most: u64) {
    if mount.typ().as_deref() != Some("tmpfs") || is_bind(mount) {
        return;
    }
    let mut options = mount.options().clone().unwrap_or_default();
    let sizes = |option: &str| ["size=", "nr_blocks="].iter().any(|name| option.starts_with(name));
    // The kernel splits at commas and takes the last. What it would take and we cannot read, no size and a size of 0,
    // which is no limit, are all too much.
    let last = options.iter().flat_map(|option| option.split(',')).rfind(|option| sizes(option));
    let size = last.and_then(|option| option.strip_prefix("size=")).and_then(bytes);
    if size.is_some_and(|size| (1..=most).contains(&size)) {
        return;
    }
    options.retain(|option| !sizes(option));
    options.push(format!("size={most}"));
    mount.set_options(Some(options));
}

/// A size as mount options write it: a number of bytes, or with the suffix k, m or g.
fn bytes(text: &str) -> Option<u64> {
    let shift = match text.chars().last()? {
        'k' | 'K' => 10,
        'm' | 'M' => 20,
        'g' | 'G' => 30,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn bind_mount(bind: &BindMount) -> Result<Mount, RuntimeError> {
    let mut options = vec!["bind".to_owned(), "nosuid".into(), "nodev".into(), "private".into()];
    options.push(if bind.writable { "rw" } else { "ro" }.into());
    MountBuilder::default()
        .source(&bind.source)
        .destination(&bind.destination)
        .typ("bind")
        .options(options)
        .build()
        .map_err(invalid)
}

/// Makes relative paths of root and bind mounts absolute, as the OCI specification reads them: below the bundle.
pub(crate) fn absolute(mut spec: Spec, bundle: &Path) -> Spec {
    if let Some(mut root) = spec.root().clone() {
        root.set_path(bundle.join(root.path()));
        spec.set_root(Some(root));
    }
    let mounts = spec.mounts().iter().flatten().map(|mount| {
        let mut mount = mount.clone();
        if let Some(source) = mount.source().as_ref().filter(|_| is_bind(&mount)) {
            let joined: PathBuf = bundle.join(source);
            mount.set_source(Some(joined));
        }
        mount
    });
    let mounts = mounts.collect();
    spec.set_mounts(Some(mounts));
    spec
}

/// Whether the mount is a bind mount.
pub(crate) fn is_bind(mount: &Mount) -> bool {
    mount.typ().as_deref() == Some("bind")
        || mount.options().iter().flatten().any(|option| option == "bind" || option == "rbind")
}

#[cfg(test)]
mod tests {
    use oci_spec::runtime::{Capabilities, Capability};

    use super::*;

    fn bundle_spec(name: &str) -> Spec {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bundles").join(name).join("config.json");
        Spec::load(path).unwrap()
    }

    fn limits() -> Limits {
        Limits {
            cpu_ms: 5000,
            wall_ms: 5000,
            wall_most_ms: 20_000,
            memory_bytes: 256 << 20,
            pids: 64,
            cpu_millis: 1000,
            output_bytes: 1,
            flood_bytes: 2,
            file_bytes: 3,
            open_files: 256,
        }
    }

    fn adapted(name: &str, ids: IdMap) -> Spec {
        let limits = limits();
        let adaptation = Adaptation {
            id: "t",
            home: &CgroupHome::V1,
            ids,
            limits: Some(&limits),
            args: None,
            env: &[],
            mounts: &[],
        };
        adapt(bundle_spec(name), &adaptation).unwrap()
    }

    #[test]
    fn every_limit_lands_in_the_spec() {
        let spec = adapted("snippet", IdMap::Range { first: 7 });
        let resources = spec.linux().as_ref().unwrap().resources().clone().unwrap();
        let memory = resources.memory().unwrap();
        assert_eq!((memory.limit(), memory.swap()), (Some(256 << 20), Some(256 << 20)));
        assert_eq!(resources.pids().as_ref().unwrap().limit(), 64);
        assert_eq!(resources.cpu().as_ref().unwrap().quota(), Some(100_000));
        let rlimits = spec.process().as_ref().unwrap().rlimits().clone().unwrap();
        assert!(rlimits.iter().any(|limit| limit.typ() == PosixRlimitType::RlimitCore && limit.hard() == 0));
    }

    #[test]
    fn a_bundle_that_names_no_capability_gets_none() {
        let mut spec = bundle_spec("snippet");
        let process = spec.process_mut().as_mut().unwrap();
        process.set_capabilities(None).set_no_new_privileges(None);
        let adaptation = Adaptation {
            id: "t",
            home: &CgroupHome::V1,
            ids: IdMap::Range { first: 7 },
            limits: None,
            args: None,
            env: &[],
            mounts: &[],
        };
        let refused = |spec: Spec| adapt(spec, &adaptation).unwrap_err().to_string();
        let adapted = adapt(spec.clone(), &adaptation).unwrap();
        let sets = adapted.process().as_ref().unwrap().capabilities().clone().unwrap();
        for set in [sets.bounding(), sets.effective(), sets.permitted(), sets.inheritable(), sets.ambient()] {
            assert_eq!(set.as_ref(), Some(&Capabilities::new()));
        }
        let mut other = spec.clone();
        other.linux_mut().as_mut().unwrap().set_namespaces(None);
        assert!(refused(other).contains("type mount"));
        let mut other = spec.clone();
        other.set_version("2.0.0".into());
        assert!(refused(other).contains("ociVersion"));
        let mut other = spec.clone();
        let mut resources = LinuxResources::default();
        resources.set_unified(Some([("memory.high".to_owned(), "1".to_owned())].into()));
        other.linux_mut().as_mut().unwrap().set_resources(Some(resources));
        assert!(refused(other).contains("unified"));
        let mut other = spec.clone();
        other.process_mut().as_mut().unwrap().set_args(Some(Vec::new()));
        assert!(refused(other).contains("process.args is empty"));
    }

    #[test]
    fn masked_comparisons_reach_libcontainer_in_its_own_order() {
        let spec = adapted("snippet", IdMap::Range { first: 7 });
        let seccomp = spec.linux().as_ref().unwrap().seccomp().clone().unwrap();
        let masked: Vec<_> = seccomp
            .syscalls()
            .iter()
            .flatten()
            .filter(|rule| rule.names().contains(&"clone".to_owned()))
            .flat_map(|rule| rule.args().clone().unwrap_or_default())
            .map(|arg| (arg.value(), arg.value_two()))
            .collect();
        // The mask of all namespace flags in libcontainer's place for it, and the value 0; then each flag alone.
        assert_eq!(masked.first(), Some(&(0, Some(0x7e02_0080))));
        assert!(masked[1..].iter().all(|(value, mask)| mask == &Some(*value)), "{masked:?}");
    }

    #[test]
    fn a_tmpfs_never_takes_more_than_its_share_of_memory() {
        let size = |memory_bytes: u64| {
            let limits = Limits { memory_bytes, ..limits() };
            let adaptation = Adaptation {
                id: "t",
                home: &CgroupHome::V1,
                ids: IdMap::Range { first: 7 },
                limits: Some(&limits),
                args: None,
                env: &[],
                mounts: &[],
            };
            let spec = adapt(bundle_spec("snippet"), &adaptation).unwrap();
            let mounts = spec.mounts().clone().unwrap();
            let tmp = mounts.iter().find(|mount| mount.destination() == Path::new("/tmp")).unwrap();
            tmp.options().clone().unwrap().into_iter().find(|option| option.starts_with("size=")).unwrap()
        };
        assert_eq!(size(512 << 20), "size=64m");
        assert_eq!(size(64 << 20), format!("size={}", 16 << 20));
    }

    #[test]
    fn a_tmpfs_whose_size_cannot_be_read_gets_its_share() {
        let most = 16 << 20;
        let shrunk = |options: Option<&[&str]>| {
            let mut mount = MountBuilder::default().destination("/t").typ("tmpfs").build().unwrap();
            mount.set_options(options.map(|list| list.iter().map(|&each| each.into()).collect()));
            shrink_tmpfs(&mut mount, most);
            mount.options().clone().unwrap_or_default().join(",")
        };
        let share = format!("size={most}");
        assert_eq!(shrunk(None), share);
        for bad in
            ["size=0", "size=17179869184g", "size=50%", "size=1t", "size=0x7fffffff", "nr_blocks=9999999"]
        {
            assert_eq!(shrunk(Some(&[bad])), share, "{bad}");
        }
        assert_eq!(shrunk(Some(&["size=1m", "mode=700,size=1g"])), format!("mode=700,size=1g,{share}"));
        for good in ["size=16m", "mode=700,size=1", "size=1g,size=4096k"] {
            assert_eq!(shrunk(Some(&[good])), good);
        }
    }

    #[test]
    fn an_ordinary_caller_becomes_id_zero_and_nothing_else_is_mapped() {
        let spec = adapted("snippet", IdMap::Caller { uid: 1000, gid: 1001 });
        let linux = spec.linux().clone().unwrap();
        let uids = linux.uid_mappings().clone().unwrap();
        assert_eq!((uids[0].container_id(), uids[0].host_id(), uids[0].size()), (0, 1000, 1));
        assert_eq!(spec.process().as_ref().unwrap().user().uid(), 0);
    }

    #[test]
    fn untrusted_bundles_share_no_namespace_and_keep_no_capability() {
        for name in ["snippet", "grader", "trainer"] {
            let spec = adapted(name, IdMap::Range { first: 7 });
            let linux = spec.linux().clone().unwrap();
            let namespaces = linux.namespaces().clone().unwrap();
            for typ in [
                LinuxNamespaceType::User,
                LinuxNamespaceType::Pid,
                LinuxNamespaceType::Mount,
                LinuxNamespaceType::Network,
                LinuxNamespaceType::Ipc,
                LinuxNamespaceType::Uts,
                LinuxNamespaceType::Cgroup,
            ] {
                assert!(namespaces.iter().any(|n| n.typ() == typ && n.path().is_none()), "{name}: {typ:?}");
            }
            let process = spec.process().clone().unwrap();
            assert_eq!(process.no_new_privileges(), Some(true), "{name}");
            let capabilities = process.capabilities().clone().unwrap();
            let held = capabilities.bounding().clone().unwrap_or_default();
            // The grader mounts, in its own user namespace, and its forks drop that first of all.
            let allowed = if name == "grader" { [Capability::SysAdmin].into() } else { Capabilities::new() };
            assert_eq!(held, allowed, "{name}");
            assert!(linux.seccomp().is_some(), "{name}");
            assert_eq!(spec.root().as_ref().unwrap().readonly(), Some(true), "{name}");
        }
    }
}
