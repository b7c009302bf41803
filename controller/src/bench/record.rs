//! What a measurement leaves as JSON: enough to know what was measured, on what, and to compare program by program.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::Value;

use crate::corpus::Pinned;
use crate::sandbox::Environment;

/// Version of the files' form.
const VERSION: u32 = 1;
const DAY: u64 = 24 * 3600;

/// Where and when it was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    date: String,
    rlox: &'static str,
    kernel: String,
    processor: String,
    cores: usize,
    cgroup: String,
    tier: String,
}

/// How a service isolates here.
#[derive(Debug, Clone, Default)]
pub(crate) struct Place {
    cgroup: String,
    tier: String,
}

impl Place {
    /// As `/health` says it.
    pub(super) fn of(health: &Value) -> Self {
        let text = |name: &str| health["isolation"][name].as_str().unwrap_or_default().to_owned();
        Self { cgroup: text("cgroup"), tier: text("tier") }
    }
}

impl Machine {
    /// This machine, now.
    pub(crate) fn now(environment: &Environment) -> Self {
        let isolation = &environment.isolation;
        Self::at(Place { cgroup: isolation.cgroup.into(), tier: isolation.tier.into() })
    }

    /// This machine, now, with a service elsewhere.
    pub(crate) fn at(place: Place) -> Self {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = processor.lines().find_map(|line| line.strip_prefix("model name"));
        let model = model.and_then(|rest| rest.split_once(": ")).map(|(_, name)| name.trim().to_owned());
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            date: utc(since.as_secs()),
            rlox: env!("CARGO_PKG_VERSION"),
            kernel: kernel.trim().to_owned(),
            processor: model.unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            cgroup: place.cgroup,
            tier: place.tier,
        }
    }

    /// For a line of text.
    pub(crate) fn words(&self) -> String {
        format!(
            "rlox {} on {} x {}, Linux {}, {}",
            self.rlox, self.cores, self.processor, self.kernel, self.date
        )
    }
}

/// A file of results.
#[derive(Debug, Serialize)]
pub(crate) struct Record<T> {
    version: u32,
    what: &'static str,
    machine: Machine,
    corpora: Vec<Pin>,
    timeout_secs: f64,
    workers: u16,
    #[serde(flatten)]
    results: T,
}

#[derive(Debug, Serialize)]
struct Pin {
    file: String,
    sha256: String,
}

/// A file of results cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    /// The system refused.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's word.
        #[source]
        source: std::io::Error,
    },
    /// The results cannot be encoded.
    #[error("cannot encode the results: {0}")]
    Encode(#[from] serde_json::Error),
}

impl<T: Serialize> Record<T> {
    pub(crate) fn new(
        what: &'static str,
        machine: Machine,
        pins: Vec<Pinned>,
        timeout_secs: f64,
        workers: u16,
        results: T,
    ) -> Self {
        let corpora = pins.into_iter().map(|pin| Pin { file: pin.name, sha256: pin.digest }).collect();
        Self { version: VERSION, what, machine, corpora, timeout_secs, workers, results }
    }

    /// Writes it as indented JSON.
    pub(crate) fn write(&self, path: &Path) -> Result<(), RecordError> {
        let mut bytes = serde_json::to_vec_pretty(self)?;
        bytes.push(b'\n');
        std::fs::write(path, bytes).map_err(|source| RecordError::Write { path: path.to_owned(), source })
    }
}

/// Seconds since 1970 as date and time in UTC.
fn utc(secs: u64) -> String {
    let leap = |year: u64| (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400);
    let (mut days, rest) = (secs / DAY, secs % DAY);
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 1;
    for length in [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_cross_leap_days_and_years() {
        for (secs, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_796_083_200, "2026-12-01T00:00:00Z"),
        ] {
            assert_eq!(utc(secs), text);
        }
    }
}
