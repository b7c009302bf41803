//! Counts system calls for which no program has an honest use: the filter hands them here, where each is refused.
//!
//! The filter refuses what it does not know without telling anybody. For the few calls that are attacks wherever
//! they come from, it asks this process instead (`SECCOMP_RET_USER_NOTIF`), which answers `EPERM` as the filter would
//! have, and counts. Nothing of the program's memory is read, so there is nothing to race against. When this process
//! is gone, or has counted enough, the kernel answers `ENOSYS`: nothing is ever let through.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use oci_spec::runtime::{LinuxSeccomp, LinuxSeccompAction, LinuxSyscall, LinuxSyscallBuilder};
use rlox_protocol::RefusedCalls;

use crate::error::RuntimeError;
use crate::sys;

/// Calls that are counted, with their numbers on `x86_64`.
const WATCHED: [(&str, i64); 31] = [
    ("ptrace", libc::SYS_ptrace),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("process_vm_writev", libc::SYS_process_vm_writev),
    ("pidfd_getfd", libc::SYS_pidfd_getfd),
    ("kcmp", libc::SYS_kcmp),
    ("bpf", libc::SYS_bpf),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("userfaultfd", libc::SYS_userfaultfd),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("add_key", libc::SYS_add_key),
    ("keyctl", libc::SYS_keyctl),
    ("request_key", libc::SYS_request_key),
    ("mount", libc::SYS_mount),
    ("umount2", libc::SYS_umount2),
    ("pivot_root", libc::SYS_pivot_root),
    ("chroot", libc::SYS_chroot),
    ("unshare", libc::SYS_unshare),
    ("setns", libc::SYS_setns),
    ("fsopen", libc::SYS_fsopen),
    ("open_tree", libc::SYS_open_tree),
    ("move_mount", libc::SYS_move_mount),
    ("open_by_handle_at", libc::SYS_open_by_handle_at),
    ("init_module", libc::SYS_init_module),
    ("finit_module", libc::SYS_finit_module),
    ("delete_module", libc::SYS_delete_module),
    ("kexec_load", libc::SYS_kexec_load),
    ("kexec_file_load", libc::SYS_kexec_file_load),
    ("reboot", libc::SYS_reboot),
    ("swapon", libc::SYS_swapon),
    ("iopl", libc::SYS_iopl),
    ("ioperm", libc::SYS_ioperm),
];

/// After so many the listener is closed: a program that does nothing else must not keep this process busy.
const ENOUGH: u64 = 1000;

/// The watched calls of one container.
pub(crate) struct Refusals {
    filter: Option<OwnedFd>,
    counts: BTreeMap<&'static str, u64>,
    total: u64,
}

impl Refusals {
    /// Those of the container whose filter asks on this descriptor.
    pub(crate) fn of(filter: OwnedFd) -> Self {
        Self { filter: Some(filter), counts: BTreeMap::new(), total: 0 }
    }

    /// What to poll; nothing once it is closed.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.filter.as_ref().map(AsFd::as_fd)
    }

    /// Refuses one call that waits; closes the listener where there can be no more, or were enough.
    pub(crate) fn refuse_one(&mut self) {
        let Some(filter) = &self.filter else { return };
        match sys::seccomp_refuse_one(filter.as_fd()) {
            Ok(Some(number)) => {
                self.total += 1;
                let name = WATCHED.iter().find(|(_, each)| *each == i64::from(number));
                *self.counts.entry(name.map_or("other", |(name, _)| name)).or_default() += 1;
                if self.total >= ENOUGH {
                    self.filter = None;
                }
            }
            // The caller was killed in the meantime.
            Ok(None) => {}
            Err(_) => self.filter = None,
        }
    }

    /// Nobody is left who could call.
    pub(crate) fn close(&mut self) {
        self.filter = None;
    }

    pub(crate) fn finish(self) -> RefusedCalls {
        RefusedCalls { total: self.total, names: self.counts.keys().map(|name| (*name).to_owned()).collect() }
    }
}

/// Lets the filter ask about watched calls that it would refuse with `EPERM`; whether there are any.
pub(crate) fn watch_calls(seccomp: &mut LinuxSeccomp) -> Result<bool, RuntimeError> {
    let invalid = |error: oci_spec::OciSpecError| RuntimeError::Request { reason: error.to_string() };
    let rules = seccomp.syscalls().clone().unwrap_or_default();
    let mut made: Vec<LinuxSyscall> = Vec::with_capacity(rules.len() + 1);
    let mut watched = Vec::new();
    for rule in rules {
        let plain = rule.args().is_none() && rule.errno_ret() == Some(libc::EPERM.unsigned_abs());
        if rule.action() != LinuxSeccompAction::ScmpActErrno || !plain {
            made.push(rule);
            continue;
        }
        let is_watched = |name: &String| WATCHED.iter().any(|(each, _)| each == name);
        let (asked, kept): (Vec<_>, Vec<_>) = rule.names().iter().cloned().partition(is_watched);
        watched.extend(asked);
        if !kept.is_empty() {
            let mut rule = rule;
            rule.set_names(kept);
            made.push(rule);
        }
    }
    if watched.is_empty() {
        return Ok(false);
    }
    let rule = LinuxSyscallBuilder::default().names(watched).action(LinuxSeccompAction::ScmpActNotify);
    made.push(rule.build().map_err(invalid)?);
    seccomp.set_syscalls(Some(made));
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refused_calls_are_asked_about_and_none_is_lost() {
        let text = r#"{"defaultAction":"SCMP_ACT_ERRNO","defaultErrnoRet":38,"syscalls":[
            {"names":["read","ptrace"],"action":"SCMP_ACT_ALLOW"},
            {"names":["mount","sync","bpf"],"action":"SCMP_ACT_ERRNO","errnoRet":1},
            {"names":["clone"],"action":"SCMP_ACT_ERRNO","errnoRet":1,
             "args":[{"index":0,"value":1,"op":"SCMP_CMP_EQ"}]}]}"#;
        let mut seccomp: LinuxSeccomp = serde_json::from_str(text).unwrap();
        assert!(watch_calls(&mut seccomp).unwrap());
        let rules = seccomp.syscalls().clone().unwrap();
        let found: Vec<_> =
            rules.iter().map(|rule| (rule.names().join(" "), format!("{:?}", rule.action()))).collect();
        assert_eq!(
            found,
            [
                ("read ptrace".to_owned(), "ScmpActAllow".to_owned()),
                ("sync".to_owned(), "ScmpActErrno".to_owned()),
                ("clone".to_owned(), "ScmpActErrno".to_owned()),
                ("mount bpf".to_owned(), "ScmpActNotify".to_owned()),
            ]
        );
    }
}
