//! Refuses what would lead the set-up of a container astray: links and mounts at the places where it writes.
//!
//! A root file system may come from anybody, and so may the list of mounts. While a container is made, root's
//! own process opens `/dev/null` to mask files, makes devices below `/dev`, and writes to `/proc`. A link or a
//! mount there turns each of that into something else (CVE-2025-31133, CVE-2025-52565, CVE-2025-52881 and
//! CVE-2026-41579 of runc). libcontainer resolves names below the new root and compares devices; this comes before it,
//! and covers what it lets through.

use std::fs::symlink_metadata;
use std::path::{Component, Path, PathBuf};

use oci_spec::runtime::{Mount, Spec};

use crate::error::RuntimeError;
use crate::spec::is_bind;

/// Directories that the set-up mounts and writes below. No image has a reason to make them links.
const DIRECTORIES: [&str; 3] = ["dev", "proc", "sys"];
/// Nodes that the set-up makes or opens where nothing is mounted on `/dev`.
const NODES: [&str; 8] = ["null", "zero", "full", "tty", "random", "urandom", "console", "pts"];
/// Files of `/proc` that may be replaced: containers are shown figures of their own there.
const REPLACEABLE: [&str; 10] = [
    "cpuinfo",
    "diskstats",
    "loadavg",
    "meminfo",
    "slabinfo",
    "stat",
    "swaps",
    "uptime",
    "sys/kernel/ns_last_pid",
    "sys/crypto/fips_enabled",
];

/// Refuses a spec, with an absolute root, that has such a link or mount.
pub(crate) fn refuse(spec: &Spec) -> Result<(), RuntimeError> {
    let root = spec.root().as_ref().map(|root| root.path().clone()).unwrap_or_default();
    let check = || -> Result<(), String> {
        links(&root, spec)?;
        spec.mounts().iter().flatten().try_for_each(proc_mount)?;
        hidden_paths(&root, spec)
    };
    check().map_err(|reason| RuntimeError::Bundle { bundle: root.clone(), reason })
}

fn is_link(path: &Path) -> bool {
    symlink_metadata(path).is_ok_and(|found| found.file_type().is_symlink())
}

fn links(root: &Path, spec: &Spec) -> Result<(), String> {
    let covered = spec.mounts().iter().flatten().any(|mount| plain(mount.destination()) == Path::new("/dev"));
    let nodes = NODES.iter().filter(|_| !covered).map(|name| format!("dev/{name}"));
    let names = DIRECTORIES.iter().map(|name| (*name).to_owned()).chain(nodes);
    match names.into_iter().find(|name| is_link(&root.join(name))) {
        Some(name) => Err(format!("/{name} is a symbolic link; set-up would write to where it points")),
        None => Ok(()),
    }
}

/// Only a proc file system at `/proc`, and below it only the files that may be replaced.
fn proc_mount(mount: &Mount) -> Result<(), String> {
    let destination = plain(mount.destination());
    let Ok(below) = destination.strip_prefix("/proc") else { return Ok(()) };
    let kind = mount.typ().as_deref().unwrap_or("none");
    if below.as_os_str().is_empty() {
        // A bind of the host's own /proc is what containers without a pid namespace of their own get.
        let own = is_bind(mount) && mount.source().as_deref() == Some(Path::new("/proc"));
        return if kind == "proc" || own {
            Ok(())
        } else {
            Err(format!("a mount of type {kind} at /proc: set-up would read and write what it shows"))
        };
    }
    // A second proc file system may stand anywhere in the first: it shows the same.
    if REPLACEABLE.iter().any(|name| below == Path::new(name)) || kind == "proc" {
        return Ok(());
    }
    Err(format!("a mount at {}, below /proc: set-up may write there", destination.display()))
}

/// A masked or read-only path that is a link: libcontainer covers the link, and its target stays open.
fn hidden_paths(root: &Path, spec: &Spec) -> Result<(), String> {
    let Some(linux) = spec.linux() else { return Ok(()) };
    for path in linux.masked_paths().iter().chain(linux.readonly_paths()).flatten() {
        let path = Path::new(path);
        if !path.is_absolute() {
            return Err(format!("masked or read-only path {} is not absolute", path.display()));
        }
        let plain = plain(path);
        if is_link(&root.join(plain.strip_prefix("/").unwrap_or(&plain))) {
            return Err(format!("masked or read-only path {} is a symbolic link", path.display()));
        }
    }
    Ok(())
}

/// The path without `.` and `..`, which cannot lead above the root.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => drop(plain.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use oci_spec::runtime::MountBuilder;

    use super::*;

    fn mount(destination: &str, kind: &str, source: &str) -> Mount {
        MountBuilder::default().destination(destination).typ(kind).source(source).build().unwrap()
    }

    #[test]
    fn only_what_containers_are_meant_to_replace_may_stand_in_proc() {
        for (destination, kind, source) in [
            ("/proc", "tmpfs", "tmpfs"),
            ("/proc", "bind", "/tmp/fake"),
            ("/proc/", "tmpfs", "tmpfs"),
            ("/proc/self/attr", "tmpfs", "tmpfs"),
            ("/proc/self/attr/exec", "bind", "/dev/null"),
            ("/x/../proc/sys/kernel", "bind", "/tmp"),
            ("/proc/./sysrq-trigger", "bind", "/tmp/x"),
        ] {
            assert!(proc_mount(&mount(destination, kind, source)).is_err(), "{destination} {kind}");
        }
        for (destination, kind, source) in [
            ("/proc", "proc", "proc"),
            ("/proc", "bind", "/proc"),
            ("/proc/cpuinfo", "bind", "/var/lib/lxcfs/proc/cpuinfo"),
            ("/proc/../procure", "tmpfs", "tmpfs"),
            ("/tmp", "tmpfs", "tmpfs"),
        ] {
            assert!(proc_mount(&mount(destination, kind, source)).is_ok(), "{destination} {kind}");
        }
    }
}
