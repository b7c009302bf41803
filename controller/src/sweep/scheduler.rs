//! Runs the trials that are not recorded yet, some at a time. One failed trial never stops the others.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rlox_report::TrialKey;

use super::plan::Plan;
use super::progress::State;
use super::store::Store;
use super::trial::{Stage, TrialError};
use crate::progress::Progress;
use crate::server;
use crate::service::Service;

/// A sweep cannot be run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SweepError {
    /// The plan makes no sense.
    #[error("plan: {0}")]
    Plan(String),
    /// Shared files cannot be prepared.
    #[error("preparing the trials failed: {0}")]
    Stage(#[source] io::Error),
    /// The service's socket cannot be opened.
    #[error(transparent)]
    Serve(#[from] server::ServeError),
    /// The environment for the trainer is missing.
    #[error("{path} does not exist; set up with: bash harness/repro.sh --setup-only")]
    NoEnvironment {
        /// The trainer's interpreter.
        path: PathBuf,
    },
}

/// How a sweep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) total: usize,
    pub(crate) done: usize,
    pub(crate) survived: usize,
    /// Trials that could not be run for a failure of ours.
    pub(crate) failed: usize,
    pub(crate) cancelled: bool,
}

/// Runs a sweep with a service that listens on a Unix socket for its trainers.
pub(crate) async fn run(
    service: Arc<Service>,
    store: Arc<Store>,
    plan: Plan,
    parallel: u16,
    stop: Arc<AtomicBool>,
) -> Result<Outcome, SweepError> {
    let keys = plan.trials().map_err(SweepError::Plan)?;
    let interpreter = service.environment.home.harness().join(".venv/bin/python");
    if !interpreter.exists() {
        return Err(SweepError::NoEnvironment { path: interpreter });
    }
    let stage = Stage::prepare(&service.environment).map_err(SweepError::Stage)?;
    let (listener, socket) = server::listen_unix(&stage.socket_file())?;
    let (stop_server, stopped) = tokio::sync::watch::channel(false);
    let api = crate::api::Api::new(Arc::clone(&service), None);
    let serving = tokio::spawn(server::serve(listener, api, stopped, server::DRAIN_SLACK));
    let first_slot = service.pool.free_slot();
    let result = tokio::task::spawn_blocking(move || {
        trials(&stage, &store, &plan, &keys, parallel, first_slot, &stop)
    })
    .await;
    stop_server.send_replace(true);
    if serving.await.is_err() {
        tracing::error!("the trainers' listener failed");
    }
    drop(socket);
    result.map_err(|error| SweepError::Stage(io::Error::other(error)))
}

fn trials(
    stage: &Stage,
    store: &Store,
    plan: &Plan,
    keys: &[TrialKey],
    parallel: u16,
    first_slot: u16,
    stop: &AtomicBool,
) -> Outcome {
    let earlier: Vec<_> = keys.iter().copied().filter(|key| store.finished(*key)).collect();
    let waiting: VecDeque<_> = keys.iter().copied().filter(|key| !earlier.contains(key)).collect();
    let survived_earlier = survivors(store, &earlier);
    let progress =
        Progress::new(State::of(keys.len(), earlier.len(), survived_earlier, usize::from(parallel)));
    let queue = Mutex::new(waiting);
    let (done, survived, failed) =
        (AtomicUsize::new(earlier.len()), AtomicUsize::new(survived_earlier), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for lane in 0..parallel {
            let (queue, progress, done, survived, failed) = (&queue, &progress, &done, &survived, &failed);
            scope.spawn(move || {
                while let Some(key) = next(queue, stop) {
                    progress.started(key);
                    match stage.run(store, plan, key, first_slot + lane, stop) {
                        Ok(alive) => {
                            done.fetch_add(1, Ordering::Relaxed);
                            survived.fetch_add(usize::from(alive), Ordering::Relaxed);
                            progress.ended(key, if alive { "survived" } else { "did not finish" }, alive);
                        }
                        Err(TrialError::Cancelled) => progress.abandoned(key, "cancelled"),
                        Err(error) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            tracing::error!(trial = %key, %error, "a trial could not be run");
                            progress.abandoned(key, "could not be run");
                        }
                    }
                }
            });
        }
    });
    progress.finish();
    Outcome {
        total: keys.len(),
        done: done.into_inner(),
        survived: survived.into_inner(),
        failed: failed.into_inner(),
        cancelled: stop.load(Ordering::Relaxed),
    }
}

fn next(queue: &Mutex<VecDeque<TrialKey>>, stop: &AtomicBool) -> Option<TrialKey> {
    if stop.load(Ordering::Relaxed) {
        return None;
    }
    queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

fn survivors(store: &Store, earlier: &[TrialKey]) -> usize {
    if earlier.is_empty() {
        return 0;
    }
    match rlox_report::load(store.root()) {
        Ok(sweep) => sweep
            .trials
            .iter()
            .filter(|trial| earlier.contains(&trial.key) && trial.survivor().is_some())
            .count(),
        Err(error) => {
            tracing::warn!(%error, "cannot read earlier trials");
            0
        }
    }
}
