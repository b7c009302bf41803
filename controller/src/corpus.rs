//! The pinned corpus: a sweep over other snippets than those published would measure something else.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::job::hex;
use crate::judge::Verdict;

const SUMS: &str = "SHA256SUMS";
pub(crate) const ADVERSARIAL: &str = "adversarial_corpus_v1.json";
/// What a hostile snippet prints only if something forbidden worked.
pub(crate) const MARK: &str = "ESCAPED";

/// The corpus is not what was pinned.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CorpusError {
    /// A file differs from its pin.
    #[error(
        "{path} has SHA-256 {found}, pinned is {pinned}; restore the file, or, if the change is meant, put the \
         new digest into {sums}"
    )]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// Its digest now.
        found: String,
        /// The digest pinned.
        pinned: String,
        /// Where it is pinned.
        sums: PathBuf,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's word.
        #[source]
        source: std::io::Error,
    },
    /// A file of the corpus is malformed, or the list of pins lacks one.
    #[error("{path}: {reason}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// `adversarial_corpus_v1.json`, as far as the service runs it.
#[derive(Debug, Deserialize)]
pub(crate) struct Corpus {
    tests: Vec<String>,
    pub(crate) snippets: Vec<Snippet>,
}

/// One hostile program.
#[derive(Debug, Deserialize)]
pub(crate) struct Snippet {
    pub(crate) id: String,
    pub(crate) family: String,
    pub(crate) code: String,
    pub(crate) twin: Option<String>,
    tests: Option<Vec<String>>,
    pub(crate) expect: Expectation,
}

/// What its answer may be.
#[derive(Debug, Deserialize)]
pub(crate) struct Expectation {
    pub(crate) verdicts: Vec<Verdict>,
}

impl Corpus {
    /// Reads it; [`check`] says whether it is the pinned one.
    pub(crate) fn read(directory: &Path) -> Result<Self, CorpusError> {
        let path = directory.join(ADVERSARIAL);
        let text = read(&path)?;
        serde_json::from_slice(&text)
            .map_err(|error| CorpusError::Content { path, reason: error.to_string() })
    }

    /// The statements that judge a snippet.
    pub(crate) fn tests<'a>(&'a self, snippet: &'a Snippet) -> &'a [String] {
        snippet.tests.as_deref().unwrap_or(&self.tests)
    }
}

/// One verified file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pinned {
    pub(crate) name: String,
    pub(crate) digest: String,
}

/// Checks every pinned file of the corpus directory.
pub(crate) fn check(directory: &Path) -> Result<Vec<Pinned>, CorpusError> {
    let sums = directory.join(SUMS);
    let text = read(&sums)?;
    let text = String::from_utf8_lossy(&text);
    let malformed = |reason: String| CorpusError::Content { path: sums.clone(), reason };
    let mut verified = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (pinned, name) = line
            .split_once("  ")
            .ok_or_else(|| malformed(format!("not DIGEST, two spaces, NAME: {line:?}")))?;
        if name.contains('/') {
            return Err(malformed(format!("{name:?} is not in this directory")));
        }
        let path = directory.join(name);
        let found = hex(&Sha256::digest(read(&path)?));
        if found != pinned {
            return Err(CorpusError::Mismatch { path, found, pinned: pinned.to_owned(), sums: sums.clone() });
        }
        verified.push(Pinned { name: name.to_owned(), digest: found });
    }
    for needed in [ADVERSARIAL, "tasks_v1.jsonl"] {
        if !verified.iter().any(|each| each.name == needed) {
            return Err(malformed(format!("{needed} is not pinned")));
        }
    }
    Ok(verified)
}

fn read(path: &Path) -> Result<Vec<u8>, CorpusError> {
    std::fs::read(path).map_err(|source| CorpusError::Read { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corpus(names: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let mut sums = String::new();
        for name in names {
            std::fs::write(directory.path().join(name), name).unwrap();
            sums += &format!("{}  {name}\n", hex(&Sha256::digest(name)));
        }
        std::fs::write(directory.path().join(SUMS), sums).unwrap();
        directory
    }

    #[test]
    fn the_pinned_corpus_is_accepted_and_a_changed_one_named_with_both_digests() {
        let directory = corpus(&["adversarial_corpus_v1.json", "tasks_v1.jsonl"]);
        assert_eq!(check(directory.path()).unwrap().len(), 2);
        std::fs::write(directory.path().join("tasks_v1.jsonl"), "changed").unwrap();
        let error = check(directory.path()).unwrap_err().to_string();
        assert!(error.contains(&hex(&Sha256::digest("tasks_v1.jsonl"))), "{error}");
        assert!(error.contains(&hex(&Sha256::digest("changed"))), "{error}");
    }

    #[test]
    fn a_list_without_the_corpus_is_refused() {
        assert!(check(corpus(&["adversarial_corpus_v1.json"]).path()).is_err());
    }
}
