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

    /// The message as one line without control characters.
    pub fn line(&self) -> String {
        printable(&self.to_string())
    }

    /// The same as a message to the controller.
    pub(crate) fn to_fault(&self) -> Fault {
        let kind = match self {
            Self::Bundle { .. } | Self::Request { .. } | Self::Device(_) => FaultKind::Request,
            Self::Create { .. } => FaultKind::Create,
            Self::Verify { .. } | Self::Host { .. } => FaultKind::Verify,
            Self::System { .. } => FaultKind::Supervise,
        };
        Fault { kind, message: self.line() }
    }
}

/// A message as one line that is safe to show: it may quote what somebody wrote into a file, and a terminal or a log
/// must not obey it.
pub(crate) fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() {
            line.extend(letter.escape_default());
        } else {
            line.push(letter);
        }
    }
    line
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_that_no_terminal_obeys() {
        let reason = "cwd a\nb\u{1b}[2J\u{9b}\0".to_owned();
        let line = RuntimeError::Request { reason }.line();
        assert_eq!(line, "request: cwd a\\nb\\u{1b}[2J\\u{9b}\\u{0}");
        assert_eq!(printable("größer als \"1\""), "größer als \"1\"");
    }
}
