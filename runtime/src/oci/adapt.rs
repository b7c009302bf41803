//! From a container's `config.json` to the spec that libcontainer gets. Pure but for the caller's identity.
//!
//! Two kinds of change only: what the OCI specification leaves to the runtime is written out (absolute paths, empty
//! capability sets, identity mappings), and what libcontainer reads differently from the specification is put in the
//! form in which it does the right thing. What cannot be given is refused.

use std::path::{Path, PathBuf};

use oci_spec::runtime::{
    Capabilities, Linux, LinuxCapabilities, LinuxIdMapping, LinuxIdMappingBuilder, LinuxNamespaceType,
    LinuxResources, Mount, Process, Spec,
};

use super::error::OciError;
use crate::spec::{absolute, for_libcontainer, is_bind};

/// What the adapted spec is made with.
pub(crate) struct Adapted {
    pub(crate) spec: Spec,
    /// tmpfs mounts that are to start with what they hide.
    pub(crate) copy_up: Vec<PathBuf>,
}

/// Checks and adapts. `cgroup` is the absolute path of a cgroup that exists, or nothing.
pub(crate) fn adapt(
    spec: &Spec,
    bundle: &Path,
    cgroup: Option<&Path>,
    euid: u32,
    egid: u32,
) -> Result<Adapted, OciError> {
    let refuse = |reason: String| OciError::Config { path: bundle.join("config.json"), reason };
    let mut spec = absolute(spec.clone(), bundle);
    let mut linux = spec.linux().clone().ok_or_else(|| refuse("no linux section".into()))?;
    let mut process = spec.process().clone().ok_or_else(|| refuse("no process section".into()))?;
    process_defaults(&mut process).map_err(refuse)?;
    check_linux(&linux).map_err(refuse)?;
    mappings(&mut linux, euid, egid).map_err(refuse)?;
    linux.set_rootfs_propagation(propagation(linux.rootfs_propagation().as_deref()).map_err(refuse)?);
    linux.set_cgroups_path(cgroup.map(Path::to_owned));
    linux.set_resources(devices_only(linux.resources().as_ref()));
    if let Some(seccomp) = linux.seccomp().clone() {
        linux.set_seccomp(Some(for_libcontainer(seccomp)?));
    }
    let mut copy_up = Vec::new();
    let mut mounts = spec.mounts().clone().unwrap_or_default();
    for mount in &mut mounts {
        adapt_mount(mount, &mut copy_up).map_err(refuse)?;
    }
    spec.set_linux(Some(linux)).set_process(Some(process)).set_mounts(Some(mounts));
    Ok(Adapted { spec, copy_up })
}

/// Process settings in the form that libcontainer and our own exec understand.
pub(crate) fn process_defaults(process: &mut Process) -> Result<(), String> {
    if process.no_new_privileges() == Some(false) {
        // libcontainer takes "false" for a request to load the filter without the privilege to do so.
        process.set_no_new_privileges(None);
    }
    if process.selinux_label().as_ref().is_some_and(|label| !label.is_empty()) {
        return Err("process.selinuxLabel: SELinux labels are not supported".into());
    }
    if process.apparmor_profile().as_ref().is_some_and(String::is_empty) {
        process.set_apparmor_profile(None);
    }
    let rlimits = process.rlimits().clone().unwrap_or_default();
    for (index, limit) in rlimits.iter().enumerate() {
        if rlimits[..index].iter().any(|earlier| earlier.typ() == limit.typ()) {
            return Err(format!("process.rlimits: {} is there twice", limit.typ()));
        }
        if limit.soft() > limit.hard() {
            return Err(format!("process.rlimits: {}: soft above hard", limit.typ()));
        }
    }
    if !process.cwd().is_absolute() {
        return Err(format!("process.cwd {}: has to be absolute", process.cwd().display()));
    }
    // execve would end the word there; libcontainer's own executor drops it.
    let words = process.args().iter().chain(process.env()).flatten();
    if let Some(word) = words.into_iter().find(|word| word.contains('\0')) {
        return Err(format!("process: {word:?} holds a zero byte"));
    }
    if let Some(entry) = process.env().iter().flatten().find(|entry| entry.starts_with('=')) {
        return Err(format!("process.env: {entry:?} has no name"));
    }
    let asked = process.capabilities().clone();
    let of = |set: fn(&LinuxCapabilities) -> &Option<Capabilities>| {
        Some(asked.as_ref().and_then(|sets| set(sets).clone()).unwrap_or_default())
    };
    // An absent set is an empty one: nothing is kept that was not asked for.
    let mut sets = LinuxCapabilities::default();
    sets.set_bounding(of(LinuxCapabilities::bounding))
        .set_effective(of(LinuxCapabilities::effective))
        .set_permitted(of(LinuxCapabilities::permitted))
        .set_inheritable(of(LinuxCapabilities::inheritable))
        .set_ambient(of(LinuxCapabilities::ambient));
    process.set_capabilities(Some(sets));
    Ok(())
}

/// Refuses what libcontainer would take for something else or leave out.
pub(crate) fn check_linux(linux: &Linux) -> Result<(), String> {
    let list = linux.namespaces().clone().unwrap_or_default();
    for (index, namespace) in list.iter().enumerate() {
        if list[..index].iter().any(|earlier| earlier.typ() == namespace.typ()) {
            return Err(format!("linux.namespaces: {} is there twice", namespace.typ()));
        }
        if let Some(path) = namespace.path().as_ref().filter(|path| !path.as_os_str().is_empty())
            && !path.is_absolute()
        {
            return Err(format!("linux.namespaces: path {} has to be absolute", path.display()));
        }
    }
    if linux.mount_label().as_ref().is_some_and(|label| !label.is_empty()) {
        return Err("linux.mountLabel: SELinux labels are not supported".into());
    }
    own_mounts(linux)
}

/// libcontainer would change the host's own mounts, and nobody would take them away again.
fn own_mounts(linux: &Linux) -> Result<(), String> {
    if linux.namespaces().iter().flatten().any(|namespace| namespace.typ() == LinuxNamespaceType::Mount) {
        return Ok(());
    }
    Err("linux.namespaces: without one of type mount, the container's mounts would be the host's".into())
}

/// A new user namespace without mappings maps the caller to id 0; an ordinary caller's range goes through newuidmap.
fn mappings(linux: &mut Linux, euid: u32, egid: u32) -> Result<(), String> {
    let new_userns = linux.namespaces().iter().flatten().any(|namespace| {
        namespace.typ() == LinuxNamespaceType::User
            && namespace.path().as_ref().is_none_or(|path| path.as_os_str().is_empty())
    });
    if !new_userns {
        return Ok(());
    }
    let own = |id: u32| mapping(0, id, 1).map(|own| vec![own]);
    let uids = linux.uid_mappings().clone().filter(|list| !list.is_empty()).map_or_else(|| own(euid), Ok)?;
    let gids = linux.gid_mappings().clone().filter(|list| !list.is_empty()).map_or_else(|| own(egid), Ok)?;
    linux.set_uid_mappings(Some(for_caller(uids, euid)?)).set_gid_mappings(Some(for_caller(gids, egid)?));
    Ok(())
}

fn mapping(container: u32, host: u32, size: u32) -> Result<LinuxIdMapping, String> {
    LinuxIdMappingBuilder::default()
        .container_id(container)
        .host_id(host)
        .size(size)
        .build()
        .map_err(|error| error.to_string())
}

/// libcontainer uses newuidmap for more than one line only; an ordinary user needs it for every range but their own
/// id. A range in two lines is the same range.
fn for_caller(list: Vec<LinuxIdMapping>, id: u32) -> Result<Vec<LinuxIdMapping>, String> {
    match list.as_slice() {
        [only] if id != 0 && only.size() > 1 => {
            let next = |first: u32| first.checked_add(1).ok_or("linux.uidMappings: beyond the last id");
            Ok(vec![
                mapping(only.container_id(), only.host_id(), 1)?,
                mapping(next(only.container_id())?, next(only.host_id())?, only.size() - 1)?,
            ])
        }
        _ => Ok(list),
    }
}

/// libcontainer applies every mode recursively already, but knows the short names only.
pub(crate) fn propagation(mode: Option<&str>) -> Result<Option<String>, String> {
    match mode {
        None | Some("") => Ok(None),
        Some(mode @ ("private" | "slave" | "shared" | "unbindable")) => Ok(Some(mode.into())),
        Some("rprivate") => Ok(Some("private".into())),
        Some("rslave") => Ok(Some("slave".into())),
        Some("rshared") => Ok(Some("shared".into())),
        Some("runbindable") => Ok(Some("unbindable".into())),
        Some(other) => Err(format!("linux.rootfsPropagation {other:?}: no such mode")),
    }
}

/// The limits are ours to write; only the rules for devices are left to libcontainer.
fn devices_only(resources: Option<&LinuxResources>) -> Option<LinuxResources> {
    let devices = resources?.devices().clone()?;
    let mut only = LinuxResources::default();
    only.set_devices(Some(devices));
    Some(only)
}

pub(crate) fn adapt_mount(mount: &mut Mount, copy_up: &mut Vec<PathBuf>) -> Result<(), String> {
    if !mount.destination().is_absolute() {
        let absolute = Path::new("/").join(mount.destination());
        mount.set_destination(absolute);
    }
    if mount.source().is_none() {
        if is_bind(mount) {
            return Err(format!("mount {}: a bind mount needs a source", mount.destination().display()));
        }
        let name = mount.typ().clone().unwrap_or_else(|| "none".into());
        mount.set_source(Some(name.into()));
    }
    let Some(mut options) = mount.options().clone() else { return Ok(()) };
    if mount.typ().as_deref() == Some("tmpfs") && options.iter().any(|option| option == "tmpcopyup") {
        copy_up.push(mount.destination().clone());
    }
    options.retain(|option| option != "tmpcopyup");
    mount.set_options(Some(options));
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    type Change = fn(&mut Value);

    fn spec(change: impl FnOnce(&mut Value)) -> Spec {
        let mut value = json!({
            "ociVersion": "1.2.0",
            "root": {"path": "rootfs"},
            "process": {"cwd": "/", "args": ["true"], "user": {"uid": 0, "gid": 0}},
            "linux": {"namespaces": [{"type": "mount"}]},
            "mounts": []
        });
        change(&mut value);
        serde_json::from_value(value).unwrap()
    }

    fn adapted(change: impl FnOnce(&mut Value)) -> Result<Adapted, OciError> {
        adapt(&spec(change), Path::new("/bundle"), Some(Path::new("/c")), 1000, 1001)
    }

    #[test]
    fn absent_capability_sets_are_empty() {
        let spec = adapted(|_| {}).unwrap().spec;
        let sets = spec.process().as_ref().unwrap().capabilities().clone().unwrap();
        for set in [sets.bounding(), sets.effective(), sets.permitted(), sets.inheritable(), sets.ambient()] {
            assert!(set.as_ref().unwrap().is_empty());
        }
    }

    #[test]
    fn paths_sources_and_modes_take_the_form_that_libcontainer_takes() {
        let adapted = adapted(|value| {
            value["linux"]["rootfsPropagation"] = json!("rprivate");
            value["mounts"] = json!([
                {"destination": "tmp", "type": "tmpfs", "options": ["nosuid", "tmpcopyup"]},
                {"destination": "/b", "type": "bind", "source": "rel", "options": ["bind"]}
            ]);
        })
        .unwrap();
        let spec = adapted.spec;
        assert_eq!(spec.root().as_ref().unwrap().path(), Path::new("/bundle/rootfs"));
        assert_eq!(spec.linux().as_ref().unwrap().rootfs_propagation().as_deref(), Some("private"));
        let mounts = spec.mounts().clone().unwrap();
        assert_eq!(mounts[0].destination(), Path::new("/tmp"));
        assert_eq!(mounts[0].source().as_deref(), Some(Path::new("tmpfs")));
        assert_eq!(mounts[0].options().clone().unwrap(), ["nosuid"]);
        assert_eq!(adapted.copy_up, [Path::new("/tmp")]);
        assert_eq!(mounts[1].source().as_deref(), Some(Path::new("/bundle/rel")));
    }

    #[test]
    fn an_ordinary_callers_range_is_written_in_two_lines() {
        let change = |mappings: Value| {
            move |value: &mut Value| {
                value["linux"]["namespaces"] = json!([{"type": "user"}, {"type": "mount"}]);
                value["linux"]["uidMappings"] = mappings.clone();
            }
        };
        let of = |mappings: Value| {
            let spec = adapted(change(mappings)).unwrap().spec;
            let list = spec.linux().as_ref().unwrap().uid_mappings().clone().unwrap();
            list.iter().map(|m| (m.container_id(), m.host_id(), m.size())).collect::<Vec<_>>()
        };
        assert_eq!(of(json!([])), [(0, 1000, 1)]);
        let range = json!([{"containerID": 0, "hostID": 100_000, "size": 65_536}]);
        assert_eq!(of(range), [(0, 100_000, 1), (1, 100_001, 65_535)]);
        for (container, host) in [(u32::MAX, 0), (0, u32::MAX)] {
            let beyond = json!([{"containerID": container, "hostID": host, "size": 2}]);
            assert!(adapted(change(beyond)).err().unwrap().to_string().contains("beyond the last id"));
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused_by_name() {
        let cases: [(Change, &str); 11] = [
            (|v| v["process"]["env"] = json!(["=x"]), "no name"),
            (|v| v["process"]["args"] = json!(["true", "a\0b"]), "zero byte"),
            (|v| v["process"]["env"] = json!(["A=\0"]), "zero byte"),
            (|v| v["linux"]["namespaces"] = json!([{"type": "pid"}]), "type mount"),
            (|v| v["linux"]["rootfsPropagation"] = json!("x"), "rootfsPropagation"),
            (
                |v| {
                    v["process"]["rlimits"] = json!([
                        {"type": "RLIMIT_NOFILE", "soft": 1, "hard": 1},
                        {"type": "RLIMIT_NOFILE", "soft": 2, "hard": 2}
                    ]);
                },
                "twice",
            ),
            (
                |v| v["process"]["rlimits"] = json!([{"type": "RLIMIT_CORE", "soft": 2, "hard": 1}]),
                "soft above hard",
            ),
            (|v| v["process"]["cwd"] = json!("x"), "cwd"),
            (|v| v["process"]["selinuxLabel"] = json!("a:b"), "selinuxLabel"),
            (|v| v["mounts"] = json!([{"destination": "/x", "options": ["bind"]}]), "source"),
            (|v| v["linux"]["namespaces"] = json!([{"type": "pid"}, {"type": "pid"}]), "twice"),
        ];
        for (change, word) in cases {
            let error = adapted(change).err().unwrap().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
