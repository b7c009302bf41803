//! A client of a running service, for the commands that ask one: one request a connection, over TCP or a Unix socket.

use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use clap::Args;
use futures_util::StreamExt;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::Failure;
use super::serve::read_token;

/// Where a service is when nothing else is said.
pub(super) const DEFAULT_SERVER: &str = "http://127.0.0.1:8231";
/// The same in the words of the tutorial's commands.
pub(super) const DEFAULT_LOCALHOST: &str = "http://localhost:8231";
/// Longest answer that is read.
const MAX_ANSWER: usize = 64 << 20;
const CONNECT: Duration = Duration::from_secs(10);

/// Which service is asked.
#[derive(Debug, Clone, Args)]
pub(super) struct ServerArgs {
    /// A running service: http://HOST:PORT, or unix:PATH.
    #[arg(long, value_name = "URL", env = "RLOX_SERVER", value_parser = place)]
    pub(super) server: Option<Place>,
    /// File that holds the service's bearer token.
    #[arg(long, value_name = "PATH", env = "RLOX_TOKEN_FILE")]
    pub(super) token_file: Option<PathBuf>,
}

/// Where a service listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// `HOST:PORT`.
    Tcp(String),
    /// A socket's path.
    Unix(PathBuf),
}

fn place(text: &str) -> Result<Place, String> {
    if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        return Ok(Place::Unix(path.into()));
    }
    let rest = text.strip_prefix("http://").ok_or("http://HOST:PORT or unix:PATH")?.trim_end_matches('/');
    let (host, port) = rest.rsplit_once(':').unwrap_or((rest, "80"));
    match port.parse::<u16>() {
        Ok(_) if !host.is_empty() && !rest.contains('/') => Ok(Place::Tcp(format!("{host}:{port}"))),
        Ok(_) | Err(_) => Err("http://HOST:PORT or unix:PATH".into()),
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => write!(formatter, "http://{address}"),
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

impl Place {
    /// The port, where it is one of this machine's own.
    pub(super) fn port_here(&self) -> Option<&str> {
        match self {
            Self::Tcp(address) => {
                let (host, port) = address.rsplit_once(':')?;
                (host == "localhost" || host == "127.0.0.1").then_some(port)
            }
            Self::Unix(_) => None,
        }
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::Tcp(DEFAULT_SERVER.trim_start_matches("http://").to_owned())
    }
}

/// A service to ask.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) place: Place,
    token: Option<String>,
}

/// The service did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    /// Nobody listens there.
    #[error(
        "no service at {place}: {reason}; start one with: rlox-controller serve, or name it with --server"
    )]
    Absent {
        /// Where.
        place: Place,
        /// The system's word.
        reason: String,
    },
    /// It answered with a problem.
    #[error("{place} answered {status}: {detail}")]
    Refused {
        /// Where.
        place: Place,
        /// The HTTP status.
        status: u16,
        /// The problem's detail.
        detail: String,
    },
    /// The conversation failed.
    #[error("the conversation with {place} failed: {reason}")]
    Broken {
        /// Where.
        place: Place,
        /// What happened.
        reason: String,
    },
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl Client {
    /// The service that the flags name, or the default one.
    pub(super) fn of(args: &ServerArgs) -> Result<Self, Failure> {
        let token = args.token_file.as_deref().map(read_token).transpose()?;
        Ok(Self { place: args.server.clone().unwrap_or_default(), token })
    }

    fn broken(&self, error: impl std::fmt::Display) -> ClientError {
        ClientError::Broken { place: self.place.clone(), reason: error.to_string() }
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, ClientError> {
        let connecting = async {
            Ok::<Box<dyn Stream>, std::io::Error>(match &self.place {
                Place::Tcp(address) => Box::new(TcpStream::connect(address).await?),
                Place::Unix(path) => Box::new(UnixStream::connect(path).await?),
            })
        };
        let absent = |reason: String| ClientError::Absent { place: self.place.clone(), reason };
        match tokio::time::timeout(CONNECT, connecting).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(absent(error.to_string())),
            Err(_) => Err(absent(format!("no connection within {} s", CONNECT.as_secs()))),
        }
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Response<hyper::body::Incoming>, ClientError> {
        let stream = self.connect().await?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.broken(error))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a client's connection ended");
            }
        });
        let mut request = Request::builder().method(method).uri(path).header(HOST, "rlox");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let request = request.body(body).map_err(|error| self.broken(error))?;
        let answer = sender.send_request(request).await.map_err(|error| self.broken(error))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status().as_u16();
        let bytes = to_bytes(Body::new(answer.into_body()), MAX_ANSWER).await.unwrap_or_default();
        let problem: Option<Value> = serde_json::from_slice(&bytes).ok();
        let detail = problem.as_ref().and_then(|problem| problem["detail"].as_str());
        let detail = detail.map_or_else(|| String::from_utf8_lossy(&bytes).into_owned(), str::to_owned);
        Err(ClientError::Refused { place: self.place.clone(), status, detail })
    }

    async fn document<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<T, ClientError> {
        let answer = self.send(method, path, headers, body).await?;
        let bytes =
            to_bytes(Body::new(answer.into_body()), MAX_ANSWER).await.map_err(|error| self.broken(error))?;
        serde_json::from_slice(&bytes).map_err(|error| self.broken(error))
    }

    /// `GET` of a document.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.document("GET", path, &[], None).await
    }

    /// `POST` without a body.
    pub(super) async fn post<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.document("POST", path, &[], None).await
    }

    /// `POST` that may be sent again: under the same key it is the same request.
    pub(super) async fn post_once<T: DeserializeOwned>(
        &self,
        path: &str,
        key: &str,
        body: &Value,
    ) -> Result<T, ClientError> {
        self.document("POST", path, &[("Idempotency-Key", key)], Some(body)).await
    }

    /// `GET` of something that comes in pieces.
    pub(super) async fn stream(
        &self,
        path: &str,
        mut take: impl FnMut(Bytes) -> std::io::Result<()>,
    ) -> Result<(), Failure> {
        let answer = self.send("GET", path, &[], None).await?;
        let mut pieces = Body::new(answer.into_body()).into_data_stream();
        while let Some(piece) = pieces.next().await {
            take(piece.map_err(|error| self.broken(error))?)?;
        }
        Ok(())
    }
}

/// A path that can be shown and used by another process.
pub(super) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_urls_of_two_kinds() {
        assert_eq!(place("http://127.0.0.1:8231/"), Ok(Place::default()));
        assert_eq!(place("http://[::1]:80"), Ok(Place::Tcp("[::1]:80".into())));
        assert_eq!(place("http://host"), Ok(Place::Tcp("host:80".into())));
        assert_eq!(place("unix:/run/x.sock"), Ok(Place::Unix("/run/x.sock".into())));
        for bad in ["", "unix:", "https://x", "http://", "http://x:y", "http://x:1/path", "127.0.0.1:8231"] {
            assert!(place(bad).is_err(), "{bad}");
        }
        assert_eq!(Place::default().to_string(), DEFAULT_SERVER);
    }
}
