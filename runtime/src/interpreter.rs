//! Which Python a bundle gets, and what a launcher has to know of it later.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

/// In a prepared root file system: what was copied into it.
pub(crate) const RECORD: &str = "opt/rlox/interpreter.json";

/// Asked of a candidate, which answers with an [`Interpreter`] as JSON.
const QUESTION: &str = "\
import json, os, site, sys, sysconfig
assert sys.version_info >= (3, 11), 'version ' + sys.version.split()[0]
base = {'base': sys.base_prefix, 'installed_base': sys.base_prefix}
platform = {'platbase': sys.base_exec_prefix, 'installed_platbase': sys.base_exec_prefix}
libraries = [sysconfig.get_path('stdlib', vars=base), sysconfig.get_path('platstdlib', vars=platform)]
directory = sysconfig.get_config_var('LIBDIR') or ''
directories = [directory, os.path.join(directory, sysconfig.get_config_var('MULTIARCH') or ''),
               os.path.join(sys.base_prefix, 'lib')]
names = [sysconfig.get_config_var('INSTSONAME'), 'libpython%d.%d.so.1.0' % sys.version_info[:2]]
found = [os.path.join(place, name) for place in directories for name in names if name and '.so' in name]
print(json.dumps({
    'executable': os.path.realpath(getattr(sys, '_base_executable', sys.executable)),
    'version': sys.version.split()[0],
    'libraries': sorted(set(libraries)),
    'library': next((os.path.realpath(path) for path in found if os.path.exists(path)), None),
    'site': site.getsitepackages([sys.base_prefix])[0],
}))
";

/// One CPython of this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Interpreter {
    pub(crate) executable: PathBuf,
    pub(crate) version: String,
    /// Directories of the standard library.
    pub(crate) libraries: Vec<PathBuf>,
    /// The interpreter as a shared library, where the host has it.
    pub(crate) library: Option<PathBuf>,
    /// Where packages are looked for by default.
    pub(crate) site: PathBuf,
}

impl Interpreter {
    /// What a prepared root file system says of it.
    pub(crate) fn record(&self) -> String {
        // Strings and paths of text always become JSON.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The interpreter of a prepared root file system.
    pub(crate) fn of_root(root: &Path) -> Result<Self, String> {
        let path = root.join(RECORD);
        let text =
            std::fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// The interpreter asked for, or `RLOX_PYTHON`, or the system's, or the first in `PATH`; 3.11 or newer.
pub(crate) fn find(wanted: Option<&Path>) -> Result<Interpreter, String> {
    let from_environment = std::env::var_os("RLOX_PYTHON").map(PathBuf::from);
    let candidates: Vec<PathBuf> = match wanted.map(Path::to_owned).or(from_environment) {
        Some(path) => vec![path],
        None => vec!["/usr/bin/python3".into(), "python3".into()],
    };
    let mut reasons = Vec::new();
    for candidate in &candidates {
        match ask(candidate) {
            Ok(interpreter) => return Ok(interpreter),
            Err(reason) => reasons.push(format!("{}: {reason}", candidate.display())),
        }
    }
    Err(format!(
        "no usable Python of version 3.11 or newer ({}); install python3 or name one with --python or RLOX_PYTHON",
        reasons.join("; ")
    ))
}

fn ask(python: &Path) -> Result<Interpreter, String> {
    let output =
        Command::new(python).args(["-I", "-c", QUESTION]).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(text.lines().last().unwrap_or("it failed").to_owned());
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("unexpected answer {:?}: {error}", String::from_utf8_lossy(&output.stdout)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_has_one_and_its_record_reads_back() {
        let found = find(None).unwrap();
        assert!(found.executable.is_absolute() && found.libraries.iter().all(|path| path.is_dir()));
        assert_eq!(serde_json::from_str::<Interpreter>(&found.record()).unwrap(), found);
    }

    #[test]
    fn what_is_no_python_is_refused_with_its_reason() {
        let error = find(Some(Path::new("/bin/false"))).unwrap_err();
        assert!(error.contains("/bin/false") && error.contains("--python"), "{error}");
    }
}
