//! Errors as RFC 9457 problem documents.

use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::sandbox::SubmitError;
use crate::service::VerifyError;

/// A problem document; `reward` is always null: a failure of ours is never a reward of 0.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Problem {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    detail: String,
    reward: Option<f64>,
    #[serde(skip)]
    retry_after_secs: Option<u32>,
}

impl Problem {
    fn new(status: StatusCode, kind: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self {
            kind,
            title,
            status: status.as_u16(),
            detail: detail.into(),
            reward: None,
            retry_after_secs: None,
        }
    }

    /// A request whose content cannot be served as asked.
    pub(crate) fn unprocessable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "urn:rlox:invalid-request", "invalid request", detail)
    }

    pub(super) fn unauthorised() -> Self {
        let detail = "send the service's token: Authorization: Bearer TOKEN";
        Self::new(StatusCode::UNAUTHORIZED, "urn:rlox:unauthorised", "missing or wrong bearer token", detail)
    }

    pub(super) fn not_found(path: &str) -> Self {
        let detail = format!("no {path} here; GET /openapi.json says what there is");
        Self::new(StatusCode::NOT_FOUND, "urn:rlox:not-found", "not found", detail)
    }

    pub(super) fn wrong_method(method: &str, path: &str) -> Self {
        let detail = format!("{path} does not take {method}");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "urn:rlox:method-not-allowed", "method not allowed", detail)
    }

    /// What was asked for is not there, under a path that is.
    pub(super) fn unknown(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "urn:rlox:not-found", "not found", detail)
    }

    /// The state of what was asked for does not allow it.
    pub(super) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "urn:rlox:conflict", "its state does not allow that", detail)
    }

    /// The disk is full.
    pub(super) fn no_space(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::INSUFFICIENT_STORAGE, "urn:rlox:disk-full", "the disk is full", detail)
    }

    /// Sweeps cannot be served now.
    pub(super) fn unavailable(detail: impl Into<String>) -> Self {
        let kind = "urn:rlox:sweeps-unavailable";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, kind, "sweeps are not available", detail)
    }

    pub(super) fn busy(detail: impl Into<String>) -> Self {
        let busy =
            Self::new(StatusCode::TOO_MANY_REQUESTS, "urn:rlox:queue-full", "the queue is full", detail);
        Self { retry_after_secs: Some(1), ..busy }
    }

    /// The same for clients that try again after this status alone.
    pub(super) fn busy_gateway(detail: impl Into<String>) -> Self {
        let kind = "urn:rlox:queue-full";
        Self::new(StatusCode::GATEWAY_TIMEOUT, kind, "the service is overloaded", detail)
    }

    pub(super) fn too_large(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "urn:rlox:too-large", "the body is too large", detail)
    }

    pub(super) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "urn:rlox:malformed", "the body is not JSON", detail)
    }

    pub(super) fn media_type() -> Self {
        let title = "send Content-Type: application/json";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "urn:rlox:media-type", title, title)
    }

    pub(super) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    pub(super) fn detail(&self) -> &str {
        &self.detail
    }

    /// A failure of ours.
    pub(crate) fn fault(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "urn:rlox:sandbox-fault", "the sandbox failed", detail)
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Self {
        let status = rejection.status();
        let (kind, title) = match status {
            StatusCode::PAYLOAD_TOO_LARGE => ("urn:rlox:too-large", "the body is too large"),
            StatusCode::UNSUPPORTED_MEDIA_TYPE => {
                ("urn:rlox:media-type", "send Content-Type: application/json")
            }
            StatusCode::UNPROCESSABLE_ENTITY => ("urn:rlox:invalid-request", "invalid request"),
            _ => ("urn:rlox:malformed", "the body is not JSON"),
        };
        Self::new(status, kind, title, rejection.body_text())
    }
}

impl From<VerifyError> for Problem {
    fn from(error: VerifyError) -> Self {
        match error {
            VerifyError::Submit(SubmitError::Full | SubmitError::Late) => {
                Self::busy("retry after the time in Retry-After")
            }
            VerifyError::Submit(SubmitError::Closed) => Self::fault("the service is shutting down"),
            VerifyError::Sandbox(error) => {
                tracing::error!(%error, "a verification has no verdict");
                Self::fault(error.to_string())
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status();
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let kind: (HeaderName, HeaderValue) =
            (header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        let mut response = (status, [kind], body).into_response();
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after_secs {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
