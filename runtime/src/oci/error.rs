//! What can go wrong with a container of the OCI command line. The texts are read by engines: Podman, containerd and
//! Docker tell "it is gone" from "it failed" by words of the message.

use std::io;
use std::path::PathBuf;

use crate::error::RuntimeError;

/// A failed command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OciError {
    /// There is no container of this id.
    #[error("container does not exist: {id:?}")]
    NotFound { id: String },
    /// The id is taken.
    #[error("container with id {id:?} already exists")]
    Exists { id: String },
    /// The container's status does not admit the command.
    #[error("cannot {action} container {id:?}: it is {status}")]
    Status { id: String, action: &'static str, status: &'static str },
    /// A signal for a process that has ended.
    #[error("container not running: {id:?}")]
    NotRunning { id: String },
    /// Another command holds the container.
    #[error("container {id:?}: another command is working on it")]
    Busy { id: String },
    /// The arguments or a file named in them make no sense.
    #[error("{reason}")]
    Invalid { reason: String },
    /// `config.json` cannot be used.
    #[error("{path}: {reason}", path = path.display())]
    Config { path: PathBuf, reason: String },
    /// A hook did not succeed.
    #[error("{kind} hook {path}: {reason}", path = path.display())]
    Hook { kind: &'static str, path: PathBuf, reason: String },
    /// A limit or the cgroup itself.
    #[error("cgroup of container {id:?}: {reason}")]
    Cgroup { id: String, reason: String },
    /// The process that was to join the container did not start.
    #[error("exec in container {id:?} failed: {reason}")]
    Exec { id: String, reason: String },
    /// The system refused something.
    #[error("{action}: {source}")]
    System {
        action: String,
        #[source]
        source: io::Error,
    },
    /// Creating or starting failed in the layers below.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

impl OciError {
    /// Wraps a system error with what was being done.
    pub(crate) fn system(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::System { action, source }
    }

    /// The same for errors of `nix`.
    pub(crate) fn errno(action: impl Into<String>) -> impl FnOnce(nix::Error) -> Self {
        let action = action.into();
        move |errno| Self::System { action, source: errno.into() }
    }

    pub(crate) fn invalid(reason: impl Into<String>) -> Self {
        Self::Invalid { reason: reason.into() }
    }
}
