//! A bundle's seccomp filter, compiled once and loaded in each of its containers.
//!
//! Compiling 350 rules takes a quarter of the time in which a container is made, and a launcher makes thousands from
//! one bundle. A compiled section is taken out of the spec, so that libcontainer does not compile it again. What is
//! loaded is read back like any other filter, before the start.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use libseccomp::error::SeccompError;
use libseccomp::{ScmpAction, ScmpArch, ScmpArgCompare, ScmpCompareOp, ScmpFilterContext, ScmpSyscall};
use nix::sys::memfd::{MemFdCreateFlag, memfd_create};
use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompOperator, Spec,
};

use crate::error::RuntimeError;
use crate::{refused, sys};

/// A compiled filter.
#[derive(Debug, Clone)]
pub(crate) struct Filter {
    program: Rc<[u8]>,
    /// It asks about some calls, and whoever loads it gets a descriptor to answer on.
    pub(crate) notifies: bool,
}

impl Filter {
    /// Compiles the spec's section, which is in libcontainer's form, and takes it out of the spec. One that asks for
    /// more than this module knows stays there. With `count_refused`, calls for which no program has an honest use are
    /// asked about.
    pub(crate) fn take(spec: &mut Spec, count_refused: bool) -> Result<Option<Self>, RuntimeError> {
        let no_new_privileges =
            spec.process().as_ref().is_some_and(|process| process.no_new_privileges() == Some(true));
        let Some(mut section) = spec.linux().as_ref().and_then(|linux| linux.seccomp().clone()) else {
            return Ok(None);
        };
        if Rules::of(&section).is_none() || !no_new_privileges {
            return Ok(None);
        }
        let notifies = count_refused && refused::watch_calls(&mut section)?;
        let Some(rules) = Rules::of(&section) else { return Ok(None) };
        let program = rules
            .compile()
            .map_err(|reason| RuntimeError::Request { reason: format!("seccomp: {reason}") })?;
        if let Some(linux) = spec.linux_mut() {
            linux.set_seccomp(None);
        }
        Ok(Some(Self { program: program.into(), notifies }))
    }

    /// Loads it into the calling process; where it notifies, returns what to answer on.
    pub(crate) fn load(&self) -> Result<Option<OwnedFd>, String> {
        sys::load_filter(&self.program, self.notifies)
            .map_err(|error| format!("seccomp: loading the compiled filter: {error}"))
    }
}

/// What this module compiles: rules that allow, refuse or kill. Masked comparisons are in libcontainer's order.
struct Rules<'a> {
    section: &'a LinuxSeccomp,
    default: ScmpAction,
}

impl<'a> Rules<'a> {
    fn of(section: &'a LinuxSeccomp) -> Option<Self> {
        let default = action(section.default_action(), section.default_errno_ret())?;
        let known = section.syscalls().iter().flatten().all(|rule| {
            // libseccomp takes one comparison of each argument in a rule.
            let arguments: Vec<_> = rule.args().iter().flatten().map(LinuxSeccompArg::index).collect();
            let mut distinct = arguments.clone();
            distinct.sort_unstable();
            distinct.dedup();
            action(rule.action(), rule.errno_ret()).is_some() && distinct.len() == arguments.len()
        });
        let flags = section.flags().as_ref().is_some_and(|flags| !flags.is_empty());
        let native = section.architectures().as_deref() == Some(&[Arch::ScmpArchX86_64]);
        (known && !flags && native).then_some(Self { section, default })
    }

    fn compile(&self) -> Result<Vec<u8>, String> {
        let failed = |error: SeccompError| error.to_string();
        let mut context = ScmpFilterContext::new(self.default).map_err(failed)?;
        context.add_arch(ScmpArch::X8664).map_err(failed)?;
        // A tree of numbers instead of a list: the kernel asks it for every call that there is when it is loaded.
        context.set_ctl_optimize(2).map_err(failed)?;
        for rule in self.section.syscalls().iter().flatten() {
            let Some(action) = action(rule.action(), rule.errno_ret()).filter(|each| *each != self.default)
            else {
                continue;
            };
            let comparisons: Vec<_> = rule.args().iter().flatten().map(comparison).collect();
            for name in rule.names() {
                // A call that libseccomp does not know has the default here, as the page says.
                let Ok(call) = ScmpSyscall::from_name(name) else { continue };
                context
                    .add_rule_conditional(action, call, &comparisons)
                    .map_err(|error| format!("{name}: {error}"))?;
            }
        }
        let export = || -> io::Result<Vec<u8>> {
            let mut file = File::from(memfd_create(c"rlox-filter", MemFdCreateFlag::MFD_CLOEXEC)?);
            context.export_bpf(&file).map_err(io::Error::other)?;
            let mut program = Vec::new();
            file.rewind()?;
            file.read_to_end(&mut program)?;
            Ok(program)
        };
        export().map_err(|error| format!("exporting the filter: {error}"))
    }
}

fn action(action: LinuxSeccompAction, errno: Option<u32>) -> Option<ScmpAction> {
    match action {
        LinuxSeccompAction::ScmpActAllow => Some(ScmpAction::Allow),
        LinuxSeccompAction::ScmpActErrno => {
            let errno = errno.map_or(Ok(nix::libc::EPERM), i32::try_from).ok()?;
            Some(ScmpAction::Errno(errno))
        }
        LinuxSeccompAction::ScmpActKill | LinuxSeccompAction::ScmpActKillThread => {
            Some(ScmpAction::KillThread)
        }
        LinuxSeccompAction::ScmpActKillProcess => Some(ScmpAction::KillProcess),
        LinuxSeccompAction::ScmpActNotify => Some(ScmpAction::Notify),
        LinuxSeccompAction::ScmpActTrap
        | LinuxSeccompAction::ScmpActTrace
        | LinuxSeccompAction::ScmpActLog => None,
    }
}

fn comparison(argument: &LinuxSeccompArg) -> ScmpArgCompare {
    let operator = match argument.op() {
        LinuxSeccompOperator::ScmpCmpNe => ScmpCompareOp::NotEqual,
        LinuxSeccompOperator::ScmpCmpLt => ScmpCompareOp::Less,
        LinuxSeccompOperator::ScmpCmpLe => ScmpCompareOp::LessOrEqual,
        LinuxSeccompOperator::ScmpCmpEq => ScmpCompareOp::Equal,
        LinuxSeccompOperator::ScmpCmpGe => ScmpCompareOp::GreaterEqual,
        LinuxSeccompOperator::ScmpCmpGt => ScmpCompareOp::Greater,
        LinuxSeccompOperator::ScmpCmpMaskedEq => {
            ScmpCompareOp::MaskedEqual(argument.value_two().unwrap_or_default())
        }
    };
    ScmpArgCompare::new(u32::try_from(argument.index()).unwrap_or(u32::MAX), operator, argument.value())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn bundle(name: &str) -> Spec {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bundles").join(name).join("config.json");
        Spec::load(path).unwrap()
    }

    #[test]
    fn every_bundle_is_compiled_and_its_section_goes() {
        for name in ["snippet", "grader", "trainer"] {
            for count in [false, true] {
                let mut spec = bundle(name);
                let filter = Filter::take(&mut spec, count).unwrap().unwrap();
                assert!(spec.linux().as_ref().unwrap().seccomp().is_none(), "{name}");
                let length = filter.program.len();
                assert!(length > 1000 && length.is_multiple_of(8), "{name}: {length} bytes");
                assert_eq!(filter.notifies, count, "{name}");
            }
        }
    }

    #[test]
    fn half_a_filter_is_not_loaded() {
        for program in [&[0u8; 12][..], &[]] {
            assert!(Filter { program: program.into(), notifies: false }.load().is_err());
        }
    }

    #[test]
    fn what_is_not_known_here_stays_for_libcontainer() {
        let keeps = |edit: &dyn Fn(&mut LinuxSeccomp)| {
            let mut spec = bundle("snippet");
            let linux = spec.linux_mut().as_mut().unwrap();
            let mut section = linux.seccomp().clone().unwrap();
            edit(&mut section);
            linux.set_seccomp(Some(section));
            let filter = Filter::take(&mut spec, true).unwrap();
            spec.linux().as_ref().unwrap().seccomp().is_some() && filter.is_none()
        };
        assert!(keeps(&|section| {
            section.set_architectures(Some(vec![Arch::ScmpArchAarch64]));
        }));
        assert!(keeps(&|section| {
            section.set_default_action(LinuxSeccompAction::ScmpActLog);
        }));
        assert!(!keeps(&|_| {}));
    }
}
