//! `GET /health` and `GET /metrics`.

use std::path::Path;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use rlox_host::Isolation;
use rlox_protocol::Interpreter;
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use crate::service::Service;

/// The body of `/health`.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Health {
    status: &'static str,
    version: &'static str,
    /// What this host isolates, and what it lacks.
    #[schema(value_type = Object)]
    isolation: Isolation,
    time: TimeBody,
    pool: PoolBody,
    queue: QueueBody,
}

/// How time is judged.
#[derive(Debug, Serialize, ToSchema)]
struct TimeBody {
    timeout_secs: f64,
    wall_factor: f64,
    /// What tells how long a program waited for a CPU.
    waits: &'static str,
}

/// Containers made ahead, and what programs run with.
#[derive(Debug, Serialize, ToSchema)]
struct PoolBody {
    /// `warm`: forks of a started interpreter; `exec`: an interpreter for each container.
    mode: &'static str,
    /// Why not `warm`, where that was asked for.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    /// The warm interpreter's version, and modules that it could not import ahead.
    #[serde(skip_serializing_if = "Option::is_none")]
    python: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_modules: Vec<String>,
    workers: u16,
    busy: u64,
    /// Containers that may wait, that wait, and how many were made and met a request.
    size: u16,
    waiting: u64,
    hits: u64,
    misses: u64,
    made: u64,
    made_secs: f64,
    failed: u64,
}

impl PoolBody {
    fn of(service: &Service) -> Self {
        let (workers, ahead) = (service.pool.state(), service.environment.ahead.state());
        let (mode, reason, python, missing_modules) = match service.environment.ahead.interpreter() {
            Some(Interpreter::Warm { version, missing }) => ("warm", String::new(), Some(version), missing),
            Some(Interpreter::Exec { reason }) => ("exec", reason, None, Vec::new()),
            None => ("exec", String::new(), None, Vec::new()),
        };
        Self {
            mode,
            reason,
            python,
            missing_modules,
            workers: workers.workers,
            busy: workers.busy,
            size: service.config.pool,
            waiting: ahead.waiting,
            hits: ahead.hits,
            misses: ahead.misses,
            made: ahead.made,
            made_secs: ahead.made_secs,
            failed: ahead.failed,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
struct QueueBody {
    waiting: usize,
    capacity: usize,
}

/// Whether snippets can be contained as configured. Needs no token.
#[utoipa::path(
    get,
    path = "/health",
    tag = "service",
    security(()),
    responses((status = 200, body = Health), (status = 503, body = Health))
)]
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
        pool: PoolBody::of(&api.service),
        queue: QueueBody { waiting: state.waiting, capacity: state.capacity },
    };
    (code, Json(body))
}

/// Counters in Prometheus' text format.
#[utoipa::path(get, path = "/metrics", tag = "service", responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn metrics(State(api): State<Api>) -> String {
    let reports = api.service.environment.reports.read();
    let ahead = api.service.environment.ahead.state();
    api.service.metrics.render(api.service.pool.state(), ahead, &reports)
}
