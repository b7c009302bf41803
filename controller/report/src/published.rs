//! The result that the benchmark's tutorial publishes, kept beside ours and never mixed into it.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::model::Condition;

/// A published result: other hardware, another model; not measured here.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Published {
    /// Says that nothing in it was measured here.
    pub note: &'static str,
    /// The machine.
    pub hardware: &'static str,
    /// Steps a trial.
    pub steps: u32,
    /// Seeds a cell.
    pub seeds: u32,
    /// Survivors of the baseline by percent.
    #[serde(serialize_with = "by_percent")]
    pub in_loop: [(&'static str, [u32; 2]); 4],
    /// Survivors of the treatment by percent.
    #[serde(serialize_with = "by_percent")]
    pub rlox: [(&'static str, [u32; 2]); 4],
    /// Final reward of the baseline.
    pub final_reward_in_loop: f64,
    /// Final reward of the treatment.
    pub final_reward_rlox: f64,
}

impl Published {
    /// Survivors and trials of one cell, where one was published.
    #[must_use]
    pub fn cell(&self, condition: Condition, percent: &str) -> Option<[u32; 2]> {
        let row = match condition {
            Condition::InLoop => &self.in_loop,
            Condition::Rlox => &self.rlox,
        };
        row.iter().find(|(p, _)| *p == percent).map(|(_, cell)| *cell)
    }
}

/// What the tutorial publishes.
pub const PUBLISHED: Published = Published {
    note: "published by the benchmark's tutorial, not measured here",
    hardware: "RTX 5090",
    steps: 30,
    seeds: 3,
    in_loop: [("0", [3, 3]), ("1", [3, 3]), ("5", [2, 3]), ("10", [1, 3])],
    rlox: [("0", [3, 3]), ("1", [3, 3]), ("5", [3, 3]), ("10", [3, 3])],
    final_reward_in_loop: 0.917,
    final_reward_rlox: 0.917,
};

fn by_percent<S: Serializer>(row: &[(&'static str, [u32; 2]); 4], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(row.len()))?;
    for (percent, cell) in row {
        map.serialize_entry(percent, cell)?;
    }
    map.end()
}
