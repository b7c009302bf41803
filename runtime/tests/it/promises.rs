//! The threat model names a test for each promise. A name that no test has is a promise that nobody keeps.

use std::fs;
use std::path::Path;

use crate::support::host::checkout;

/// Every source of the workspace and of the harness with its stem.
fn sources(directory: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() {
            if !["target", "rootfs", ".venv", ".tools", ".git"].contains(&name.as_str()) {
                sources(&path, found);
            }
        } else if let Some(stem) = name.strip_suffix(".rs").or_else(|| name.strip_suffix(".py")) {
            found.push((stem.to_owned(), fs::read_to_string(&path).unwrap_or_default()));
        }
    }
}

#[test]
fn every_promise_names_tests_that_exist() {
    let mut found = Vec::new();
    for directory in ["runtime", "controller", "harness/tests"] {
        sources(&checkout().join(directory), &mut found);
    }
    // A macro makes one test of each family of the corpus, so the word alone counts there.
    let exists = |stem: &str, test: &str| {
        found.iter().filter(|(name, _)| name == stem).any(|(_, text)| {
            text.contains(&format!("fn {test}("))
                || text.contains(&format!("def {test}("))
                || stem == "corpus" && text.contains(&format!(" {test} "))
        })
    };
    let page = fs::read_to_string(checkout().join("docs/threat-model.md")).unwrap();
    let table = page.split("## Promises").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| # "));
    let mut promises = 0;
    for row in rows {
        promises += 1;
        let tests = row.trim_end_matches('|').rsplit('|').next().unwrap();
        let names: Vec<_> = tests.split('`').filter_map(|word| word.split_once("::")).collect();
        assert!(!names.is_empty(), "no test: {row}");
        let absent: Vec<_> = names.iter().filter(|(stem, test)| !exists(stem, test)).collect();
        assert!(absent.is_empty(), "no such test: {absent:?} in {row}");
    }
    assert!(promises > 20, "the table was not found");
    assert!(!exists("isolation", "no_such_test"), "the search finds everything");
}
