//! Clients in a closed loop: each has one request in flight, and sends the next when it has the answer.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::task::JoinSet;

use super::client::{Answer, Client, ClientError};
use super::served::Served;

/// When the clients stop.
#[derive(Debug, Clone, Copy)]
pub(super) enum Until {
    /// After so many requests of all clients.
    Count(u64),
    /// No request begins later than this after the first.
    Elapsed(Duration),
}

/// Sends numbered requests with so many clients; `ended` gets each number, its seconds and its answer. Returns the
/// seconds until the last answer. Connections are made before the clock starts.
pub(super) async fn closed_loop<R, E, F>(
    served: &Served,
    clients: u32,
    until: Until,
    request: R,
    ended: E,
) -> Result<f64, ClientError>
where
    R: Fn(u64) -> Value + Send + Sync + 'static,
    E: Fn(u64, f64, Answer) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send,
{
    let mut connected = Vec::new();
    for _ in 0..clients {
        connected.push(Client::connect(served.address).await?);
    }
    let (request, ended, next) = (Arc::new(request), Arc::new(ended), Arc::new(AtomicU64::new(0)));
    let begun = Instant::now();
    let mut running: JoinSet<Result<(), ClientError>> = JoinSet::new();
    for mut client in connected {
        let (request, ended, next) = (Arc::clone(&request), Arc::clone(&ended), Arc::clone(&next));
        running.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let go_on = match until {
                    Until::Count(count) => number < count,
                    Until::Elapsed(limit) => begun.elapsed() < limit,
                };
                if !go_on {
                    return Ok(());
                }
                let body = request(number);
                let sent = Instant::now();
                let answer = client.verify(&body).await?;
                ended(number, sent.elapsed().as_secs_f64(), answer).await;
            }
        });
    }
    // Dropping the set, as on an error or an interruption, ends the others.
    while let Some(client) = running.join_next().await {
        match client {
            Ok(result) => result?,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => {}
        }
    }
    Ok(begun.elapsed().as_secs_f64())
}
