//! Files of one measurement: the programs, and bundles that run them in the snippet's root file system.
//!
//! The bundles are the snippet's own with another program, so that `runc`, `runsc` and `rlox-runtime` set up the same
//! container: namespaces, mounts, limits and filter. The directory carries its owner's name, by which a later start of
//! anything of rlox removes it where this one was killed.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use rlox_host::Owner;
use serde_json::{Value, json};

use super::workloads::{WORKLOADS, Workload};
use crate::home::{Home, HomeError};

/// Where the programs are in a container.
pub(super) const INSIDE: &str = "/tmp/rlox";
/// Packages of the bundle, in its root.
const SITE: &str = "/opt/rlox/site";

/// The files cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkspaceError {
    /// The installation is incomplete.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The system refused.
    #[error("cannot make {path}: {source}")]
    Make {
        /// The file.
        path: PathBuf,
        /// The system's word.
        #[source]
        source: std::io::Error,
    },
    /// The snippet's configuration cannot be used.
    #[error("{path} is no configuration of a bundle: {reason}")]
    Bundle {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// No interpreter.
    #[error("no Python of version 3 was found; install python3 or name one with RLOX_PYTHON")]
    NoPython,
}

/// The directory and what is in it; removed at the end.
#[derive(Debug)]
pub(super) struct Workspace {
    pub(super) directory: PathBuf,
    pub(super) programs: PathBuf,
    /// The root file system of the snippet's bundle.
    pub(super) root: PathBuf,
    pub(super) home: Home,
    /// The host's interpreter, by the rule of `bundle prepare`.
    pub(super) python: String,
    /// Its version.
    pub(super) version: String,
}

impl Workspace {
    pub(super) fn make(home: Home) -> Result<Self, WorkspaceError> {
        let bundle = home.bundle("snippet")?;
        let (python, version) = interpreter().ok_or(WorkspaceError::NoPython)?;
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| WorkspaceError::Make { path, source }
        };
        let parent = rlox_host::run_directory();
        let owner = Owner::current().map_err(failed(&parent))?;
        let directory = parent.join(format!("rlox-{owner}-run"));
        fs::DirBuilder::new().mode(0o711).create(&directory).map_err(failed(&directory))?;
        let programs = directory.join("programs");
        // From here on it is removed with the value, also where the rest fails.
        let space = Self { root: bundle.join("rootfs"), directory, programs, home, python, version };
        let write = |path: &Path, text: &str| {
            let parent = path.parent().unwrap_or(path);
            fs::create_dir_all(parent)
                .and_then(|()| fs::set_permissions(parent, fs::Permissions::from_mode(0o755)))
                .and_then(|()| fs::write(path, text))
                // Containers read it under other ids.
                .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o644)))
                .map_err(failed(path))
        };
        let original = bundle.join("config.json");
        let text = fs::read_to_string(&original).map_err(failed(&original))?;
        for workload in WORKLOADS {
            write(&space.programs.join(workload.file()), &space.text(&workload))?;
            let config = config(&text, &space.root, &space.programs, &workload.file())
                .map_err(|reason| WorkspaceError::Bundle { path: original.clone(), reason })?;
            write(&space.directory.join(format!("bundle-{}", workload.name)).join("config.json"), &config)?;
        }
        for engine in ["podman/storage", "podman/run", "podman/tmp"] {
            let path = space.directory.join(engine);
            fs::create_dir_all(&path).map_err(failed(&path))?;
        }
        Ok(space)
    }

    /// A program as its file has it: of packages, every way finds the bundle's.
    fn text(&self, workload: &Workload) -> String {
        if workload.needs.is_none() {
            return workload.code.into();
        }
        let outside = self.root.join(SITE.trim_start_matches('/'));
        format!("import sys\n\nsys.path += {:?}\n{}", [Path::new(SITE), &outside], workload.code)
    }

    /// For tests of what is made of it.
    #[cfg(test)]
    pub(super) fn imagined() -> Self {
        let path = PathBuf::from("/nowhere/rlox-speed");
        let home = Home { root: path.clone(), runtime: path.join("rlox-runtime") };
        let (programs, root) = (path.join("programs"), path.join("rootfs"));
        Self { directory: path, programs, root, home, python: "python3".into(), version: "3".into() }
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if self.directory.exists()
            && let Err(error) = fs::remove_dir_all(&self.directory)
        {
            tracing::error!(directory = %self.directory.display(), %error, "cannot remove the measurement's files");
        }
    }
}

/// The snippet's configuration with the interpreter on a file in place of the driver.
fn config(text: &str, root: &Path, programs: &Path, file: &str) -> Result<String, String> {
    let mut config: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    config["root"]["path"] = json!(root);
    let program = Path::new(INSIDE).join(file);
    config["process"]["args"] = json!(["/usr/bin/python3", "-I", "-S", program]);
    let mounts = config["mounts"].as_array_mut().ok_or("it has no mounts")?;
    mounts.push(json!({
        "destination": INSIDE, "type": "bind", "source": programs, "options": ["bind", "ro", "nosuid", "nodev"],
    }));
    Ok(config.to_string())
}

/// The first of the usual places whose interpreter answers, without wrapper scripts, and its version.
fn interpreter() -> Option<(String, String)> {
    let named = std::env::var_os("RLOX_PYTHON").map(PathBuf::from);
    let usual = ["/usr/bin/python3", "python3"].map(PathBuf::from);
    named.into_iter().chain(usual).find_map(|python| {
        let question = "import sys; print(sys.executable); print(sys.version.split()[0])";
        let output = Command::new(python).args(["-I", "-c", question]).output().ok()?;
        let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
        let (executable, version) = text.trim().split_once('\n')?;
        Some((executable.to_owned(), version.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_differs_from_the_snippets_in_its_program_alone() {
        let text = r#"{"process": {"args": ["x"], "noNewPrivileges": true}, "root": {"path": "rootfs", "readonly": true},
            "mounts": [{"destination": "/proc"}], "linux": {"seccomp": {}}}"#;
        let made = config(text, Path::new("/r"), Path::new("/p"), "a.py").unwrap();
        let made: Value = serde_json::from_str(&made).unwrap();
        assert_eq!(made["root"], json!({ "path": "/r", "readonly": true }));
        assert_eq!(made["process"]["args"][3], "/tmp/rlox/a.py");
        assert_eq!(made["process"]["noNewPrivileges"], true);
        assert_eq!(made["mounts"].as_array().unwrap().len(), 2);
        assert_eq!(made["linux"], json!({ "seccomp": {} }));
        assert!(config("{}", Path::new("/r"), Path::new("/p"), "a.py").is_err());
    }

    #[test]
    fn a_program_that_imports_packages_is_told_where_they_are() {
        let space = Workspace::imagined();
        let [plain, imports] = WORKLOADS.map(|workload| space.text(&workload));
        assert_eq!(plain, WORKLOADS[0].code);
        let places = r#"sys.path += ["/opt/rlox/site", "/nowhere/rlox-speed/rootfs/opt/rlox/site"]"#;
        assert!(imports.contains(places) && imports.ends_with(WORKLOADS[1].code), "{imports}");
    }

    #[test]
    fn an_interpreter_is_found_with_its_version() {
        let (python, version) = interpreter().unwrap();
        assert!(Path::new(&python).is_file() && version.starts_with('3'), "{python} {version}");
    }
}
