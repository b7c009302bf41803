//! What all launchers of one controller share: the host's cgroup place, a run directory, names.
//!
//! It also cleans up after controllers that were killed: run directories and cgroups carry their owner's process
//! id and start time, and what belongs to a dead owner goes.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rlox_host::{CgroupHome, Isolation, Owner, isolation, prepare, remove_stale};

use super::ahead::Ahead;
use super::reports::RefusedReports;
use crate::config::ServiceConfig;
use crate::home::Home;

const PREFIX: &str = "rlox-";

/// Shared surroundings of launchers.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) home: Home,
    pub(crate) cgroups: CgroupHome,
    pub(crate) isolation: Isolation,
    directory: PathBuf,
    owner: Owner,
    next: AtomicU64,
    /// Graders' reports that were not believed.
    pub(crate) reports: RefusedReports,
    /// Containers that wait for their program.
    pub(crate) ahead: Ahead,
    /// What launchers of snippets start with.
    pub(crate) warmth: Option<Warmth>,
}

/// How launchers of snippets start an interpreter to copy.
#[derive(Debug)]
pub(crate) struct Warmth {
    pub(crate) bundle: PathBuf,
    pub(crate) modules: Vec<String>,
    /// The bundle's environment: an interpreter has it from its start.
    pub(crate) environment: Vec<(String, String)>,
}

impl Warmth {
    fn of(bundle: PathBuf, modules: &[String]) -> Result<Self, EnvironmentError> {
        let path = bundle.join("config.json");
        let text =
            fs::read(&path).map_err(EnvironmentError::system(format!("reading {}", path.display())))?;
        let config: serde_json::Value = serde_json::from_slice(&text)
            .map_err(EnvironmentError::system(format!("reading {}", path.display())))?;
        let entries = config["process"]["env"].as_array().into_iter().flatten();
        let environment = entries
            .filter_map(|entry| entry.as_str()?.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Ok(Self { bundle, modules: modules.to_vec(), environment })
    }
}

/// The surroundings cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnvironmentError {
    /// A layer is missing and the operator did not allow that.
    #[error(
        "this host cannot contain snippets as configured: {missing}; to run with less, name the layer: --allow-missing cgroup"
    )]
    Missing {
        /// Missing layers with remedies.
        missing: String,
    },
    /// The system refused.
    #[error("{action} failed: {reason}")]
    System {
        /// What was being done.
        action: String,
        /// The system's word.
        reason: String,
    },
}

impl EnvironmentError {
    fn system<E: std::fmt::Display>(action: impl Into<String>) -> impl FnOnce(E) -> Self {
        let action = action.into();
        move |error| Self::System { action, reason: error.to_string() }
    }
}

impl Environment {
    /// Prepares cgroups and a run directory, and removes what dead controllers left.
    pub(crate) fn prepare(home: Home, config: &ServiceConfig) -> Result<Self, EnvironmentError> {
        let cgroups = prepare().map_err(EnvironmentError::system("preparing cgroups"))?;
        let isolation = isolation(&cgroups);
        let refused = isolation.refused(config.allow_missing_cgroup, config.require_landlock);
        if !refused.is_empty() {
            return Err(EnvironmentError::Missing { missing: refused.join("; ") });
        }
        for missing in &isolation.missing {
            tracing::warn!(missing, "running without an isolation layer, as configured");
        }
        let parent = rlox_host::run_directory();
        let stale = remove_stale(&cgroups) + remove_stale_directories(&parent);
        if stale > 0 {
            tracing::warn!(stale, "removed cgroups and directories that a killed controller left");
        }
        let snippet =
            home.bundle("snippet").map_err(EnvironmentError::system("finding the snippet's bundle"));
        let warmth = match &config.preload {
            Some(modules) => Some(Warmth::of(snippet?, modules)?),
            None => None,
        };
        let owner = Owner::current().map_err(EnvironmentError::system("reading /proc/self/stat"))?;
        let directory = parent.join(format!("{PREFIX}{owner}"));
        DirBuilder::new()
            .mode(0o711)
            .create(&directory)
            .map_err(EnvironmentError::system(format!("creating {}", directory.display())))?;
        Ok(Self {
            home,
            cgroups,
            isolation,
            directory,
            owner,
            next: AtomicU64::new(0),
            reports: RefusedReports::default(),
            ahead: Ahead::default(),
            warmth,
        })
    }

    /// Where something is below the run directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A directory below the run directory.
    pub(crate) fn subdirectory(&self, name: &str) -> std::io::Result<PathBuf> {
        let path = self.directory.join(name);
        DirBuilder::new().recursive(true).mode(0o711).create(&path)?;
        Ok(path)
    }

    /// A directory below the run directory that only its owner may search.
    pub(crate) fn private_subdirectory(&self, name: &str) -> std::io::Result<PathBuf> {
        let path = self.directory.join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(path)
    }

    /// How the ids of one launcher's containers begin.
    pub(crate) fn slot_prefix(&self, slot: u16) -> String {
        format!("{}-{slot}-", self.owner)
    }

    /// A container id that no other container of this host has.
    pub(crate) fn container_id(&self, slot: u16) -> String {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        format!("{}{number}", self.slot_prefix(slot))
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            tracing::error!(directory = %self.directory.display(), %error, "cannot remove the run directory");
        }
    }
}

fn remove_stale_directories(parent: &Path) -> usize {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let name = entry.file_name();
            let owner = name
                .to_str()
                .and_then(|name| name.strip_prefix(PREFIX))
                .and_then(|rest| rest.trim_end_matches("-run").parse::<Owner>().ok());
            owner.is_some_and(|owner| !owner.alive()) && fs::remove_dir_all(entry.path()).is_ok()
        })
        .count()
}
