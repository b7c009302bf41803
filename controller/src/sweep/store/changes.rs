//! The changes of state: of sweeps, and of trials from their beginning to their record.

use rlox_report::TrialKey;
use rusqlite::{Transaction, params};
use serde_json::Value;

use super::{Store, StoreError, refused};
use crate::sweep::engine::Handle;
use crate::sweep::files::Folder;
use crate::sweep::queries;
use crate::sweep::states::{SweepState, TrialState};
use crate::sweep::view::Happening;

/// Why a sweep is cancelled, where a user asked.
pub(crate) const CANCELLED: &str = "cancelled on request";

impl Store {
    /// A cancel is durable before it is answered: whatever ends the controller, the sweep does not go on by itself.
    pub(crate) fn ask_to_cancel(&self, id: &str) -> Result<(), StoreError> {
        self.write(|transaction| {
            let (number, state) = queries::sweep_state(transaction, id)?;
            if state.over() {
                return Ok(Err(refused(id, state.word(), SweepState::Cancelled.word())));
            }
            transaction.execute("UPDATE sweeps SET cancel_asked = 1 WHERE number = ?1", [number])?;
            Ok(Ok(()))
        })
    }

    /// Changes a sweep's state. A sweep whose cancel was asked for ends as cancelled, unless all of it is finished.
    pub(crate) fn set_sweep(
        &self,
        id: &str,
        next: SweepState,
        reason: Option<&str>,
    ) -> Result<(), StoreError> {
        self.write(|transaction| {
            let (number, state) = queries::sweep_state(transaction, id)?;
            let broken_off = matches!(next, SweepState::Failed | SweepState::Interrupted);
            let (next, reason) = if broken_off && queries::cancel_asked(transaction, number)? {
                (SweepState::Cancelled, Some(CANCELLED))
            } else {
                (next, reason)
            };
            let allowed = match next {
                SweepState::Queued => state.over(),
                SweepState::Running => state == SweepState::Queued,
                SweepState::Finished
                | SweepState::Failed
                | SweepState::Cancelled
                | SweepState::Interrupted => !state.over(),
            };
            if !allowed {
                return Ok(Err(refused(id, state.word(), next.word())));
            }
            let times = match next {
                SweepState::Queued => ", ended_at = NULL, cancel_asked = 0",
                SweepState::Running => {
                    ", started_at = coalesce(started_at, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))"
                }
                SweepState::Finished
                | SweepState::Failed
                | SweepState::Cancelled
                | SweepState::Interrupted => ", ended_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')",
            };
            transaction.execute(
                &format!("UPDATE sweeps SET state = ?2, reason = ?3{times} WHERE number = ?1"),
                params![number, next.word(), reason],
            )?;
            if next == SweepState::Cancelled {
                for key in queries::keys_in(transaction, number, TrialState::Queued)? {
                    let set = queries::set_trial(transaction, number, id, key, TrialState::Cancelled, None)?;
                    if let Err(error) = set {
                        return Ok(Err(error));
                    }
                }
            }
            let reason = reason.map(str::to_owned);
            queries::tell(transaction, number, &Happening::Sweep { state: next, reason })?;
            Ok(Ok(()))
        })
    }

    /// Puts trials that were not finished back into the queue; returns how many.
    pub(crate) fn requeue(&self, id: &str, from: &[TrialState]) -> Result<usize, StoreError> {
        self.write(|transaction| {
            let (number, _) = queries::sweep_state(transaction, id)?;
            let mut count = 0;
            for &state in from {
                for key in queries::keys_in(transaction, number, state)? {
                    if let Err(error) =
                        queries::set_trial(transaction, number, id, key, TrialState::Queued, None)?
                    {
                        return Ok(Err(error));
                    }
                    count += 1;
                }
            }
            Ok(Ok(count))
        })
    }

    /// Ends the attempts of a sweep that are said to run.
    pub(crate) fn leave_running(&self, id: &str, next: TrialState, reason: &str) -> Result<(), StoreError> {
        self.write(|transaction| {
            let (number, _) = queries::sweep_state(transaction, id)?;
            for key in queries::keys_in(transaction, number, TrialState::Running)? {
                if let Err(error) = leave(transaction, id, key, next, reason)? {
                    return Ok(Err(error));
                }
            }
            Ok(Ok(()))
        })
    }

    /// Puts one trial back into the queue.
    pub(crate) fn requeue_one(&self, id: &str, key: TrialKey) -> Result<(), StoreError> {
        self.write(|transaction| {
            let (number, _) = queries::sweep_state(transaction, id)?;
            queries::set_trial(transaction, number, id, key, TrialState::Queued, None)
        })
    }

    /// Trials that wait, in the order of running.
    pub(crate) fn queued(&self, id: &str) -> Result<Vec<TrialKey>, StoreError> {
        Ok(self.database.read(|connection| {
            let (number, _) = queries::sweep_state(connection, id)?;
            queries::keys_in(connection, number, TrialState::Queued)
        })?)
    }

    /// An attempt is about to be made. Its handle is durable before anything of it exists.
    pub(crate) fn begin_trial(
        &self,
        id: &str,
        key: TrialKey,
        handle: Option<&Handle>,
    ) -> Result<u32, StoreError> {
        let handle = handle.map(serde_json::to_string).transpose()?;
        self.write(|transaction| begin(transaction, id, key, handle.as_deref()))
    }

    /// Steps of the running attempt ended, of which this is the last.
    pub(crate) fn steps(
        &self,
        id: &str,
        key: TrialKey,
        happenings: &[Happening],
        last: u64,
    ) -> Result<(), StoreError> {
        self.write(|transaction| {
            let (number, _) = queries::sweep_state(transaction, id)?;
            transaction.execute(
                "UPDATE trials SET steps = ?3 WHERE sweep = ?1 AND name = ?2 AND state = 'running'",
                params![number, key.to_string(), i64::try_from(last).unwrap_or(i64::MAX)],
            )?;
            for happening in happenings {
                queries::tell(transaction, number, happening)?;
            }
            Ok(Ok(()))
        })
    }

    /// Records a trial: the summary's file first, then the state that makes it count.
    pub(crate) fn record(
        &self,
        id: &str,
        folder: &Folder,
        key: TrialKey,
        summary: &Value,
    ) -> Result<(), StoreError> {
        let mut text = serde_json::to_string_pretty(summary)?;
        text.push('\n');
        folder.put_summary(key, &text)?;
        self.write(|transaction| finish(transaction, id, key, &text))
    }

    /// Ends an attempt without a record.
    pub(crate) fn leave(
        &self,
        id: &str,
        key: TrialKey,
        next: TrialState,
        reason: &str,
    ) -> Result<(), StoreError> {
        self.write(|transaction| leave(transaction, id, key, next, reason))
    }
}

pub(super) fn begin(
    transaction: &Transaction<'_>,
    id: &str,
    key: TrialKey,
    handle: Option<&str>,
) -> rusqlite::Result<Result<u32, StoreError>> {
    let (number, _) = queries::sweep_state(transaction, id)?;
    transaction.execute(
        "UPDATE trials SET attempts = attempts + 1, handle = ?3, steps = NULL, reason = NULL,
         started_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), ended_at = NULL
         WHERE sweep = ?1 AND name = ?2 AND state = 'queued'",
        params![number, key.to_string(), handle],
    )?;
    let set = queries::set_trial(transaction, number, id, key, TrialState::Running, None)?;
    if let Err(error) = set {
        return Ok(Err(error));
    }
    Ok(Ok(queries::attempts(transaction, number, key)?))
}

pub(super) fn finish(
    transaction: &Transaction<'_>,
    id: &str,
    key: TrialKey,
    summary: &str,
) -> rusqlite::Result<Result<(), StoreError>> {
    let value: Value = match serde_json::from_str(summary) {
        Ok(value) => value,
        Err(error) => return Ok(Err(error.into())),
    };
    let (number, _) = queries::sweep_state(transaction, id)?;
    transaction.execute(
        "UPDATE trials SET summary = ?3, survived = ?4, reason = ?5,
         steps = coalesce(?6, steps) WHERE sweep = ?1 AND name = ?2 AND state = 'running'",
        params![
            number,
            key.to_string(),
            summary,
            value["survived"].as_bool().unwrap_or(false),
            value["reason"].as_str(),
            value["steps_completed"].as_i64()
        ],
    )?;
    queries::set_trial(transaction, number, id, key, TrialState::Finished, Some(&value))
}

fn leave(
    transaction: &Transaction<'_>,
    id: &str,
    key: TrialKey,
    next: TrialState,
    reason: &str,
) -> rusqlite::Result<Result<(), StoreError>> {
    let (number, _) = queries::sweep_state(transaction, id)?;
    transaction.execute(
        "UPDATE trials SET reason = ?3 WHERE sweep = ?1 AND name = ?2 AND state = 'running'",
        params![number, key.to_string(), reason],
    )?;
    queries::set_trial(transaction, number, id, key, next, None)
}
