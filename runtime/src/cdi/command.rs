//! `rlox-runtime spec --device`: what a device would change, to read or to keep.

use std::path::{Path, PathBuf};

use clap::Args;

use super::DeviceArgs;
use crate::error::RuntimeError;
use crate::oci::template;

/// Flags of `spec`.
#[derive(Debug, Clone, Args)]
pub(crate) struct SpecArgs {
    /// The bundle: where the file is written, or, with --device, whose config.json is taken in place of a template.
    #[arg(short, long, value_name = "DIR")]
    bundle: Option<PathBuf>,
    #[command(flatten)]
    devices: DeviceArgs,
}

impl SpecArgs {
    /// Whether the result is to be read, and not a file to be written.
    pub(crate) fn prints(&self) -> bool {
        !self.devices.devices.is_empty()
    }

    /// Where the file is written.
    pub(crate) fn bundle(&self) -> &Path {
        self.bundle.as_deref().unwrap_or_else(|| Path::new("."))
    }

    /// The config.json asked for.
    pub(crate) fn text(&self) -> Result<String, RuntimeError> {
        let mut spec = match &self.bundle {
            Some(bundle) => crate::spec::load(bundle)?,
            None => {
                let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
                let caller = (!uid.is_root()).then_some((uid.as_raw(), gid.as_raw()));
                serde_json::from_value(template::document(caller))
                    .map_err(|error| RuntimeError::Request { reason: error.to_string() })?
            }
        };
        self.devices.apply(&mut spec)?;
        serde_json::to_string_pretty(&spec)
            .map_err(|error| RuntimeError::Request { reason: error.to_string() })
    }
}
