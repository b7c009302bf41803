//! What a device node is made of, completed from the host's own node where the file leaves it out.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

use oci_spec::runtime::LinuxDeviceType;

use super::document::DeviceNode;

/// A node with everything known.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) path: PathBuf,
    pub(super) host: PathBuf,
    pub(super) kind: LinuxDeviceType,
    pub(super) major: i64,
    pub(super) minor: i64,
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) access: String,
}

impl Node {
    /// Completes a described node. Where type and numbers are given, the host's node need not exist.
    pub(super) fn of(described: &DeviceNode) -> Result<Self, String> {
        let host = described.host_path.clone().unwrap_or_else(|| described.path.clone());
        let kind = described.kind.as_deref().filter(|kind| !kind.is_empty()).map(kind_of).transpose()?;
        let numbered = described.major.is_some() && described.minor.is_some();
        let complete = kind.is_some_and(|kind| kind == LinuxDeviceType::P || numbered);
        let mut node = Self {
            path: described.path.clone(),
            host,
            kind: kind.unwrap_or(LinuxDeviceType::C),
            major: described.major.unwrap_or(0),
            minor: described.minor.unwrap_or(0),
            mode: described.file_mode,
            uid: described.uid,
            gid: described.gid,
            access: described
                .permissions
                .clone()
                .filter(|text| !text.is_empty())
                .unwrap_or_else(|| "rwm".into()),
        };
        if !complete {
            node.complete(kind, described)?;
        }
        Ok(node)
    }

    fn complete(&mut self, wanted: Option<LinuxDeviceType>, described: &DeviceNode) -> Result<(), String> {
        let host = self.host.display();
        let metadata = fs::metadata(&self.host).map_err(|error| format!("{host} on the host: {error}"))?;
        let file_type = metadata.file_type();
        let found = match (file_type.is_char_device(), file_type.is_block_device(), file_type.is_fifo()) {
            (true, _, _) => LinuxDeviceType::C,
            (_, true, _) => LinuxDeviceType::B,
            (_, _, true) => LinuxDeviceType::P,
            (false, false, false) => return Err(format!("{host} on the host is no device")),
        };
        let same = wanted.is_none_or(|wanted| {
            wanted == found || wanted == LinuxDeviceType::U && found == LinuxDeviceType::C
        });
        if !same {
            return Err(format!("{host} on the host is of type {}, described is another", found.as_str()));
        }
        self.kind = found;
        self.major = described.major.unwrap_or(i64::from(nix::libc::major(metadata.rdev())));
        self.minor = described.minor.unwrap_or(i64::from(nix::libc::minor(metadata.rdev())));
        self.mode = self.mode.or(Some(metadata.mode() & 0o777));
        Ok(())
    }

    /// Whether a device cgroup knows this kind of node.
    pub(super) fn has_rule(&self) -> bool {
        matches!(self.kind, LinuxDeviceType::B | LinuxDeviceType::C | LinuxDeviceType::U)
    }
}

fn kind_of(text: &str) -> Result<LinuxDeviceType, String> {
    match text {
        "b" => Ok(LinuxDeviceType::B),
        "c" => Ok(LinuxDeviceType::C),
        "u" => Ok(LinuxDeviceType::U),
        "p" => Ok(LinuxDeviceType::P),
        other => Err(format!("unknown type {other:?}")),
    }
}
