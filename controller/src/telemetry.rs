//! Logs: to standard error, as text or JSON lines.

use tracing_subscriber::EnvFilter;

/// Starts logging; a second call in one process does nothing.
pub(crate) fn start(level: &str, json: bool) {
    let filter = EnvFilter::try_new(level).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = if json { builder.json().try_init() } else { builder.with_target(false).try_init() };
    if started.is_err() {
        tracing::debug!("logging was already started");
    }
}
