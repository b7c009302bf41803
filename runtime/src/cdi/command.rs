//! `rlox-runtime spec --device`: what a device would change, to read or to keep.

use std::path::PathBuf;

use clap::Args;
use oci_spec::runtime::Spec;

use super::DeviceArgs;
use crate::error::RuntimeError;

/// Flags of `spec`.
#[derive(Debug, Args)]
pub(crate) struct SpecArgs {
    /// Take this bundle's config.json; otherwise a template for one shell.
    #[arg(short, long, value_name = "DIR")]
    bundle: Option<PathBuf>,
    #[command(flatten)]
    devices: DeviceArgs,
}

impl SpecArgs {
    /// The config.json asked for.
    pub(crate) fn text(&self) -> Result<String, RuntimeError> {
        let mut spec = match &self.bundle {
            Some(bundle) => Spec::load(bundle.join("config.json")).map_err(|error| RuntimeError::Bundle {
                bundle: bundle.clone(),
                reason: format!("cannot load config.json: {error}"),
            })?,
            None => match (nix::unistd::geteuid(), nix::unistd::getegid()) {
                (uid, _) if uid.is_root() => Spec::default(),
                (uid, gid) => Spec::rootless(uid.as_raw(), gid.as_raw()),
            },
        };
        self.devices.apply(&mut spec)?;
        serde_json::to_string_pretty(&spec)
            .map_err(|error| RuntimeError::Request { reason: error.to_string() })
    }
}
