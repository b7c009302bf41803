//! What crosses between the controller and a sandbox launcher.
//!
//! The controller is threaded and must never call `libcontainer`; the launcher is single-threaded and
//! must never see HTTP. This crate is all that both know: requests with limits, outcomes with facts, and
//! the framing that carries them (and file descriptors) over a Unix stream socket.

mod outcome;
mod request;
mod wire;

pub use outcome::{
    CgroupCounters, Ending, Fault, FaultKind, Interpreter, Load, Outcome, Output, RefusedCalls, Reply,
};
pub use request::{BindMount, Command, DescriptorRole, Limits, SandboxRequest, Stdio};
pub use wire::{MAX_DESCRIPTORS, MAX_FRAME, WireError, receive, send};
