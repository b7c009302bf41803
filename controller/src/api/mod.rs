//! HTTP: decode, encode, status codes. The only place that knows them.

mod batch;
mod body;
mod dialects;
mod health;
mod problem;
mod verify;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tower_http::timeout::RequestBodyTimeoutLayer;

use crate::service::Service;
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
}

impl Api {
    /// Handlers over a service.
    pub(crate) fn new(service: Arc<Service>, token: Option<&str>) -> Self {
        let token = token.map(|token| Sha256::digest(token.as_bytes()).into());
        Self { service, token, batches: Arc::new(tokio::sync::Semaphore::new(64)), bodies: body::Room::new() }
    }

    /// All routes.
    pub(crate) fn router(self) -> Router {
        Router::new()
            .route("/verify", post(verify::verify).layer(DefaultBodyLimit::max(MAX_VERIFY_BODY)))
            .route("/verify/batch", post(batch::batch).layer(DefaultBodyLimit::max(MAX_BATCH_BODY)))
            .route("/metrics", get(health::metrics))
            .route("/run_code", post(dialects::run_code).layer(DefaultBodyLimit::max(body::MAX_BODY)))
            .route("/submit", post(dialects::submit).layer(DefaultBodyLimit::max(body::MAX_BODY)))
            .route("/api/v2/execute", post(dialects::execute).layer(DefaultBodyLimit::max(body::MAX_BODY)))
            .route("/api/v2/runtimes", get(dialects::runtimes))
            .layer(RequestBodyTimeoutLayer::new(BODY_TIMEOUT))
            .route_layer(from_fn_with_state(self.clone(), authorise))
            .route("/health", get(health::health))
            .route("/v1/ping", get(dialects::ping))
            .fallback(not_found)
            .method_not_allowed_fallback(wrong_method)
            .with_state(self)
    }
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
