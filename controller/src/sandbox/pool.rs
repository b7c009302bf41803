//! The workers behind the queue.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::grader::Grader;
use super::queue::{Queue, Refused, Seat, Taken, Wait};
use super::worker::{Stock, Worker};
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

impl From<Refused> for SubmitError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => Self::Full,
            Refused::Closed => Self::Closed,
        }
    }
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
    queue: Arc<Queue<Ticket>>,
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
        let queue = Arc::new(Queue::new(capacity));
        let queue_of_all = Arc::clone(&queue);
        let busy = Arc::new(AtomicU64::new(0));
        let mut threads = Vec::new();
        for slot in FIRST_SLOT..FIRST_SLOT + workers {
            let more = u16::from(slot - FIRST_SLOT < ahead % workers);
            let worker = Worker::new(environment, &grader, slot, ahead / workers + more);
            let (queue, busy) = (Arc::clone(&queue), Arc::clone(&busy));
            let thread = std::thread::Builder::new()
                .name(format!("worker-{slot}"))
                .spawn(move || work(worker, &queue, &busy))
                // Those that were started must not wait for ever.
                .inspect_err(|_| queue_of_all.close())
                .map_err(SandboxError::system("starting a worker"))?;
            threads.push(thread);
        }
        Ok(Self { queue, threads: Mutex::new(threads), busy, workers, capacity })
    }

    /// The first launcher number that no worker uses.
    pub(crate) fn free_slot(&self) -> u16 {
        FIRST_SLOT + self.workers
    }

    /// Takes a job if there is room.
    pub(crate) fn try_submit(&self, job: Job) -> Result<Queued, SubmitError> {
        let (answer, queued) = oneshot::channel();
        self.queue.try_push(Ticket { job, queued: Instant::now(), answer })?;
        Ok(queued)
    }

    /// Takes a job of a batch, waiting for room.
    pub(crate) async fn submit(&self, job: Job) -> Result<Queued, SubmitError> {
        let (answer, queued) = oneshot::channel();
        let ticket = Ticket { job, queued: Instant::now(), answer };
        self.queue.push_when_free(ticket).await?;
        Ok(queued)
    }

    /// How full it is.
    pub(crate) fn state(&self) -> PoolState {
        PoolState {
            workers: self.workers,
            busy: self.busy.load(Ordering::Relaxed),
            waiting: self.queue.len(),
            capacity: self.capacity,
        }
    }

    /// Takes no more jobs, finishes those taken and ends every launcher. Blocks.
    pub(crate) fn shut_down(&self) {
        self.queue.close();
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

/// Nothing was asked for so long: a burst is over, and the cores are free for making containers.
const PAUSE: Duration = Duration::from_millis(10);

fn work(mut worker: Worker, queue: &Queue<Ticket>, busy: &AtomicU64) {
    let seat = Seat::new();
    loop {
        let wait = match worker.stock() {
            Stock::Full => Wait::Always,
            // Those that wait in the queue come first. While this worker makes one, others take what comes.
            Stock::Empty => Wait::Not,
            Stock::Some => Wait::For(PAUSE),
        };
        match queue.take(&seat, wait) {
            Taken::Job(ticket) => serve(&mut worker, ticket, busy),
            Taken::Nothing => worker.prepare(),
            Taken::Closed => return,
        }
    }
}

fn serve(worker: &mut Worker, ticket: Ticket, busy: &AtomicU64) {
    if ticket.answer.is_closed() {
        // Its client left before it began.
        return;
    }
    let late = ticket.job.script.as_ref().is_some_and(|script| script.too_late(ticket.job.granted.timeout));
    if late {
        drop(ticket.answer.send(Err(SandboxError::Late)));
        return;
    }
    busy.fetch_add(1, Ordering::Relaxed);
    let result = worker.run(&ticket.job, ticket.queued.elapsed());
    busy.fetch_sub(1, Ordering::Relaxed);
    // A client that left does not change what its job did.
    drop(ticket.answer.send(result));
}
