//! The order of the batches: every round and every number of clients goes once through all ways before the next one
//! begins, so that a machine that is busy for a while disturbs all alike.

use serde::Serialize;

use super::SpeedError;
use super::engine::{Calls, Engine};
use super::meter::Measured;
use super::progress::State;
use super::results::{Pair, Row, Samples, base, pairs, rows};
use super::ways::{self, BASE, How, Way, installed};
use super::workloads::{WORKLOADS, Workload};
use super::workspace::Workspace;
use crate::bench::record::Place;
use crate::home::Home;
use crate::progress::Progress;

/// A service's times are counted by the kernel in hundredths of a second: its rounds are so many times longer.
const SERVICE_ROUND: u32 = 4;
/// Longest batch of the round that is not counted.
const WARM_UP: u32 = 5;

/// How much is measured.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Plan {
    pub(crate) rounds: u32,
    /// Verifications of each way in a round; of a service, four times as many.
    pub(crate) each: u32,
    pub(crate) clients: Vec<u32>,
    /// For each way and number of clients, in all passes together.
    pub(crate) duration_secs: f64,
    pub(crate) passes: u32,
    /// Ways that are measured; all where it is empty.
    pub(crate) only: Vec<String>,
    #[serde(skip)]
    pub(crate) allow_missing_cgroup: bool,
}

/// A way that could not be measured, and what would help.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Missing {
    pub(super) way: &'static str,
    #[serde(skip)]
    pub(super) label: &'static str,
    /// Which program it could not run; none where it runs nothing here.
    pub(super) workload: Option<&'static str>,
    pub(super) why: String,
    pub(super) remedy: Option<&'static str>,
}

/// Everything about one program.
#[derive(Debug, Serialize)]
pub(super) struct Compared {
    pub(super) workload: Workload,
    /// The way that ratios are to.
    pub(super) base: Option<&'static str>,
    pub(super) ways: Vec<Row>,
    pub(super) pairs: Vec<Pair>,
}

/// What a run found.
#[derive(Debug, Serialize)]
pub(crate) struct SpeedResults {
    pub(super) plan: Plan,
    /// The host's interpreter.
    pub(super) python: String,
    pub(super) workloads: Vec<Compared>,
    pub(super) missing: Vec<Missing>,
    #[serde(skip)]
    pub(crate) place: Place,
}

struct Running {
    way: Way,
    engine: Engine,
    /// Whether it works at all.
    works: bool,
}

/// A measurement with everything that it started.
#[derive(Default)]
pub(crate) struct Speed {
    running: Vec<Running>,
    missing: Vec<Missing>,
    space: Option<Workspace>,
}

impl Speed {
    /// Measures; can be dropped at any point, and then has to be [stopped](Self::stop).
    pub(crate) async fn measure(&mut self, home: Home, plan: &Plan) -> Result<SpeedResults, SpeedError> {
        let space = Workspace::make(home)?;
        let ways = ways::all(&space, plan.allow_missing_cgroup);
        let python = format!("{} {}", space.python, space.version);
        let interpreter = space.python.clone();
        self.space = Some(space);
        let mut place = Place::default();
        for way in ways {
            if !plan.only.is_empty() && way.key != BASE && !plan.only.iter().any(|key| key == way.key) {
                continue;
            }
            eprintln!("trying {}", way.label);
            self.start(way, &interpreter).await?;
            if let Some(Running { engine: Engine::Service(served), works: true, .. }) = self.running.last() {
                place = Place::of(&served.health().await?);
            }
        }
        self.running_or_nothing()?;
        let mut workloads = Vec::new();
        for workload in WORKLOADS {
            let runs = self.able(workload).await?;
            let samples = self.compare(workload, &runs, plan).await?;
            let base = base(&samples).map(|each| each.key);
            workloads.push(Compared { workload, base, ways: rows(&samples), pairs: pairs(&samples) });
        }
        let missing = std::mem::take(&mut self.missing);
        Ok(SpeedResults { plan: plan.clone(), python, workloads, missing, place })
    }

    /// Ends everything that was started, in order.
    pub(crate) async fn stop(&mut self) {
        for running in self.running.drain(..) {
            running.engine.stop().await;
        }
        self.space = None;
    }

    async fn start(&mut self, way: Way, python: &str) -> Result<(), SpeedError> {
        if let Some((program, remedy)) = way.needs
            && !installed(program)
        {
            self.misses(&way, None, "not installed".into(), Some(remedy));
            return Ok(());
        }
        let engine = Engine::start(&way, python)?;
        self.running.push(Running { way, engine, works: false });
        let Some(running) = self.running.last_mut() else { return Ok(()) };
        let [trivial, _] = WORKLOADS;
        match running.engine.ready(trivial).await? {
            None => running.works = true,
            Some(why) => {
                let way = running.way.clone();
                self.misses(&way, None, format!("does not work here: {why}"), None);
            }
        }
        Ok(())
    }

    fn misses(
        &mut self,
        way: &Way,
        workload: Option<&'static str>,
        why: String,
        remedy: Option<&'static str>,
    ) {
        self.missing.push(Missing { way: way.key, label: way.label, workload, why, remedy });
    }

    fn running_or_nothing(&self) -> Result<(), SpeedError> {
        if self.running.iter().any(|running| running.works) {
            return Ok(());
        }
        let reasons: Vec<_> = self.missing.iter().map(|each| format!("{}: {}", each.way, each.why)).collect();
        Err(SpeedError::Nothing { reasons: reasons.join("; ") })
    }

    /// Which ways can run this program here.
    async fn able(&mut self, workload: Workload) -> Result<Vec<usize>, SpeedError> {
        let (mut able, mut unable) = (Vec::new(), Vec::new());
        for (index, running) in self.running.iter_mut().enumerate().filter(|(_, running)| running.works) {
            match (workload.needs, running.engine.complaint(workload).await?) {
                (_, None) => able.push(index),
                (Some(module), Some(why)) if why.contains(&format!("No module named '{module}'")) => {
                    unable.push((running.way.clone(), format!("its interpreter has no {module}")));
                }
                (_, Some(why)) => unable.push((running.way.clone(), why)),
            }
        }
        for (way, why) in unable {
            self.misses(&way, Some(workload.name), why, None);
        }
        Ok(able)
    }

    async fn compare(
        &mut self,
        workload: Workload,
        runs: &[usize],
        plan: &Plan,
    ) -> Result<Vec<Samples>, SpeedError> {
        let mut samples: Vec<Samples> = runs
            .iter()
            .filter_map(|index| self.running.get(*index))
            .map(|running| {
                let (key, label) = (running.way.key, running.way.label);
                Samples { key, label, command: running.engine.command(), ..Samples::default() }
            })
            .collect();
        let batches = batches(plan);
        let progress = Progress::new(State { total: batches.len() * runs.len(), done: 0 });
        for batch in batches {
            for (index, found) in runs.iter().zip(&mut samples) {
                let Some(running) = self.running.get_mut(*index) else { continue };
                let what = format!("{} program, {}, {}", workload.name, running.way.key, batch.words());
                progress.begins(&what);
                let service = matches!(running.way.how, How::Verified(_));
                let measured = running.engine.measure(workload, batch.calls(plan, service)).await?;
                batch.enter(found, measured);
                progress.ends(&what);
            }
        }
        progress.finish();
        Ok(samples)
    }
}

/// One batch of every way.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Round {
    WarmUp,
    InTurn,
    Crowd(u32),
}

fn batches(plan: &Plan) -> Vec<Round> {
    let rounds = (0..plan.rounds).map(|_| Round::InTurn);
    let crowds = (0..plan.passes).flat_map(|_| plan.clients.iter().map(|clients| Round::Crowd(*clients)));
    [Round::WarmUp].into_iter().chain(rounds).chain(crowds).collect()
}

impl Round {
    fn words(self) -> String {
        match self {
            Self::WarmUp => "warming up".into(),
            Self::InTurn => "one after the other".into(),
            Self::Crowd(1) => "1 client".into(),
            Self::Crowd(clients) => format!("{clients} clients"),
        }
    }

    fn calls(self, plan: &Plan, service: bool) -> Calls {
        let factor = if service { SERVICE_ROUND } else { 1 };
        match self {
            Self::WarmUp => Calls::InTurn(plan.each.min(WARM_UP)),
            Self::InTurn => Calls::InTurn(plan.each * factor),
            Self::Crowd(clients) => {
                Calls::AtOnce { clients, secs: plan.duration_secs / f64::from(plan.passes) }
            }
        }
    }

    fn enter(self, samples: &mut Samples, measured: Measured) {
        match self {
            Self::WarmUp => {}
            Self::InTurn => samples.rounds.push(measured),
            Self::Crowd(clients) => samples.crowds.push((clients, measured)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_come_before_crowds_and_warming_up_is_dropped() {
        let plan = Plan {
            rounds: 2,
            each: 10,
            clients: vec![1, 8],
            duration_secs: 6.0,
            passes: 2,
            only: Vec::new(),
            allow_missing_cgroup: false,
        };
        let all = batches(&plan);
        let crowds = [Round::Crowd(1), Round::Crowd(8)];
        assert_eq!(all[..3], [Round::WarmUp, Round::InTurn, Round::InTurn]);
        assert_eq!(all[3..], [crowds, crowds].concat());
        let mut samples = Samples::default();
        all.into_iter().for_each(|round| round.enter(&mut samples, Measured::default()));
        assert_eq!((samples.rounds.len(), samples.crowds.len()), (2, 4));
        assert!(matches!(Round::InTurn.calls(&plan, true), Calls::InTurn(40)));
        assert!(matches!(Round::WarmUp.calls(&plan, true), Calls::InTurn(5)));
        let crowd = Round::Crowd(8).calls(&plan, false);
        assert!(
            matches!(crowd, Calls::AtOnce { clients: 8, secs } if (secs - 3.0).abs() < 1e-9),
            "{crowd:?}"
        );
    }
}
