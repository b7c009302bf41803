//! A client of `/verify` as a trainer has it: one connection over TCP, kept open, one request after the other.

use std::net::SocketAddr;

use axum::body::{Body, to_bytes};
use hyper::Request;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// Longest answer that is read.
const MAX_ANSWER: usize = 64 << 20;

/// The service did not answer as HTTP has it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// No connection.
    #[error("cannot reach the service at {address}: {source}")]
    Connect {
        /// Where it should be.
        address: SocketAddr,
        /// The system's word.
        #[source]
        source: std::io::Error,
    },
    /// The conversation failed.
    #[error("the service's connection failed: {0}")]
    Http(#[from] hyper::Error),
    /// The answer could not be read.
    #[error("the service's answer cannot be read: {0}")]
    Body(#[from] axum::Error),
    /// The request could not be made.
    #[error("the request cannot be made: {0}")]
    Request(#[from] hyper::http::Error),
    /// The answer is no JSON.
    #[error("the service's answer is no JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// One connection.
pub(super) struct Client {
    sender: SendRequest<Body>,
    address: SocketAddr,
}

/// Status and body of an answer.
pub(super) struct Answer {
    pub(super) status: u16,
    bytes: Vec<u8>,
}

impl Answer {
    pub(super) fn json(&self) -> Result<Value, ClientError> {
        Ok(serde_json::from_slice(&self.bytes)?)
    }

    /// For a message: what the service said, or its beginning.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).chars().take(300).collect()
    }
}

impl Client {
    pub(super) async fn connect(address: SocketAddr) -> Result<Self, ClientError> {
        let failed = |source| ClientError::Connect { address, source };
        let stream = TcpStream::connect(address).await.map_err(failed)?;
        // Requests are single small writes: they must not wait to be joined with others.
        stream.set_nodelay(true).map_err(failed)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a client's connection ended");
            }
        });
        Ok(Self { sender, address })
    }

    pub(super) async fn verify(&mut self, body: &Value) -> Result<Answer, ClientError> {
        self.send("POST", "/verify", Body::from(body.to_string())).await
    }

    pub(super) async fn health(&mut self) -> Result<Value, ClientError> {
        self.send("GET", "/health", Body::empty()).await?.json()
    }

    async fn send(&mut self, method: &str, path: &str, body: Body) -> Result<Answer, ClientError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.address.to_string())
            .header(CONTENT_TYPE, "application/json")
            .body(body)?;
        self.sender.ready().await?;
        let answer = self.sender.send_request(request).await?;
        let status = answer.status().as_u16();
        let bytes = to_bytes(Body::new(answer.into_body()), MAX_ANSWER).await?;
        Ok(Answer { status, bytes: bytes.into() })
    }
}
