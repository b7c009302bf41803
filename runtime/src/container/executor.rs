//! The last steps inside a container: look the program up, run the hooks of this moment, execute it.

use std::collections::HashMap;
use std::ffi::CString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use libcontainer::workload::{Executor, ExecutorError, ExecutorSetEnvsError, ExecutorValidationError};
use nix::errno::Errno;
use oci_spec::runtime::{Hook, Spec};
use serde_json::Value;

use crate::oci::hooks::{Kind, run};

const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Executes the program of an OCI container, after its `startContainer` hooks.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) hooks: Vec<Hook>,
    pub(crate) state: Value,
}

impl Executor for Program {
    fn exec(&self, spec: &Spec) -> Result<(), ExecutorError> {
        let process = spec.process().as_ref().ok_or(ExecutorError::InvalidArg)?;
        let env = process.env().clone().unwrap_or_default();
        if !self.hooks.is_empty() {
            let mut state = self.state.clone();
            state["pid"] = std::process::id().into();
            run(Kind::StartContainer, &self.hooks, &state, None, &env)
                .map_err(|error| ExecutorError::Other(error.to_string()))?;
        }
        let args = process.args().clone().unwrap_or_default();
        execute(&args, &env).map_err(ExecutorError::Other)
    }

    fn validate(&self, spec: &Spec) -> Result<(), ExecutorValidationError> {
        let process = spec.process().as_ref();
        let args = process.and_then(|process| process.args().clone()).unwrap_or_default();
        let env = process.and_then(|process| process.env().clone()).unwrap_or_default();
        let found = find(&args, &env).map(drop);
        let restricted =
            found.and_then(|()| crate::null::make_writable()).and_then(|()| crate::landlock::restrict(spec));
        restricted.map_err(ExecutorValidationError::ArgValidationError)
    }

    fn setup_envs(&self, _envs: HashMap<String, String>) -> Result<(), ExecutorSetEnvsError> {
        // execve gets the environment itself, in the order of config.json.
        Ok(())
    }
}

/// Replaces this process; returns only with what prevented that.
pub(crate) fn execute(args: &[String], env: &[String]) -> Result<(), String> {
    let path = find(args, env)?;
    let text = |text: &str| CString::new(text).map_err(|_| format!("{text:?} holds a zero byte"));
    let arguments = args.iter().map(|each| text(each)).collect::<Result<Vec<_>, _>>()?;
    let mut environment = env.iter().map(|each| text(each)).collect::<Result<Vec<_>, _>>()?;
    if !env.iter().any(|each| each.starts_with("HOME=")) {
        environment.push(text(&format!("HOME={}", home(nix::unistd::getuid().as_raw())))?);
    }
    let path = text(&path.to_string_lossy())?;
    match nix::unistd::execve(&path, &arguments, &environment) {
        Ok(never) => match never {},
        Err(errno) => Err(message(errno, &args[0])),
    }
}

/// Words by which callers tell the two usual reasons apart.
fn message(errno: Errno, name: &str) -> String {
    let reason = if errno == Errno::EACCES {
        "permission denied, it does not have the correct permission"
    } else if errno == Errno::ENOENT {
        "no such file or directory"
    } else {
        errno.desc()
    };
    format!("exec {name:?}: {reason}")
}

/// Where the program lies, as a shell would find it.
fn find(args: &[String], env: &[String]) -> Result<PathBuf, String> {
    let name = args.first().filter(|name| !name.is_empty()).ok_or("process.args is empty")?;
    if name.contains('/') {
        let path = PathBuf::from(name);
        return match usable(&path) {
            Ok(true) => Ok(path),
            Ok(false) => Err(message(Errno::EACCES, name)),
            Err(Errno::ENOENT | Errno::ENOTDIR) => {
                Err(format!("exec {name:?}: no such file or directory (not found in $PATH)"))
            }
            Err(errno) => Err(message(errno, name)),
        };
    }
    let path = env.iter().find_map(|each| each.strip_prefix("PATH=")).unwrap_or(USUAL_PATH);
    let mut denied = false;
    for directory in path.split(':') {
        let candidate = Path::new(if directory.is_empty() { "." } else { directory }).join(name);
        match usable(&candidate) {
            Ok(true) => return Ok(candidate),
            Ok(false) | Err(Errno::EACCES) => denied = true,
            Err(_) => {}
        }
    }
    if denied {
        return Err(message(Errno::EACCES, name));
    }
    Err(format!("exec {name:?}: executable file not found in $PATH"))
}

fn usable(path: &Path) -> Result<bool, Errno> {
    let metadata =
        std::fs::metadata(path).map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    Ok(metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// The home directory of the user, as the container's own user list has it.
fn home(uid: u32) -> String {
    let list = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let found = list.lines().find_map(|line| {
        let mut fields = line.split(':');
        let id = fields.nth(2)?;
        let home = fields.nth(2)?;
        (id.parse() == Ok(uid) && !home.is_empty()).then(|| home.to_owned())
    });
    found.unwrap_or_else(|| if uid == 0 { "/root".into() } else { "/".into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|&word| word.into()).collect()
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert_eq!(find(&words(&["sh"]), &words(&["PATH=/nonexistent:/bin"])).unwrap(), Path::new("/bin/sh"));
        assert!(find(&words(&["sh"]), &[]).is_ok());
        assert!(find(&words(&["no-such"]), &[]).unwrap_err().contains("not found in $PATH"));
        assert!(find(&words(&["/no/such"]), &[]).unwrap_err().contains("no such file"));
        assert!(find(&words(&["/etc/passwd"]), &[]).unwrap_err().contains("permission denied"));
        assert!(find(&[], &[]).unwrap_err().contains("empty"));
    }
}
