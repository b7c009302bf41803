//! Devices by the Container Device Interface: `--device nvidia.com/gpu=0`.
//!
//! A vendor's tool describes its devices in files below `/etc/cdi` and `/var/run/cdi`. Each device is a list of
//! edits to an OCI spec: nodes, mounts, environment, hooks. This module reads those files by the rules of the CDI
//! specification 1.1.0 and applies the edits, so that no caller has to know what a GPU needs.
//!
//! The ready-made crate was not taken: it brings 222 crates and drops `hostPath`.

mod command;
mod document;
mod edits;
mod error;
mod names;
mod node;
mod registry;
mod version;

use std::path::PathBuf;

use clap::Args;
use oci_spec::runtime::{LinuxNamespaceType, Spec};

pub(crate) use command::SpecArgs;
pub use error::CdiError;
use registry::Registry;

/// Where CDI files lie; what is found in a later directory goes before what is found in an earlier one.
const DIRECTORIES: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];

/// Flags of every command that takes devices.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct DeviceArgs {
    /// Add a device by its CDI name, such as nvidia.com/gpu=0; may be repeated.
    #[arg(long = "device", value_name = "VENDOR/CLASS=NAME")]
    pub(crate) devices: Vec<String>,
    /// Search here for CDI files, in place of /etc/cdi and /var/run/cdi; may be repeated, later ones take priority.
    #[arg(long = "cdi-spec-dir", value_name = "DIR")]
    directories: Vec<PathBuf>,
}

impl DeviceArgs {
    /// Applies the edits of every device asked for; without any, no directory is read.
    pub(crate) fn apply(&self, spec: &mut Spec) -> Result<(), CdiError> {
        if self.devices.is_empty() {
            return Ok(());
        }
        let directories = match self.directories.is_empty() {
            true => DIRECTORIES.map(PathBuf::from).to_vec(),
            false => self.directories.clone(),
        };
        let registry = Registry::read(&directories);
        let nodes = edits::Nodes::for_caller(has_user_namespace(spec));
        edits::apply(spec, &registry.select(&self.devices)?, nodes)
    }
}

/// Whether the container has ids of its own, and so no right to make device nodes.
pub(crate) fn has_user_namespace(spec: &Spec) -> bool {
    let namespaces = spec.linux().as_ref().and_then(|linux| linux.namespaces().as_ref());
    namespaces.is_some_and(|all| all.iter().any(|each| each.typ() == LinuxNamespaceType::User))
}

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod properties;
#[cfg(test)]
mod tests;
