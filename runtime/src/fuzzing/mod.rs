//! What has to hold for any bytes that a decoder reads, for the fuzzers of `fuzz/` and for this crate's own tests.
//!
//! One function for each decoder. It decodes, as the runtime does before it makes anything, and panics where a
//! property does not hold: nothing is granted that was not asked for, nothing that was asked for is lost, what is
//! written reads back equal, and a refusal is a line of text that can be shown.

mod config;
mod mutate;
mod state;
#[cfg(test)]
mod tests;

pub use config::config;
pub use mutate::mutate;
pub use state::state;

use std::fmt::Display;

use oci_spec::runtime::Spec;

use crate::error::printable;

/// Decodes a CDI file and applies its devices.
pub fn cdi(data: &[u8]) {
    crate::cdi::properties::hold(data);
}

/// The text of a refusal says something and can be shown.
pub(crate) fn refused(error: &impl Display) {
    let text = error.to_string();
    assert!(!text.trim().is_empty(), "refused without a word");
    let line = printable(&text);
    assert!(!line.chars().any(char::is_control), "{line:?}");
}

/// A section that an accepted spec has.
pub(crate) fn there<T: Clone>(section: &Option<T>) -> T {
    section.clone().expect("an accepted spec has the section")
}

/// What is written of a spec is what libcontainer will read.
pub(crate) fn reads_back(spec: &Spec) {
    let text = serde_json::to_vec(spec).expect("an accepted spec can be written");
    let again: Spec = serde_json::from_slice(&text).expect("a written spec can be read");
    assert_eq!(&again, spec, "it reads back as another spec");
}
