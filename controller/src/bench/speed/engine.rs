//! A way that works on this host, ready to be measured: every way answers the same question, a batch of calls.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use super::meter::{Batch, Measured, Meter};
use super::ways::{Form, How, Way};
use super::workloads::Workload;
use super::{SpeedError, parent};
use crate::bench::load::{Until, closed_loop};
use crate::bench::served::Served;

/// How many calls, and how many at once.
#[derive(Debug, Clone, Copy)]
pub(super) enum Calls {
    /// One after the other.
    InTurn(u32),
    /// From so many clients, as many as begin in so many seconds.
    AtOnce { clients: u32, secs: f64 },
}

impl Calls {
    fn clients(self) -> u32 {
        match self {
            Self::InTurn(_) => 1,
            Self::AtOnce { clients, .. } => clients,
        }
    }
}

/// A process that was started to measure one way.
pub(super) enum Engine {
    Meter { meter: Meter, form: Option<Form>, forms: Vec<Form> },
    Service(Served),
}

impl Engine {
    /// Starts what the way needs. Nothing is waited for, so that the caller can hold and end it whatever comes.
    pub(super) fn start(way: &Way, python: &str) -> Result<Self, SpeedError> {
        Ok(match &way.how {
            How::Spawned(forms) => Self::Meter { meter: Meter::spawner()?, form: None, forms: forms.clone() },
            How::FromPython(form) => {
                Self::Meter { meter: Meter::start(parent(python))?, form: None, forms: vec![form.clone()] }
            }
            How::Verified(flags) => Self::Service(Served::spawn(flags)?),
        })
    }

    /// Waits until it can be asked, and finds the form that works on this host; says why there is none.
    pub(super) async fn ready(&mut self, workload: Workload) -> Result<Option<String>, SpeedError> {
        let Self::Meter { meter, form, forms } = self else {
            if let Self::Service(served) = self {
                served.listening().await?;
            }
            return self.complaint(workload).await;
        };
        let mut why = None;
        for each in forms.drain(..) {
            let measured = meter.measure(&batch(&each, workload, Calls::InTurn(1))).await?;
            if measured.failed == 0 {
                *form = Some(each);
                return Ok(None);
            }
            why = Some(measured.why);
        }
        Ok(Some(why.unwrap_or_default()))
    }

    /// Runs the workload once; says what is wrong with its end.
    pub(super) async fn complaint(&mut self, workload: Workload) -> Result<Option<String>, SpeedError> {
        let measured = self.measure(workload, Calls::InTurn(1)).await?;
        Ok((measured.failed > 0).then_some(measured.why))
    }

    pub(super) async fn measure(&mut self, workload: Workload, calls: Calls) -> Result<Measured, SpeedError> {
        match self {
            Self::Meter { meter, form: Some(form), .. } => {
                Ok(meter.measure(&batch(form, workload, calls)).await?)
            }
            Self::Meter { form: None, .. } => Ok(Measured { failed: 1, ..Measured::default() }),
            Self::Service(served) => verify(served, workload, calls).await,
        }
    }

    pub(super) async fn stop(self) {
        match self {
            Self::Meter { meter, .. } => meter.stop().await,
            Self::Service(served) => served.stop().await,
        }
    }

    /// The command line, or where it is not one, nothing.
    pub(super) fn command(&self) -> Option<Vec<String>> {
        match self {
            Self::Meter { form, .. } => form.as_ref().map(|form| form.of("WORKLOAD")),
            Self::Service(_) => None,
        }
    }
}

fn batch(form: &Form, workload: Workload, calls: Calls) -> Batch {
    let (count, secs) = match calls {
        Calls::InTurn(count) => (count, 0.0),
        Calls::AtOnce { secs, .. } => (0, secs),
    };
    Batch {
        argv: form.of(workload.name),
        cleanup: form.cleanup.clone(),
        expect: workload.prints.into(),
        clients: calls.clients(),
        count,
        secs,
    }
}

/// CPU time is that of the service, of all that it started, and of this process, which is its client.
async fn verify(served: &Served, workload: Workload, calls: Calls) -> Result<Measured, SpeedError> {
    let until = match calls {
        Calls::InTurn(count) => Until::Count(count.into()),
        Calls::AtOnce { secs, .. } => Until::Elapsed(Duration::from_secs_f64(secs)),
    };
    let ended = Arc::new(Mutex::new(Measured::default()));
    let (taken, body) = (Arc::clone(&ended), workload.request());
    let (service, client) = (served.rested().await?, used()?);
    let elapsed = closed_loop(
        served,
        calls.clients(),
        until,
        move |_| body.clone(),
        move |_, secs, answer| {
            let passed = answer.json().is_ok_and(|json| json["reward"] == 1.0);
            let mut measured = taken.lock().unwrap_or_else(PoisonError::into_inner);
            if answer.status == 200 && passed {
                measured.walls.push(secs);
            } else {
                measured.fail(&format!("status {}: {}", answer.status, answer.text()));
            }
            std::future::ready(())
        },
    )
    .await?;
    let client = used()? - client;
    let cpu = served.rested().await? - service + client;
    let measured = std::mem::take(&mut *ended.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Measured { elapsed, cpu, ..measured })
}

/// CPU seconds of this process.
fn used() -> Result<f64, SpeedError> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).map_err(std::io::Error::from)?;
    let total = (usage.user_time() + usage.system_time()).num_microseconds();
    Ok(Duration::from_micros(u64::try_from(total).unwrap_or_default()).as_secs_f64())
}
