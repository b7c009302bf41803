//! The properties on the seeds and on a fixed number of changes to them: the fuzzers' work without a fuzzer.

use std::fs;
use std::path::{Path, PathBuf};

use super::{cdi, config, mutate, state};

/// Changes to each seed; each builds on the one before, and starts anew after some.
const CHANGES: u64 = 600;
const CHAIN: u64 = 6;

fn manifest() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let listed = fs::read_dir(manifest().join("fuzz/seeds").join(target)).unwrap();
    let mut paths: Vec<PathBuf> = listed.map(|entry| entry.unwrap().path()).collect();
    paths.extend(match target {
        "config" => ["snippet", "grader", "trainer"]
            .map(|name| manifest().join("../bundles").join(name).join("config.json"))
            .to_vec(),
        "cdi" => vec![manifest().join("tests/it/fixtures/cdi-nvidia.yaml")],
        _ => Vec::new(),
    });
    paths.sort();
    assert!(!paths.is_empty());
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Checks the property on the seeds and their changes; shows the input where it does not hold.
fn check(target: &str, property: fn(&[u8])) {
    for (path, seed) in seeds(target) {
        property(&seed);
        let mut data = seed.clone();
        for number in 0..CHANGES {
            if number % CHAIN == 0 {
                data.clone_from(&seed);
            }
            data = mutate(&data, number);
            let tried = data.clone();
            let result = std::panic::catch_unwind(|| property(&tried));
            assert!(
                result.is_ok(),
                "change {number} of {}:\n{}",
                path.display(),
                String::from_utf8_lossy(&tried)
            );
        }
    }
}

#[test]
fn config_json() {
    check("config", config);
}

#[test]
fn cdi_files() {
    check("cdi", cdi);
}

#[test]
fn state_files() {
    check("state", state);
}

#[test]
fn seeds_are_accepted_and_so_are_many_changes_to_them() {
    use crate::oci::create::parse;
    use crate::oci::store::decode;
    let accepted = |target: &str, accepts: &dyn Fn(&[u8]) -> bool| {
        let mut count = 0;
        for (path, seed) in seeds(target) {
            assert!(accepts(&seed), "{}", path.display());
            count += (0..100).filter(|number| accepts(&mutate(&seed, *number))).count();
        }
        count
    };
    let of_configs = accepted("config", &|text| parse(Path::new("/x"), text).is_ok());
    let of_states = accepted("state", &|text| decode(text, "box", Path::new("/x")).is_ok());
    let kinds = seeds("config").len() + seeds("state").len();
    assert!(of_configs > 50 && of_states > 20, "{of_configs} and {of_states} of {kinds} seeds");
}

#[test]
fn a_seed_repeats_a_change() {
    let (_, seed) = seeds("config").remove(0);
    assert_eq!(mutate(&seed, 7), mutate(&seed, 7));
    assert_ne!(mutate(&seed, 7), mutate(&seed, 8));
}
