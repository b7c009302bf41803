//! What a trainer printed, of a sweep in a directory.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use rlox_report::TrialKey;
use serde_json::json;

use super::show;
use crate::cli::Failure;
use crate::sweep::{Store, TrialState, read_log};

const PIECE: u64 = 64 << 10;
/// Of a log as one JSON text.
const MOST: u64 = 1 << 20;
const LOOK: Duration = Duration::from_millis(300);

/// Prints a trial's log; with `follow`, until the trial is over.
pub(super) fn of_directory(
    directory: &Path,
    name: &str,
    follow: bool,
    as_json: bool,
) -> Result<ExitCode, Failure> {
    let key = TrialKey::parse(name)
        .ok_or_else(|| format!("{name:?} is no trial, such as rlox_seed0_fraction5; see: sweep status"))?;
    let trial = directory.join(key.to_string());
    if as_json {
        let (bytes, _) =
            read_log(&trial, 0, MOST).map_err(|error| format!("cannot read the log of {name}: {error}"))?;
        show(&json!({ "trial": name, "log": String::from_utf8_lossy(&bytes) }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = std::io::stdout();
    let mut offset = 0;
    loop {
        // Before the look: what is printed after it is seen by the next one.
        let over = !follow || over(directory, name)?;
        loop {
            let (bytes, length) = match read_log(&trial, offset, PIECE) {
                Ok(found) => found,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && follow => (Vec::new(), 0),
                Err(error) => return Err(format!("cannot read the log of {name}: {error}").into()),
            };
            if length < offset {
                // Another attempt begins another log.
                offset = 0;
            } else if bytes.is_empty() {
                break;
            }
            out.write_all(&bytes)?;
            offset += bytes.len() as u64;
        }
        out.flush()?;
        if over {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(LOOK);
    }
}

/// Whether the trial prints nothing more: it is not to run, or nobody runs it.
fn over(directory: &Path, name: &str) -> Result<bool, Failure> {
    let known = Store::peek(directory)?;
    let trials = known.first().map(|(_, trials)| trials.as_slice()).unwrap_or_default();
    let state = trials.iter().find(|trial| trial.name == name).map(|trial| trial.state);
    let goes_on = matches!(state, Some(TrialState::Queued | TrialState::Running));
    Ok(!goes_on || Store::running(directory).is_none())
}
