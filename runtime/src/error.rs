//! What can go wrong in the runtime, told by stage, because the stage decides what the caller may conclude.

use std::io;
use std::path::PathBuf;

use rlox_protocol::{Fault, FaultKind};

/// A failure of the runtime itself; it says nothing about the program.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The bundle cannot be used.
    #[error("bundle {bundle}: {reason}")]
    Bundle {
        /// The bundle's directory.
        bundle: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The request contradicts itself or the bundle.
    #[error("request: {reason}")]
    Request {
        /// What is wrong.
        reason: String,
    },
    /// The host cannot give what the configuration asks for.
    #[error("this host cannot contain the program: {reason}")]
    Host {
        /// What is missing, and what to do.
        reason: String,
    },
    /// libcontainer could not create the container.
    #[error("creating container {id} failed: {reason}")]
    Create {
        /// Container id.
        id: String,
        /// libcontainer's chain of reasons.
        reason: String,
    },
    /// Something that was asked for is not in force.
    #[error("container {id} refused before start: {reason}")]
    Verify {
        /// Container id.
        id: String,
        /// Which limit or layer, wanted and found.
        reason: String,
    },
    /// A device asked for cannot be given.
    #[error(transparent)]
    Device(#[from] crate::cdi::CdiError),
    /// A system call failed.
    #[error("{action} failed: {source}")]
    System {
        /// What was being done.
        action: String,
        /// The system's word.
        #[source]
        source: io::Error,
    },
}

impl RuntimeError {
    /// Wraps a system error with what was being done.
    pub(crate) fn system(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::System { action, source }
    }

    /// The same as a message to the controller.
    pub(crate) fn to_fault(&self) -> Fault {
        let kind = match self {
            Self::Bundle { .. } | Self::Request { .. } | Self::Device(_) => FaultKind::Request,
            Self::Create { .. } => FaultKind::Create,
            Self::Verify { .. } | Self::Host { .. } => FaultKind::Verify,
            Self::System { .. } => FaultKind::Supervise,
        };
        Fault { kind, message: self.to_string() }
    }
}

/// An error with all its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
