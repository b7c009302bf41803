//! The bounded queue of jobs, and who takes the next one: the worker that came to rest last.
//!
//! What a worker, its launcher and its interpreter need lies in the caches of a processor for a while. Workers that take
//! turns throw each other's out, which costs a fifth of the CPU time of a verification; with the last one first, one
//! client is served by two of them, and the others are for more.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError};

/// The queue, for any number of senders and workers.
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    /// One permit for each place that is free.
    room: Semaphore,
}

struct State<T> {
    waiting: VecDeque<T>,
    idle: Vec<Arc<Seat<T>>>,
    closed: bool,
}

/// Where one worker waits.
pub(super) struct Seat<T> {
    given: Mutex<Given<T>>,
    changed: Condvar,
}

enum Given<T> {
    Nothing,
    Job(T),
    Closed,
}

/// What a worker gets.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken<T> {
    Job(T),
    /// Nothing came within the time that it wanted to wait.
    Nothing,
    /// Nothing will come any more.
    Closed,
}

/// How long a worker waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    Not,
    For(Duration),
    Always,
}

/// A job was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    Full,
    Closed,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> State<T> {
    /// Gives the job to the worker that came to rest last; without one, it comes back.
    fn hand_over(&mut self, job: T) -> Option<T> {
        let Some(seat) = self.idle.pop() else { return Some(job) };
        seat.give(Given::Job(job));
        None
    }

    /// The job takes a place until a worker comes.
    fn wait(&mut self, job: T, place: SemaphorePermit<'_>) {
        place.forget();
        self.waiting.push_back(job);
    }
}

impl<T> Seat<T> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { given: Mutex::new(Given::Nothing), changed: Condvar::new() })
    }

    fn give(&self, given: Given<T>) {
        *lock(&self.given) = given;
        self.changed.notify_one();
    }

    /// Waits until something is given, or until the end.
    fn wait(&self, end: Option<Instant>) -> Given<T> {
        let mut given = lock(&self.given);
        while matches!(*given, Given::Nothing) {
            let Some(end) = end else {
                given = self.changed.wait(given).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            given = self.changed.wait_timeout(given, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        std::mem::replace(&mut given, Given::Nothing)
    }
}

impl<T> Queue<T> {
    /// With room for so many jobs that no worker has taken.
    pub(super) fn new(capacity: usize) -> Self {
        let state = State { waiting: VecDeque::new(), idle: Vec::new(), closed: false };
        Self { state: Mutex::new(state), room: Semaphore::new(capacity.min(Semaphore::MAX_PERMITS)) }
    }

    /// Takes a job if a worker is idle or there is room.
    pub(super) fn try_push(&self, job: T) -> Result<(), Refused> {
        let mut state = lock(&self.state);
        let Some(job) = state.hand_over(job) else { return Ok(()) };
        match self.room.try_acquire() {
            Ok(place) => {
                state.wait(job, place);
                Ok(())
            }
            Err(TryAcquireError::NoPermits) => Err(Refused::Full),
            Err(TryAcquireError::Closed) => Err(Refused::Closed),
        }
    }

    /// Takes a job once there is room.
    pub(super) async fn push_when_free(&self, job: T) -> Result<(), Refused> {
        let Ok(place) = self.room.acquire().await else { return Err(Refused::Closed) };
        let mut state = lock(&self.state);
        if state.closed {
            return Err(Refused::Closed);
        }
        // Where a worker takes it at once, the place comes back.
        if let Some(job) = state.hand_over(job) {
            state.wait(job, place);
        }
        Ok(())
    }

    /// The next job for the worker of this seat.
    pub(super) fn take(&self, seat: &Arc<Seat<T>>, wait: Wait) -> Taken<T> {
        let mut state = lock(&self.state);
        if let Some(job) = state.waiting.pop_front() {
            self.room.add_permits(1);
            return Taken::Job(job);
        }
        if state.closed {
            return Taken::Closed;
        }
        let end = match wait {
            Wait::Not => return Taken::Nothing,
            Wait::For(time) => Some(Instant::now() + time),
            Wait::Always => None,
        };
        state.idle.push(Arc::clone(seat));
        drop(state);
        let given = match seat.wait(end) {
            Given::Nothing => {
                let mut state = lock(&self.state);
                state.idle.retain(|other| !Arc::ptr_eq(other, seat));
                // Something may have been given in the last moment, and nothing can be from here on.
                std::mem::replace(&mut *lock(&seat.given), Given::Nothing)
            }
            given @ (Given::Job(_) | Given::Closed) => given,
        };
        match given {
            Given::Job(job) => Taken::Job(job),
            Given::Nothing => Taken::Nothing,
            Given::Closed => Taken::Closed,
        }
    }

    /// Jobs that no worker has taken.
    pub(super) fn len(&self) -> usize {
        lock(&self.state).waiting.len()
    }

    /// Takes no more jobs; those that wait are still handed out.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        self.room.close();
        for seat in state.idle.drain(..) {
            seat.give(Given::Closed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_come_in_order_and_places_come_back() {
        let queue = Queue::new(2);
        let seat = Seat::new();
        assert_eq!((queue.try_push(1), queue.try_push(2)), (Ok(()), Ok(())));
        assert_eq!(queue.try_push(3), Err(Refused::Full));
        assert_eq!((queue.len(), queue.take(&seat, Wait::Not)), (2, Taken::Job(1)));
        assert_eq!(queue.try_push(3), Ok(()));
        assert_eq!(queue.take(&seat, Wait::Always), Taken::Job(2));
        queue.close();
        assert_eq!(queue.try_push(4), Err(Refused::Closed));
        assert_eq!(queue.take(&seat, Wait::Always), Taken::Job(3), "what was taken is not lost");
        assert_eq!(queue.take(&seat, Wait::Always), Taken::Closed);
    }

    #[test]
    fn who_came_to_rest_last_is_asked_first() {
        let queue = Arc::new(Queue::new(8));
        let (reports, heard) = std::sync::mpsc::channel();
        let mut threads = Vec::new();
        for name in 0..3 {
            let (theirs, reports) = (Arc::clone(&queue), reports.clone());
            threads.push(std::thread::spawn(move || {
                if let Taken::Job(job) = theirs.take(&Seat::new(), Wait::Always) {
                    reports.send((name, job)).unwrap();
                }
            }));
            while lock(&queue.state).idle.len() != name + 1 {
                std::thread::yield_now();
            }
        }
        for job in 0..2 {
            queue.try_push(job).unwrap();
            assert_eq!(heard.recv().unwrap(), (2 - job, job));
        }
        queue.close();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn a_worker_that_waited_in_vain_is_asked_no_more() {
        let queue = Queue::new(1);
        let seat = Seat::new();
        assert_eq!(queue.take(&seat, Wait::For(Duration::from_millis(1))), Taken::Nothing);
        queue.try_push(1).unwrap();
        assert_eq!(queue.len(), 1);
        assert_eq!(queue.take(&seat, Wait::Not), Taken::Job(1));
    }

    #[tokio::test]
    async fn whoever_waits_for_room_gets_it_or_hears_of_the_end() {
        let queue = Arc::new(Queue::new(1));
        queue.try_push(1).unwrap();
        let push = |job| {
            let queue = Arc::clone(&queue);
            tokio::spawn(async move { queue.push_when_free(job).await })
        };
        let second = push(2);
        assert_eq!(queue.take(&Seat::new(), Wait::Not), Taken::Job(1));
        assert_eq!(second.await.unwrap(), Ok(()));
        let third = push(3);
        queue.close();
        assert_eq!(third.await.unwrap(), Err(Refused::Closed));
    }
}
