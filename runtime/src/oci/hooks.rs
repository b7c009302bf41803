//! Hooks, each with the container's state on its standard input.
//!
//! `libcontainer` runs hooks at the right moments but with a state of its own making: its bundle is our state
//! directory. So it is given one hook for each kind, this program, which runs the real ones with the state that the
//! OCI specification describes. Hooks before the start of the program are run by the init process itself.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, OpenHow, ResolveFlag, fcntl, openat2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MemFdCreateFlag, memfd_create};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::Pid;
use oci_spec::runtime::{Hook, HookBuilder, Hooks};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::error::OciError;
use super::store::Record;
use crate::sys;

/// The points in a container's life at which hooks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Also the older `prestart` hooks, which share its moment and namespaces.
    CreateRuntime,
    CreateContainer,
    StartContainer,
    Poststart,
    Poststop,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::CreateRuntime => "createRuntime",
            Self::CreateContainer => "createContainer",
            Self::StartContainer => "startContainer",
            Self::Poststart => "poststart",
            Self::Poststop => "poststop",
        }
    }

    /// The hooks of this kind, in order.
    pub(crate) fn of(self, hooks: &Hooks) -> Vec<Hook> {
        let lists = match self {
            Self::CreateRuntime => [hooks.prestart(), hooks.create_runtime()],
            Self::CreateContainer => [&None, hooks.create_container()],
            Self::StartContainer => [&None, hooks.start_container()],
            Self::Poststart => [&None, hooks.poststart()],
            Self::Poststop => [&None, hooks.poststop()],
        };
        lists.into_iter().flatten().flatten().cloned().collect()
    }
}

/// What the stand-in hook is to do.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Plan {
    hooks: Vec<Hook>,
    /// Directories of the root file system whose content is to be copied into the tmpfs mounted over them.
    copy_up: Vec<PathBuf>,
    /// The working directory, which is made where it is missing.
    cwd: Option<PathBuf>,
    /// A new network namespace, whose loopback is to be usable.
    loopback: bool,
    rootfs: PathBuf,
}

/// What has to be done in the container's namespaces besides running hooks.
#[derive(Debug, Default, Clone)]
pub(crate) struct Errands {
    pub(crate) copy_up: Vec<PathBuf>,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) loopback: bool,
}

/// Refuses hooks that the specification does not admit.
pub(crate) fn check(hooks: &Hooks) -> Result<(), OciError> {
    for kind in Kind::value_variants() {
        for hook in kind.of(hooks) {
            let fail = |reason: &str| OciError::Hook {
                kind: kind.name(),
                path: hook.path().clone(),
                reason: reason.into(),
            };
            if !hook.path().is_absolute() {
                return Err(fail("the path has to be absolute"));
            }
            if hook.timeout().is_some_and(|timeout| timeout <= 0) {
                return Err(fail("the timeout has to be greater than 0"));
            }
        }
    }
    Ok(())
}

/// The hooks to give to libcontainer in place of the container's own.
pub(crate) fn stand_ins(
    hooks: Option<&Hooks>,
    bundle: &Path,
    rootfs: &Path,
    errands: &Errands,
    report: &Report,
) -> Result<Option<Hooks>, OciError> {
    let mut result = Hooks::default();
    let mut any = false;
    for kind in [Kind::CreateRuntime, Kind::CreateContainer] {
        let list = hooks.map(|hooks| kind.of(hooks)).unwrap_or_default();
        let Errands { copy_up, cwd, loopback } =
            if kind == Kind::CreateContainer { errands.clone() } else { Errands::default() };
        if list.is_empty() && copy_up.is_empty() && cwd.is_none() && !loopback {
            continue;
        }
        any = true;
        let plan = Plan { hooks: list, copy_up, cwd, loopback, rootfs: rootfs.to_owned() };
        let plan = serde_json::to_string(&plan).map_err(|error| OciError::invalid(error.to_string()))?;
        let name = kind.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        let (bundle, report) = (bundle.display().to_string(), report.0.as_raw_fd().to_string());
        let args = ["rlox-runtime".into(), "oci-hook".into(), name, bundle, report, plan];
        // Through /proc, because the container's user may not be able to walk to where this program lies.
        let hook = HookBuilder::default().path("/proc/self/exe").args(args.to_vec()).build();
        let hook = hook.map_err(|error| OciError::invalid(error.to_string()))?;
        if kind == Kind::CreateRuntime {
            result.set_create_runtime(Some(vec![hook]));
        } else {
            result.set_create_container(Some(vec![hook]));
        }
    }
    Ok(any.then_some(result))
}

/// Where a stand-in leaves why it failed: libcontainer passes on no more than its exit code.
pub(crate) struct Report(File);

impl Report {
    /// An anonymous file that the stand-ins inherit, at a number that no container is given.
    pub(crate) fn new() -> Result<Self, OciError> {
        let made =
            memfd_create(c"rlox-hook", MemFdCreateFlag::MFD_CLOEXEC).map_err(OciError::errno("memfd"))?;
        let number =
            fcntl(made.as_raw_fd(), FcntlArg::F_DUPFD(REPORT_FROM)).map_err(OciError::errno("fcntl"))?;
        Ok(Self(sys::received(number).into()))
    }

    /// The reason of the hook that failed, if one did.
    pub(crate) fn reason(&mut self) -> Option<String> {
        let mut text = String::new();
        self.0.rewind().and_then(|()| self.0.read_to_string(&mut text)).ok()?;
        (!text.is_empty()).then_some(text)
    }
}

/// Above every descriptor that a caller passes on.
const REPORT_FROM: std::os::fd::RawFd = 700;

/// The state as hooks and `state` show it.
pub(crate) fn state(record: &Record, status: &str, pid: i32) -> Value {
    let mut state = json!({
        "ociVersion": record.oci_version,
        "id": record.id,
        "status": status,
        "bundle": record.bundle,
        "annotations": record.annotations,
    });
    if pid > 0 {
        state["pid"] = pid.into();
    }
    state
}

/// The stand-in: does its work and reports why it failed, if it did.
pub(crate) fn stand_in(kind: Kind, bundle: &Path, report: i32, plan: &str) -> Result<(), OciError> {
    let report = sys::received(report);
    // The hooks themselves are not to have it.
    fcntl(report.as_raw_fd(), FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).map_err(OciError::errno("fcntl"))?;
    work(kind, bundle, plan).inspect_err(|error| {
        if let Err(lost) = File::from(report).write_all(error.to_string().as_bytes()) {
            tracing::warn!(%lost, "the reason of a failed hook cannot be passed on");
        }
    })
}

/// The work of the stand-in: what libcontainer knows of the state comes on standard input.
fn work(kind: Kind, bundle: &Path, plan: &str) -> Result<(), OciError> {
    let plan: Plan = serde_json::from_str(plan).map_err(|error| OciError::invalid(error.to_string()))?;
    let mut state: Value =
        serde_json::from_reader(std::io::stdin()).map_err(|error| OciError::invalid(error.to_string()))?;
    state["bundle"] = json!(bundle);
    state["ociVersion"] = json!(super::OCI_VERSION);
    state["status"] = json!("creating");
    if state.get("annotations").is_none() {
        state["annotations"] = json!({});
    }
    if kind == Kind::CreateContainer {
        // The init process is our parent; /proc shows it as the runtime's namespace does.
        state["pid"] = json!(parent());
    }
    if plan.loopback {
        sys::loopback_up().map_err(OciError::system("bringing the loopback device up"))?;
    }
    if let Some(cwd) = &plan.cwd {
        make_directory(&plan.rootfs, cwd)
            .map_err(|reason| OciError::invalid(format!("process.cwd {}: {reason}", cwd.display())))?;
    }
    for directory in &plan.copy_up {
        copy_up(&plan.rootfs, directory)
            .map_err(|reason| OciError::invalid(format!("copying {} up: {reason}", directory.display())))?;
    }
    let cwd = (kind == Kind::CreateRuntime).then_some(bundle);
    run(kind, &plan.hooks, &state, cwd, &[])
}

fn parent() -> i32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.and_then(|pid| pid.trim().parse().ok()).unwrap_or_default()
}

/// Fills a tmpfs with what it hides, in the container's mount namespace: a copy of the root's mount alone does not
/// have the tmpfs over it. Both paths are resolved as the container will see them.
fn copy_up(rootfs: &Path, directory: &Path) -> Result<(), String> {
    let bare = sys::clone_mount(rootfs).map_err(|error| error.to_string())?;
    let source = match open_below(&bare, directory) {
        Ok(source) => source,
        // Nothing was hidden.
        Err(nix::errno::Errno::ENOENT | nix::errno::Errno::ENOTDIR) => return Ok(()),
        Err(errno) => return Err(errno.to_string()),
    };
    let root = std::fs::File::open(rootfs).map_err(|error| error.to_string())?;
    let target = open_below(&root.into(), directory).map_err(|errno| errno.to_string())?;
    // Without close-on-exec: cp reaches both by their numbers.
    let path = |descriptor: &OwnedFd| format!("/proc/self/fd/{}/.", descriptor.as_raw_fd());
    let output = Command::new("cp")
        .args(["-a", "--", &path(&source), &path(&target)])
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// Opens a directory as a process finds it for which `root` is the root.
fn open_below(root: &OwnedFd, path: &Path) -> Result<OwnedFd, nix::Error> {
    let how = OpenHow::new()
        .flags(OFlag::O_DIRECTORY | OFlag::O_RDONLY)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(root.as_raw_fd(), path, how).map(sys::received)
}

/// Makes what is missing of a directory below the root.
fn make_directory(rootfs: &Path, path: &Path) -> Result<(), String> {
    let root = OwnedFd::from(File::open(rootfs).map_err(|error| error.to_string())?);
    let mut parent = root.try_clone().map_err(|error| error.to_string())?;
    let mut so_far = PathBuf::from("/");
    for part in path.components().filter(|part| matches!(part, Component::Normal(_))) {
        so_far.push(part);
        parent = match open_below(&root, &so_far) {
            Ok(directory) => directory,
            Err(nix::errno::Errno::ENOENT) => mkdirat(
                Some(parent.as_raw_fd()),
                Path::new(part.as_os_str()),
                Mode::from_bits_truncate(0o755),
            )
            .and_then(|()| open_below(&root, &so_far))
            .map_err(|errno| errno.to_string())?,
            Err(errno) => return Err(errno.to_string()),
        };
    }
    Ok(())
}

/// Runs hooks in order; stops at the first that fails.
pub(crate) fn run(
    kind: Kind,
    hooks: &[Hook],
    state: &Value,
    cwd: Option<&Path>,
    default_env: &[String],
) -> Result<(), OciError> {
    for hook in hooks {
        run_one(hook, state, cwd, default_env).map_err(|reason| OciError::Hook {
            kind: kind.name(),
            path: hook.path().clone(),
            reason,
        })?;
    }
    Ok(())
}

fn run_one(hook: &Hook, state: &Value, cwd: Option<&Path>, default_env: &[String]) -> Result<(), String> {
    let mut command = Command::new(hook.path());
    if let Some((name, args)) = hook.args().as_ref().and_then(|args| args.split_first()) {
        command.arg0(name).args(args);
    }
    let env: HashMap<&str, &str> =
        hook.env().as_deref().unwrap_or(default_env).iter().filter_map(|each| each.split_once('=')).collect();
    command.env_clear().envs(env).stdin(Stdio::piped()).stdout(Stdio::null());
    if let Some(cwd) = cwd {
        command.current_dir(cwd);
    }
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let pid = i32::try_from(child.id()).map_err(|error| error.to_string())?;
    let pidfd = sys::pidfd_open(Pid::from_raw(pid)).map_err(|error| error.to_string())?;
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(state.to_string().as_bytes()) {
            // A hook that does not read its state may do so.
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(error.to_string()),
            Ok(()) | Err(_) => {}
        }
    }
    let patience = hook.timeout().and_then(|secs| u64::try_from(secs).ok()).map(Duration::from_secs);
    if !ends_within(pidfd.as_fd(), patience)? {
        sys::pidfd_kill(pidfd.as_fd()).map_err(|error| error.to_string())?;
        child.wait().map_err(|error| error.to_string())?;
        return Err(format!("killed after its timeout of {} s", patience.unwrap_or_default().as_secs()));
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err(ending(status)) }
}

fn ends_within(pidfd: std::os::fd::BorrowedFd<'_>, patience: Option<Duration>) -> Result<bool, String> {
    // What the clock cannot count is for ever.
    let end = patience.and_then(|patience| Instant::now().checked_add(patience));
    loop {
        let timeout = end.map_or(PollTimeout::NONE, |end| {
            let left = end.saturating_duration_since(Instant::now()).as_millis();
            PollTimeout::try_from(i32::try_from(left).unwrap_or(i32::MAX)).unwrap_or(PollTimeout::ZERO)
        });
        match poll(&mut [PollFd::new(pidfd, PollFlags::POLLIN)], timeout) {
            Ok(0) if end.is_none_or(|end| Instant::now() < end) => {}
            Ok(ready) => return Ok(ready > 0),
            Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.to_string()),
        }
    }
}

fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, signal) => format!("killed by signal {}", signal.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(script: &str, timeout: Option<i64>) -> Hook {
        let builder = HookBuilder::default().path("/bin/sh").args(["sh", "-c", script].map(String::from));
        let mut hook = builder.build().unwrap();
        hook.set_timeout(timeout);
        hook
    }

    #[test]
    fn a_hook_reads_the_state_and_has_no_environment() {
        let directory = tempfile::tempdir().unwrap();
        let script = format!("cat > {0}/state; env > {0}/env", directory.path().display());
        run(Kind::Poststart, &[hook(&script, None)], &json!({"id": "x"}), None, &[]).unwrap();
        let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
        assert_eq!(read("state"), r#"{"id":"x"}"#);
        assert!(!read("env").contains("HOME="));
    }

    #[test]
    fn failures_name_the_hook_and_stop_the_rest() {
        let directory = tempfile::tempdir().unwrap();
        let marker = directory.path().join("ran");
        let hooks = [hook("exit 3", None), hook(&format!("touch {}", marker.display()), None)];
        let error = run(Kind::CreateRuntime, &hooks, &json!({}), None, &[]).unwrap_err().to_string();
        assert_eq!(error, "createRuntime hook /bin/sh: exit status 3");
        assert!(!marker.exists());
    }

    #[test]
    fn a_hook_is_killed_at_its_timeout() {
        let error = run(Kind::Poststop, &[hook("while :; do :; done", Some(1))], &json!({}), None, &[]);
        assert!(error.unwrap_err().to_string().contains("timeout of 1 s"));
        for long in [10, i64::MAX] {
            run(Kind::Poststop, &[hook("exit 0", Some(long))], &json!({}), None, &[]).unwrap();
        }
    }

    #[test]
    fn relative_paths_and_timeouts_of_zero_are_refused() {
        let mut hooks = Hooks::default();
        hooks.set_poststop(Some(vec![hook("", Some(0))]));
        assert!(check(&hooks).unwrap_err().to_string().contains("greater than 0"));
        hooks.set_poststop(Some(vec![HookBuilder::default().path("x").build().unwrap()]));
        assert!(check(&hooks).unwrap_err().to_string().contains("absolute"));
    }
}
