//! A CDI file as it is written. Unknown fields are refused, as the specification wants it: an edit that is not
//! understood would be an edit left out.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

/// One file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Document {
    pub(super) cdi_version: String,
    pub(super) kind: String,
    #[serde(default)]
    pub(super) annotations: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) devices: Vec<Device>,
    #[serde(default)]
    pub(super) container_edits: Edits,
}

/// One device of a file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Device {
    pub(super) name: String,
    #[serde(default)]
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) container_edits: Edits,
}

/// Edits to an OCI spec.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Edits {
    pub(super) env: Vec<String>,
    pub(super) device_nodes: Vec<DeviceNode>,
    pub(super) net_devices: Vec<NetDevice>,
    pub(super) mounts: Vec<Mount>,
    pub(super) hooks: Vec<Hook>,
    pub(super) intel_rdt: Option<IntelRdt>,
    #[serde(rename = "additionalGids")]
    pub(super) additional_gids: Vec<u32>,
}

/// A device node in the container.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DeviceNode {
    pub(super) path: PathBuf,
    pub(super) host_path: Option<PathBuf>,
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) major: Option<i64>,
    pub(super) minor: Option<i64>,
    pub(super) file_mode: Option<u32>,
    pub(super) permissions: Option<String>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
}

/// A network device moved into the container.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NetDevice {
    pub(super) host_interface_name: String,
    pub(super) name: String,
}

/// A mount of a host path.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Mount {
    pub(super) host_path: PathBuf,
    pub(super) container_path: PathBuf,
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    #[serde(default)]
    pub(super) options: Vec<String>,
}

/// A program that runs at a point of the container's life.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Hook {
    pub(super) hook_name: HookName,
    pub(super) path: PathBuf,
    #[serde(default)]
    pub(super) args: Vec<String>,
    #[serde(default)]
    pub(super) env: Vec<String>,
    pub(super) timeout: Option<i64>,
}

/// Points of the container's life, as the OCI specification names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum HookName {
    Prestart,
    CreateRuntime,
    CreateContainer,
    StartContainer,
    Poststart,
    Poststop,
}

/// Cache and memory bandwidth of Intel's RDT.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct IntelRdt {
    #[serde(rename = "closID")]
    pub(super) clos_id: Option<String>,
    pub(super) l3_cache_schema: Option<String>,
    pub(super) mem_bw_schema: Option<String>,
    pub(super) schemata: Vec<String>,
    pub(super) enable_monitoring: bool,
    #[serde(rename = "enableCMT")]
    pub(super) enable_cmt: bool,
    #[serde(rename = "enableMBM")]
    pub(super) enable_mbm: bool,
}

impl Document {
    /// Reads the text of a `.json` or `.yaml` file and checks all of it.
    pub(super) fn parse(text: &str, json: bool) -> Result<Self, String> {
        let document: Self = match json {
            true => serde_json::from_str(text).map_err(|error| error.to_string())?,
            false => yaml(text)?,
        };
        document.check()?;
        Ok(document)
    }

    fn check(&self) -> Result<(), String> {
        super::names::kind(&self.kind)?;
        super::version::check(self)?;
        self.container_edits.check()?;
        if self.devices.is_empty() {
            return Err("it describes no device".into());
        }
        let mut seen = std::collections::BTreeSet::new();
        for device in &self.devices {
            super::names::device(&device.name)?;
            if !seen.insert(&device.name) {
                return Err(format!("it describes device {:?} twice", device.name));
            }
            if device.container_edits == Edits::default() {
                return Err(format!("device {:?} has no edits", device.name));
            }
            device.container_edits.check().map_err(|reason| format!("device {:?}: {reason}", device.name))?;
        }
        Ok(())
    }
}

/// YAML 1.1 writes octal numbers with a leading 0, and vendors' tools are of its time.
fn yaml(text: &str) -> Result<Document, String> {
    let mut options = serde_saphyr::Options::default();
    options.legacy_octal_numbers = true;
    serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())
}

impl Edits {
    fn check(&self) -> Result<(), String> {
        for entry in &self.env {
            if entry.split_once('=').is_none_or(|(name, _)| name.is_empty()) {
                return Err(format!("environment entry {entry:?} is not NAME=VALUE"));
            }
        }
        for node in &self.device_nodes {
            node.check()?;
        }
        for mount in &self.mounts {
            absolute("containerPath", &mount.container_path)?;
            if mount.host_path.as_os_str().is_empty() {
                return Err("a mount has an empty hostPath".into());
            }
        }
        for hook in &self.hooks {
            absolute("a hook's path", &hook.path)?;
            if hook.timeout.is_some_and(|timeout| timeout <= 0) {
                return Err(format!("hook {}: the timeout has to be greater than 0", hook.path.display()));
            }
            if let Some(entry) = hook.env.iter().find(|entry| !entry.contains('=')) {
                return Err(format!("a hook's environment entry {entry:?} is not NAME=VALUE"));
            }
        }
        for device in &self.net_devices {
            if device.host_interface_name.is_empty() || device.name.is_empty() {
                return Err("a network device has an empty name".into());
            }
        }
        Ok(())
    }
}

impl DeviceNode {
    fn check(&self) -> Result<(), String> {
        absolute("a device node's path", &self.path)?;
        if let Some(host) = &self.host_path {
            absolute("a device node's hostPath", host)?;
        }
        if let Some(kind) = self.kind.as_deref().filter(|kind| !["b", "c", "u", "p", ""].contains(kind)) {
            return Err(format!("device node {} has the unknown type {kind:?}", self.path.display()));
        }
        // In a rule for devices a negative number stands for every one.
        let numbered = |number: Option<i64>| number.is_none_or(|number| u32::try_from(number).is_ok());
        if !numbered(self.major) || !numbered(self.minor) {
            return Err(format!("device node {} has an impossible number", self.path.display()));
        }
        let known = |permissions: &String| permissions.chars().all(|letter| "rwm".contains(letter));
        if let Some(permissions) = self.permissions.as_ref().filter(|text| !known(text)) {
            return Err(format!("device node {} has the permissions {permissions:?}", self.path.display()));
        }
        Ok(())
    }
}

fn absolute(what: &str, path: &std::path::Path) -> Result<(), String> {
    if path.is_absolute() { Ok(()) } else { Err(format!("{what} {:?} is not absolute", path.display())) }
}
