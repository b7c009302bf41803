//! Why a device cannot be given. Every message says what was found and where.

use std::path::PathBuf;

/// A device asked for cannot be added.
#[derive(Debug, thiserror::Error)]
pub enum CdiError {
    /// The name is not a CDI name.
    #[error("{name:?} is no CDI device: {reason}; write VENDOR/CLASS=NAME, such as nvidia.com/gpu=0")]
    Name {
        /// What was asked for.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No file describes the device.
    #[error(
        "no CDI device {name}; found {found} in {searched}{broken}; NVIDIA's are written by: nvidia-ctk cdi generate \
         --output=/etc/cdi/nvidia.yaml"
    )]
    Missing {
        /// What was asked for.
        name: String,
        /// Every device that there is, or `none`.
        found: String,
        /// Directories searched.
        searched: String,
        /// Files that could not be used, with their reasons, or nothing.
        broken: String,
    },
    /// Two files of one directory describe the device.
    #[error("CDI device {name} is described by both {first} and {second}; remove one of them")]
    Conflict {
        /// The device.
        name: String,
        /// One file.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// A device node cannot be made as described.
    #[error("CDI device {device}: node {node}: {reason}")]
    Node {
        /// The device or, for edits of a whole file, its kind.
        device: String,
        /// Path of the node.
        node: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The container's spec has no place for the edits.
    #[error("CDI device {device}: {reason}")]
    Spec {
        /// The device or, for edits of a whole file, its kind.
        device: String,
        /// What is wrong.
        reason: String,
    },
}

/// Why a file was not used. It matters only where a device that was asked for is missing.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub(super) struct FileError {
    pub(super) path: PathBuf,
    pub(super) reason: String,
}
