//! The programs that are graded: the pinned forgeries, their honest twins and the honest programs.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::corpus::{self, CorpusError, Pinned};

const FORGERIES: &str = "forgeries_v1.json";
const HONEST: &str = "honest_v1.json";
/// Family of the programs that belong to no trick.
const HONEST_FAMILY: &str = "honest";

/// One program with its tests, as its author wrote them.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Program {
    pub(crate) id: String,
    #[serde(default = "honest_family")]
    pub(crate) family: String,
    /// Whether it computes the answers. The corpus of honest programs leaves it out.
    #[serde(default = "yes")]
    pub(crate) rewarded: bool,
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) tests: Vec<String>,
    #[serde(default)]
    pub(crate) stdio: Vec<Exchange>,
    pub(crate) output_bytes: Option<u64>,
}

/// An input and the output that is right.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Exchange {
    pub(crate) stdin: String,
    pub(crate) stdout: String,
}

#[derive(Deserialize)]
struct Corpus {
    programs: Vec<Program>,
}

fn honest_family() -> String {
    HONEST_FAMILY.into()
}

fn yes() -> bool {
    true
}

/// Which programs are graded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selection {
    /// Only this family.
    pub(crate) family: Option<String>,
    /// At most so many, spread evenly over all of them.
    pub(crate) limit: Option<usize>,
}

/// The programs cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramsError {
    /// The corpus is not the pinned one.
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's word.
        #[source]
        source: std::io::Error,
    },
    /// A file holds something else.
    #[error("{path} is no corpus of programs: {reason}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// No program is of that family.
    #[error("no program of family {family:?}; there are: {known}")]
    NoFamily {
        /// What was asked for.
        family: String,
        /// What could be.
        known: String,
    },
}

/// Programs of the corpus directory, and the pins of the files that hold them.
pub(crate) fn load(
    directory: &Path,
    selection: &Selection,
) -> Result<(Vec<Program>, Vec<Pinned>), ProgramsError> {
    let mut pins = corpus::check(directory)?;
    pins.retain(|pin| [FORGERIES, HONEST].contains(&pin.name.as_str()));
    let mut programs = read(&directory.join(FORGERIES))?;
    programs.extend(read(&directory.join(HONEST))?);
    Ok((select(programs, selection)?, pins))
}

fn read(path: &Path) -> Result<Vec<Program>, ProgramsError> {
    let malformed = |reason: String| ProgramsError::Malformed { path: path.to_owned(), reason };
    let bytes =
        std::fs::read(path).map_err(|source| ProgramsError::Read { path: path.to_owned(), source })?;
    let corpus: Corpus = serde_json::from_slice(&bytes).map_err(|error| malformed(error.to_string()))?;
    // One without tests would count as rewarded by every way.
    match corpus.programs.iter().find(|program| program.tests.is_empty() && program.stdio.is_empty()) {
        Some(program) => Err(malformed(format!("{} has no tests", program.id))),
        None => Ok(corpus.programs),
    }
}

fn select(mut programs: Vec<Program>, selection: &Selection) -> Result<Vec<Program>, ProgramsError> {
    if let Some(family) = &selection.family {
        let mut known: Vec<_> = programs.iter().map(|program| program.family.clone()).collect();
        known.sort();
        known.dedup();
        programs.retain(|program| program.family == *family);
        if programs.is_empty() {
            return Err(ProgramsError::NoFamily { family: family.clone(), known: known.join(", ") });
        }
    }
    let limit = selection.limit.unwrap_or(usize::MAX).min(programs.len());
    // Evenly spread, so that a short run meets every family and both kinds.
    let wanted: Vec<_> = (0..limit).map(|number| number * programs.len() / limit.max(1)).collect();
    let all = std::mem::take(&mut programs);
    Ok(all
        .into_iter()
        .enumerate()
        .filter(|(index, _)| wanted.contains(index))
        .map(|(_, each)| each)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(number: usize, family: &str) -> Program {
        let text = format!(r#"{{"id": "{number}", "family": "{family}", "code": "", "tests": ["x"]}}"#);
        serde_json::from_str(&text).unwrap()
    }

    fn ids(programs: &[Program]) -> Vec<&str> {
        programs.iter().map(|program| program.id.as_str()).collect()
    }

    #[test]
    fn a_limit_spreads_over_all_and_a_family_that_is_not_there_is_named() {
        let all: Vec<_> = (0..10).map(|number| program(number, ["a", "b"][number % 2])).collect();
        let some = |family: Option<&str>, limit| {
            select(all.clone(), &Selection { family: family.map(str::to_owned), limit })
        };
        assert_eq!(ids(&some(None, Some(3)).unwrap()), ["0", "3", "6"]);
        assert_eq!(ids(&some(Some("b"), Some(2)).unwrap()), ["1", "5"]);
        assert_eq!(some(None, Some(99)).unwrap().len(), 10);
        let error = some(Some("c"), None).unwrap_err().to_string();
        assert!(error.contains("\"c\"") && error.contains("a, b"), "{error}");
    }

    #[test]
    fn a_program_without_tests_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), r#"{"programs": [{"id": "bare", "code": ""}]}"#).unwrap();
        assert!(read(file.path()).unwrap_err().to_string().contains("bare"));
    }
}
