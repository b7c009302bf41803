//! OCI runtime for one untrusted program at a time, on youki's `libcontainer`.
//!
//! Everything here runs in a single-threaded process. `libcontainer` executes ordinary Rust between `clone` and
//! `exec`, and changes the caller's working directory; in a threaded process that deadlocks or races. So the
//! controller never links this crate: it talks to [`launcher`] processes over a socket.

mod capture;
mod cgroup;
mod container;
mod error;
mod interrupt;
mod oci;
mod prepare;
mod run;
mod spec;
mod staging;
mod supervise;
mod sys;

pub mod cli;
pub mod launcher;

pub use error::RuntimeError;
