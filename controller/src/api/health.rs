//! `GET /health` and `GET /metrics`.

use std::path::Path;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use rlox_host::Isolation;
use serde::Serialize;

use super::Api;

/// The body of `/health`.
#[derive(Debug, Serialize)]
pub(super) struct Health {
    status: &'static str,
    version: &'static str,
    isolation: Isolation,
    time: TimeBody,
    pool: PoolBody,
    queue: QueueBody,
}

/// How time is judged.
#[derive(Debug, Serialize)]
struct TimeBody {
    timeout_secs: f64,
    wall_factor: f64,
    /// What tells how long a program waited for a CPU.
    waits: &'static str,
}

#[derive(Debug, Serialize)]
struct PoolBody {
    mode: &'static str,
    workers: u16,
    busy: u64,
}

#[derive(Debug, Serialize)]
struct QueueBody {
    waiting: usize,
    capacity: usize,
}

pub(super) async fn health(State(api): State<Api>) -> (StatusCode, Json<Health>) {
    let state = api.service.pool.state();
    let isolation = api.service.environment.isolation.clone();
    // The operator's explicit choice to run with less is named, and is no failure.
    let config = &api.service.config;
    let refused = isolation.refused(config.allow_missing_cgroup, config.require_landlock);
    let (code, status) = match refused.is_empty() {
        true => (StatusCode::OK, "ok"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not contained"),
    };
    let body = Health {
        status,
        version: env!("CARGO_PKG_VERSION"),
        isolation,
        time: TimeBody {
            timeout_secs: config.ceilings.timeout.as_secs_f64(),
            wall_factor: config.ceilings.wall_factor,
            waits: if Path::new("/proc/self/schedstat").exists() { "schedstat" } else { "none" },
        },
        pool: PoolBody { mode: "cold", workers: state.workers, busy: state.busy },
        queue: QueueBody { waiting: state.waiting, capacity: state.capacity },
    };
    (code, Json(body))
}

pub(super) async fn metrics(State(api): State<Api>) -> String {
    let reports = api.service.environment.reports.read();
    api.service.metrics.render(api.service.pool.state(), &reports)
}
