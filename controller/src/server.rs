//! Listeners and graceful shutdown: stop accepting, finish what was taken, leave nothing behind.

use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_io_timeout::TimeoutStream;

use crate::api::Api;
use crate::service::Service;

/// A client that sends its request's head more slowly is cut off.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// A client that takes nothing of its answer for so long is cut off: it must not hold what it was promised.
const TAKE_TIMEOUT: Duration = Duration::from_secs(60);
/// Answers may need this much longer than the longest execution, once the service stops.
pub(crate) const DRAIN_SLACK: Duration = Duration::from_secs(5);

/// A listener could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// A public address without a token.
    #[error(
        "{address} is reachable from other machines; set a bearer token with --token-file, or listen on 127.0.0.1"
    )]
    NoToken {
        /// The address asked for.
        address: SocketAddr,
    },
    /// The address is taken or not ours.
    #[error("cannot listen on {address}: {source}{hint}")]
    Listen {
        /// The address asked for.
        address: String,
        /// The system's word.
        #[source]
        source: std::io::Error,
        /// What to do.
        hint: String,
    },
}

fn listen_error(address: impl std::fmt::Display, source: std::io::Error) -> ServeError {
    let taken = source.kind() == std::io::ErrorKind::AddrInUse;
    let hint = if taken { "; find who has it with: ss -ltnp, or choose another --port" } else { "" };
    ServeError::Listen { address: address.to_string(), source, hint: hint.into() }
}

/// A TCP listener; only loopback is open without a token.
pub(crate) async fn listen_tcp(address: SocketAddr, token: Option<&str>) -> Result<TcpListener, ServeError> {
    if !address.ip().is_loopback() && token.is_none() {
        return Err(ServeError::NoToken { address });
    }
    TcpListener::bind(address).await.map_err(|error| listen_error(address, error))
}

/// A Unix socket that every user who can reach its directory may use. Removed with its guard.
pub(crate) fn listen_unix(path: &Path) -> Result<(UnixListener, SocketFile), ServeError> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err() {
        // Nobody listens: a killed service left it. Anything but a socket is somebody's file and stays.
        std::fs::remove_file(path).map_err(|error| listen_error(path.display(), error))?;
    }
    let listener = UnixListener::bind(path).map_err(|error| listen_error(path.display(), error))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))
        .map_err(|error| listen_error(path.display(), error))?;
    Ok((listener, SocketFile(path.to_owned())))
}

/// Removes the socket's file.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::debug!(path = %self.0.display(), %error, "cannot remove a socket file");
        }
    }
}

/// Serves until `stop` becomes true, then gives the requests in flight `patience` to finish.
pub(crate) async fn serve<L>(mut listener: L, api: Api, mut stop: watch::Receiver<bool>, patience: Duration)
where
    L: Listener,
{
    let router = api.router();
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            (stream, _) = listener.accept() => stream,
            // An error means that the sender is gone: then it is over as well.
            _ = stop.wait_for(|stop| *stop) => break,
            Some(_) = connections.join_next() => continue,
        };
        let service = TowerToHyperService::new(router.clone());
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
        let stream = TokioIo::new(Box::pin(impatient(stream, TAKE_TIMEOUT)));
        let connection = graceful.watch(builder.serve_connection(stream, service));
        connections.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended");
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(patience, graceful.shutdown()).await.is_err() {
        tracing::warn!("clients did not finish their requests; closing their connections");
    }
    connections.shutdown().await;
}

/// A connection whose writes fail where the other side takes nothing for so long.
fn impatient<S: AsyncRead + AsyncWrite>(stream: S, limit: Duration) -> TimeoutStream<S> {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limit));
    stream
}

/// SIGINT, SIGTERM and SIGHUP, caught from the moment of creation.
pub(crate) struct StopSignals([Signal; 3]);

impl StopSignals {
    /// Catches the signals from here on; needs an async runtime around it.
    pub(crate) fn catch() -> std::io::Result<Self> {
        let [interrupt, terminate, hangup] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
        Ok(Self([interrupt?, terminate?, hangup?]))
    }

    /// Resolves when one of them has come, also before this was called.
    pub(crate) async fn wait(mut self) {
        self.next().await;
    }

    /// Resolves at the next of them.
    pub(crate) async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// Ends the service's workers off the async threads.
pub(crate) async fn drain(service: Arc<Service>) {
    let ended = tokio::task::spawn_blocking(move || {
        service.pool.shut_down();
        drop(service);
    });
    if ended.await.is_err() {
        tracing::error!("shutting down failed");
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_nothing_is_dropped_and_a_slow_one_is_not() {
        let limit = Duration::from_secs(60);
        let (ours, mut theirs) = tokio::io::duplex(64);
        let slow = tokio::spawn(async move {
            let mut taken = [0u8; 16];
            for _ in 0..12 {
                tokio::time::sleep(Duration::from_secs(50)).await;
                theirs.read_exact(&mut taken).await.unwrap();
            }
            theirs
        });
        let mut stream = Box::pin(impatient(ours, limit));
        stream.write_all(&[0u8; 192]).await.unwrap();
        let _theirs = slow.await.unwrap();
        let error = stream.write_all(&[0u8; 192]).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    }
}
