//! Piston's `POST /api/v2/execute`, as open-r1's client sends and reads it.
//!
//! That client takes a run for right where `code` is 0. So 0 is for a program that came to its own end with code 0 and
//! whose output is whole; every other run has another code or a signal, and says why in `message`.

mod answer;
mod request;

pub(crate) use answer::{ExecuteResponse, Runtime, runtimes};
pub(crate) use request::ExecuteRequest;
