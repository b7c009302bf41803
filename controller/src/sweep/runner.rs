//! Runs one sweep: ends what a crash left, opens the trainers' socket, runs the trials, says how it ended.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::engine::{Engine, EngineError, RuntimeEngine};
use super::lanes::Lanes;
use super::progress::{State, Teller};
use super::states::{SweepState, TrialState};
use super::stop::Stop;
use super::store::{CANCELLED, Job, Store, StoreError};
use super::view::{SweepView, TrialCounts};
use crate::server;
use crate::service::Service;

/// How often it is tried to write to a full disk.
const AGAIN: Duration = Duration::from_secs(1);
/// What runs again when a user asks for it.
pub(crate) const ALL_BUT_FINISHED: [TrialState; 3] =
    [TrialState::Interrupted, TrialState::Failed, TrialState::Cancelled];

/// A sweep cannot be run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SweepError {
    /// Shared files cannot be prepared.
    #[error("preparing the trials failed: {0}")]
    Stage(#[source] io::Error),
    /// The service's socket cannot be opened.
    #[error(transparent)]
    Serve(#[from] server::ServeError),
    /// The state cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What a crash left cannot be ended.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The environment for the trainer is missing.
    #[error("{path} does not exist; set up with: bash harness/repro.sh --setup-only")]
    NoEnvironment {
        /// The trainer's interpreter.
        path: PathBuf,
    },
    /// Its bundle is not prepared.
    #[error(transparent)]
    Home(#[from] crate::home::HomeError),
    /// The corpus is not the one that the sweep was made with.
    #[error("the corpus changed since the sweep was made; start another one")]
    Corpus,
    /// The corpus cannot be used.
    #[error(transparent)]
    CorpusCheck(#[from] crate::corpus::CorpusError),
    /// There is no such sweep.
    #[error("there is no sweep {0}")]
    Unknown(String),
}

impl SweepError {
    fn system(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Stage(io::Error::other(error))
    }
}

/// Who sees the trials' coming and going.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Somebody at the terminal.
    Terminal,
    /// The log.
    Log,
}

/// What runs sweeps in this process.
pub(crate) struct Runner {
    service: Arc<Service>,
    engine: Arc<RuntimeEngine>,
}

impl Runner {
    /// Over a service whose sandboxes the trainers use.
    pub(crate) fn new(service: Arc<Service>) -> Self {
        let engine = RuntimeEngine::new(&service.environment, service.pool.free_slot());
        Self { service, engine: Arc::new(engine) }
    }

    /// Ends the trials that a controller left when it died; they are interrupted from then on. Returns how many.
    pub(crate) fn recover(&self, store: &Store) -> Result<usize, SweepError> {
        let left = store.running_trials()?;
        for (id, key, handle) in &left {
            if let Some(handle) = handle {
                if self.engine.find(handle) {
                    tracing::warn!(trial = %key, "a trial of a dead controller still runs; ending it");
                }
                self.engine.end(handle)?;
            }
            store.leave(id, *key, TrialState::Interrupted, "its controller died while it ran")?;
        }
        Ok(left.len())
    }

    /// Puts a sweep that stopped back into the queue, with its trials that are in one of these states. No attempt at
    /// any of its trials may be under way.
    pub(crate) fn again(&self, store: &Store, id: &str, from: &[TrialState]) -> Result<(), SweepError> {
        again(store, id, from)
    }

    /// Runs a queued sweep to its end. `problem` hears what keeps it from going on.
    pub(crate) async fn run(
        &self,
        store: &Arc<Store>,
        job: Job,
        stop: &Arc<Stop>,
        audience: Audience,
        problem: impl Fn(Option<String>) + Send + Sync + 'static,
    ) -> Result<SweepView, SweepError> {
        let id = job.id.clone();
        when_there_is_room(stop, || store.set_sweep(&id, SweepState::Running, None)).await?;
        let ran = self.trials(store, job, stop, audience, problem).await;
        let (state, reason) = match &ran {
            Err(error) => (SweepState::Failed, Some(error.to_string())),
            Ok(()) => {
                let counts = view(store, &id)?.trials;
                ending(&counts, stop)
            }
        };
        when_there_is_room(stop, || store.set_sweep(&id, state, reason.as_deref())).await?;
        ran?;
        view(store, &id)
    }

    async fn trials(
        &self,
        store: &Arc<Store>,
        job: Job,
        stop: &Arc<Stop>,
        audience: Audience,
        problem: impl Fn(Option<String>) + Send + Sync + 'static,
    ) -> Result<(), SweepError> {
        let home = &self.service.environment.home;
        home.bundle("trainer")?;
        let interpreter = home.harness().join(".venv/bin/python");
        if std::fs::symlink_metadata(&interpreter).is_err() {
            return Err(SweepError::NoEnvironment { path: interpreter });
        }
        let pins = crate::corpus::check(&home.corpus())?;
        if !store.made_with(&job, &pins)? {
            return Err(SweepError::Corpus);
        }
        self.engine.prepare().map_err(SweepError::Stage)?;
        when_there_is_room(stop, || store.prepare(&job).and_then(|()| store.restore(&job))).await?;
        let (listener, socket) = server::listen_unix(&self.engine.socket_file())?;
        let (stop_server, stopped) = tokio::sync::watch::channel(false);
        let api = crate::api::Api::new(Arc::clone(&self.service), None);
        let serving = tokio::spawn(server::serve(listener, api, stopped, server::DRAIN_SLACK));
        let (engine, store, stop) = (Arc::clone(&self.engine), Arc::clone(store), Arc::clone(stop));
        let result = tokio::task::spawn_blocking(move || -> Result<(), SweepError> {
            let teller = match audience {
                Audience::Terminal => {
                    Teller::shown(state(&view(&store, &job.id)?.trials, job.plan.at_once()))
                }
                Audience::Log => Teller::logged(),
            };
            Lanes::new(&*engine, &store, &job, &stop, &teller, &problem)?.run();
            teller.finish();
            Ok(())
        })
        .await;
        stop_server.send_replace(true);
        if serving.await.is_err() {
            tracing::error!("the trainers' listener failed");
        }
        drop(socket);
        result.map_err(SweepError::system)?
    }
}

fn again(store: &Store, id: &str, from: &[TrialState]) -> Result<(), SweepError> {
    broken_off(store, id, "its controller died, or its end could not be written")?;
    store.requeue(id, from)?;
    if view(store, id)?.state.over() {
        store.set_sweep(id, SweepState::Queued, None)?;
    }
    Ok(())
}

/// Ends, in the database, what no longer runs but is said to: an end that could not be written, or a controller that
/// died. Does nothing where nothing is said to run.
pub(super) fn broken_off(store: &Store, id: &str, reason: &str) -> Result<(), SweepError> {
    store.leave_running(id, TrialState::Interrupted, reason)?;
    if view(store, id)?.state == SweepState::Running {
        store.set_sweep(id, SweepState::Interrupted, Some(reason))?;
    }
    Ok(())
}

/// Changes something durable, when there is room for it on the disk; where the controller ends, the next start does it.
async fn when_there_is_room(
    stop: &Stop,
    mut work: impl FnMut() -> Result<(), StoreError>,
) -> Result<(), SweepError> {
    loop {
        match work() {
            Err(error) if error.is_full() && !stop.leaving() => {
                tracing::error!(%error, "the disk is full; free some space, nothing is lost meanwhile");
                tokio::time::sleep(AGAIN).await;
            }
            done => return Ok(done?),
        }
    }
}

fn view(store: &Store, id: &str) -> Result<SweepView, SweepError> {
    store.sweep(id)?.ok_or_else(|| SweepError::Unknown(id.to_owned()))
}

fn state(counts: &TrialCounts, parallel: u16) -> State {
    let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    State::of(count(counts.total), count(counts.finished), count(counts.survived), usize::from(parallel))
}

/// How a sweep ended, by its trials.
fn ending(counts: &TrialCounts, stop: &Stop) -> (SweepState, Option<String>) {
    if counts.finished == counts.total {
        return (SweepState::Finished, None);
    }
    if stop.cancelled() {
        return (SweepState::Cancelled, Some(CANCELLED.into()));
    }
    if stop.asked() {
        return (SweepState::Interrupted, Some("the controller was stopped".into()));
    }
    let left = counts.total - counts.finished;
    (SweepState::Failed, Some(format!("{left} of {} trials could not be run", counts.total)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::plan::{Plan, Profile};

    /// What a disk without room, or a broken database, leaves: the trial's end is missing, or the sweep's, or both.
    #[test]
    fn a_sweep_whose_end_could_not_be_written_is_resumed_whole() {
        for ended in [None, Some(SweepState::Cancelled), Some(SweepState::Failed)] {
            let directory = tempfile::tempdir().unwrap();
            let plan = Plan::of(Profile::Smoke);
            let keys = plan.check().unwrap();
            let store = Store::open(directory.path()).unwrap();
            let id = store.adopt(&plan, &keys, &[], false).unwrap();
            store.set_sweep(&id, SweepState::Running, None).unwrap();
            store.begin_trial(&id, keys[0], None).unwrap();
            if let Some(state) = ended {
                store.set_sweep(&id, state, None).unwrap();
            }
            again(&store, &id, &ALL_BUT_FINISHED).unwrap();
            let view = store.sweep(&id).unwrap().unwrap();
            assert_eq!(
                (view.state, view.trials.queued),
                (SweepState::Queued, keys.len() as u64),
                "{ended:?}"
            );
        }
    }

    #[test]
    fn the_trials_decide_how_a_sweep_ended() {
        let counts = |finished, failed| TrialCounts { total: 4, finished, failed, ..TrialCounts::default() };
        let stop = Stop::default();
        assert_eq!(ending(&counts(4, 0), &stop).0, SweepState::Finished);
        assert_eq!(ending(&counts(3, 1), &stop).0, SweepState::Failed);
        stop.leave();
        // The last trial was recorded before it was to end.
        assert_eq!(ending(&counts(4, 0), &stop).0, SweepState::Finished);
        assert_eq!(ending(&counts(3, 0), &stop).0, SweepState::Interrupted);
        let stop = Stop::default();
        stop.cancel();
        assert_eq!(ending(&counts(3, 0), &stop).0, SweepState::Cancelled);
    }
}
