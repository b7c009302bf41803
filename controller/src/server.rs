//! Listeners and graceful shutdown: stop accepting, finish what was taken, leave nothing behind.

use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;

use crate::api::Api;
use crate::service::Service;

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

/// Serves until `stop` becomes true, then finishes the requests in flight.
pub(crate) async fn serve<L>(listener: L, api: Api, mut stop: watch::Receiver<bool>)
where
    L: axum::serve::Listener,
    L::Addr: std::fmt::Debug,
{
    let stopped = async move {
        // An error means that the sender is gone: then it is over as well.
        drop(stop.wait_for(|stop| *stop).await);
    };
    if let Err(error) = axum::serve(listener, api.router()).with_graceful_shutdown(stopped).await {
        tracing::error!(%error, "a listener failed");
    }
}

/// Resolves at SIGINT, SIGTERM or SIGHUP.
pub(crate) async fn asked_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    let wait = |kind| async move {
        match signal(kind) {
            Ok(mut stream) => {
                stream.recv().await;
            }
            Err(error) => {
                tracing::error!(%error, "cannot wait for a signal");
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        () = wait(SignalKind::interrupt()) => {}
        () = wait(SignalKind::terminate()) => {}
        () = wait(SignalKind::hangup()) => {}
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
