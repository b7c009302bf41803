//! `/v1/sweeps` and `/v1/trials`: ask for sweeps, watch them, end them.
//!
//! The work is done by [`Sweeps`]; here are only its words over HTTP. Every call but the streams has an answer within
//! [`DEADLINE`].

mod errors;
mod events;
mod logs;

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use utoipa::IntoParams;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt};
use utoipa_axum::routes;

use super::{Api, Problem};
use crate::job::hex;
use crate::sweep::{Plan, RequestKey, SweepList, SweepView, Sweeps, SweepsError, TrialList};

/// A plan has a few kilobytes.
const MAX_BODY: usize = 256 << 10;
/// Longest that a call waits for the database and the files.
const DEADLINE: Duration = Duration::from_secs(30);
const MAX_KEY: usize = 255;
const DEFAULT_LIST: u32 = 50;
const MAX_LIST: u32 = 200;

/// All routes.
pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list, create).layer(DefaultBodyLimit::max(MAX_BODY)))
        .routes(routes!(get))
        .routes(routes!(trials))
        .routes(routes!(cancel))
        .routes(routes!(resume))
        .routes(routes!(summary))
        .routes(routes!(events::events))
        .routes(routes!(logs::logs))
}

/// Does blocking work for a call, within its time.
async fn ask<T: Send + 'static>(
    api: &Api,
    work: impl FnOnce(&Sweeps) -> Result<T, SweepsError> + Send + 'static,
) -> Result<T, Problem> {
    let sweeps = api.sweeps.clone().ok_or_else(|| Problem::unavailable("this listener has none"))?;
    match tokio::time::timeout(DEADLINE, tokio::task::spawn_blocking(move || work(&sweeps))).await {
        Ok(Ok(answer)) => Ok(answer?),
        Ok(Err(error)) => Err(Problem::fault(error.to_string())),
        Err(_) => Err(Problem::unavailable("no answer in time; the disk or another process holds it up")),
    }
}

fn query<T>(given: Result<Query<T>, QueryRejection>) -> Result<T, Problem> {
    given.map(|Query(value)| value).map_err(|rejection| Problem::unprocessable(rejection.body_text()))
}

/// Ask for a sweep. It runs when those before it are done. What the body leaves out is the tutorial's.
///
/// With an `Idempotency-Key`, the same body again is the same sweep (200 instead of 201), and another body is refused.
#[utoipa::path(
    post,
    path = "/v1/sweeps",
    tag = "sweeps",
    request_body = Plan,
    params(("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible ASCII characters")),
    responses(
        (status = 201, body = SweepView, headers(("Location" = String, description = "of the sweep"))),
        (status = 200, body = SweepView, description = "It was asked for before"),
        (status = "4XX", body = Problem, content_type = "application/problem+json"),
        (status = 503, body = Problem, content_type = "application/problem+json"),
        (status = 507, body = Problem, content_type = "application/problem+json", description = "The disk is full"),
    )
)]
async fn create(
    State(api): State<Api>,
    headers: HeaderMap,
    body: Result<Json<Value>, JsonRejection>,
) -> Result<Response, Problem> {
    let key = request_key(&headers)?;
    let Json(body) = body?;
    if !body.is_object() {
        return Err(Problem::unprocessable("the body has to be an object; {} is the tutorial's sweep"));
    }
    let plan: Plan =
        serde_json::from_value(body).map_err(|error| Problem::unprocessable(error.to_string()))?;
    let text = serde_json::to_vec(&plan).map_err(|error| Problem::fault(error.to_string()))?;
    let digest = hex(&Sha256::digest(text));
    let (view, again) = ask(&api, move |sweeps| {
        let request = key.as_deref().map(|key| RequestKey { key, digest: &digest });
        sweeps.create(&plan, request)
    })
    .await?;
    let place = format!("/v1/sweeps/{}", view.id);
    let status = if again { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, [(header::LOCATION, place)], Json(view)).into_response())
}

fn request_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut given = headers.get_all("idempotency-key").iter();
    let Some(value) = given.next() else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    let valid = !text.is_empty() && text.len() <= MAX_KEY && text.bytes().all(|byte| byte.is_ascii_graphic());
    if !valid || given.next().is_some() {
        return Err(Problem::unprocessable(format!(
            "Idempotency-Key: one header of 1 to {MAX_KEY} visible ASCII characters"
        )));
    }
    Ok(Some(text.to_owned()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// At most so many, up to 200; 50 where it is left out.
    limit: Option<u32>,
}

/// The newest sweeps, the newest first.
#[utoipa::path(
    get,
    path = "/v1/sweeps",
    tag = "sweeps",
    params(ListQuery),
    responses(
        (status = 200, body = SweepList),
        (status = "4XX", body = Problem, content_type = "application/problem+json"),
    )
)]
async fn list(
    State(api): State<Api>,
    given: Result<Query<ListQuery>, QueryRejection>,
) -> Result<Json<SweepList>, Problem> {
    let limit = query(given)?.limit.unwrap_or(DEFAULT_LIST);
    if !(1..=MAX_LIST).contains(&limit) {
        return Err(Problem::unprocessable(format!("limit is {limit}; 1 to {MAX_LIST} are possible")));
    }
    Ok(Json(SweepList { sweeps: ask(&api, move |sweeps| sweeps.list(limit)).await? }))
}

/// One sweep.
#[utoipa::path(
    get,
    path = "/v1/sweeps/{id}",
    tag = "sweeps",
    params(("id" = String, Path)),
    responses(
        (status = 200, body = SweepView),
        (status = 404, body = Problem, content_type = "application/problem+json"),
    )
)]
async fn get(State(api): State<Api>, Path(id): Path<String>) -> Result<Json<SweepView>, Problem> {
    Ok(Json(ask(&api, move |sweeps| sweeps.get(&id)).await?))
}

/// The trials of a sweep, in the order of running.
#[utoipa::path(
    get,
    path = "/v1/sweeps/{id}/trials",
    tag = "sweeps",
    params(("id" = String, Path)),
    responses(
        (status = 200, body = TrialList),
        (status = 404, body = Problem, content_type = "application/problem+json"),
    )
)]
async fn trials(State(api): State<Api>, Path(id): Path<String>) -> Result<Json<TrialList>, Problem> {
    let sweep_id = id.clone();
    Ok(Json(TrialList { sweep_id, trials: ask(&api, move |sweeps| sweeps.trials(&id)).await? }))
}

/// End a sweep. Finished trials are kept; the running ones end within a moment, and their events tell.
#[utoipa::path(
    post,
    path = "/v1/sweeps/{id}/cancel",
    tag = "sweeps",
    params(("id" = String, Path)),
    responses(
        (status = 200, body = SweepView, description = "It is cancelled, or about to be"),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "It is over"),
    )
)]
async fn cancel(State(api): State<Api>, Path(id): Path<String>) -> Result<Json<SweepView>, Problem> {
    Ok(Json(ask(&api, move |sweeps| sweeps.cancel(&id)).await?))
}

/// Run what a cancelled, failed or interrupted sweep has not recorded. Finished trials are not run again.
#[utoipa::path(
    post,
    path = "/v1/sweeps/{id}/resume",
    tag = "sweeps",
    params(("id" = String, Path)),
    responses(
        (status = 200, body = SweepView, description = "It is queued, or runs already"),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "It is finished, or being ended"),
    )
)]
async fn resume(State(api): State<Api>, Path(id): Path<String>) -> Result<Json<SweepView>, Problem> {
    Ok(Json(ask(&api, move |sweeps| sweeps.resume(&id)).await?))
}

/// What the finished trials say so far, as `p3_summary.json`.
#[utoipa::path(
    get,
    path = "/v1/sweeps/{id}/summary",
    tag = "sweeps",
    params(("id" = String, Path)),
    responses(
        (status = 200, body = Object, description = "`p3_headline`, `quality_parity_guardrail` and more: docs/benchmark.md"),
        (status = 404, body = Problem, content_type = "application/problem+json"),
    )
)]
async fn summary(State(api): State<Api>, Path(id): Path<String>) -> Result<Response, Problem> {
    let summary = ask(&api, move |sweeps| sweeps.summary(&id)).await?;
    let text = summary.to_json().map_err(|error| Problem::fault(error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_key_is_one_short_word() {
        let headers = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("Idempotency-Key", HeaderValue::from_str(value).unwrap());
            }
            request_key(&headers)
        };
        assert_eq!(headers(&[]).unwrap(), None);
        assert_eq!(headers(&["a-1"]).unwrap().as_deref(), Some("a-1"));
        for bad in [&[""][..], &["a b"], &["a", "a"], &[&"x".repeat(256)]] {
            assert!(headers(bad).is_err(), "{bad:?}");
        }
    }
}
