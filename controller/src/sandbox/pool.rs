//! The bounded queue and the workers behind it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use async_channel::{Receiver, Sender, TrySendError};
use tokio::sync::oneshot;

use super::grader::Grader;
use super::worker::Worker;
use super::{Environment, SandboxError};
use crate::job::{Finished, Job};

/// Workers' launcher numbers start here; 0 is the grader's.
const FIRST_SLOT: u16 = 1;

/// The answer to a job, when it comes.
pub(crate) type Queued = oneshot::Receiver<Result<Finished, SandboxError>>;

struct Ticket {
    job: Job,
    queued: Instant,
    answer: oneshot::Sender<Result<Finished, SandboxError>>,
}

/// A job was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SubmitError {
    /// The queue is full.
    #[error("the queue is full")]
    Full,
    /// The answer would come when nobody waits for it any more.
    #[error("there was no answer in time")]
    Late,
    /// The service is shutting down.
    #[error("the service is shutting down")]
    Closed,
}

/// What `/health` says of the pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolState {
    pub(crate) workers: u16,
    pub(crate) busy: u64,
    pub(crate) waiting: usize,
    pub(crate) capacity: usize,
}

/// Workers with a shared queue.
pub(crate) struct Pool {
    sender: Sender<Ticket>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    busy: Arc<AtomicU64>,
    workers: u16,
    capacity: usize,
}

impl Pool {
    /// Starts the grader and the workers.
    pub(crate) fn start(
        environment: &Arc<Environment>,
        workers: u16,
        capacity: usize,
        ahead: u16,
    ) -> Result<Self, SandboxError> {
        let grader = Arc::new(Grader::start(environment, workers)?);
        let (sender, receiver) = async_channel::bounded(capacity);
        let busy = Arc::new(AtomicU64::new(0));
        let mut threads = Vec::new();
        for slot in FIRST_SLOT..FIRST_SLOT + workers {
            let worker = Worker::new(environment, &grader, slot, slot - FIRST_SLOT < ahead);
            let (receiver, busy) = (receiver.clone(), Arc::clone(&busy));
            let thread = std::thread::Builder::new()
                .name(format!("worker-{slot}"))
                .spawn(move || work(worker, &receiver, &busy))
                .map_err(SandboxError::system("starting a worker"))?;
            threads.push(thread);
        }
        Ok(Self { sender, threads: Mutex::new(threads), busy, workers, capacity })
    }

    /// The first launcher number that no worker uses.
    pub(crate) fn free_slot(&self) -> u16 {
        FIRST_SLOT + self.workers
    }

    /// Takes a job if there is room.
    pub(crate) fn try_submit(&self, job: Job) -> Result<Queued, SubmitError> {
        let (answer, queued) = oneshot::channel();
        match self.sender.try_send(Ticket { job, queued: Instant::now(), answer }) {
            Ok(()) => Ok(queued),
            Err(TrySendError::Full(_)) => Err(SubmitError::Full),
            Err(TrySendError::Closed(_)) => Err(SubmitError::Closed),
        }
    }

    /// Takes a job of a batch, waiting for room.
    pub(crate) async fn submit(&self, job: Job) -> Result<Queued, SubmitError> {
        let (answer, queued) = oneshot::channel();
        let ticket = Ticket { job, queued: Instant::now(), answer };
        self.sender.send(ticket).await.map(|()| queued).map_err(|_| SubmitError::Closed)
    }

    /// How full it is.
    pub(crate) fn state(&self) -> PoolState {
        PoolState {
            workers: self.workers,
            busy: self.busy.load(Ordering::Relaxed),
            waiting: self.sender.len(),
            capacity: self.capacity,
        }
    }

    /// Takes no more jobs, finishes those taken and ends every launcher. Blocks.
    pub(crate) fn shut_down(&self) {
        self.sender.close();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shut_down();
    }
}

fn work(mut worker: Worker, receiver: &Receiver<Ticket>, busy: &AtomicU64) {
    worker.prepare();
    while let Ok(ticket) = receiver.recv_blocking() {
        if ticket.answer.is_closed() {
            // Its client left before it began.
            continue;
        }
        let late =
            ticket.job.script.as_ref().is_some_and(|script| script.too_late(ticket.job.granted.timeout));
        if late {
            drop(ticket.answer.send(Err(SandboxError::Late)));
            continue;
        }
        busy.fetch_add(1, Ordering::Relaxed);
        let result = worker.run(&ticket.job, ticket.queued.elapsed());
        busy.fetch_sub(1, Ordering::Relaxed);
        // A client that left does not change what its job did.
        drop(ticket.answer.send(result));
        // Those that wait already are in front of this one in the queue, so a job finds a container that is ready.
        worker.prepare();
    }
}
