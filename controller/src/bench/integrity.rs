//! Grades every program in every way.
//!
//! The ways of one program run beside each other, not one way after the other, so that a machine that is busy for
//! a while disturbs all of them alike.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::task::JoinSet;

use super::programs::Program;
use super::progress::State;
use super::ways::{self, GradeError, Graded, Way};
use crate::progress::Progress;
use crate::service::Service;

/// What the ways made of one program; a way that is missing had a failure of the sandbox.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) family: String,
    /// Whether it computes the answers.
    pub(crate) honest: bool,
    pub(crate) ways: BTreeMap<Way, Graded>,
}

/// The longest that any step of these programs may take: what the service has to grant.
pub(crate) fn longest_step(programs: &[Program], timeout: Duration) -> Duration {
    ways::longest(programs.iter().map(ways::parts).max().unwrap_or(1), timeout)
}

/// Grades all; rows are in the programs' order.
pub(crate) async fn run(service: &Arc<Service>, programs: Vec<Program>, timeout: Duration) -> Vec<Row> {
    let mut rows: Vec<Row> = programs.iter().map(row).collect();
    let progress = Progress::new(State::of(programs.len() * Way::ALL.len()));
    // A few more than there are workers, so that none waits, and a stop has little to wait for.
    let at_once = usize::from(service.config.workers) * 2;
    let programs: Vec<_> = programs.into_iter().map(Arc::new).collect();
    let mut waiting =
        programs.iter().enumerate().flat_map(|(index, program)| Way::ALL.map(|way| (index, program, way)));
    let mut running: JoinSet<(usize, Way, Result<Graded, GradeError>)> = JoinSet::new();
    loop {
        while running.len() < at_once
            && let Some((index, program, way)) = waiting.next()
        {
            let (service, program) = (Arc::clone(service), Arc::clone(program));
            running.spawn(async move { (index, way, ways::grade(&service, way, &program, timeout).await) });
        }
        let Some(done) = running.join_next().await else { break };
        // A task that panicked has no verdict, as one whose sandbox failed.
        let Ok((index, way, graded)) = done else { continue };
        let Some(row) = rows.get_mut(index) else { continue };
        match graded {
            Ok(graded) => {
                progress.graded(way, row.honest, graded.rewarded);
                row.ways.insert(way, graded);
            }
            Err(error) => progress.failed(&format!("{} by {}: {error}", row.id, way.label())),
        }
    }
    progress.finish();
    rows
}

fn row(program: &Program) -> Row {
    Row {
        id: program.id.clone(),
        family: program.family.clone(),
        honest: program.rewarded,
        ways: BTreeMap::new(),
    }
}
