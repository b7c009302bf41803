//! Bundles as a launcher uses them: read once, with their filters compiled, and read again when they change.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use oci_spec::runtime::Spec;

use crate::error::RuntimeError;
use crate::filter::Filter;
use crate::spec::{self, absolute, for_libcontainer};

/// One bundle's `config.json` with absolute paths.
pub(crate) struct Bundle {
    pub(crate) spec: Spec,
    /// Its filter, unless that stayed in the spec.
    pub(crate) filter: Option<Filter>,
}

/// By which a changed file is noticed.
type Stamp = (u64, u64, i64, i64);

/// Bundles that were used before.
#[derive(Default)]
pub(crate) struct Bundles {
    loaded: HashMap<(PathBuf, bool), (Stamp, Rc<Bundle>)>,
}

impl Bundles {
    /// The bundle in this directory, with or without a filter that counts refused calls.
    pub(crate) fn get(&mut self, path: &Path, count_refused: bool) -> Result<Rc<Bundle>, RuntimeError> {
        let stamp = stamp(path)?;
        let key = (path.to_owned(), count_refused);
        if let Some((known, bundle)) = self.loaded.get(&key)
            && *known == stamp
        {
            return Ok(Rc::clone(bundle));
        }
        let bundle = Rc::new(load(path, count_refused)?);
        self.loaded.insert(key, (stamp, Rc::clone(&bundle)));
        Ok(bundle)
    }
}

fn stamp(path: &Path) -> Result<Stamp, RuntimeError> {
    let file = path.join("config.json");
    let found = fs::metadata(&file).map_err(|error| RuntimeError::Bundle {
        bundle: path.to_owned(),
        reason: format!("cannot load config.json: {error}"),
    })?;
    Ok((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

fn load(path: &Path, count_refused: bool) -> Result<Bundle, RuntimeError> {
    take_filter(absolute(spec::load(path)?, path), count_refused)
}

/// A section that stays is left as it was: it is put into libcontainer's form with the rest, and twice would be not at
/// all.
pub(crate) fn take_filter(spec: Spec, count_refused: bool) -> Result<Bundle, RuntimeError> {
    let mut without = spec.clone();
    if let Some(linux) = without.linux_mut()
        && let Some(seccomp) = linux.seccomp().clone()
    {
        linux.set_seccomp(Some(for_libcontainer(seccomp)?));
    }
    let filter = Filter::take(&mut without, count_refused)?;
    Ok(Bundle { spec: if filter.is_some() { without } else { spec }, filter })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_stays_for_libcontainer_is_left_as_it_was() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bundles/snippet");
        let mut spec = spec::load(&source).unwrap();
        assert!(take_filter(spec.clone(), true).unwrap().filter.is_some());
        spec.process_mut().as_mut().unwrap().set_no_new_privileges(Some(false));
        let bundle = take_filter(spec.clone(), true).unwrap();
        assert!(bundle.filter.is_none());
        assert_eq!(bundle.spec, spec);
    }

    #[test]
    fn a_bundle_is_read_once_and_again_when_it_changed() {
        let directory = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bundles/snippet/config.json");
        let text = fs::read_to_string(source).unwrap();
        fs::write(directory.path().join("config.json"), &text).unwrap();
        let mut bundles = Bundles::default();
        let first = bundles.get(directory.path(), false).unwrap();
        assert!(first.filter.is_some() && Rc::ptr_eq(&first, &bundles.get(directory.path(), false).unwrap()));
        fs::write(directory.path().join("config.json"), text + "\n").unwrap();
        assert!(!Rc::ptr_eq(&first, &bundles.get(directory.path(), false).unwrap()));
        assert!(bundles.get(&directory.path().join("none"), false).is_err());
    }
}
