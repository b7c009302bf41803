//! A bundle's seccomp filter, compiled once and loaded in each of its containers.
//!
//! Compiling 350 rules takes a quarter of the time in which a container is made, and a launcher makes thousands from
//! one bundle. The compiled filter lies beside the generated `config.json`, which then has no seccomp section for
//! libcontainer to compile again. What is loaded is read back like any other filter, before the start.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::Path;
use std::rc::Rc;

use libseccomp::error::SeccompError;
use libseccomp::{ScmpAction, ScmpArch, ScmpArgCompare, ScmpCompareOp, ScmpFilterContext, ScmpSyscall};
use nix::sys::memfd::{MemFdCreateFlag, memfd_create};
use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompOperator, Spec,
};

use crate::error::RuntimeError;
use crate::sys;

/// Beside the generated `config.json`.
const FILE: &str = "seccomp.bpf";

/// Compiled filters by the text of their section.
#[derive(Default)]
pub(crate) struct Filters {
    compiled: HashMap<String, Rc<[u8]>>,
}

impl Filters {
    /// Takes the seccomp section out of the spec and writes it, compiled, into the bundle's directory. A section that
    /// asks for more than this module knows stays for libcontainer.
    pub(crate) fn compile_into(&mut self, directory: &Path, mut spec: Spec) -> Result<Spec, RuntimeError> {
        let no_new_privileges =
            spec.process().as_ref().is_some_and(|process| process.no_new_privileges() == Some(true));
        let Some(section) = spec.linux().as_ref().and_then(|linux| linux.seccomp().clone()) else {
            return Ok(spec);
        };
        let Some(rules) = Rules::of(&section).filter(|_| no_new_privileges) else { return Ok(spec) };
        let request = |reason: String| RuntimeError::Request { reason: format!("seccomp: {reason}") };
        let key = serde_json::to_string(&section).map_err(|error| request(error.to_string()))?;
        let program = match self.compiled.get(&key) {
            Some(program) => Rc::clone(program),
            None => {
                let program: Rc<[u8]> = rules.compile().map_err(request)?.into();
                self.compiled.insert(key, Rc::clone(&program));
                program
            }
        };
        let path = directory.join(FILE);
        fs::write(&path, &program).map_err(RuntimeError::system(format!("writing {}", path.display())))?;
        if let Some(linux) = spec.linux_mut() {
            linux.set_seccomp(None);
        }
        Ok(spec)
    }
}

/// The compiled filter of a generated bundle, where there is one.
pub(crate) fn read(bundle: &Path) -> Result<Option<Vec<u8>>, RuntimeError> {
    let path = bundle.join(FILE);
    match fs::read(&path) {
        Ok(program) => Ok(Some(program)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(RuntimeError::system(format!("reading {}", path.display()))(error)),
    }
}

/// Loads a compiled filter into the calling process.
pub(crate) fn load(program: &[u8]) -> Result<(), String> {
    sys::load_filter(program).map_err(|error| format!("seccomp: loading the compiled filter: {error}"))
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
        LinuxSeccompAction::ScmpActTrap
        | LinuxSeccompAction::ScmpActTrace
        | LinuxSeccompAction::ScmpActNotify
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
    use super::*;

    fn bundle(name: &str) -> Spec {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bundles").join(name).join("config.json");
        Spec::load(path).unwrap()
    }

    #[test]
    fn every_bundle_is_compiled_and_its_section_goes() {
        let directory = tempfile::tempdir().unwrap();
        let mut filters = Filters::default();
        for name in ["snippet", "grader", "trainer"] {
            let spec = filters.compile_into(directory.path(), bundle(name)).unwrap();
            assert!(spec.linux().as_ref().unwrap().seccomp().is_none(), "{name}");
            let program = read(directory.path()).unwrap().unwrap();
            assert!(
                program.len() > 1000 && program.len().is_multiple_of(8),
                "{name}: {} bytes",
                program.len()
            );
        }
        filters.compile_into(directory.path(), bundle("snippet")).unwrap();
        assert_eq!(filters.compiled.len(), 3, "a section is compiled once");
    }

    #[test]
    fn half_a_filter_is_not_loaded() {
        assert!(load(&[0; 12]).is_err() && load(&[]).is_err());
    }

    #[test]
    fn what_is_not_known_here_stays_for_libcontainer() {
        let directory = tempfile::tempdir().unwrap();
        let keeps = |edit: &dyn Fn(&mut LinuxSeccomp)| {
            let mut spec = bundle("snippet");
            let linux = spec.linux_mut().as_mut().unwrap();
            let mut section = linux.seccomp().clone().unwrap();
            edit(&mut section);
            linux.set_seccomp(Some(section));
            let spec = Filters::default().compile_into(directory.path(), spec).unwrap();
            spec.linux().as_ref().unwrap().seccomp().is_some() && read(directory.path()).unwrap().is_none()
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
