//! SandboxFusion's `POST /run_code`, as verl's and its own Python client send and read it.
//!
//! Those clients take a program for right where `status` is `Success`, and compare standard output. So `Success` says
//! that the program came to its own end with code 0 and that all of its output is there. Everything else is `Failed`
//! with a return code that is not 0; only a failure of ours is `SandboxError`, which verl counts as no result.

mod answer;
mod request;

pub(crate) use answer::{Overloaded, RunCodeResponse, RunStatus};
pub(crate) use request::{Decoded, RunCodeRequest};
