//! C binding of the crate `rlox-rl-ops`, loaded by the Python trainer through `ctypes`.
//!
//! Both conditions of the benchmark have to take their advantages from the same code; otherwise a
//! difference in normalisation would pass for a difference between the sandboxes. This library is
//! that code. It knows nothing of masked samples: the caller leaves those out of the group.
//!
//! Invariants: no panic crosses the boundary, no argument is trusted beyond what its pointer must
//! promise, and `out` is written only when the answer is [`RLOX_OK`].

#![expect(unsafe_code, reason = "raw pointers are what a C interface passes")]

use rlox_rl_ops::compute_batch_group_advantages;

/// The advantages were written.
pub const RLOX_OK: i32 = 0;
/// `rewards` or `out` is null or not aligned for a `double`.
pub const RLOX_BAD_POINTER: i32 = -1;
/// `group_size` is zero.
pub const RLOX_ZERO_GROUP: i32 = -2;
/// `len` is not a multiple of `group_size`.
pub const RLOX_RAGGED_GROUP: i32 = -3;
/// `len` doubles do not fit into an address space.
pub const RLOX_TOO_LONG: i32 = -4;
/// A reward is infinite or not a number.
pub const RLOX_NOT_FINITE: i32 = -5;
/// `rlox-rl-ops` refused, or answered with another length than it was asked for.
pub const RLOX_INTERNAL: i32 = -6;

/// Why no advantages were computed; each maps to one negative code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    BadPointer,
    ZeroGroup,
    RaggedGroup,
    TooLong,
    NotFinite,
    Internal,
}

impl Refusal {
    const fn code(self) -> i32 {
        match self {
            Self::BadPointer => RLOX_BAD_POINTER,
            Self::ZeroGroup => RLOX_ZERO_GROUP,
            Self::RaggedGroup => RLOX_RAGGED_GROUP,
            Self::TooLong => RLOX_TOO_LONG,
            Self::NotFinite => RLOX_NOT_FINITE,
            Self::Internal => RLOX_INTERNAL,
        }
    }
}

/// The safe part: everything that can be decided without touching a raw pointer.
fn advantages(rewards: &[f64], group_size: usize) -> Result<Vec<f64>, Refusal> {
    if rewards.iter().any(|reward| !reward.is_finite()) {
        return Err(Refusal::NotFinite);
    }
    let computed = compute_batch_group_advantages(rewards, group_size).map_err(|_| Refusal::Internal)?;
    if computed.len() == rewards.len() { Ok(computed) } else { Err(Refusal::Internal) }
}

fn check_shape(len: usize, group_size: usize) -> Result<(), Refusal> {
    if group_size == 0 {
        return Err(Refusal::ZeroGroup);
    }
    if len.checked_rem(group_size) != Some(0) {
        return Err(Refusal::RaggedGroup);
    }
    // A slice may span at most isize::MAX bytes.
    match len.checked_mul(size_of::<f64>()) {
        Some(bytes) if isize::try_from(bytes).is_ok() => Ok(()),
        Some(_) | None => Err(Refusal::TooLong),
    }
}

/// Group-relative advantages: per group of `group_size` consecutive rewards, reward minus mean, over
/// the population standard deviation; zeros where that deviation is below 1e-8.
///
/// Returns [`RLOX_OK`] or one of the negative codes of this crate. An empty batch is fine.
///
/// # Safety
///
/// `rewards` must point to `len` readable doubles and `out` to `len` writable ones, for the length of
/// the call. They may be the same memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rlox_group_advantages(
    rewards: *const f64,
    len: usize,
    group_size: usize,
    out: *mut f64,
) -> i32 {
    if rewards.is_null() || out.is_null() || !rewards.is_aligned() || !out.is_aligned() {
        return Refusal::BadPointer.code();
    }
    if let Err(refusal) = check_shape(len, group_size) {
        return refusal.code();
    }
    let computed = {
        // SAFETY: not null, aligned, and small enough for a slice by the checks above; that `len`
        // doubles are readable there is the caller's promise. The borrow ends with this block,
        // before `out`, which may be the same memory, is written.
        let rewards = unsafe { std::slice::from_raw_parts(rewards, len) };
        advantages(rewards, group_size)
    };
    match computed {
        Ok(values) => {
            // SAFETY: `values` holds exactly `len` doubles in memory of its own, so the two ranges
            // do not overlap; that `out` is writable for `len` doubles is the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), out, len) };
            RLOX_OK
        }
        Err(refusal) => refusal.code(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNTOUCHED: f64 = 7.5;

    /// Calls through the C interface, as the trainer does.
    fn call(rewards: &[f64], group_size: usize) -> (i32, Vec<f64>) {
        let mut out = vec![UNTOUCHED; rewards.len()];
        // SAFETY: both vectors live through the call and hold `rewards.len()` doubles.
        let code =
            unsafe { rlox_group_advantages(rewards.as_ptr(), rewards.len(), group_size, out.as_mut_ptr()) };
        (code, out)
    }

    #[test]
    fn groups_are_normalised_separately_by_the_population_deviation() {
        let (code, out) = call(&[1.0, 0.0, 1.0, 0.0, 3.0, 1.0, 1.0, 1.0], 4);
        assert_eq!(code, RLOX_OK);
        let second = [3.0_f64.sqrt(), -1.0 / 3.0_f64.sqrt()];
        let expected = [1.0, -1.0, 1.0, -1.0, second[0], second[1], second[1], second[1]];
        for (got, want) in out.iter().zip(expected) {
            assert!((got - want).abs() < 1e-12, "{out:?}");
        }
    }

    #[test]
    fn a_group_without_spread_has_no_advantage() {
        assert_eq!(call(&[0.1; 8], 8), (RLOX_OK, vec![0.0; 8]));
        assert_eq!(call(&[1.0], 1), (RLOX_OK, vec![0.0]));
        assert_eq!(call(&[], 8), (RLOX_OK, vec![]));
    }

    #[test]
    fn the_result_may_replace_the_input() {
        let mut both = [1.0, 0.0];
        let pointer = both.as_mut_ptr();
        // SAFETY: the array holds two doubles and outlives the call; sharing is allowed.
        let code = unsafe { rlox_group_advantages(pointer, 2, 2, pointer) };
        assert_eq!((code, both), (RLOX_OK, [1.0, -1.0]));
    }

    #[test]
    fn wrong_shapes_and_values_are_refused_and_write_nothing() {
        for (rewards, group_size, code) in [
            (vec![1.0, 0.0], 0, RLOX_ZERO_GROUP),
            (vec![1.0, 0.0, 1.0], 2, RLOX_RAGGED_GROUP),
            (vec![1.0, f64::NAN], 2, RLOX_NOT_FINITE),
            (vec![1.0, f64::INFINITY], 2, RLOX_NOT_FINITE),
        ] {
            let untouched = vec![UNTOUCHED; rewards.len()];
            assert_eq!(call(&rewards, group_size), (code, untouched));
        }
    }

    #[test]
    fn pointers_are_checked_before_they_are_followed() {
        let mut value = 1.0;
        let pointer: *mut f64 = &raw mut value;
        let crooked = pointer.wrapping_byte_add(1);
        let null = std::ptr::null_mut();
        for (rewards, len, out, code) in [
            (null, 1, pointer, RLOX_BAD_POINTER),
            (pointer, 1, null, RLOX_BAD_POINTER),
            (crooked, 1, pointer, RLOX_BAD_POINTER),
            (pointer, 1, crooked, RLOX_BAD_POINTER),
            (pointer, usize::MAX, pointer, RLOX_TOO_LONG),
        ] {
            // SAFETY: each case is refused by its pointers or its length alone, so none is read.
            assert_eq!(unsafe { rlox_group_advantages(rewards, len, 1, out) }, code);
        }
    }
}
