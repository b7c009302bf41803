//! How inputs are changed, for every target.

use libfuzzer_sys::fuzzer_mutate;
use rlox_runtime::fuzzing;

/// Changes an input in place and returns its new length. Half of the changes keep the document's structure, the rest
/// are libFuzzer's own.
pub fn mutate(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    if seed.is_multiple_of(2) {
        let changed = fuzzing::mutate(&data[..size], seed.into());
        if changed.len() <= max_size {
            data[..changed.len()].copy_from_slice(&changed);
            return changed.len();
        }
    }
    fuzzer_mutate(data, size, max_size)
}
