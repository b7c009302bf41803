//! Requests and seen tampering by dialect, for `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Dialect;
use crate::job::Finished;
use crate::tampering::FAMILIES;

/// What a request of a dialect came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A success, as the dialect has it.
    Success,
    /// The program failed.
    Failed,
    /// The sandbox failed, or a lowered limit would have decided.
    Fault,
    /// The queue was full, or there was no answer in time.
    Overload,
    /// A wrong request.
    Refused,
}

impl Outcome {
    const ALL: [Self; 5] = [Self::Success, Self::Failed, Self::Fault, Self::Overload, Self::Refused];

    fn word(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failed => "failed",
            Self::Fault => "fault",
            Self::Overload => "overload",
            Self::Refused => "refused",
        }
    }
}

/// Counters of all dialects.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    requests: [[AtomicU64; Outcome::ALL.len()]; Dialect::ALL.len()],
    tampering: [[AtomicU64; FAMILIES.len()]; Dialect::ALL.len()],
}

fn add<T: PartialEq>(keys: &[T], counters: &[AtomicU64], key: &T) {
    if let Some((_, counter)) = keys.iter().zip(counters).find(|(each, _)| *each == key) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Counters {
    /// Counts one request.
    pub(crate) fn request(&self, dialect: Dialect, outcome: Outcome) {
        if let Some((_, row)) = Dialect::ALL.iter().zip(&self.requests).find(|(each, _)| **each == dialect) {
            add(&Outcome::ALL, row, &outcome);
        }
    }

    /// Counts what was seen of a program.
    pub(crate) fn seen(&self, dialect: Dialect, finished: &Finished) {
        if let Some((_, row)) = Dialect::ALL.iter().zip(&self.tampering).find(|(each, _)| **each == dialect) {
            finished.judged.tampering.iter().for_each(|seen| add(&FAMILIES, row, &seen.kind.family()));
        }
    }

    /// Lines of `/metrics`.
    pub(crate) fn lines(&self) -> Vec<String> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut lines = vec![
            "# HELP rlox_dialect_requests_total Requests in other servers' dialects, by what they came to."
                .to_owned(),
            "# TYPE rlox_dialect_requests_total counter".to_owned(),
        ];
        for (dialect, row) in Dialect::ALL.iter().zip(&self.requests) {
            lines.extend(Outcome::ALL.iter().zip(row).map(|(outcome, counter)| {
                let labels = format!("dialect=\"{}\",outcome=\"{}\"", dialect.word(), outcome.word());
                format!("rlox_dialect_requests_total{{{labels}}} {}", read(counter))
            }));
        }
        lines.push(
            "# HELP rlox_dialect_tampering_total Attempts at tampering, by dialect and family.".to_owned(),
        );
        lines.push("# TYPE rlox_dialect_tampering_total counter".to_owned());
        for (dialect, row) in Dialect::ALL.iter().zip(&self.tampering) {
            lines.extend(FAMILIES.iter().zip(row).map(|(family, counter)| {
                let labels = format!("dialect=\"{}\",family=\"{family}\"", dialect.word());
                format!("rlox_dialect_tampering_total{{{labels}}} {}", read(counter))
            }));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dialect_and_outcome_has_a_count_of_its_own() {
        let counters = Counters::default();
        counters.request(Dialect::Piston, Outcome::Overload);
        let lines = counters.lines();
        let counted: Vec<_> = lines.iter().filter(|line| line.ends_with(" 1")).collect();
        assert_eq!(counted, [r#"rlox_dialect_requests_total{dialect="piston",outcome="overload"} 1"#]);
    }
}
