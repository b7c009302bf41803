//! OCI runtime for one untrusted program at a time, on youki's `libcontainer`.
//!
//! Everything here runs in a single-threaded process. `libcontainer` executes ordinary Rust between `clone` and
//! `exec`, and changes the caller's working directory; in a threaded process that deadlocks or races. So the
//! controller never links this crate: it talks to [`launcher`] processes over a socket.

mod bundles;
mod capture;
mod cdi;
mod cgroup;
mod container;
mod deadline;
mod doctor;
mod error;
mod files;
mod filter;
mod handover;
mod interpreter;
mod interrupt;
mod landlock;
mod meter;
mod null;
mod oci;
mod overlay;
mod prepare;
mod python;
mod redirect;
mod refused;
mod run;
mod sandbox;
mod sealed;
mod spec;
mod staging;
mod supervise;
mod sys;
mod warm;
mod workload;

pub mod cli;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod launcher;

pub use cdi::CdiError;
pub use error::RuntimeError;
