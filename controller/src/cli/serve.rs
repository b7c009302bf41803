//! `serve`: the service until it is asked to stop.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{Failure, runtime};
use crate::api::Api;
use crate::config::{Ceilings, DEFAULT_DIALECT_SECS, DEFAULT_WALL_FACTOR, DialectConfig, ServiceConfig};
use crate::home::Home;
use crate::server;
use crate::service::Service;
use crate::sweep::Sweeps;

/// Flags of the service.
#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// TCP port.
    #[arg(long, default_value_t = 8231)]
    port: u16,
    /// Address to listen on; other than loopback needs --token-file.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// Also listen on this Unix socket.
    #[arg(long, value_name = "PATH")]
    unix: Option<PathBuf>,
    /// File that holds the bearer token which every call but /health then needs.
    #[arg(long, value_name = "PATH")]
    token_file: Option<PathBuf>,
    /// Where sweeps that are asked for over HTTP are kept; default: harness/sweeps. Nothing is made there before the
    /// first one.
    #[arg(long, value_name = "DIR", env = "RLOX_STATE_DIR")]
    state_dir: Option<PathBuf>,
    /// Leave the terminal's session: for a parent that must be able to go.
    #[arg(long, hide = true)]
    new_session: bool,
    /// Stop, too, when standard input ends: for a parent that must not leave a service behind.
    #[arg(long, hide = true)]
    until_stdin_ends: bool,
    /// Most seconds of one run for clients of SandboxFusion and Piston, which ask for fixed times.
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_DIALECT_SECS, value_parser = seconds)]
    dialect_timeout_secs: f64,
    /// For clients of SandboxFusion and Piston, take every end with code 0 for a success, also one before the
    /// program's own end. Their own servers do so.
    #[arg(long)]
    lenient_exit: bool,
    #[command(flatten)]
    pub(super) service: ServiceArgs,
}

/// Flags of everything that runs snippets.
#[derive(Debug, Args)]
pub(super) struct ServiceArgs {
    /// CPU seconds of one execution, and its wall-clock seconds while it waits for nobody: the default and the most a
    /// request may ask for.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    timeout_secs: f64,
    /// While others have the CPUs, an execution's wall clock stands still, up to this multiple of its limit.
    #[arg(long, value_name = "FACTOR", default_value_t = DEFAULT_WALL_FACTOR, value_parser = factor)]
    wall_factor: f64,
    /// Most memory that a request may ask for.
    #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = clap::value_parser!(u64).range(64..))]
    max_memory_mb: u64,
    /// Most tasks that a request may ask for.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u64).range(8..))]
    max_pids: u64,
    /// Sandboxes at once; default: two a core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// Containers made ahead, shared out among the workers; 0 makes each when it is asked for. At most 16 a
    /// worker; default: one.
    #[arg(long, value_name = "N")]
    pool: Option<u16>,
    /// Where a program's Python comes from.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Interpreter::Warm)]
    interpreter: Interpreter,
    /// Modules that a warm interpreter has imported, separated by commas; default: what programs import most.
    #[arg(long, value_name = "MODULES", value_delimiter = ',', value_parser = module)]
    preload: Option<Vec<String>>,
    /// Jobs that may wait; beyond this the answer is 429.
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    queue: u32,
    /// Run although this layer is missing. Without cgroups nothing limits memory, tasks or CPU of a snippet.
    #[arg(long, value_name = "LAYER", value_enum)]
    allow_missing: Vec<Layer>,
    /// Refuse to start where this layer, which stands behind others, is missing.
    #[arg(long, value_name = "LAYER", value_enum)]
    require: Vec<ExtraLayer>,
}

/// Where a program's interpreter comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Interpreter {
    /// A fork of one that its launcher started, where this host's Python can be embedded; else as with `exec`.
    Warm,
    /// Executed in each container.
    Exec,
}

/// Isolation layers that an operator may insist on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExtraLayer {
    /// A second check of every path, by the kernel's Landlock.
    Landlock,
}

/// Isolation layers that an operator may give up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Layer {
    /// Limits on memory, tasks and CPU.
    Cgroup,
}

pub(super) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.1..=3600.0).contains(&value) => Ok(value),
        Ok(_) | Err(_) => Err("a number of seconds from 0.1 to 3600".into()),
    }
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (1.0..=100.0).contains(&value) => Ok(value),
        Ok(_) | Err(_) => Err("a number from 1 to 100".into()),
    }
}

/// The name of a Python module.
fn module(text: &str) -> Result<String, String> {
    let part =
        |part: &str| !part.is_empty() && part.chars().all(|each| each == '_' || each.is_alphanumeric());
    if text.split('.').all(part) { Ok(text.to_owned()) } else { Err("the name of a Python module".into()) }
}

impl ServiceArgs {
    pub(super) fn config(&self) -> ServiceConfig {
        let default = ServiceConfig::default();
        let workers = self.workers.unwrap_or(default.workers);
        let preload = match self.interpreter {
            Interpreter::Warm => self.preload.clone().or(default.preload),
            Interpreter::Exec => None,
        };
        ServiceConfig {
            ceilings: Ceilings {
                timeout: Duration::from_secs_f64(self.timeout_secs),
                wall_factor: self.wall_factor,
                memory_mb: self.max_memory_mb,
                pids: self.max_pids,
                ..default.ceilings
            },
            workers,
            // Each one that waits takes six descriptors of its launcher's 256.
            pool: self.pool.unwrap_or(workers).min(workers.saturating_mul(16)),
            preload,
            queue: usize::try_from(self.queue).unwrap_or(default.queue),
            allow_missing_cgroup: self.allow_missing.contains(&Layer::Cgroup),
            require_landlock: self.require.contains(&ExtraLayer::Landlock),
            dialects: default.dialects,
        }
    }
}

/// Where a service keeps its sweeps.
pub(super) fn state_directory(named: Option<&Path>, home: &Home) -> std::io::Result<PathBuf> {
    std::path::absolute(named.map_or_else(|| home.harness().join("sweeps"), Path::to_owned))
}

pub(super) fn read_token(path: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read the token file {}: {error}", path.display()))?;
    let token = text.trim().to_owned();
    if token.len() < 16 {
        return Err(
            format!("{}: the token has {} characters; use at least 16", path.display(), token.len()).into()
        );
    }
    Ok(token)
}

/// Resolves at the end of standard input, where that is wanted.
async fn input_ends(wanted: bool) {
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    if wanted {
        // Not one of the async runtime's threads: it may read for ever and must not hold up the end of the runtime.
        std::thread::spawn(move || {
            std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).map(drop).unwrap_or_default();
            drop(end);
        });
        ended.await.unwrap_or_default();
    } else {
        std::future::pending().await
    }
}

/// Runs the service until SIGINT, SIGTERM or SIGHUP.
pub(super) fn execute(args: ServeArgs) -> Result<ExitCode, Failure> {
    if args.new_session {
        nix::unistd::setsid()?;
    }
    let token = args.token_file.as_deref().map(read_token).transpose()?;
    let runtime = runtime()?;
    let address = SocketAddr::new(args.host, args.port);
    // The address is taken before anything is started: a second service must not disturb the first.
    let listener = runtime.block_on(server::listen_tcp(address, token.as_deref()))?;
    let signals = {
        let _context = runtime.enter();
        server::StopSignals::catch()?
    };
    let dialects = DialectConfig {
        timeout: Duration::from_secs_f64(args.dialect_timeout_secs),
        lenient_exit: args.lenient_exit,
    };
    let home = Home::find()?;
    let state = state_directory(args.state_dir.as_deref(), &home)?;
    let service = Service::start(home, ServiceConfig { dialects, ..args.service.config() })?;
    let ceilings = service.config.ceilings;
    let longest = ceilings.timeout.max(dialects.timeout);
    let patience = longest.mul_f64(ceilings.wall_factor) + server::DRAIN_SLACK;
    if dialects.lenient_exit {
        tracing::warn!(
            "--lenient-exit: in other servers' dialects a program that leaves early with code 0 is a success"
        );
    }
    runtime.block_on(async {
        let (stop, stopped) = watch::channel(false);
        let sweeps = Sweeps::new(Arc::clone(&service), state);
        let api = Api::new(service.clone(), token.as_deref()).with_sweeps(Arc::clone(&sweeps));
        let sweeping = tokio::spawn(Arc::clone(&sweeps).run());
        let mut listeners = JoinSet::new();
        let mut guards = Vec::new();
        let bound = listener.local_addr()?;
        listeners.spawn(server::serve(listener, api.clone(), stopped.clone(), patience));
        if let Some(path) = &args.unix {
            let (listener, guard) = server::listen_unix(path)?;
            guards.push(guard);
            listeners.spawn(server::serve(listener, api, stopped, patience));
        }
        let isolation = &service.environment.isolation;
        tracing::info!(
            tier = isolation.tier,
            cgroup = isolation.cgroup,
            workers = service.config.workers,
            timeout_secs = service.config.ceilings.timeout.as_secs_f64(),
            "listening on http://{bound}"
        );
        tokio::select! {
            () = signals.wait() => {}
            () = input_ends(args.until_stdin_ends) => {}
        }
        tracing::info!("stopping: no new requests, finishing those in flight");
        stop.send_replace(true);
        // Readers of events leave, and the sweep that runs is broken off: it goes on at the next start.
        sweeps.close();
        if sweeping.await.is_err() {
            tracing::error!("the sweeps' task failed");
        }
        while listeners.join_next().await.is_some() {}
        drop(sweeps);
        server::drain(service).await;
        drop(guards);
        tracing::info!("stopped");
        Ok::<_, Failure>(())
    })?;
    Ok(ExitCode::SUCCESS)
}
