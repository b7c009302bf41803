//! Every CDI file of the directories, and which one describes a device.
//!
//! A file that cannot be read or parsed takes only its own devices away. It is named where a device is missed.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::document::{Document, Edits};
use super::error::{CdiError, FileError};
use super::names;
use crate::files::read_regular;

/// Longer files are not device descriptions.
const MAX_BYTES: u64 = 8 << 20;

/// All devices found.
pub(super) struct Registry {
    directories: Vec<PathBuf>,
    files: Vec<Found>,
    broken: Vec<FileError>,
}

struct Found {
    path: PathBuf,
    /// Index of its directory: higher goes first.
    priority: usize,
    document: Document,
}

/// Edits in the order of application, each with whose they are.
pub(super) type Selection<'a> = Vec<(String, &'a Edits)>;

impl Registry {
    /// Reads the directories; one that does not exist holds nothing.
    pub(super) fn read(directories: &[PathBuf]) -> Self {
        let mut registry = Self { directories: directories.to_vec(), files: Vec::new(), broken: Vec::new() };
        for (priority, directory) in directories.iter().enumerate() {
            let mut paths: Vec<PathBuf> = match fs::read_dir(directory) {
                Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => {
                    registry.broken.push(FileError { path: directory.clone(), reason: error.to_string() });
                    continue;
                }
            };
            paths.sort();
            for path in paths {
                registry.add(path, priority);
            }
        }
        registry
    }

    fn add(&mut self, path: PathBuf, priority: usize) {
        let json = match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => true,
            Some("yaml") => false,
            Some(_) | None => return,
        };
        let content = read_regular(&path, MAX_BYTES).map_err(|error| error.to_string());
        self.take(path, priority, json, content);
    }

    /// Takes in what was read of a file.
    fn take(&mut self, path: PathBuf, priority: usize, json: bool, content: Result<Vec<u8>, String>) {
        let text = content.and_then(|bytes| String::from_utf8(bytes).map_err(|error| error.to_string()));
        match text.and_then(|text| Document::parse(&text, json)) {
            Ok(document) => self.files.push(Found { path, priority, document }),
            Err(reason) => self.broken.push(FileError { path, reason }),
        }
    }

    /// A registry of one file that lies nowhere.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn of(content: &[u8], json: bool) -> Self {
        let mut registry = Self { directories: Vec::new(), files: Vec::new(), broken: Vec::new() };
        registry.take("/etc/cdi/one".into(), 0, json, Ok(content.to_vec()));
        registry
    }

    /// The document of that file, or why it was not used.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn only(&self) -> Result<&Document, String> {
        match (&self.files[..], &self.broken[..]) {
            ([file], []) => Ok(&file.document),
            (_, broken) => Err(broken.iter().map(ToString::to_string).collect()),
        }
    }

    /// The edits of these devices: those of a file once, before those of its first device.
    pub(super) fn select(&self, names: &[String]) -> Result<Selection<'_>, CdiError> {
        let mut selection = Selection::new();
        let (mut files, mut devices) = (Vec::new(), Vec::new());
        for name in names {
            if devices.contains(&name) {
                continue;
            }
            devices.push(name);
            let (found, edits) = self.find(name)?;
            if !files.contains(&&found.path) {
                files.push(&found.path);
                selection.push((found.document.kind.clone(), &found.document.container_edits));
            }
            selection.push((name.clone(), edits));
        }
        Ok(selection)
    }

    fn find(&self, qualified: &str) -> Result<(&Found, &Edits), CdiError> {
        let (kind, name) = names::qualified(qualified)
            .map_err(|reason| CdiError::Name { name: qualified.into(), reason })?;
        let mut found: Vec<(&Found, &Edits)> = Vec::new();
        for file in self.files.iter().filter(|file| file.document.kind == kind) {
            let device = file.document.devices.iter().find(|device| device.name == name);
            found.extend(device.map(|device| (file, &device.container_edits)));
        }
        let highest = found.iter().map(|(file, _)| file.priority).max();
        found.retain(|(file, _)| Some(file.priority) == highest);
        match found[..] {
            [] => Err(self.missing(qualified)),
            [one] => Ok(one),
            [(first, _), (second, _), ..] => Err(CdiError::Conflict {
                name: qualified.into(),
                first: first.path.clone(),
                second: second.path.clone(),
            }),
        }
    }

    fn missing(&self, name: &str) -> CdiError {
        let mut kinds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for file in &self.files {
            let devices = file.document.devices.iter().map(|device| device.name.as_str());
            kinds.entry(&file.document.kind).or_default().extend(devices);
        }
        let found: Vec<String> = kinds
            .into_iter()
            .flat_map(|(kind, mut devices)| {
                devices.sort_unstable();
                devices.dedup();
                devices.into_iter().map(move |device| format!("{kind}={device}"))
            })
            .collect();
        let broken: String = self.broken.iter().map(|error| format!("; cannot use {error}")).collect();
        let searched: Vec<String> =
            self.directories.iter().map(|directory| directory.display().to_string()).collect();
        CdiError::Missing {
            name: name.into(),
            found: if found.is_empty() { "none".into() } else { found.join(", ") },
            searched: searched.join(" and "),
            broken,
        }
    }
}
