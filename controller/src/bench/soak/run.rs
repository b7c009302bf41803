//! Sends the requests, and looks at what the service holds before and after.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use super::mix::{Item, Kind, Mix, PATIENT};
use super::progress::State;
use super::report::SoakResults;
use crate::bench::client::{Answer, Client, ClientError};
use crate::bench::footprint::Footprint;
use crate::bench::load::{Until, closed_loop};
use crate::bench::programs::ProgramsError;
use crate::bench::record::Place;
use crate::bench::served::{Served, ServedError};
use crate::corpus::Pinned;
use crate::progress::Progress;

/// Verifications before anything is counted: every worker has to have been used, and caches to be filled.
const WARM_UP: u64 = 2000;
/// An idle service is counted once its counts have stayed for so long.
const STAYS: Duration = Duration::from_secs(1);
/// Longest wait for that, and for counts that are above those of the beginning.
const SETTLES: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(50);
/// Complaints that are kept word by word.
const KEPT: usize = 100;

/// How much is sent, and of what.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Plan {
    pub(crate) verifications: u64,
    pub(crate) clients: u32,
    /// Share of hostile programs.
    pub(crate) adversarial: f64,
    /// Wall-clock limit of hostile programs.
    pub(crate) timeout_secs: f64,
    pub(crate) workers: Option<u16>,
    #[serde(skip)]
    pub(crate) allow_missing_cgroup: bool,
}

/// It could not be done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SoakError {
    /// The programs.
    #[error(transparent)]
    Mix(#[from] ProgramsError),
    /// The service.
    #[error(transparent)]
    Served(#[from] ServedError),
    /// Its connection.
    #[error("{source}; the service said: {log}")]
    Client {
        /// What failed.
        #[source]
        source: ClientError,
        /// The end of its log.
        log: String,
    },
    /// What it holds cannot be counted.
    #[error("cannot count what the service holds: {0}")]
    Proc(#[from] std::io::Error),
}

/// What the answers were.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) secs: Vec<(Kind, f64)>,
    pub(super) wrong: u64,
    /// Hostile programs that met their short limit and were right with more time.
    pub(super) late: u64,
    pub(super) complaints: Vec<String>,
}

/// A soak with the service that it started.
#[derive(Default)]
pub(crate) struct Soak {
    served: Option<Served>,
}

impl Soak {
    /// Runs it; can be dropped at any point, and then has to be [stopped](Self::stop).
    pub(crate) async fn run(
        &mut self,
        corpus: &Path,
        plan: &Plan,
    ) -> Result<(SoakResults, Vec<Pinned>, Place), SoakError> {
        let timeout = Duration::from_secs_f64(plan.timeout_secs);
        let (mix, pins) = Mix::load(corpus, plan.adversarial, timeout)?;
        let served = self.served.insert(Served::spawn(&flags(plan))?);
        served.listening().await?;
        let health = served.health().await?;
        let place = Place::of(&health);
        let mix = Arc::new(mix);
        // Every worker has a job at once, whatever the clients later do. Numbers from the far end: the counted
        // requests are the same ones, however long the warming up.
        let workers = health["pool"]["workers"].as_u64().and_then(|workers| u32::try_from(workers).ok());
        let many = plan.clients.max(2 * workers.unwrap_or(1));
        let warm_up = (plan.verifications / 10).min(WARM_UP).max((2 * many).into());
        eprintln!("warming up with {warm_up} verifications");
        send(served, many, &mix, warm_up, u64::MAX / 2).await?;
        let before = settled(served, None).await?;
        let begun = Instant::now();
        let answers = send(served, plan.clients, &mix, plan.verifications, 0).await?;
        let elapsed = begun.elapsed().as_secs_f64();
        let after = settled(served, Some(before)).await?;
        let results = SoakResults::of(plan.clone(), answers, elapsed, warm_up, before, after);
        Ok((results, pins, place))
    }

    /// Ends the service in order.
    pub(crate) async fn stop(&mut self) {
        if let Some(served) = self.served.take() {
            served.stop().await;
        }
    }
}

fn flags(plan: &Plan) -> Vec<String> {
    let mut flags = vec!["--timeout-secs".to_owned(), PATIENT.as_secs().to_string()];
    // Nobody is refused for want of room.
    flags.extend(["--queue".to_owned(), plan.clients.max(4096).to_string()]);
    if let Some(workers) = plan.workers {
        flags.extend(["--workers".to_owned(), workers.to_string()]);
    }
    if plan.allow_missing_cgroup {
        flags.extend(["--allow-missing", "cgroup"].map(str::to_owned));
    }
    flags
}

async fn send(
    served: &Served,
    clients: u32,
    mix: &Arc<Mix>,
    count: u64,
    first: u64,
) -> Result<Answers, SoakError> {
    let progress = Arc::new(Progress::new(State { total: count, ..State::default() }));
    let answers = Arc::new(Mutex::new(Answers::default()));
    let (taken, shown, asked, judging) =
        (Arc::clone(&answers), Arc::clone(&progress), Arc::clone(mix), Arc::clone(mix));
    let address = served.address;
    let request = move |number: u64| asked.item(first + number).body.clone();
    let ended = move |number: u64, secs: f64, answer: Answer| {
        let (taken, shown, mix) = (Arc::clone(&taken), Arc::clone(&shown), Arc::clone(&judging));
        async move {
            let item = mix.item(first + number);
            let (late, complaint) = judge(item, &answer, address).await;
            shown.answered(complaint.as_deref());
            taken.lock().unwrap_or_else(PoisonError::into_inner).enter(item.kind, secs, late, complaint);
        }
    };
    let sent = closed_loop(served, clients, Until::Count(count), request, ended).await;
    progress.finish();
    sent.map_err(|source| SoakError::Client { source, log: served.said() })?;
    Ok(std::mem::take(&mut *answers.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// Whether it was only late, and what is wrong with it.
async fn judge(item: &Item, answer: &Answer, address: std::net::SocketAddr) -> (bool, Option<String>) {
    let first = match value(item, answer) {
        Ok(value) => value,
        Err(complaint) => return (false, Some(complaint)),
    };
    if !item.late(&first) {
        return (false, item.complaint(&first));
    }
    let again = async { Client::connect(address).await?.verify(&item.patient()).await };
    let complaint = match again.await {
        Ok(answer) => value(item, &answer).map_or_else(Some, |value| item.complaint(&value)),
        Err(error) => Some(format!("{}: asked again: {error}", item.id)),
    };
    (true, complaint)
}

fn value(item: &Item, answer: &Answer) -> Result<Value, String> {
    match (answer.status, answer.json()) {
        (200, Ok(value)) => Ok(value),
        (status, _) => Err(format!("{}: no verdict: status {status}: {}", item.id, answer.text())),
    }
}

impl Answers {
    fn enter(&mut self, kind: Kind, secs: f64, late: bool, complaint: Option<String>) {
        self.secs.push((kind, secs));
        self.late += u64::from(late && complaint.is_none());
        self.wrong += u64::from(complaint.is_some());
        if self.complaints.len() < KEPT {
            self.complaints.extend(complaint);
        }
    }
}

/// What the service holds once it is idle and its counts stay; those that are above an earlier count get more time.
async fn settled(served: &Served, earlier: Option<Footprint>) -> Result<Footprint, SoakError> {
    let end = Instant::now() + SETTLES;
    let above = |now: Footprint| {
        let then = earlier.map(Footprint::counts);
        then.is_some_and(|then| now.counts().iter().zip(then).any(|(now, then)| now.1 > then.1))
    };
    let mut found = Footprint::of(served.pid)?;
    let mut since = Instant::now();
    loop {
        tokio::time::sleep(LOOK).await;
        let now = Footprint::of(served.pid)?;
        if now.counts() != found.counts() {
            since = Instant::now();
        }
        found = now;
        if (since.elapsed() >= STAYS && !above(now)) || Instant::now() >= end {
            return Ok(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_once_each() {
        let mut answers = Answers::default();
        answers.enter(Kind::Same, 0.1, false, None);
        answers.enter(Kind::Adversarial, 1.0, true, None);
        answers.enter(Kind::Adversarial, 1.0, true, Some("bad".into()));
        assert_eq!((answers.secs.len(), answers.late, answers.wrong), (3, 1, 1));
        assert_eq!(answers.complaints, ["bad"]);
    }
}
