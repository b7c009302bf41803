//! Which isolation layers this host gives. Read-only; what is absent is named, never assumed.

use std::path::Path;

use serde::Serialize;

use crate::cgroup::CgroupHome;
use crate::files::read_bounded;
use crate::landlock::{LANDLOCK_OLDEST, landlock_abi};

/// Isolation layers as `/health` shows them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Isolation {
    /// `full` with every layer, `reduced` where one is missing, `none` where a snippet cannot be contained.
    pub tier: &'static str,
    /// User namespaces can be created.
    pub userns: bool,
    /// `v2`, `v1` or `none`.
    pub cgroup: &'static str,
    /// The kernel has seccomp filters.
    pub seccomp: bool,
    /// Containers are restricted by Landlock too.
    pub landlock: bool,
    /// The version of its interface, where there is one.
    pub landlock_abi: Option<u32>,
    /// Each missing layer with what would help.
    pub missing: Vec<String>,
}

impl Isolation {
    /// The missing layers that forbid to contain anything under these choices: cgroups may be given up, and Landlock,
    /// which stands behind other layers, may be insisted on.
    pub fn refused(&self, allow_missing_cgroup: bool, require_landlock: bool) -> Vec<String> {
        let tolerated = |missing: &String| {
            allow_missing_cgroup && missing.starts_with(CGROUP)
                || !require_landlock && missing.starts_with(LANDLOCK)
        };
        self.missing.iter().filter(|missing| !tolerated(missing)).cloned().collect()
    }
}

/// How the lines of `missing` begin that depend on the operator's choice.
const CGROUP: &str = "cgroup:";
const LANDLOCK: &str = "landlock:";

/// Looks at this host.
pub fn isolation(home: &CgroupHome) -> Isolation {
    let mut missing = Vec::new();
    let userns = positive("/proc/sys/user/max_user_namespaces");
    if !userns {
        missing.push("userns: /proc/sys/user/max_user_namespaces is 0; raise it with sysctl".into());
    }
    let restricted = positive("/proc/sys/kernel/apparmor_restrict_unprivileged_userns");
    if restricted && !nix::unistd::geteuid().is_root() && unconfined() {
        missing.push(
            "userns: AppArmor restricts unprivileged user namespaces; sudo bash dist/apparmor/install.sh \
             exempts rlox-runtime"
                .into(),
        );
    }
    if let CgroupHome::None { reason } = home {
        missing.push(format!("{CGROUP} {reason}"));
    }
    let status = read_bounded(Path::new("/proc/self/status")).unwrap_or_default();
    let seccomp = status.lines().any(|line| line.starts_with("Seccomp:"));
    if !seccomp {
        missing.push("seccomp: the kernel is built without CONFIG_SECCOMP_FILTER".into());
    }
    let landlock_abi = landlock_abi().ok();
    let landlock = landlock_abi.is_some_and(|abi| abi >= LANDLOCK_OLDEST);
    if !landlock {
        missing.push(format!(
            "{LANDLOCK} the kernel has no version {LANDLOCK_OLDEST} of it (Linux 5.19 or newer, and landlock among \
             the modules in /sys/kernel/security/lsm)"
        ));
    }
    let tier = match (missing.is_empty(), userns && seccomp) {
        (true, _) => "full",
        (false, true) => "reduced",
        (false, false) => "none",
    };
    Isolation { tier, userns, cgroup: home.name(), seccomp, landlock, landlock_abi, missing }
}

fn positive(path: &str) -> bool {
    read_bounded(Path::new(path))
        .ok()
        .and_then(|text| text.trim().parse::<i64>().ok())
        .is_some_and(|value| value > 0)
}

fn unconfined() -> bool {
    read_bounded(Path::new("/proc/self/attr/current")).map_or(true, |label| label.trim() == "unconfined")
}
