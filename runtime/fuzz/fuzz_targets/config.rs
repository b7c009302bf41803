//! See `rlox_runtime::fuzzing`.
#![no_main]

mod mutate;

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use rlox_runtime::fuzzing;

fuzz_target!(|data: &[u8]| fuzzing::config(data));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate::mutate(data, size, max_size, seed)
});
