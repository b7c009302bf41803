//! `spec`: a `config.json` to start from. A shell in every namespace, with few capabilities.

use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::OCI_VERSION;
use super::error::OciError;

/// Writes the file; one that is there stays.
pub(crate) fn write(bundle: &Path, rootless: bool) -> Result<(), OciError> {
    let path = bundle.join("config.json");
    let mut file = std::fs::File::create_new(&path).map_err(|error| {
        if error.kind() == std::io::ErrorKind::AlreadyExists {
            OciError::invalid(format!("{} exists already; remove it first", path.display()))
        } else {
            OciError::system(format!("creating {}", path.display()))(error)
        }
    })?;
    let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    let document = document(rootless.then_some((uid, gid)));
    file.write_all(format!("{document:#}\n").as_bytes())
        .map_err(OciError::system(format!("writing {}", path.display())))
}

/// A shell in every namespace; `caller` maps these ids to root for one who is not.
pub(crate) fn document(caller: Option<(u32, u32)>) -> Value {
    let capabilities = ["CAP_AUDIT_WRITE", "CAP_KILL", "CAP_NET_BIND_SERVICE"];
    let mut namespaces: Vec<_> = ["pid", "network", "ipc", "uts", "mount", "cgroup"].to_vec();
    if caller.is_some() {
        namespaces.push("user");
    }
    let namespaces: Vec<_> = namespaces.into_iter().map(|kind| json!({"type": kind})).collect();
    let mut linux = json!({
        "namespaces": namespaces,
        "maskedPaths": [
            "/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
            "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap",
            "/sys/firmware",
        ],
        "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
    });
    // An ordinary user's namespace has one group, and no terminal group among it.
    let pts = match caller {
        Some(_) => json!(["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]),
        None => json!(["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]),
    };
    match caller {
        Some((uid, gid)) => {
            linux["uidMappings"] = json!([{"containerID": 0, "hostID": uid, "size": 1}]);
            linux["gidMappings"] = json!([{"containerID": 0, "hostID": gid, "size": 1}]);
        }
        None => linux["resources"] = json!({"devices": [{"allow": false, "access": "rwm"}]}),
    }
    json!({
        "ociVersion": OCI_VERSION,
        "process": {
            "terminal": true,
            "user": {"uid": 0, "gid": 0},
            "args": ["sh"],
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM=xterm"],
            "cwd": "/",
            "capabilities": {
                "bounding": capabilities, "effective": capabilities, "permitted": capabilities,
            },
            "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024}],
            "noNewPrivileges": true,
        },
        "root": {"path": "rootfs", "readonly": true},
        "hostname": "rlox",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
                "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]},
            {"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": pts},
            {"destination": "/dev/shm", "type": "tmpfs", "source": "shm",
                "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]},
            {"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue",
                "options": ["nosuid", "noexec", "nodev"]},
            {"destination": "/sys", "type": "sysfs", "source": "sysfs",
                "options": ["nosuid", "noexec", "nodev", "ro"]},
            {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup",
                "options": ["nosuid", "noexec", "nodev", "relatime", "ro"]},
        ],
        "linux": linux,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_documents_are_valid_and_one_is_for_ordinary_users() {
        for (caller, users) in [(None, 0), (Some((1000, 1000)), 1)] {
            let spec: oci_spec::runtime::Spec = serde_json::from_value(document(caller)).unwrap();
            let namespaces = spec.linux().as_ref().unwrap().namespaces().clone().unwrap();
            let user = oci_spec::runtime::LinuxNamespaceType::User;
            assert_eq!(namespaces.iter().filter(|each| each.typ() == user).count(), users);
        }
    }
}
