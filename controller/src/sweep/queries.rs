//! What is asked of the database, as SQL. Called inside a transaction where something changes.

use std::path::Path;

use rlox_report::TrialKey;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::engine::Handle;
use super::files::Folder;
use super::plan::Plan;
use super::states::{SweepState, TrialState};
use super::store::{Job, StoreError, named, refused};
use super::view::{Event, Happening, SweepView, TrialCounts, TrialView, condition};

type Sql<T> = rusqlite::Result<T>;

/// A column that holds something else than it should.
fn unreadable<E: std::error::Error + Send + Sync + 'static>(
    column: usize,
) -> impl FnOnce(E) -> rusqlite::Error {
    move |error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
}

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no word of this column")]
struct Word(String);

fn json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> Sql<T> {
    serde_json::from_str(&row.get::<_, String>(column)?).map_err(unreadable(column))
}

fn parsed<T>(row: &Row<'_>, column: usize, parse: impl FnOnce(&str) -> Option<T>) -> Sql<T> {
    let text: String = row.get(column)?;
    parse(&text).ok_or_else(|| unreadable(column)(Word(text)))
}

fn key(row: &Row<'_>, column: usize) -> Sql<TrialKey> {
    parsed(row, column, TrialKey::parse)
}

/// The id of the newest event.
pub(super) fn newest_event(connection: &Connection) -> Sql<i64> {
    connection.query_row("SELECT coalesce(max(id), 0) FROM events", [], |row| row.get(0))
}

/// Writes an event.
pub(super) fn tell(connection: &Connection, number: i64, what: &Happening) -> Sql<()> {
    let text =
        serde_json::to_string(what).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    connection.execute(
        "INSERT INTO events (sweep, at, what) VALUES (?1, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), ?2)",
        params![number, text],
    )?;
    Ok(())
}

/// A sweep's number and state.
pub(super) fn sweep_state(connection: &Connection, id: &str) -> Sql<(i64, SweepState)> {
    connection.query_row("SELECT number, state FROM sweeps WHERE id = ?1", [id], |row| {
        Ok((row.get(0)?, parsed(row, 1, SweepState::parse)?))
    })
}

/// The trials of a sweep in one state, in the order of running.
pub(super) fn keys_in(connection: &Connection, number: i64, state: TrialState) -> Sql<Vec<TrialKey>> {
    let mut statement =
        connection.prepare("SELECT name FROM trials WHERE sweep = ?1 AND state = ?2 ORDER BY position")?;
    statement.query_map(params![number, state.word()], |row| key(row, 0))?.collect()
}

/// How often a trial was begun.
pub(super) fn attempts(connection: &Connection, number: i64, trial: TrialKey) -> Sql<u32> {
    let query = "SELECT attempts FROM trials WHERE sweep = ?1 AND name = ?2";
    connection.query_row(query, params![number, trial.to_string()], |row| row.get(0))
}

/// Changes a trial's state where the state machine allows it, and tells.
pub(super) fn set_trial(
    connection: &Connection,
    number: i64,
    id: &str,
    trial: TrialKey,
    next: TrialState,
    summary: Option<&Value>,
) -> Sql<Result<(), StoreError>> {
    let name = trial.to_string();
    let found: Option<(TrialState, Option<String>)> = connection
        .query_row(
            "SELECT state, reason FROM trials WHERE sweep = ?1 AND name = ?2",
            params![number, name],
            |row| Ok((parsed(row, 0, TrialState::parse)?, row.get(1)?)),
        )
        .optional()?;
    let Some((state, reason)) = found.filter(|(state, _)| state.may_become(next)) else {
        let state = connection
            .query_row(
                "SELECT state FROM trials WHERE sweep = ?1 AND name = ?2",
                params![number, name],
                |row| row.get::<_, String>(0),
            )
            .optional()?;
        return Ok(Err(refused(&named(id, trial), &state.unwrap_or_default(), next.word())));
    };
    let ended = match (state, next) {
        (TrialState::Running, _) => ", handle = NULL, ended_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')",
        (_, _) => "",
    };
    connection.execute(
        &format!("UPDATE trials SET state = ?3{ended} WHERE sweep = ?1 AND name = ?2"),
        params![number, name, next.word()],
    )?;
    let text = |field: &str| summary.and_then(|summary| summary[field].as_str()).map(str::to_owned);
    let happening = Happening::Trial {
        trial_id: named(id, trial),
        attempt: attempts(connection, number, trial)?,
        name,
        state: next,
        survived: summary.and_then(|summary| summary["survived"].as_bool()),
        exit_status: text("exit_status"),
        reason: if next == TrialState::Queued { None } else { text("reason").or(reason) },
    };
    tell(connection, number, &happening)?;
    Ok(Ok(()))
}

/// The one sweep whose directory is the store's, with its manifest.
pub(super) fn own_sweep(connection: &Connection) -> Sql<Option<(String, String)>> {
    let query = "SELECT id, json_object('plan', json(plan), 'corpus', json(corpus)) FROM sweeps WHERE directory = '.'";
    connection.query_row(query, [], |row| Ok((row.get(0)?, row.get(1)?))).optional()
}

fn job_of(row: &Row<'_>, root: &Path) -> Sql<Job> {
    let directory: String = row.get(2)?;
    let folder = if directory == "." { root.to_owned() } else { root.join(directory) };
    Ok(Job { id: row.get(0)?, plan: json::<Plan>(row, 1)?, folder: Folder::new(folder) })
}

/// A sweep to run.
pub(super) fn job(connection: &Connection, root: &Path, id: &str) -> Sql<Option<Job>> {
    let query = "SELECT id, plan, directory FROM sweeps WHERE id = ?1";
    connection.query_row(query, [id], |row| job_of(row, root)).optional()
}

/// The pinned files that a sweep was made with.
pub(super) fn corpus(connection: &Connection, id: &str) -> Sql<Vec<(String, String)>> {
    connection.query_row("SELECT corpus FROM sweeps WHERE id = ?1", [id], |row| json(row, 0))
}

/// The oldest sweep that waits.
pub(super) fn next_sweep(connection: &Connection, root: &Path) -> Sql<Option<Job>> {
    let query = "SELECT id, plan, directory FROM sweeps WHERE state = 'queued' ORDER BY number LIMIT 1";
    connection.query_row(query, [], |row| job_of(row, root)).optional()
}

/// Sweeps to go on with after a start.
pub(super) fn unfinished(connection: &Connection) -> Sql<Vec<String>> {
    sweeps_where(connection, "state IN ('running', 'interrupted')")
}

/// Sweeps that neither ended nor may go on: a user asked for their end.
pub(super) fn to_cancel(connection: &Connection) -> Sql<Vec<String>> {
    sweeps_where(connection, "cancel_asked AND state IN ('queued', 'running')")
}

/// Sweeps that run, by the database.
pub(super) fn running(connection: &Connection) -> Sql<Vec<String>> {
    sweeps_where(connection, "state = 'running'")
}

fn sweeps_where(connection: &Connection, condition: &'static str) -> Sql<Vec<String>> {
    let mut statement =
        connection.prepare(&format!("SELECT id FROM sweeps WHERE {condition} ORDER BY number"))?;
    statement.query_map([], |row| row.get(0))?.collect()
}

/// Whether a user asked for a sweep's end.
pub(super) fn cancel_asked(connection: &Connection, number: i64) -> Sql<bool> {
    connection.query_row("SELECT cancel_asked FROM sweeps WHERE number = ?1", [number], |row| row.get(0))
}

/// Trials that run, by the database.
pub(super) fn running_trials(connection: &Connection) -> Sql<Vec<(String, TrialKey, Option<Handle>)>> {
    let mut statement = connection.prepare(
        "SELECT sweeps.id, trials.name, trials.handle FROM trials JOIN sweeps ON sweeps.number = trials.sweep
         WHERE trials.state = 'running' ORDER BY sweeps.number, trials.position",
    )?;
    let rows = statement.query_map([], |row| {
        let handle: Option<String> = row.get(2)?;
        let handle = handle.map(|text| serde_json::from_str(&text)).transpose().map_err(unreadable(2))?;
        Ok((row.get(0)?, key(row, 1)?, handle))
    })?;
    rows.collect()
}

/// The summaries of finished trials.
pub(super) fn recorded(connection: &Connection, id: &str) -> Sql<Vec<(TrialKey, String)>> {
    let mut statement = connection.prepare(
        "SELECT trials.name, trials.summary FROM trials JOIN sweeps ON sweeps.number = trials.sweep
         WHERE sweeps.id = ?1 AND trials.state = 'finished' ORDER BY trials.position",
    )?;
    statement.query_map([id], |row| Ok((key(row, 0)?, row.get(1)?)))?.collect()
}

/// Events of a sweep after one.
pub(super) fn events(connection: &Connection, id: &str, after: i64, limit: i64) -> Sql<Vec<Event>> {
    let mut statement = connection.prepare(
        "SELECT events.id, events.at, events.what FROM events JOIN sweeps ON sweeps.number = events.sweep
         WHERE sweeps.id = ?1 AND events.id > ?2 ORDER BY events.id LIMIT ?3",
    )?;
    let rows = statement.query_map(params![id, after, limit], |row| {
        Ok(Event { id: row.get(0)?, at: row.get(1)?, sweep_id: id.to_owned(), what: json(row, 2)? })
    })?;
    rows.collect()
}

const SWEEP: &str = "SELECT id, state, reason, plan, directory, created_at, started_at, ended_at, number,
    (SELECT coalesce(max(id), 0) FROM events WHERE events.sweep = sweeps.number) FROM sweeps";

fn sweep_of(connection: &Connection, root: &Path, row: &Row<'_>) -> Sql<SweepView> {
    let directory: String = row.get(4)?;
    let directory = if directory == "." { root.to_owned() } else { root.join(directory) };
    Ok(SweepView {
        id: row.get(0)?,
        state: parsed(row, 1, SweepState::parse)?,
        problem: row.get(2)?,
        plan: json(row, 3)?,
        trials: counts(connection, row.get(8)?)?,
        directory: directory.display().to_string(),
        created_at: row.get(5)?,
        started_at: row.get(6)?,
        ended_at: row.get(7)?,
        last_event_id: row.get(9)?,
    })
}

fn counts(connection: &Connection, number: i64) -> Sql<TrialCounts> {
    let mut statement = connection.prepare(
        "SELECT state, count(*), coalesce(sum(survived), 0) FROM trials WHERE sweep = ?1 GROUP BY state",
    )?;
    let mut counts = TrialCounts::default();
    let rows = statement.query_map([number], |row| {
        Ok((parsed(row, 0, TrialState::parse)?, row.get::<_, u32>(1)?, row.get::<_, u32>(2)?))
    })?;
    for row in rows {
        let (state, count, survived) = row?;
        let place = match state {
            TrialState::Queued => &mut counts.queued,
            TrialState::Running => &mut counts.running,
            TrialState::Finished => &mut counts.finished,
            TrialState::Failed => &mut counts.failed,
            TrialState::Cancelled => &mut counts.cancelled,
            TrialState::Interrupted => &mut counts.interrupted,
        };
        *place = count.into();
        counts.total += u64::from(count);
        counts.survived += u64::from(survived);
    }
    Ok(counts)
}

/// One sweep.
pub(super) fn sweep(connection: &Connection, root: &Path, id: &str) -> Sql<Option<SweepView>> {
    let query = format!("{SWEEP} WHERE id = ?1");
    connection.query_row(&query, [id], |row| sweep_of(connection, root, row)).optional()
}

/// The newest sweeps.
pub(super) fn sweeps(connection: &Connection, root: &Path, limit: i64) -> Sql<Vec<SweepView>> {
    let mut statement = connection.prepare(&format!("{SWEEP} ORDER BY number DESC LIMIT ?1"))?;
    statement.query_map([limit], |row| sweep_of(connection, root, row))?.collect()
}

/// The trials of a sweep.
pub(super) fn trials(connection: &Connection, sweep: &SweepView) -> Sql<Vec<TrialView>> {
    let mut statement = connection.prepare(
        "SELECT name, trials.state, attempts, steps, survived, trials.reason, summary, trials.started_at, trials.ended_at
         FROM trials JOIN sweeps ON sweeps.number = trials.sweep WHERE sweeps.id = ?1 ORDER BY position",
    )?;
    statement.query_map([&sweep.id], |row| trial_of(row, sweep))?.collect()
}

fn trial_of(row: &Row<'_>, sweep: &SweepView) -> Sql<TrialView> {
    let key = key(row, 0)?;
    let summary: Option<String> = row.get(6)?;
    let summary: Option<Value> =
        summary.map(|text| serde_json::from_str(&text)).transpose().map_err(unreadable(6))?;
    let field = |name: &str| summary.as_ref().and_then(|summary| summary.get(name));
    let number = |name: &str| field(name).and_then(Value::as_f64);
    let count = |name: &str| field(name).and_then(Value::as_u64);
    Ok(TrialView {
        id: named(&sweep.id, key),
        sweep_id: sweep.id.clone(),
        name: key.to_string(),
        condition: condition(key),
        seed: key.seed,
        percent: key.fraction.to_string(),
        adversarial_fraction: key.fraction.share(),
        state: parsed(row, 1, TrialState::parse)?,
        attempts: row.get(2)?,
        max_steps: sweep.plan.max_steps,
        steps_completed: row.get::<_, Option<u32>>(3)?.map(u64::from),
        survived: row.get(4)?,
        exit_status: field("exit_status").and_then(Value::as_str).map(str::to_owned),
        reason: row.get(5)?,
        final_reward: number("final_reward"),
        wall_secs: number("wall_secs"),
        cpu_secs: number("cpu_secs"),
        memory_peak_bytes: count("memory_peak_bytes"),
        pids_peak: count("pids_peak"),
        contagion_events: count("contagion_events"),
        started_at: row.get(7)?,
        ended_at: row.get(8)?,
        summary: summary.clone(),
    })
}
