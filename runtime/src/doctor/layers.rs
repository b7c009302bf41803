//! Each layer: whether this host gives it to this caller, and the command that would change that.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rlox_host::{CgroupHome, landlock_abi, read_bounded, v1_controllers};

use super::probe;
use super::report::{Layer, Status};
use crate::error::RuntimeError;

/// Every layer but the container itself.
pub(super) fn all(home: &CgroupHome) -> Result<Vec<Layer>, RuntimeError> {
    let [user_namespaces, apparmor] = user_namespaces(&probe::user_namespace());
    Ok(vec![user_namespaces, apparmor, cgroups(home), seccomp(), landlock(&landlock_abi()), id_ranges()])
}

fn number(path: &str) -> Option<i64> {
    read_bounded(Path::new(path)).ok()?.trim().parse().ok()
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// User namespaces, and AppArmor's restriction of them in Ubuntu from 24.04 on.
fn user_namespaces(tried: &Result<(), String>) -> [Layer; 2] {
    const NAME: &str = "user namespaces";
    let restricted = number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1);
    let apparmor = match (restricted, tried) {
        (false, _) => Layer::ok("AppArmor", false, "does not restrict user namespaces on this host"),
        (true, Ok(())) => Layer::ok("AppArmor", false, "restricts user namespaces; this program is exempt"),
        (true, Err(_)) => Layer::lacking(
            "AppArmor",
            true,
            "restricts user namespaces, and no profile exempts this program",
            "sudo bash dist/apparmor/install.sh",
        ),
    };
    let namespaces = match tried {
        Ok(()) => Layer::ok(NAME, true, "all seven namespaces were made and ids mapped"),
        Err(reason) => Layer::lacking(NAME, true, reason.clone(), namespace_remedy(restricted)),
    };
    [namespaces, apparmor]
}

fn namespace_remedy(restricted: bool) -> String {
    let set = |setting: &str| {
        format!(
            "echo '{setting}' | sudo tee /etc/sysctl.d/90-rlox.conf && sudo sysctl -p /etc/sysctl.d/90-rlox.conf"
        )
    };
    if number("/proc/sys/user/max_user_namespaces") == Some(0) {
        return set("user.max_user_namespaces=28633");
    }
    if number("/proc/sys/kernel/unprivileged_userns_clone") == Some(0) {
        return set("kernel.unprivileged_userns_clone=1");
    }
    if restricted {
        return "sudo bash dist/apparmor/install.sh".into();
    }
    "inside another container: start that one with --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
        .into()
}

fn cgroups(home: &CgroupHome) -> Layer {
    const NAME: &str = "cgroups";
    match home {
        CgroupHome::V2 { base } => {
            Layer::ok(NAME, true, format!("v2, memory pids cpu delegated at {}", base.display()))
        }
        CgroupHome::V1 => Layer::ok(NAME, true, format!("v1 as root: {}", v1_controllers().join(" "))),
        CgroupHome::None { reason } => {
            let short = reason.split("; ").next().unwrap_or(reason);
            Layer::lacking(NAME, true, short, cgroup_remedy())
        }
    }
}

/// What an ordinary user lacks depends on how far the host already delegates.
fn cgroup_remedy() -> String {
    let root = Path::new(rlox_host::CGROUP_ROOT);
    if !root.join("cgroup.controllers").exists() {
        return "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&systemd.unified_cgroup_hierarchy=1 /' /etc/default/grub && sudo \
                update-grub && sudo reboot   (starts with cgroup v2)"
            .into();
    }
    if !Path::new("/run/systemd/system").exists() {
        let group = "/sys/fs/cgroup/rlox";
        return format!(
            "sudo sh -c 'echo +memory +pids +cpu >/sys/fs/cgroup/cgroup.subtree_control; mkdir -p {group}; chown -R {uid} \
             {group}; echo $PPID >{group}/cgroup.procs'",
            uid = nix::unistd::geteuid()
        );
    }
    let uid = nix::unistd::geteuid();
    let manager = root.join(format!("user.slice/user-{uid}.slice/user@{uid}.service/cgroup.controllers"));
    let delegated = read_bounded(&manager).unwrap_or_default();
    let all =
        ["memory", "pids", "cpu"].iter().all(|name| delegated.split_whitespace().any(|each| each == *name));
    if all {
        return "run it in a scope of your own: systemd-run --user --scope -p Delegate=yes rlox-runtime doctor".into();
    }
    "sudo install -D -m 644 dist/systemd/user-delegate.conf /etc/systemd/system/user@.service.d/rlox.conf && sudo systemctl \
     daemon-reload && sudo systemctl restart user@$(id -u), then: systemd-run --user --scope -p Delegate=yes rlox-runtime doctor"
        .into()
}

fn seccomp() -> Layer {
    const NAME: &str = "seccomp";
    let actions = read_bounded(Path::new("/proc/sys/kernel/seccomp/actions_avail")).unwrap_or_default();
    if actions.split_whitespace().any(|action| action == "errno") {
        return Layer::ok(NAME, true, "filters are available");
    }
    Layer::lacking(
        NAME,
        true,
        "the kernel has no filters",
        "boot a kernel with CONFIG_SECCOMP_FILTER=y (every distribution's own has it)",
    )
}

fn landlock(abi: &io::Result<u32>) -> Layer {
    const NAME: &str = "Landlock";
    let error = match abi {
        Ok(abi) => return Layer::ok(NAME, false, format!("version {abi} of its interface")),
        Err(error) => error,
    };
    let (detail, remedy) = if error.raw_os_error() == Some(nix::libc::EOPNOTSUPP) {
        let modules = read_bounded(Path::new("/sys/kernel/security/lsm")).unwrap_or_default();
        let line = format!("lsm=landlock,{}", modules.trim());
        let remedy = format!(
            "echo 'GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {line}\"' | sudo tee -a /etc/default/grub && sudo update-grub \
             && sudo reboot"
        );
        ("built into the kernel and switched off at boot", remedy)
    } else {
        ("the kernel does not have it", "boot Linux 5.13 or newer with CONFIG_SECURITY_LANDLOCK=y".into())
    };
    Layer::lacking(NAME, false, detail, remedy)
}

/// Ranges of subordinate ids. The default maps one id and needs none; images with several users do.
fn id_ranges() -> Layer {
    const NAME: &str = "id ranges";
    if is_root() {
        return Layer::ok(NAME, false, "root maps a range for each container").with_status(Status::NotNeeded);
    }
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten();
    let name = user.map_or_else(|| nix::unistd::geteuid().to_string(), |user| user.name);
    let helpers = ["newuidmap", "newgidmap"].into_iter().all(privileged_helper);
    let ranges = ["/etc/subuid", "/etc/subgid"].into_iter().all(|file| has_range(file, &name));
    let (detail, remedy) = match (helpers, ranges) {
        (true, true) => return Layer::ok(NAME, false, "newuidmap and a range of subordinate ids"),
        (false, _) => ("no set-uid newuidmap and newgidmap", "sudo apt-get install uidmap".to_owned()),
        (true, false) => (
            "no range for this user in /etc/subuid and /etc/subgid",
            format!("sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {name}"),
        ),
    };
    Layer::lacking(
        NAME,
        false,
        format!("{detail}; one id is mapped, which rlox's bundles are made for"),
        remedy,
    )
    .with_status(Status::Reduced)
}

fn privileged_helper(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let found: Option<PathBuf> =
        std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.is_file());
    // Distributions give them set-uid or a file capability; the latter shows only in an extended attribute.
    found.is_some_and(|path| path.metadata().is_ok_and(|found| found.permissions().mode() & 0o111 != 0))
}

fn has_range(file: &str, name: &str) -> bool {
    let uid = nix::unistd::geteuid().to_string();
    let text = read_bounded(Path::new(file)).unwrap_or_default();
    text.lines().any(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let size = fields.get(2).and_then(|size| size.trim().parse::<u64>().ok());
        (fields.first() == Some(&name) || fields.first() == Some(&uid.as_str()))
            && size.is_some_and(|size| size >= 65_536)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_has_a_remedy_and_required_layers_say_so() {
        let [namespaces, _] = user_namespaces(&Err("mapping ids: no".into()));
        let none = cgroups(&CgroupHome::None { reason: "controllers not delegated; and more".into() });
        for (layer, required) in
            [(namespaces, true), (none, true), (landlock(&Err(io::Error::from_raw_os_error(38))), false)]
        {
            assert_eq!((layer.status, layer.required), (Status::Missing, required), "{}", layer.name);
            assert!(layer.remedy.is_some_and(|remedy| !remedy.is_empty()));
        }
    }

    #[test]
    fn landlock_that_is_switched_off_is_told_from_one_that_is_absent() {
        let off = landlock(&Err(io::Error::from_raw_os_error(nix::libc::EOPNOTSUPP)));
        assert!(off.remedy.unwrap().contains("lsm=landlock"));
        assert_eq!(landlock(&Ok(4)).status, Status::Ok);
    }
}
