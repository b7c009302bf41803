//! `exec`: another program in a running container.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use nix::unistd::Pid;
use oci_spec::runtime::{Capabilities, Capability, Process};

use super::Context;
use super::adapt::process_defaults;
use super::args::ExecArgs;
use super::create::has_user_namespace;
use super::error::OciError;
use super::store::{Record, Status, Store, replace};
use super::terminal::Listener;
use super::wait::{Signals, foreground};
use crate::container::tenant::Tenant;
use crate::sys;

/// Runs it; returns its exit code, or 0 once a detached one runs.
pub(crate) fn exec(context: &Context, args: &ExecArgs) -> Result<i32, OciError> {
    let store = Store::open(context.globals.root.as_deref());
    let record = store.record(&args.id)?;
    let status = record.status();
    let admitted = match status {
        Status::Running | Status::Created => true,
        Status::Paused => args.ignore_paused,
        Status::Creating | Status::Stopped => false,
    };
    if !admitted {
        return Err(OciError::Status { id: args.id.clone(), action: "exec in", status: status.name() });
    }
    let process = process(args, &record)?;
    let terminal = process.terminal() == Some(true);
    let (console, listener) = console(args, terminal)?;
    let mut signals = Signals::block()?;
    signals.unblock()?;
    let init = Pid::from_raw(record.pid());
    let init_pidfd = sys::pidfd_open(init).map_err(OciError::system("opening a pidfd"))?;
    if !record.init().is_some_and(|init| init.running()) {
        return Err(OciError::NotRunning { id: args.id.clone() });
    }
    let tenant = Tenant {
        init,
        init_pidfd,
        process: &process,
        seccomp: record.seccomp.as_ref(),
        group: record.group.as_ref(),
        console,
        preserve: i32::from(args.preserve_fds),
        new_user_namespace: has_user_namespace(&record),
    };
    let pid = tenant.start().map_err(|reason| OciError::Exec { id: args.id.clone(), reason })?;
    drop(tenant);
    if let Some(path) = &args.pid_file {
        replace(path, pid.to_string().as_bytes())
            .map_err(OciError::system(format!("writing {}", path.display())))?;
    }
    if args.detach {
        return Ok(0);
    }
    signals.block_again()?;
    let mut terminal = listener.map(Listener::accept).transpose()?;
    foreground(pid, &mut signals, terminal.as_mut())
}

/// The socket that takes the terminal: the caller's, or one of ours in the foreground.
fn console(args: &ExecArgs, terminal: bool) -> Result<(Option<OwnedFd>, Option<Listener>), OciError> {
    let connect = |path: &std::path::Path| {
        UnixStream::connect(path)
            .map(OwnedFd::from)
            .map_err(OciError::system(format!("connecting to {}", path.display())))
    };
    match (terminal, &args.console_socket) {
        (false, None) => Ok((None, None)),
        (false, Some(_)) => Err(OciError::invalid("--console-socket is for a process with a terminal")),
        (true, Some(path)) => Ok((Some(connect(path)?), None)),
        (true, None) if args.detach => {
            Err(OciError::invalid("a detached process with a terminal needs --console-socket"))
        }
        (true, None) => {
            let listener = Listener::bind(&std::env::temp_dir())?;
            Ok((Some(connect(&listener.path)?), Some(listener)))
        }
    }
}

/// What to run: a file's process section, or the container's own with the options over it.
fn process(args: &ExecArgs, record: &Record) -> Result<Process, OciError> {
    let mut process = match &args.process {
        Some(path) => {
            let text =
                std::fs::read(path).map_err(OciError::system(format!("reading {}", path.display())))?;
            serde_json::from_slice(&text)
                .map_err(|error| OciError::Config { path: path.clone(), reason: error.to_string() })?
        }
        None => from_options(args, record)?,
    };
    if args.process.is_some() && args.tty {
        process.set_terminal(Some(true));
    }
    if process.args().as_ref().is_none_or(Vec::is_empty) {
        return Err(OciError::invalid("exec: no program named"));
    }
    process_defaults(&mut process).map_err(OciError::invalid)?;
    if process.apparmor_profile().is_none() {
        process.set_apparmor_profile(record.process.apparmor_profile().clone());
    }
    Ok(process)
}

fn from_options(args: &ExecArgs, record: &Record) -> Result<Process, OciError> {
    let mut process = record.process.clone();
    process.set_terminal(Some(args.tty)).set_args(Some(args.args.clone()));
    if let Some(cwd) = &args.cwd {
        process.set_cwd(cwd.clone());
    }
    let mut env = process.env().clone().unwrap_or_default();
    for new in &args.env {
        let (name, _) = new
            .split_once('=')
            .ok_or_else(|| OciError::invalid(format!("--env {new:?}: has to be NAME=VALUE")))?;
        env.retain(|old| old.split('=').next() != Some(name));
        env.push(new.clone());
    }
    process.set_env(Some(env));
    let mut user = process.user().clone();
    if let Some(text) = &args.user {
        let wrong = || OciError::invalid(format!("--user {text:?}: has to be UID or UID:GID, as numbers"));
        let (uid, gid) = text.split_once(':').map_or((text.as_str(), None), |(uid, gid)| (uid, Some(gid)));
        user.set_uid(uid.parse().map_err(|_| wrong())?);
        if let Some(gid) = gid {
            user.set_gid(gid.parse().map_err(|_| wrong())?);
        }
    }
    if !args.additional_gids.is_empty() {
        let mut gids = user.additional_gids().clone().unwrap_or_default();
        gids.extend(&args.additional_gids);
        user.set_additional_gids(Some(gids));
    }
    process.set_user(user);
    if args.no_new_privs {
        process.set_no_new_privileges(Some(true));
    }
    if let Some(profile) = &args.apparmor {
        process.set_apparmor_profile(Some(profile.clone()));
    }
    if !args.cap.is_empty() {
        add_capabilities(&mut process, &args.cap)?;
    }
    Ok(process)
}

fn add_capabilities(process: &mut Process, names: &[String]) -> Result<(), OciError> {
    let mut added: HashSet<Capability> = HashSet::new();
    for name in names {
        let upper = name.to_ascii_uppercase();
        let full = if upper.starts_with("CAP_") { upper } else { format!("CAP_{upper}") };
        let capability = serde_json::from_value(serde_json::Value::String(full));
        added.insert(
            capability.map_err(|_| OciError::invalid(format!("--cap {name:?}: no such capability")))?,
        );
    }
    let mut sets = process.capabilities().clone().unwrap_or_default();
    let with = |set: &Option<Capabilities>| {
        let mut set = set.clone().unwrap_or_default();
        set.extend(added.iter().copied());
        Some(set)
    };
    // Not the inheritable set: that would hand them to every program that this one executes.
    let (bounding, effective, permitted) =
        (with(sets.bounding()), with(sets.effective()), with(sets.permitted()));
    sets.set_bounding(bounding).set_effective(effective).set_permitted(permitted);
    process.set_capabilities(Some(sets));
    Ok(())
}
