//! HTTP: decode, encode, status codes. The only place that knows them.

mod batch;
mod body;
mod dialects;
mod health;
mod openapi;
mod problem;
mod sweeps;
mod verify;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tower_http::timeout::RequestBodyTimeoutLayer;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt};
use utoipa_axum::routes;

use crate::service::Service;
use crate::sweep::Sweeps;
pub(crate) use openapi::document;
pub(crate) use problem::Problem;
pub(crate) use verify::{VerifyRequest, VerifyResponse};

/// Body of one `/verify`.
const MAX_VERIFY_BODY: usize = 8 << 20;
/// Body of one `/verify/batch`.
const MAX_BATCH_BODY: usize = 64 << 20;

/// Longest pause within a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// What handlers share.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) service: Arc<Service>,
    /// SHA-256 of the bearer token that every call but `/health` needs.
    token: Option<[u8; 32]>,
    batches: Arc<tokio::sync::Semaphore>,
    /// Room for bodies of dialects, which may be large.
    bodies: body::Room,
    /// Connections that wait for events.
    streams: Arc<tokio::sync::Semaphore>,
    /// Absent where trainers listen: they have no business with sweeps, nor with dialects.
    sweeps: Option<Arc<Sweeps>>,
}

/// Most streams of events and logs at once.
const MAX_STREAMS: usize = 128;

impl Api {
    /// Handlers over a service.
    pub(crate) fn new(service: Arc<Service>, token: Option<&str>) -> Self {
        let token = token.map(|token| Sha256::digest(token.as_bytes()).into());
        let semaphore = |permits| Arc::new(tokio::sync::Semaphore::new(permits));
        let (batches, streams) = (semaphore(64), semaphore(MAX_STREAMS));
        Self { service, token, batches, bodies: body::Room::new(), streams, sweeps: None }
    }

    /// With sweeps, too.
    pub(crate) fn with_sweeps(self, sweeps: Arc<Sweeps>) -> Self {
        Self { sweeps: Some(sweeps), ..self }
    }

    /// All routes.
    pub(crate) fn router(self) -> Router {
        let mut guarded = verification();
        if self.sweeps.is_some() {
            guarded = guarded.merge(dialects()).merge(sweeps::routes());
        }
        guarded
            .layer(RequestBodyTimeoutLayer::new(BODY_TIMEOUT))
            .route_layer(from_fn_with_state(self.clone(), authorise))
            .merge(open())
            .split_for_parts()
            .0
            .fallback(not_found)
            .method_not_allowed_fallback(wrong_method)
            .with_state(self)
    }
}

/// What grades.
fn verification() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(verify::verify).layer(DefaultBodyLimit::max(MAX_VERIFY_BODY)))
        .routes(routes!(batch::batch).layer(DefaultBodyLimit::max(MAX_BATCH_BODY)))
        .routes(routes!(health::metrics))
}

/// What other servers answer.
fn dialects() -> OpenApiRouter<Api> {
    let limit = || DefaultBodyLimit::max(body::MAX_BODY);
    OpenApiRouter::new()
        .routes(routes!(dialects::run_code).layer(limit()))
        .routes(routes!(dialects::submit).layer(limit()))
        .routes(routes!(dialects::execute).layer(limit()))
        .routes(routes!(dialects::runtimes))
}

/// What needs no token.
fn open() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(health::health))
        .routes(routes!(openapi::openapi))
        .routes(routes!(dialects::ping))
}

async fn authorise(State(api): State<Api>, request: Request, next: Next) -> Response {
    let Some(expected) = api.token else { return next.run(request).await };
    let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    // Digests are compared, so that the comparison's time says nothing about the token or its length.
    let digest: [u8; 32] = Sha256::digest(given.as_bytes()).into();
    if bool::from(digest.ct_eq(&expected)) {
        return next.run(request).await;
    }
    Problem::unauthorised().into_response()
}

async fn not_found(request: Request) -> Problem {
    Problem::not_found(request.uri().path())
}

async fn wrong_method(request: Request) -> Problem {
    Problem::wrong_method(request.method().as_str(), request.uri().path())
}
