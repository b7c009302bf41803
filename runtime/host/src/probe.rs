//! Which isolation layers this host gives. Read-only; what is absent is named, never assumed.

use std::path::Path;

use serde::Serialize;

use crate::cgroup::CgroupHome;
use crate::files::read_bounded;

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
    /// The kernel has Landlock (reported; not yet part of the sandbox).
    pub landlock: bool,
    /// Each missing layer with what would help.
    pub missing: Vec<String>,
}

impl Isolation {
    /// Whether a snippet can be contained without any layer given up.
    pub fn complete(&self) -> bool {
        self.missing.is_empty()
    }
}

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
        missing.push(format!("cgroup: {reason}"));
    }
    let status = read_bounded(Path::new("/proc/self/status")).unwrap_or_default();
    let seccomp = status.lines().any(|line| line.starts_with("Seccomp:"));
    if !seccomp {
        missing.push("seccomp: the kernel is built without CONFIG_SECCOMP_FILTER".into());
    }
    let landlock =
        read_bounded(Path::new("/sys/kernel/security/lsm")).is_ok_and(|list| list.contains("landlock"));
    let tier = match (missing.is_empty(), userns && seccomp) {
        (true, _) => "full",
        (false, true) => "reduced",
        (false, false) => "none",
    };
    Isolation { tier, userns, cgroup: home.name(), seccomp, landlock, missing }
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
