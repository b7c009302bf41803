//! Bodies that may be large: read only where there is room for them, parsed off the async threads.
//!
//! One client may send files of tens of megabytes, and many clients ask at once. What all bodies together may take is
//! bounded before a byte of them is read, and held until the answer.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Problem;

/// Largest body.
pub(super) const MAX_BODY: usize = 96 << 20;
/// All bodies in flight together.
const ALL_BODIES: usize = 512 << 20;
/// Room is given out in pieces.
const PIECE: usize = 64 << 10;
/// From here on parsing would hold up others.
const LARGE: usize = 1 << 20;

/// What is left of the room.
#[derive(Debug, Clone)]
pub(super) struct Room(Arc<Semaphore>);

/// Why there is no request.
#[derive(Debug)]
pub(super) enum BodyError {
    /// There is no room for it now.
    NoRoom,
    /// It is wrong.
    Wrong(Problem),
}

impl Room {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(ALL_BODIES / PIECE)))
    }

    fn take(&self, length: usize) -> Result<OwnedSemaphorePermit, BodyError> {
        let pieces = u32::try_from(length.div_ceil(PIECE).max(1)).unwrap_or(u32::MAX);
        self.0.clone().try_acquire_many_owned(pieces).map_err(|_| BodyError::NoRoom)
    }
}

fn too_large() -> BodyError {
    BodyError::Wrong(Problem::too_large(format!("at most {} MiB", MAX_BODY >> 20)))
}

/// How long the body will be at most, by its head.
fn announced(headers: &HeaderMap) -> Result<usize, BodyError> {
    let header = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let kind = header(header::CONTENT_TYPE).and_then(|kind| kind.split(';').next()).unwrap_or_default();
    if !kind.trim().eq_ignore_ascii_case("application/json") {
        return Err(BodyError::Wrong(Problem::media_type()));
    }
    let length = header(header::CONTENT_LENGTH).and_then(|length| length.parse::<usize>().ok());
    // A client that does not say how much it sends may send the most.
    let length = length.unwrap_or(MAX_BODY);
    if length > MAX_BODY { Err(too_large()) } else { Ok(length) }
}

/// Reads and decodes a body; the room is free again when the permit is dropped.
pub(super) async fn read<T, D, E>(
    room: &Room,
    request: Request,
    decode: D,
) -> Result<(Result<T, E>, OwnedSemaphorePermit), BodyError>
where
    T: Send + 'static,
    E: Send + 'static,
    D: FnOnce(Parsed) -> Result<Result<T, E>, Problem> + Send + 'static,
{
    let length = announced(request.headers())?;
    let permit = room.take(length)?;
    // The route's own limit holds for those who do not say how much they send.
    let bytes = Bytes::from_request(request, &()).await.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => too_large(),
        _ => BodyError::Wrong(Problem::malformed(rejection.body_text())),
    })?;
    let decode = move || decode(Parsed(bytes));
    let decoded = match length > LARGE {
        true => tokio::task::spawn_blocking(decode)
            .await
            .map_err(|_| BodyError::Wrong(Problem::fault("decoding failed")))?,
        false => decode(),
    };
    let decoded = decoded.map_err(BodyError::Wrong)?;
    Ok((decoded, permit))
}

/// The bytes of a body, to be parsed once.
pub(super) struct Parsed(Bytes);

impl Parsed {
    /// The request; an error says at which field.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let mut text = serde_json::Deserializer::from_slice(&self.0);
        let request =
            serde_path_to_error::deserialize(&mut text).map_err(|error| match error.inner().is_data() {
                true => Problem::unprocessable(error.to_string()),
                false => Problem::malformed(error.to_string()),
            })?;
        text.end().map_err(|error| Problem::malformed(error.to_string()))?;
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_given_back() {
        let room = Room::new();
        let all: Vec<_> = (0..ALL_BODIES / MAX_BODY).map(|_| room.take(MAX_BODY).unwrap()).collect();
        assert!(matches!(room.take(MAX_BODY), Err(BodyError::NoRoom)));
        assert!(room.take(1).is_ok(), "small ones still fit");
        drop(all);
        assert!(room.take(MAX_BODY).is_ok());
    }
}
