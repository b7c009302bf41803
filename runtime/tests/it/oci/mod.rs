//! The OCI command line against the text of the OCI runtime specification: what each command does, in which states
//! it is refused, and what a container finds of its `config.json`.

mod config;
mod crash;
mod exec;
mod hooks;
mod lifecycle;
mod limits;
mod mounts;
pub(crate) mod support;
mod terminal;
