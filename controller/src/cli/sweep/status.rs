//! How far a sweep is: a line a trial, or JSON.

use std::path::Path;
use std::process::ExitCode;

use rlox_report::TrialState as Recorded;
use serde_json::json;

use super::{load, show};
use crate::cli::Failure;
use crate::sweep::{Store, SweepView, TrialState, TrialView};

/// Of the sweep in a directory.
pub(super) fn of_directory(directory: &Path, as_json: bool) -> Result<ExitCode, Failure> {
    let pid = Store::running(directory);
    let state = match pid {
        Some(pid) => format!("running (process {pid})"),
        None => "not running".into(),
    };
    let known = Store::peek(directory)?.into_iter().next();
    match (known, as_json) {
        (Some((sweep, trials)), true) => {
            show(&json!({ "sweep": sweep, "trials": trials, "process": pid }))?;
        }
        (Some((sweep, trials)), false) => print(&sweep, &trials, &state),
        (None, true) => return Err(format!("{} holds no sweep", directory.display()).into()),
        (None, false) => of_files(directory, &state)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A line a trial, then the whole.
pub(super) fn print(sweep: &SweepView, trials: &[TrialView], state: &str) {
    for trial in trials {
        println!("{:30} {}", trial.name, line(trial));
    }
    if let Some(problem) = &sweep.problem {
        println!("{problem}");
    }
    let counts = sweep.trials;
    println!("{} of {} recorded, {} survived, {state}", counts.finished, counts.total, counts.survived);
}

fn line(trial: &TrialView) -> String {
    let steps = trial.steps_completed.unwrap_or(0);
    let reason = || trial.reason.as_deref().and_then(|reason| reason.lines().next());
    match trial.state {
        TrialState::Queued => "waiting".into(),
        TrialState::Running if trial.attempts > 1 => {
            format!("running, {steps} of {} steps, attempt {}", trial.max_steps, trial.attempts)
        }
        TrialState::Running => format!("running, {steps} of {} steps", trial.max_steps),
        TrialState::Finished => {
            let end = if trial.survived == Some(true) { "survived" } else { "did not finish" };
            let reason = reason().map(|reason| format!(" ({reason})")).unwrap_or_default();
            format!("{end}, {}, {steps} steps{reason}", trial.exit_status.as_deref().unwrap_or("unknown"))
        }
        TrialState::Failed => format!("could not be run: {}", reason().unwrap_or("see the log")),
        TrialState::Cancelled => "cancelled".into(),
        TrialState::Interrupted => format!("interrupted: {}", reason().unwrap_or("it runs again")),
    }
}

/// Of a directory that has the trials' files alone.
fn of_files(directory: &Path, state: &str) -> Result<(), Failure> {
    let sweep = load(directory)?;
    let expected = sweep.expected();
    let recorded = sweep.trials.iter().filter(|trial| trial.finished().is_some()).count();
    let survived = sweep.trials.iter().filter(|trial| trial.survivor().is_some()).count();
    for key in &expected {
        let trial = sweep.trials.iter().find(|trial| trial.key == *key);
        let text = match trial.map(|trial| (&trial.state, trial.metrics.rows.len())) {
            None => "waiting".to_owned(),
            Some((Recorded::Unfinished, steps)) => format!("unfinished, {steps} steps"),
            Some((Recorded::Unusable(problem), _)) => format!("summary unusable: {problem}"),
            Some((Recorded::Finished(run), steps)) => {
                let end = if run.survived { "survived" } else { "did not finish" };
                let reason = run.reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
                format!("{end}, {}, {steps} steps{reason}", run.exit_status)
            }
        };
        println!("{:30} {text}", key.to_string());
    }
    println!("{recorded} of {} recorded, {survived} survived, {state}", expected.len());
    Ok(())
}
