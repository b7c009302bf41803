//! What was wrong with a grader's report that is not believed, by kind and counted.
//!
//! None of these is ever a pass: the verification is tried once more, or decided by what was seen from outside.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a report is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Nothing came.
    Missing,
    /// It was not there in time.
    Late,
    /// More than one came.
    Second,
    /// It cannot be read, or is too long.
    Malformed,
    /// It was not made with this verification's key.
    Unauthenticated,
}

impl Refused {
    const ALL: [Self; 5] = [Self::Missing, Self::Late, Self::Second, Self::Malformed, Self::Unauthenticated];

    /// The word in metrics and messages.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Late => "late",
            Self::Second => "second",
            Self::Malformed => "malformed",
            Self::Unauthenticated => "unauthenticated",
        }
    }
}

/// How many were refused.
#[derive(Debug, Default)]
pub(crate) struct RefusedReports {
    counts: [AtomicU64; Refused::ALL.len()],
}

impl RefusedReports {
    pub(crate) fn count(&self, refused: Refused) {
        if let Some((_, counter)) = Refused::ALL.iter().zip(&self.counts).find(|(each, _)| **each == refused)
        {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Every kind with its count.
    pub(crate) fn read(&self) -> Vec<(&'static str, u64)> {
        let read = |(each, counter): (&Refused, &AtomicU64)| (each.word(), counter.load(Ordering::Relaxed));
        Refused::ALL.iter().zip(&self.counts).map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_count_of_its_own() {
        let reports = RefusedReports::default();
        reports.count(Refused::Second);
        reports.count(Refused::Second);
        reports.count(Refused::Late);
        let wanted = [("missing", 0), ("late", 1), ("second", 2), ("malformed", 0), ("unauthenticated", 0)];
        assert_eq!(reports.read(), wanted);
    }
}
