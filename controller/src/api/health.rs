//! `GET /health` and `GET /metrics`.

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
    pool: PoolBody,
    queue: QueueBody,
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
        pool: PoolBody { mode: "cold", workers: state.workers, busy: state.busy },
        queue: QueueBody { waiting: state.waiting, capacity: state.capacity },
    };
    (code, Json(body))
}

pub(super) async fn metrics(State(api): State<Api>) -> String {
    let reports = api.service.environment.reports.read();
    api.service.metrics.render(api.service.pool.state(), &reports)
}
