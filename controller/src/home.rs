//! Where bundles, corpus, harness and the runtime binary are.

use std::path::{Path, PathBuf};

/// A checkout or installation of rlox.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    /// Directory that holds `bundles/`, `corpus/` and `harness/`.
    pub(crate) root: PathBuf,
    /// The `rlox-runtime` binary.
    pub(crate) runtime: PathBuf,
}

/// The installation is incomplete.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HomeError {
    /// No directory with bundles was found.
    #[error("cannot find bundles/snippet/config.json above {start}; run from a checkout or set RLOX_HOME")]
    NoRoot {
        /// Where the search began.
        start: PathBuf,
    },
    /// The runtime is not beside this program.
    #[error("cannot find rlox-runtime at {path}; build it with: cargo build --release")]
    NoRuntime {
        /// Where it should be.
        path: PathBuf,
    },
    /// A bundle has no root file system yet.
    #[error("{bundle} has no root file system; prepare it with: {runtime} bundle prepare {bundle}")]
    NotPrepared {
        /// The bundle.
        bundle: PathBuf,
        /// The runtime that prepares it.
        runtime: PathBuf,
    },
}

impl Home {
    /// Looks in `RLOX_HOME`, then upward from this program and from the working directory.
    pub(crate) fn find() -> Result<Self, HomeError> {
        let program = std::env::current_exe().unwrap_or_default();
        let start = std::env::current_dir().unwrap_or_default();
        let is_root = |path: &&Path| path.join("bundles/snippet/config.json").is_file();
        let named = std::env::var_os("RLOX_HOME").map(PathBuf::from);
        let root = match &named {
            Some(path) => Some(path.as_path()).filter(is_root),
            None => start.ancestors().find(is_root).or_else(|| program.ancestors().find(is_root)),
        };
        let root = root.map(Path::to_owned).ok_or(HomeError::NoRoot { start: named.unwrap_or(start) })?;
        let beside = program.parent().unwrap_or(Path::new("/")).join("rlox-runtime");
        let runtime = std::env::var_os("RLOX_RUNTIME").map_or(beside, PathBuf::from);
        // Test programs sit one directory below the binaries.
        let below = program.ancestors().nth(2).map(|path| path.join("rlox-runtime"));
        let runtime =
            if runtime.is_file() { runtime } else { below.filter(|path| path.is_file()).unwrap_or(runtime) };
        if !runtime.is_file() {
            return Err(HomeError::NoRuntime { path: runtime });
        }
        let root = std::fs::canonicalize(&root).unwrap_or(root);
        Ok(Self { root, runtime })
    }

    /// The directory of a bundle that has been prepared.
    pub(crate) fn bundle(&self, name: &str) -> Result<PathBuf, HomeError> {
        let bundle = self.root.join("bundles").join(name);
        if bundle.join("rootfs/opt/rlox/prepared").is_file() {
            return Ok(bundle);
        }
        Err(HomeError::NotPrepared { bundle, runtime: self.runtime.clone() })
    }

    /// The version of a prepared bundle's Python; empty where it does not say.
    pub(crate) fn python_version(&self, name: &str) -> String {
        let stamp = self.root.join("bundles").join(name).join("rootfs/opt/rlox/prepared");
        let text = std::fs::read_to_string(stamp).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("python "));
        line.and_then(|line| line.split(' ').nth(1)).unwrap_or_default().to_owned()
    }

    /// The benchmark's directory.
    pub(crate) fn harness(&self) -> PathBuf {
        self.root.join("harness")
    }

    /// The corpus directory.
    pub(crate) fn corpus(&self) -> PathBuf {
        self.root.join("corpus")
    }
}
