//! `GET /v1/trials/{id}/logs`: what a trainer printed, in bounded pieces, or as it grows.
//!
//! The trainer is untrusted: its log may be replaced by a link, a pipe or anything. Nothing but a regular file is
//! read, and what is read is handed on as bytes that no browser takes for a page.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, watch};
use utoipa::IntoParams;

use super::{ask, query};
use crate::api::{Api, Problem};
use crate::sweep::{LogPiece, parse_trial_id};

const DEFAULT_LIMIT: u64 = 64 << 10;
const MAX_LIMIT: u64 = 1 << 20;
/// Between two looks at a log that grows.
const LOOK: Duration = Duration::from_millis(300);
const NEXT: HeaderName = HeaderName::from_static("rlox-next-offset");

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct LogsQuery {
    /// Begin at this byte.
    offset: Option<u64>,
    /// At most so many bytes, up to 1 MiB; 64 KiB where it is left out. Not with `follow`.
    limit: Option<u64>,
    /// `1` to go on until the trial is over.
    follow: Option<u8>,
}

/// What a trainer printed. `Rlox-Next-Offset` is where the next piece begins. With `follow=1` the answer goes on
/// until the trial is over, or the service ends.
#[utoipa::path(
    get,
    path = "/v1/trials/{id}/logs",
    tag = "sweeps",
    params(("id" = String, Path, description = "`SWEEP.NAME`, the `id` of a trial"), LogsQuery),
    responses(
        (status = 200, body = String, content_type = "text/plain",
         headers(("Rlox-Next-Offset" = u64, description = "Where the next piece begins"))),
        (status = "4XX", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn logs(
    State(api): State<Api>,
    Path(id): Path<String>,
    given: Result<Query<LogsQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let LogsQuery { offset, limit, follow } = query(given)?;
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(Problem::unprocessable(format!("limit is {limit}; 1 to {MAX_LIMIT} are possible")));
    }
    let (offset, follow) = (offset.unwrap_or(0), follow.unwrap_or(0) != 0);
    let first = piece(&api, &id, offset, limit).await?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    if !follow {
        let next = (NEXT, HeaderValue::from(offset + first.bytes.len() as u64));
        return Ok((headers, [next], first.bytes).into_response());
    }
    let permit = api.streams.clone().try_acquire_owned();
    let permit = permit.map_err(|_| Problem::busy("too many streams at once"))?;
    let closing = ask(&api, |sweeps| Ok(sweeps.closing())).await?;
    let reader = Reader { api, id, offset, first: Some(first), closing, _permit: permit };
    let pieces = unfold(reader, async |mut reader| {
        let bytes = reader.next().await?;
        Some((Ok::<_, std::convert::Infallible>(bytes), reader))
    });
    Ok((headers, Body::from_stream(pieces)).into_response())
}

async fn piece(api: &Api, id: &str, offset: u64, limit: u64) -> Result<LogPiece, Problem> {
    let id = id.to_owned();
    let unknown = Problem::unknown(format!("there is no trial {id}"));
    if parse_trial_id(&id).is_none() {
        return Err(unknown);
    }
    ask(api, move |sweeps| sweeps.log(&id, offset, limit)).await
}

/// A reader's place in a log that grows.
struct Reader {
    api: Api,
    id: String,
    offset: u64,
    first: Option<LogPiece>,
    closing: watch::Receiver<bool>,
    _permit: OwnedSemaphorePermit,
}

impl Reader {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let piece = match self.first.take() {
                Some(piece) => piece,
                None => piece(&self.api, &self.id, self.offset, DEFAULT_LIMIT).await.ok()?,
            };
            if piece.length < self.offset {
                // Another attempt begins another log.
                self.offset = 0;
                if !piece.over {
                    continue;
                }
            }
            if !piece.bytes.is_empty() {
                self.offset += piece.bytes.len() as u64;
                return Some(piece.bytes.into());
            }
            if piece.over || *self.closing.borrow() {
                return None;
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                _ = self.closing.wait_for(|closing| *closing) => return None,
            }
        }
    }
}
