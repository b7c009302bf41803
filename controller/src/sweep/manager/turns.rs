//! Whose turn it is: one sweep after the other, until the service ends.

use std::sync::Arc;
use std::time::Duration;

use super::{Current, Sweeps, SweepsError, held};
use crate::sweep::runner::{Audience, broken_off};
use crate::sweep::stop::Stop;
use crate::sweep::store::{Job, Store};

/// After a failure of the store, before the next try.
const AGAIN: Duration = Duration::from_secs(5);

impl Sweeps {
    /// Runs sweeps until [`Sweeps::close`]; the one that runs is then broken off, and goes on at the next start.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut closing = self.closing();
        loop {
            let (this, stop) = (Arc::clone(&self), Arc::new(Stop::default()));
            let asked = Arc::clone(&stop);
            let next = tokio::task::spawn_blocking(move || this.take(asked)).await;
            let worked = match next {
                Ok(Ok(Some((store, job)))) => self.one(&store, job, &stop).await,
                Ok(Ok(None)) => true,
                Ok(Err(error)) => {
                    tracing::error!(%error, directory = %self.root.display(), "sweeps are not available");
                    false
                }
                Err(error) => {
                    tracing::error!(%error, "looking for the next sweep failed");
                    false
                }
            };
            if *closing.borrow() {
                return;
            }
            if worked && self.waits() {
                continue;
            }
            tokio::select! {
                () = self.wake.notified() => {}
                () = tokio::time::sleep(AGAIN), if !worked => {}
                _ = closing.wait_for(|closing| *closing) => return,
            }
        }
    }

    fn waits(&self) -> bool {
        let store = held(&self.store).clone();
        store.is_some_and(|store| store.next_sweep().is_ok_and(|job| job.is_some()))
    }

    /// The sweep whose turn it is; from here on it is the current one. Nothing runs now, so a sweep that is said to run
    /// is one whose end could not be written: that is done first.
    fn take(&self, stop: Arc<Stop>) -> Result<Option<(Arc<Store>, Job)>, SweepsError> {
        let Some(store) = self.existing()? else { return Ok(None) };
        let mut current = held(&self.current);
        store.cancel_asked()?;
        for id in store.said_to_run()? {
            tracing::warn!(sweep = id, "a sweep's end could not be written before; it is interrupted");
            broken_off(&store, &id, "its end could not be written")?;
        }
        let Some(job) = store.next_sweep()? else { return Ok(None) };
        if *self.closing.borrow() {
            return Ok(None);
        }
        *current = Some(Current { id: job.id.clone(), stop, problem: None });
        Ok(Some((store, job)))
    }

    /// Whether the next one may follow at once.
    async fn one(self: &Arc<Self>, store: &Arc<Store>, job: Job, stop: &Arc<Stop>) -> bool {
        let id = job.id.clone();
        tracing::info!(sweep = id, directory = %job.folder.root().display(), "a sweep begins");
        let this = Arc::clone(self);
        let problem = move |text: Option<String>| {
            if let Some(current) = &mut *held(&this.current) {
                current.problem = text;
            }
        };
        let ran = self.runner.run(store, job, stop, Audience::Log, problem).await;
        *held(&self.current) = None;
        match ran {
            Ok(view) => {
                let (state, trials) = (view.state.word(), view.trials);
                tracing::info!(
                    sweep = id,
                    state,
                    finished = trials.finished,
                    total = trials.total,
                    "a sweep ended"
                );
                true
            }
            Err(error) => {
                tracing::error!(sweep = id, %error, "a sweep could not be run");
                // Where not even that could be written, it is still queued, and is tried again after a while.
                store.sweep(&id).is_ok_and(|view| view.is_some_and(|view| view.state.over()))
            }
        }
    }

    /// Asks for the end of [`Sweeps::run`], and of everybody who waits for events.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
        if let Some(current) = &*held(&self.current) {
            current.stop.leave();
        }
    }
}
