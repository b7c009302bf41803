//! See `rlox_runtime::fuzzing`.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use rlox_runtime::fuzzing;

fuzz_target!(|data: &[u8]| fuzzing::state(data));

// Half of the changes keep the document's structure, the rest are libFuzzer's own.
fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    if seed.is_multiple_of(2) {
        let changed = fuzzing::mutate(&data[..size], seed.into());
        if changed.len() <= max_size {
            data[..changed.len()].copy_from_slice(&changed);
            return changed.len();
        }
    }
    fuzzer_mutate(data, size, max_size)
});
