//! State files: what a command reads from `ROOT/ID/record.json`, and what it would act upon.

use std::path::{Component, Path};

use super::refused;
use crate::oci::adapt::process_defaults;
use crate::oci::inspect::describe;
use crate::oci::store::{Record, decode};

const ID: &str = "box";

/// Decodes a record as a command on the container `box` does.
pub fn state(data: &[u8]) {
    let path = Path::new("/run/rlox/box/record.json");
    let record = match decode(data, ID, path) {
        Ok(record) => record,
        Err(error) => return refused(&error),
    };
    assert_eq!(record.id, ID);
    // Everything in this cgroup is killed and the cgroup removed.
    if let Some(group) = &record.group {
        let own = group.path().components().any(|part| matches!(part, Component::Normal(_)));
        let climbs = group.path().components().any(|part| matches!(part, Component::ParentDir));
        assert!(group.path().is_absolute() && own && !climbs, "{group:?}");
        for directory in [group.directory(""), group.directory("memory")] {
            assert!(directory.starts_with("/sys/fs/cgroup") && directory != Path::new("/sys/fs/cgroup"));
            assert_ne!(directory, Path::new("/sys/fs/cgroup/memory"));
        }
    }
    // This is killed.
    assert!(record.pid() >= 0);
    let shown = describe(&record);
    assert_eq!(shown["id"], ID);
    assert_eq!(shown["status"], record.status().name());
    reads_back(&record);
    // What `exec` starts from.
    let mut process = record.process.clone();
    match process_defaults(&mut process) {
        Ok(()) => {
            let sets = process.capabilities().clone().unwrap_or_default();
            assert!(sets.bounding().is_some() && sets.ambient().is_some(), "a set is left open");
        }
        Err(reason) => refused(&reason),
    }
}

fn reads_back(record: &Record) {
    let text = serde_json::to_vec(record).expect("an accepted record can be written");
    let again = decode(&text, ID, Path::new("/x")).expect("a written record can be read");
    assert_eq!(&again, record, "it reads back as another record");
}
