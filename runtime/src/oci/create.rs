//! `create`: claim the id, make the cgroup with its limits, build the container, read everything back.
//!
//! Each step is written to the record before it is taken. A failure takes all of it back; a death leaves a record
//! that says `creating` by a process that is no more, which every other command shows as stopped.

use std::path::{Path, PathBuf};

use nix::unistd::Pid;
use oci_spec::runtime::{LinuxNamespaceType, LinuxResources, Spec};

use super::adapt::{Adapted, adapt};
use super::args::CreateArgs;
use super::error::OciError;
use super::hooks::{self, Errands, Kind};
use super::store::{Entry, Phase, Record, Store, check_id, real_root, replace};
use super::{Context, delete, scope};
use crate::cgroup::devices;
use crate::cgroup::group::Group;
use crate::cgroup::limits::{InForce, Setting, v1, v2};
use crate::container::executor::Program;
use crate::container::{Created, Making, reap_all};
use crate::error::RuntimeError;
use crate::files::read_regular;
use crate::spec::CONFIG_BYTES;
use crate::sys;
use crate::{redirect, sealed};

/// Where libcontainer keeps its own state of a container.
pub(crate) fn inner(directory: &Path) -> PathBuf {
    directory.join("init")
}

/// A bundle's configuration, read and checked as far as it stands for itself.
pub(crate) fn load(bundle: &Path) -> Result<(PathBuf, Spec), OciError> {
    let bundle = std::fs::canonicalize(bundle)
        .map_err(|error| OciError::Config { path: bundle.to_owned(), reason: error.to_string() })?;
    let path = bundle.join("config.json");
    let text = read_regular(&path, CONFIG_BYTES)
        .map_err(|error| OciError::Config { path: path.clone(), reason: error.to_string() })?;
    let spec = parse(&path, &text)?;
    Ok((bundle, spec))
}

/// The text of a `config.json`, checked as far as it stands for itself.
pub(crate) fn parse(path: &Path, text: &[u8]) -> Result<Spec, OciError> {
    let fail = |reason: String| OciError::Config { path: path.to_owned(), reason };
    let mut spec: Spec = serde_json::from_slice(text).map_err(|error| fail(error.to_string()))?;
    check(&spec).map_err(fail)?;
    if spec.linux().is_none() {
        spec.set_linux(Some(
            oci_spec::runtime::LinuxBuilder::default().build().map_err(|error| fail(error.to_string()))?,
        ));
    }
    Ok(spec)
}

/// What holds for every configuration, whoever asks for it to be run.
pub(crate) fn check(spec: &Spec) -> Result<(), String> {
    if !version_is_known(spec.version()) {
        return Err(format!("ociVersion {:?}: versions 1.x are supported", spec.version()));
    }
    if spec.root().is_none() {
        return Err("no root section".into());
    }
    spec.hooks().as_ref().map_or(Ok(()), |hooks| hooks::check(hooks).map_err(|error| error.to_string()))
}

/// `1.`, a number, `.`, a number, and whatever SemVer allows after that.
fn version_is_known(version: &str) -> bool {
    let core = version.split(['-', '+']).next().unwrap_or_default();
    let numbers: Vec<_> = core.split('.').map(str::parse::<u32>).collect();
    matches!(numbers.as_slice(), [Ok(1), Ok(_), Ok(_)])
}

/// Creates a container whose program waits.
pub(crate) fn create(context: &Context, args: &CreateArgs) -> Result<Pid, OciError> {
    check_id(&args.id)?;
    let (bundle, spec) = load(&args.bundle)?;
    sealed::ensure_for(&spec)?;
    let process = spec.process().clone().ok_or_else(|| OciError::Config {
        path: bundle.join("config.json"),
        reason: "no process section".into(),
    })?;
    check_terminal(process.terminal() == Some(true), args.how.console_socket.is_some())?;
    let store = Store::open(context.globals.root.as_deref());
    let entry = store.claim(&args.id)?;
    let mut record = Record::new(&args.id, &bundle, process)?;
    record.annotations = spec.annotations().clone().unwrap_or_default();
    record.hooks = spec.hooks().clone();
    let result = build(context, args, &entry, &mut record, &spec);
    match result {
        Ok(pid) => Ok(pid),
        Err(error) => {
            if let Err(left) = delete::dispose(entry, Some(&record)) {
                tracing::error!(%left, "cleaning up after a failed creation");
            }
            reap_all();
            Err(error)
        }
    }
}

/// A terminal needs a socket to hand it over, and a socket a terminal.
pub(crate) fn check_terminal(terminal: bool, socket: bool) -> Result<(), OciError> {
    match (terminal, socket) {
        (true, false) => Err(OciError::invalid("process.terminal is true: --console-socket is needed")),
        (false, true) => Err(OciError::invalid("--console-socket is for process.terminal = true")),
        (true, true) | (false, false) => Ok(()),
    }
}

fn build(
    context: &Context,
    args: &CreateArgs,
    entry: &Entry,
    record: &mut Record,
    spec: &Spec,
) -> Result<Pid, OciError> {
    let bundle = record.bundle.clone();
    let linux = spec.linux().clone().unwrap_or_default();
    record.seccomp = linux.seccomp().clone();
    record.namespaces = linux.namespaces().iter().flatten().map(|each| each.typ().to_string()).collect();
    let root = spec.root().as_ref().map(|root| bundle.join(root.path())).unwrap_or_default();
    record.rootfs = std::fs::canonicalize(&root).map_err(|error| OciError::Config {
        path: bundle.join("config.json"),
        reason: format!("root.path {}: {error}", root.display()),
    })?;
    entry.save(record)?;

    // The holder of a scope has to live until the container is in it.
    let (settings, _holder) =
        make_cgroup(context, entry, record, linux.cgroups_path().as_deref(), linux.resources().as_ref())?;
    let (euid, egid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    let Adapted { mut spec, copy_up } =
        adapt(spec, &bundle, record.group.as_ref().map(Group::path), euid, egid)?;
    redirect::refuse(&spec)?;
    let mut report = hooks::Report::new()?;
    let errands = errands(&spec, &record.rootfs, copy_up);
    spec.set_hooks(hooks::stand_ins(record.hooks.as_ref(), &bundle, &record.rootfs, &errands, &report)?);
    if let Some(process) = spec.process() {
        record.process = process.clone();
    }
    let text = serde_json::to_vec(&spec).map_err(|error| OciError::invalid(error.to_string()))?;
    replace(&entry.directory.join("config.json"), &text)
        .map_err(OciError::system("writing the adapted config.json"))?;
    entry.save(record)?;

    if !args.how.no_new_keyring {
        sys::new_session_keyring().map_err(OciError::system("making a session keyring"))?;
    }
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    let hooks = record.hooks.as_ref().map(|hooks| Kind::StartContainer.of(hooks)).unwrap_or_default();
    let making = Making {
        console_socket: args.how.console_socket.as_deref(),
        preserved: i32::from(args.how.preserve_fds),
        no_pivot: args.how.no_pivot,
        program: Program { hooks, state: hooks::state(record, "created", 0) },
    };
    let makers = entry.makers()?;
    let created = Created::make(&args.id, &entry.directory, &inner(&entry.directory), making);
    drop(makers);
    let created = match (created, report.reason()) {
        (Ok(created), _) => created,
        (Err(_), Some(reason)) => return Err(OciError::Invalid { reason }),
        (Err(error), None) => return Err(error.into()),
    };
    record.set_init(created.pid);
    record.enter(Phase::Created)?;
    verify(&created, &spec, record, &settings)?;
    entry.save(record)?;
    if let Some(path) = &args.how.pid_file {
        replace(path, created.pid.to_string().as_bytes())
            .map_err(OciError::system(format!("writing {}", path.display())))?;
    }
    Ok(created.pid)
}

/// What callers expect of a runtime besides the specification: a usable loopback in a new network, a working directory
/// that is there.
fn errands(spec: &Spec, rootfs: &Path, copy_up: Vec<PathBuf>) -> Errands {
    let namespaces = spec.linux().as_ref().and_then(|linux| linux.namespaces().clone()).unwrap_or_default();
    let new = |kind| {
        namespaces.iter().any(|each| {
            each.typ() == kind && each.path().as_ref().is_none_or(|path| path.as_os_str().is_empty())
        })
    };
    let cwd = spec.process().as_ref().map(|process| process.cwd().clone());
    let missing = |cwd: &PathBuf| !rootfs.join(cwd.strip_prefix("/").unwrap_or(cwd)).is_dir();
    Errands {
        copy_up,
        // In the mount namespace of somebody else nothing is ours to make.
        cwd: cwd.filter(missing).filter(|_| new(LinuxNamespaceType::Mount)),
        loopback: new(LinuxNamespaceType::Network),
    }
}

/// Makes the cgroup with every limit in force; without one only where nothing is to be limited.
fn make_cgroup(
    context: &Context,
    entry: &Entry,
    record: &mut Record,
    path: Option<&Path>,
    resources: Option<&LinuxResources>,
) -> Result<(Vec<Setting>, Option<scope::Holder>), OciError> {
    let id = record.id.clone();
    let fail = |reason: String| OciError::Cgroup { id: id.clone(), reason };
    if context.globals.systemd_cgroup {
        let asked = scope::Scope::parse(path, &id).map_err(fail)?;
        record.unit = Some(asked.unit());
        entry.save(record)?;
        let (group, holder) = asked.start(resources).map_err(fail)?;
        record.group = Some(group.clone());
        entry.save(record)?;
        let settings = settings(&group, resources, InForce::default()).map_err(fail)?;
        group.apply(&settings).and_then(|()| limit_devices(&group, resources)).map_err(fail)?;
        return Ok((settings, Some(holder)));
    }
    path.map_or(Ok(()), Group::check).map_err(fail)?;
    let limited = resources.is_some_and(|resources| {
        [true, false].into_iter().any(|unified| {
            let found = if unified { v2(resources, InForce::default()) } else { v1(resources) };
            found.map_or(true, |settings| !settings.is_empty())
        })
    });
    let without = |reason: String| {
        if limited {
            return Err(fail(format!("limits were asked for, and there is no place for them: {reason}")));
        }
        tracing::warn!(reason, "no cgroup of its own; nothing is to be limited");
        Ok((Vec::new(), None))
    };
    let group = match Group::place(path, &id) {
        Ok(group) => group,
        Err(reason) => return without(reason),
    };
    // Before the record names it: what a record names is killed with its container.
    group.refuse_used().map_err(fail)?;
    record.group = Some(group.clone());
    entry.save(record)?;
    match group.create() {
        Ok(()) => {}
        // In its place libcontainer would make one that nobody removes; without root it cannot.
        Err(reason) if nix::unistd::geteuid().is_root() => return Err(fail(reason)),
        Err(reason) => {
            group.remove().map_err(fail)?;
            record.group = None;
            return without(reason);
        }
    }
    let settings = settings(&group, resources, InForce::default()).map_err(fail)?;
    group.apply(&settings).and_then(|()| limit_devices(&group, resources)).map_err(fail)?;
    Ok((settings, None))
}

/// On v2 the rules for devices are a program, which takes real root to load. Without it there is nothing to limit: an
/// ordinary user's container cannot make device nodes.
fn limit_devices(group: &Group, resources: Option<&LinuxResources>) -> Result<(), String> {
    let rules = resources.and_then(|resources| resources.devices().as_deref()).unwrap_or_default();
    if !group.is_v2() || rules.is_empty() || !real_root() {
        return Ok(());
    }
    devices::enforce(&group.directory(""), rules).map_err(|reason| format!("limit devices: {reason}"))
}

/// The settings that a container's limits come to in its kind of cgroup.
pub(crate) fn settings(
    group: &Group,
    resources: Option<&LinuxResources>,
    in_force: InForce,
) -> Result<Vec<Setting>, String> {
    let Some(resources) = resources else { return Ok(Vec::new()) };
    if group.is_v2() { v2(resources, in_force) } else { v1(resources) }
}

/// Reads back what was asked for. Nothing has run yet.
fn verify(created: &Created, spec: &Spec, record: &Record, settings: &[Setting]) -> Result<(), OciError> {
    let result = created.verify(spec, false).and_then(|()| match &record.group {
        Some(group) => group.holds(created.pid, settings).and_then(|()| group.verify(settings)),
        None => Ok(()),
    });
    result.map_err(|reason| RuntimeError::Verify { id: record.id.clone(), reason }.into())
}

/// Whether the container has a user namespace that its creation made or joined.
pub(crate) fn has_user_namespace(record: &Record) -> bool {
    record.namespaces.iter().any(|name| *name == LinuxNamespaceType::User.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_1_x_are_known() {
        for good in ["1.0.0", "1.2.1", "1.0.2-dev", "1.0.0-rc1+x"] {
            assert!(version_is_known(good), "{good}");
        }
        for bad in ["", "2.0.0", "0.9.0", "1", "1.0", "1.x.0", "invalid"] {
            assert!(!version_is_known(bad), "{bad}");
        }
    }

    #[test]
    fn terminal_and_socket_belong_together() {
        assert!(check_terminal(true, true).is_ok() && check_terminal(false, false).is_ok());
        assert!(check_terminal(true, false).unwrap_err().to_string().contains("--console-socket"));
        assert!(check_terminal(false, true).is_err());
    }
}
