//! The database of sweeps: one SQLite file, write-ahead log, one connection that writes and one that reads.
//!
//! What is committed survives SIGKILL and a power cut (`synchronous=FULL`); what does not fit on the disk is refused as
//! a whole, and can be tried again.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

/// The file, hidden as everything in a sweep's directory but the trials.
pub(super) const FILE: &str = ".sweeps.db";
/// Another process reads, or recovers the log, for this long at most.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of log that stay after a checkpoint.
const LOG_BYTES: i64 = 4 << 20;

/// One step a version; a step that was published is never changed.
const MIGRATIONS: [&str; 2] = [
    "
    CREATE TABLE sweeps (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        state TEXT NOT NULL,
        reason TEXT,
        plan TEXT NOT NULL,
        corpus TEXT NOT NULL,
        directory TEXT NOT NULL,
        request_key TEXT UNIQUE,
        request_digest TEXT,
        created_at TEXT NOT NULL,
        started_at TEXT,
        ended_at TEXT
    ) STRICT;
    CREATE TABLE trials (
        sweep INTEGER NOT NULL REFERENCES sweeps(number) ON DELETE CASCADE,
        position INTEGER NOT NULL,
        name TEXT NOT NULL,
        state TEXT NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0,
        handle TEXT,
        steps INTEGER,
        survived INTEGER,
        reason TEXT,
        summary TEXT,
        started_at TEXT,
        ended_at TEXT,
        PRIMARY KEY (sweep, name)
    ) STRICT;
    CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        sweep INTEGER NOT NULL REFERENCES sweeps(number) ON DELETE CASCADE,
        at TEXT NOT NULL,
        what TEXT NOT NULL
    ) STRICT;
    CREATE INDEX events_of_sweep ON events (sweep, id);
",
    "ALTER TABLE sweeps ADD COLUMN cancel_asked INTEGER NOT NULL DEFAULT 0;",
];

/// The database refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DatabaseError {
    /// There is no room on the disk. Nothing was changed; it can be tried again.
    #[error("no space is left for {path}: {source}")]
    Full {
        /// The file.
        path: PathBuf,
        /// SQLite's word.
        #[source]
        source: rusqlite::Error,
    },
    /// A newer controller wrote it.
    #[error(
        "{path} is of version {found}, this controller reads up to {known}; use the controller that wrote it"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: usize,
        /// The newest known one.
        known: usize,
    },
    /// Anything else.
    #[error("the database {path} cannot be used: {source}")]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// SQLite's word.
        #[source]
        source: rusqlite::Error,
    },
}

/// Both connections.
#[derive(Debug)]
pub(super) struct Database {
    path: PathBuf,
    writer: Mutex<Connection>,
    reader: Mutex<Connection>,
}

impl Database {
    /// Opens the database in a directory and brings it up to date. The caller holds the directory's lock.
    pub(super) fn open(directory: &Path) -> Result<Self, DatabaseError> {
        let path = directory.join(FILE);
        let wrap = |source| error(&path, source);
        let mut writer = Connection::open(&path).map_err(wrap)?;
        writer.busy_timeout(PATIENCE).map_err(wrap)?;
        let settings = format!(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON; \
             PRAGMA journal_size_limit={LOG_BYTES};"
        );
        writer.execute_batch(&settings).map_err(wrap)?;
        migrate(&mut writer, &path)?;
        let reader = Mutex::new(read_only(&path).map_err(wrap)?);
        Ok(Self { writer: Mutex::new(writer), reader, path })
    }

    /// Runs one transaction: all of it is durable when this returns, or nothing was done. Work that ends with an error
    /// of its own is undone, too.
    pub(super) fn write<T, E>(
        &self,
        work: impl FnOnce(&rusqlite::Transaction<'_>) -> rusqlite::Result<Result<T, E>>,
    ) -> Result<Result<T, E>, DatabaseError> {
        let mut connection = held(&self.writer);
        let wrap = |source| error(&self.path, source);
        let transaction =
            connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(wrap)?;
        let value = work(&transaction).map_err(wrap)?;
        if value.is_ok() {
            transaction.commit().map_err(wrap)?;
        }
        Ok(value)
    }

    /// Reads what is committed.
    pub(super) fn read<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, DatabaseError> {
        work(&held(&self.reader)).map_err(|source| error(&self.path, source))
    }
}

/// Reads the database of a directory whose controller may run. `None` where there is none.
pub(super) fn peek<T>(
    directory: &Path,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> Result<Option<T>, DatabaseError> {
    let path = directory.join(FILE);
    if !path.is_file() {
        return Ok(None);
    }
    let connection = read_only(&path).map_err(|source| error(&path, source))?;
    let version = version(&connection).map_err(|source| error(&path, source))?;
    if version == 0 {
        // Its controller died, or was slow, before the first table.
        return Ok(None);
    }
    check_version(version, &path)?;
    work(&connection).map(Some).map_err(|source| error(&path, source))
}

fn read_only(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(PATIENCE)?;
    Ok(connection)
}

fn version(connection: &Connection) -> rusqlite::Result<usize> {
    connection
        .query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0))
        .map(|found| usize::try_from(found).unwrap_or(usize::MAX))
}

fn check_version(found: usize, path: &Path) -> Result<(), DatabaseError> {
    let known = MIGRATIONS.len();
    if found > known {
        return Err(DatabaseError::Newer { path: path.to_owned(), found, known });
    }
    Ok(())
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<(), DatabaseError> {
    let wrap = |source| error(path, source);
    let found = version(connection).map_err(wrap)?;
    check_version(found, path)?;
    for (index, step) in MIGRATIONS.iter().enumerate().skip(found) {
        // The step and its number are one transaction: a crash leaves the old version or the new one.
        let transaction = connection.transaction().map_err(wrap)?;
        transaction.execute_batch(step).map_err(wrap)?;
        transaction.execute_batch(&format!("PRAGMA user_version={}", index + 1)).map_err(wrap)?;
        transaction.commit().map_err(wrap)?;
    }
    Ok(())
}

fn held(connection: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

fn error(path: &Path, source: rusqlite::Error) -> DatabaseError {
    let full = match source.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => true,
        // The shared index of the log cannot grow: SQLite has no word of its own for that.
        Some(ErrorCode::SystemIoFailure) => super::files::full(path.parent().unwrap_or(path)),
        Some(_) | None => false,
    };
    let path = path.to_owned();
    if full { DatabaseError::Full { path, source } } else { DatabaseError::Sqlite { path, source } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_committed_is_there_again_and_what_failed_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let insert = "INSERT INTO sweeps (id, state, plan, corpus, directory, created_at) VALUES (?1, 'queued', '', '', '', '')";
        let database = Database::open(directory.path()).unwrap();
        database.write(|transaction| transaction.execute(insert, ["a"]).map(Ok::<_, ()>)).unwrap().unwrap();
        let failed = database.write(|transaction| {
            transaction.execute(insert, ["b"])?;
            transaction.execute(insert, ["a"]).map(Ok::<_, ()>)
        });
        assert!(matches!(failed, Err(DatabaseError::Sqlite { .. })));
        let undone = database.write(|transaction| transaction.execute(insert, ["c"]).map(Err::<(), _>));
        assert_eq!(undone.unwrap(), Err(1));
        drop(database);
        let count = |connection: &Connection| {
            connection.query_row("SELECT count(*) FROM sweeps", [], |row| row.get::<_, i64>(0))
        };
        assert_eq!(Database::open(directory.path()).unwrap().read(count).unwrap(), 1);
        assert_eq!(peek(directory.path(), count).unwrap(), Some(1));
    }

    #[test]
    fn a_database_of_the_first_version_gets_the_column_and_keeps_its_sweeps() {
        let directory = tempfile::tempdir().unwrap();
        let connection = Connection::open(directory.path().join(FILE)).unwrap();
        connection.execute_batch(MIGRATIONS[0]).unwrap();
        let insert = "INSERT INTO sweeps (id, state, plan, corpus, directory, created_at) VALUES ('a', 'queued', '', '', '', '')";
        connection.execute_batch(insert).unwrap();
        connection.execute_batch("PRAGMA user_version=1").unwrap();
        drop(connection);
        let asked = |connection: &Connection| {
            connection
                .query_row("SELECT cancel_asked FROM sweeps WHERE id = 'a'", [], |row| row.get::<_, i64>(0))
        };
        for _ in 0..2 {
            assert_eq!(Database::open(directory.path()).unwrap().read(asked).unwrap(), 0);
        }
    }

    #[test]
    fn a_database_of_a_newer_controller_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        drop(Database::open(directory.path()).unwrap());
        let connection = Connection::open(directory.path().join(FILE)).unwrap();
        connection.execute_batch("PRAGMA user_version=99").unwrap();
        drop(connection);
        assert!(matches!(Database::open(directory.path()), Err(DatabaseError::Newer { found: 99, .. })));
        assert!(peek(directory.path(), |_| Ok(())).is_err());
    }

    #[test]
    fn what_is_no_database_is_an_error_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        std::fs::write(&path, "no database at all, but long enough to be looked at".repeat(20)).unwrap();
        let text = Database::open(directory.path()).unwrap_err().to_string();
        assert!(text.contains(".sweeps.db"), "{text}");
        assert!(std::fs::read_to_string(&path).unwrap().starts_with("no database"));
    }
}
