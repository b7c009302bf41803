//! How a sweep comes into a store: asked for, with a directory of its own, or as the one of the directory itself.

use rlox_report::TrialKey;
use rusqlite::{OptionalExtension, Transaction, params};

use super::{Added, MAX_SWEEPS, RequestKey, Store, StoreError, changes, manifest};
use crate::corpus::Pinned;
use crate::job::random_id;
use crate::sweep::files::{self, Folder, Manifest};
use crate::sweep::plan::Plan;
use crate::sweep::queries;
use crate::sweep::states::SweepState;
use crate::sweep::view::Happening;

impl Store {
    /// Adds a sweep with a directory of its own.
    pub(crate) fn add(
        &self,
        plan: &Plan,
        keys: &[TrialKey],
        corpus: &[Pinned],
        request: Option<RequestKey<'_>>,
    ) -> Result<Added, StoreError> {
        let id = random_id().map_err(StoreError::Random)?;
        let manifest = manifest(plan, corpus);
        // One transaction and nothing else: its directory is made when its turn comes.
        let text = Text::of(&manifest)?;
        self.write(|transaction| self.insert(transaction, &id, &id, &text, keys, request))
    }

    /// The one sweep whose directory is the store's own; trials that were recorded earlier stay.
    pub(crate) fn adopt(
        &self,
        plan: &Plan,
        keys: &[TrialKey],
        corpus: &[Pinned],
        fresh: bool,
    ) -> Result<String, StoreError> {
        let folder = Folder::new(self.root.clone());
        let manifest = manifest(plan, corpus);
        if fresh {
            self.write(|transaction| transaction.execute("DELETE FROM sweeps", []).map(Ok))?;
            folder.clear()?;
        }
        let known = self.database.read(queries::own_sweep)?;
        let found = match &known {
            Some((_, found)) => serde_json::from_str(found).ok(),
            None => files::read_manifest(&self.root)?,
        };
        if let Some(found) = &found {
            let what = if found.corpus == manifest.corpus { "the plan" } else { "the corpus" };
            if found.corpus != manifest.corpus || !found.plan.same_trials(plan) {
                return Err(StoreError::Other { path: self.root.clone(), what });
            }
        }
        if let Some((id, _)) = known {
            let text = serde_json::to_string(plan)?;
            let update = "UPDATE sweeps SET plan = ?2 WHERE id = ?1 AND plan <> ?2";
            self.write(|transaction| transaction.execute(update, [&id, &text]).map(Ok))?;
            return Ok(id);
        }
        folder.prepare(&manifest)?;
        let id = random_id().map_err(StoreError::Random)?;
        let recorded: Vec<_> = keys.iter().filter_map(|key| Some((*key, folder.receipted(*key)?))).collect();
        let text = Text::of(&manifest)?;
        // All or nothing: a sweep that is there without what a controller recorded that had no database would run it
        // again.
        self.write(|transaction| {
            if let Err(error) = self.insert(transaction, &id, ".", &text, keys, None)? {
                return Ok(Err(error));
            }
            for (key, summary) in &recorded {
                if let Err(error) = changes::begin(transaction, &id, *key, None)? {
                    return Ok(Err(error));
                }
                if let Err(error) = changes::finish(transaction, &id, *key, summary)? {
                    return Ok(Err(error));
                }
            }
            Ok(Ok(()))
        })?;
        Ok(id)
    }

    fn insert(
        &self,
        transaction: &Transaction<'_>,
        id: &str,
        directory: &str,
        text: &Text,
        keys: &[TrialKey],
        request: Option<RequestKey<'_>>,
    ) -> rusqlite::Result<Result<Added, StoreError>> {
        if let Some(request) = request {
            let known: Option<(String, String)> = transaction
                .query_row(
                    "SELECT id, request_digest FROM sweeps WHERE request_key = ?1",
                    [request.key],
                    |row| Ok((row.get(0)?, row.get(1)?)),
                )
                .optional()?;
            match known {
                Some((id, digest)) if digest == request.digest => return Ok(Ok(Added { id, again: true })),
                Some(_) => return Ok(Err(StoreError::KeyTaken { key: request.key.to_owned() })),
                None => {}
            }
        }
        let count: i64 = transaction.query_row("SELECT count(*) FROM sweeps", [], |row| row.get(0))?;
        if count >= MAX_SWEEPS {
            return Ok(Err(StoreError::TooMany { path: self.root.clone() }));
        }
        transaction.execute(
            "INSERT INTO sweeps (id, state, plan, corpus, directory, request_key, request_digest, created_at)
                 VALUES (?1, 'queued', ?2, ?3, ?4, ?5, ?6, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))",
            params![
                id,
                text.plan,
                text.corpus,
                directory,
                request.map(|request| request.key),
                request.map(|request| request.digest)
            ],
        )?;
        let number = transaction.last_insert_rowid();
        for (position, key) in (0i64..).zip(keys) {
            transaction.execute(
                "INSERT INTO trials (sweep, position, name, state) VALUES (?1, ?2, ?3, 'queued')",
                params![number, position, key.to_string()],
            )?;
        }
        let happening = Happening::Sweep { state: SweepState::Queued, reason: None };
        queries::tell(transaction, number, &happening)?;
        Ok(Ok(Added { id: id.to_owned(), again: false }))
    }
}

/// A sweep's columns of JSON.
struct Text {
    plan: String,
    corpus: String,
}

impl Text {
    fn of(manifest: &Manifest) -> Result<Self, StoreError> {
        let plan = serde_json::to_string(&manifest.plan)?;
        Ok(Self { plan, corpus: serde_json::to_string(&manifest.corpus)? })
    }
}
