//! `GET /v1/sweeps/{id}/events`: what happens, as server-sent events.
//!
//! The events are rows of the database, so a reader that comes back with `Last-Event-ID` misses none, also over a
//! restart. Nothing is queued for a reader: it is read for it when the connection takes more. One that takes nothing
//! is dropped by the connection's own deadline.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::Sse;
use axum::response::sse::{Event as Message, KeepAlive};
use futures_util::Stream;
use futures_util::stream::unfold;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, watch};
use utoipa::IntoParams;

use super::{ask, query};
use crate::api::{Api, Problem};
use crate::sweep::Event;

/// Rows read at once.
const PAGE: u16 = 256;
/// Silence beyond this is broken by a comment, which shows both sides whether the other is there.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    /// Begin after this event; as `Last-Event-ID`, which comes first.
    after: Option<i64>,
}

/// A reader's place.
struct Reader {
    api: Api,
    id: String,
    after: i64,
    page: VecDeque<Event>,
    newest: watch::Receiver<i64>,
    closing: watch::Receiver<bool>,
    _permit: OwnedSemaphorePermit,
}

impl Reader {
    /// The next event; `None` where there will be no more of this service.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.page.pop_front() {
                self.after = event.id;
                return Some(event);
            }
            if *self.closing.borrow() {
                return None;
            }
            // Before the look: what is written after it is news again.
            self.newest.borrow_and_update();
            let (id, after) = (self.id.clone(), self.after);
            match ask(&self.api, move |sweeps| sweeps.events(&id, after, PAGE)).await {
                Ok(page) => self.page = page.into(),
                // The stream ends, and its reader comes back to where it was.
                Err(_) => return None,
            }
            if self.page.is_empty() {
                tokio::select! {
                    changed = self.newest.changed() => changed.ok()?,
                    _ = self.closing.wait_for(|closing| *closing) => return None,
                }
            }
        }
    }
}

fn message(event: &Event) -> Message {
    let message = Message::default().id(event.id.to_string()).event(event.what.kind());
    // An event came out of the database as JSON and goes back into it.
    message.json_data(event).unwrap_or_else(|_| Message::default().comment("unreadable"))
}

/// What happens, as it happens: `event: sweep` and `event: trial` for changes of state, `event: step` for each ended
/// step. `id` is for `Last-Event-ID`. The stream ends when the service does.
#[utoipa::path(
    get,
    path = "/v1/sweeps/{id}/events",
    tag = "sweeps",
    params(
        ("id" = String, Path),
        ("Last-Event-ID" = Option<i64>, Header, description = "The last event that was seen"),
        EventsQuery
    ),
    responses(
        (status = 200, body = Event, content_type = "text/event-stream", description = "`data` of each event"),
        (status = "4XX", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn events(
    State(api): State<Api>,
    Path(id): Path<String>,
    headers: HeaderMap,
    given: Result<Query<EventsQuery>, QueryRejection>,
) -> Result<Sse<impl Stream<Item = Result<Message, Infallible>>>, Problem> {
    let after = match headers.get("last-event-id") {
        None => query(given)?.after.unwrap_or(0),
        Some(value) => {
            let number = value.to_str().ok().and_then(|text| text.parse().ok());
            number.ok_or_else(|| Problem::unprocessable("Last-Event-ID: the number of an event"))?
        }
    };
    let permit = api.streams.clone().try_acquire_owned();
    let permit = permit.map_err(|_| Problem::busy("too many streams at once"))?;
    let sweep = id.clone();
    let (newest, closing) = ask(&api, move |sweeps| Ok((sweeps.newest(&sweep)?, sweeps.closing()))).await?;
    let reader = Reader { api, id, after, page: VecDeque::new(), newest, closing, _permit: permit };
    let messages = unfold(reader, async |mut reader| {
        let event = reader.next().await?;
        Some((Ok(message(&event)), reader))
    });
    Ok(Sse::new(messages).keep_alive(KeepAlive::new().interval(KEEP_ALIVE).text("keep-alive")))
}
