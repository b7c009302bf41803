//! Verification service and sweep scheduler of rlox.
//!
//! Data flows one way: `api` decodes a request into a [`job`], a worker in `sandbox` runs it in containers that
//! launcher processes create, [`judge`] turns facts into a verdict, `api` encodes it. Nothing here links
//! `libcontainer` or executes untrusted code.

pub mod cli;

mod api;
mod bench;
mod config;
mod corpus;
mod dialects;
mod doctor;
mod home;
mod job;
mod judge;
mod metrics;
mod progress;
mod sandbox;
mod script;
mod server;
mod service;
mod sweep;
mod tampering;
mod telemetry;
