//! Reads a sweep directory. Only what stops the whole report is an error; the rest is recorded per trial.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::Dir;

use crate::error::ReportError;
use crate::files::{Bounded, open_directory, open_root, read_regular};
use crate::metrics::Metrics;
use crate::model::{Problem, Sweep, Trial, TrialKey, TrialState};
use crate::run_summary::RunSummary;

/// Most trial directories of one sweep.
const TRIAL_LIMIT: usize = 1024;
/// A summary has a few hundred bytes.
const SUMMARY_LIMIT_BYTES: u64 = 1024 * 1024;
/// Metrics beyond this are not read.
const METRICS_LIMIT_BYTES: u64 = 16 * 1024 * 1024;

/// Reads every trial directory in `sweep_dir`; other entries are passed over.
///
/// # Errors
///
/// [`ReportError::ListSweep`] where the directory cannot be listed, [`ReportError::TooManyTrials`] where it
/// holds more than 1,024 trials. Whatever is wrong inside a trial is recorded on that trial.
pub fn load(sweep_dir: &Path) -> Result<Sweep, ReportError> {
    let failed = |source: io::Error| ReportError::ListSweep { path: sweep_dir.to_owned(), source };
    let root = open_root(sweep_dir).map_err(failed)?;
    let mut keys = Vec::new();
    for entry in Dir::read_from(&root).map_err(|errno| failed(errno.into()))? {
        let entry = entry.map_err(|errno| failed(errno.into()))?;
        if let Some(key) = entry.file_name().to_str().ok().and_then(TrialKey::parse) {
            keys.push(key);
        }
        if keys.len() > TRIAL_LIMIT {
            return Err(ReportError::TooManyTrials { path: sweep_dir.to_owned(), limit: TRIAL_LIMIT });
        }
    }
    keys.sort_unstable();
    let mut sweep = Sweep::default();
    for key in keys {
        match open_directory(&root, &key.to_string()) {
            Ok(directory) => sweep.trials.push(load_trial(key, directory.as_fd())),
            Err(_) => sweep.refused_entries.push(key),
        }
    }
    Ok(sweep)
}

fn load_trial(key: TrialKey, directory: BorrowedFd<'_>) -> Trial {
    let state = match read_regular(directory, "run_summary.json", SUMMARY_LIMIT_BYTES) {
        Ok(None) => TrialState::Unfinished,
        Ok(Some(Bounded { cut: true, .. })) => {
            TrialState::Unusable(Problem::TooLarge { limit_bytes: SUMMARY_LIMIT_BYTES })
        }
        Ok(Some(Bounded { bytes, cut: false })) => match RunSummary::parse(key, &bytes) {
            Ok(run) => TrialState::Finished(Box::new(run)),
            Err(problem) => TrialState::Unusable(problem),
        },
        Err(problem) => TrialState::Unusable(problem),
    };
    let metrics = match read_regular(directory, "metrics.jsonl", METRICS_LIMIT_BYTES) {
        Ok(None) => Metrics::default(),
        Ok(Some(Bounded { bytes, cut })) => Metrics::parse(&bytes, cut),
        Err(problem) => Metrics { problem: Some(problem), ..Metrics::default() },
    };
    Trial { key, state, metrics }
}
