//! `doctor --prove`: the attack corpus and its honest twins on this very host, through the service's own path.
//!
//! Three things have to hold. Every attack is contained. Every honest twin passes, or a sandbox that refuses
//! everything would look perfect. And with one layer taken away the same attacks succeed, or the check itself could
//! not fail. Attacks run in containers only, the controls too: what they lack is the one layer under test.

mod attacks;
mod controls;
mod report;

use std::time::Instant;

use crate::config::ServiceConfig;
use crate::corpus::{Corpus, CorpusError};
use crate::home::Home;
use crate::service::{Service, StartError};
pub(crate) use report::Proof;
use report::Row;

/// The proof could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProveError {
    /// The corpus is not the pinned one.
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    /// A service, weakened or not, did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A file cannot be used.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// Runs everything; takes about a minute.
pub(crate) fn prove(home: &Home, config: &ServiceConfig) -> Result<Proof, ProveError> {
    let begun = Instant::now();
    let pins = crate::corpus::check(&home.corpus())?;
    let corpus = Corpus::read(&home.corpus())?;
    tracing::info!(
        attacks = corpus.snippets.len(),
        twins = corpus.snippets.iter().filter(|snippet| snippet.twin.is_some()).count(),
        "running the corpus in containers; this takes about a minute"
    );
    let service = Service::start(home.clone(), config.clone())?;
    let mut attacked =
        attacks::run(&service, corpus.snippets.iter().map(|snippet| corpus.attack(snippet)).collect());
    for (snippet, ran) in corpus.snippets.iter().zip(&mut attacked) {
        if attacks::only_late(snippet, ran) {
            // A busy host must not be taken for a hole: alone and with more time, once.
            attacks::run(&service, vec![corpus.patient_attack(snippet)])
                .into_iter()
                .for_each(|again| *ran = again);
        }
    }
    let twins: Vec<_> = corpus.snippets.iter().filter(|snippet| snippet.twin.is_some()).collect();
    let passed = attacks::run(&service, twins.iter().filter_map(|snippet| corpus.honest(snippet)).collect());
    let slow = service.pool.state().workers;
    drop(service);
    let mut failures = Vec::new();
    let mut rows: Vec<Row> = corpus.families().into_iter().map(Row::new).collect();
    let mut row = |family: &str, count: &dyn Fn(&mut Row)| {
        rows.iter_mut().filter(|row| row.family == family).for_each(count);
    };
    for (snippet, result) in corpus.snippets.iter().zip(&attacked) {
        let complaint = attacks::complaint(snippet, result);
        row(&snippet.family, &|row| row.attack(complaint.is_none()));
        failures.extend(complaint.map(|what| (snippet.id.clone(), what)));
    }
    for (snippet, result) in twins.iter().zip(&passed) {
        let complaint = attacks::twin_complaint(result);
        row(&snippet.family, &|row| row.twin(complaint.is_none()));
        failures.extend(complaint.map(|what| (format!("{} (honest twin)", snippet.id), what)));
    }
    tracing::info!("running the controls: the same attacks in containers that lack one layer each");
    for control in controls::all() {
        let outcome = control.run(home, config, &corpus)?;
        for family in control.families {
            row(family, &|row| row.control = outcome.of(family));
        }
        failures.extend(outcome.failures(&control));
    }
    Ok(Proof { rows, failures, pins, workers: slow, secs: begun.elapsed().as_secs_f64() })
}
