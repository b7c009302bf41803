//! Trying a user namespace, in a process of its own: there is no way back out of one.

use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, unshare};
use rlox_host::write_file;

/// In the child: every namespace that a container gets, and the caller mapped to id 0. Returns the exit code.
pub(super) fn become_root_of_a_user_namespace() -> i32 {
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    let namespaces = [
        ("user", CloneFlags::CLONE_NEWUSER),
        ("mount", CloneFlags::CLONE_NEWNS),
        ("pid", CloneFlags::CLONE_NEWPID),
        ("network", CloneFlags::CLONE_NEWNET),
        ("ipc", CloneFlags::CLONE_NEWIPC),
        ("uts", CloneFlags::CLONE_NEWUTS),
        ("cgroup", CloneFlags::CLONE_NEWCGROUP),
    ];
    for (name, flag) in namespaces {
        if let Err(errno) = unshare(flag) {
            println!("a new {name} namespace: {}", errno.desc());
            return 1;
        }
        if name == "user" {
            let maps = [
                ("/proc/self/setgroups", "deny".to_owned()),
                ("/proc/self/uid_map", format!("0 {uid} 1")),
                ("/proc/self/gid_map", format!("0 {gid} 1")),
            ];
            for (path, text) in maps {
                if let Err(error) = write_file(path.as_ref(), &text) {
                    println!("mapping ids: {error}");
                    return 1;
                }
            }
        }
    }
    0
}

/// Starts the try; why it failed, where it failed.
pub(super) fn user_namespace() -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(program)
        .args(["doctor", "--probe-user-namespace"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Err(if text.is_empty() { format!("the try ended with {}", output.status) } else { text })
}
