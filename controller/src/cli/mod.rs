//! Command lines of `rlox-controller` and `rlox-verify-server`.

mod bench;
mod bench_soak;
mod bench_speed;
mod check;
mod client;
mod doctor;
mod serve;
mod sweep;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::telemetry;

/// A command's failure as the user reads it.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Verifies untrusted Python in ephemeral containers, and measures what that is worth.
#[derive(Debug, Parser)]
#[command(
    name = "rlox-controller",
    version,
    about,
    after_help = "First steps:\n  \
    bash harness/repro.sh --setup-only        prepare everything\n  \
    rlox-controller serve                     the service on http://127.0.0.1:8231\n  \
    rlox-controller sweep run --profile smoke 4 trials in a few minutes\n\n\
    Exit codes: 0 done; 1 failed, with the reason on standard error; 2 usage; 130 cancelled."
)]
struct Cli {
    /// What to log to standard error: error, warn, info, debug or trace.
    #[arg(long, global = true, default_value = "info", env = "RLOX_LOG")]
    log_level: String,
    /// Log JSON lines.
    #[arg(long, global = true)]
    log_json: bool,
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Run the verification service.
    Serve(serve::ServeArgs),
    /// Verify one file and print the verdict as JSON.
    Verify(check::VerifyArgs),
    /// What this host isolates and, with --prove, the attack corpus run on it.
    Doctor(doctor::DoctorArgs),
    /// The pinned corpus.
    Corpus {
        #[command(subcommand)]
        command: check::CorpusCommands,
    },
    /// Print the description of the HTTP interface, as docs/openapi.json has it.
    Openapi,
    /// Measure how often verdicts are wrong, what they cost, how fast they are, and whether that lasts.
    Bench {
        #[command(subcommand)]
        command: bench::BenchCommands,
    },
    /// The benchmark: trials with and without the sandbox.
    Sweep {
        #[command(subcommand)]
        command: sweep::SweepCommands,
    },
}

/// The service under the tutorial's name: `rlox-verify-server --port 8231 --timeout-secs 5`.
#[derive(Debug, Parser)]
#[command(
    name = "rlox-verify-server",
    version,
    about = "Verifies untrusted Python in ephemeral containers over HTTP.",
    after_help = "Try it:\n  curl http://localhost:8231/health\n  curl -H 'Content-Type: application/json' \
    -d '{\"code\":\"def add(a, b): return a + b\",\"tests\":[\"assert add(1, 2) == 3\"]}' http://localhost:8231/verify"
)]
struct VerifyServer {
    /// What to log to standard error: error, warn, info, debug or trace.
    #[arg(long, default_value = "info", env = "RLOX_LOG")]
    log_level: String,
    /// Log JSON lines.
    #[arg(long)]
    log_json: bool,
    #[command(flatten)]
    serve: serve::ServeArgs,
}

/// `rlox-controller`.
pub fn controller() -> ExitCode {
    let cli = Cli::parse();
    telemetry::start(&cli.log_level, cli.log_json);
    finish(
        "rlox-controller",
        match cli.command {
            Commands::Serve(args) => serve::execute(args),
            Commands::Verify(args) => check::verify(args),
            Commands::Doctor(args) => doctor::execute(&args),
            Commands::Corpus { command } => check::corpus(command),
            Commands::Openapi => openapi(),
            Commands::Bench { command } => bench::execute(command),
            Commands::Sweep { command } => sweep::execute(command),
        },
    )
}

fn openapi() -> Result<ExitCode, Failure> {
    std::io::Write::write_all(&mut std::io::stdout(), crate::api::document().as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// `rlox-verify-server`.
pub fn verify_server() -> ExitCode {
    let cli = VerifyServer::parse();
    telemetry::start(&cli.log_level, cli.log_json);
    finish("rlox-verify-server", serve::execute(cli.serve))
}

fn finish(name: &str, result: Result<ExitCode, Failure>) -> ExitCode {
    result.unwrap_or_else(|error| {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            if !text.contains(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            source = cause.source();
        }
        eprintln!("{name}: {text}");
        ExitCode::FAILURE
    })
}

/// The async runtime; two threads, since the work is done by workers and launchers.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_lines_are_consistent() {
        Cli::command().debug_assert();
        VerifyServer::command().debug_assert();
    }

    #[test]
    fn the_tutorials_command_line_parses() {
        let cli =
            VerifyServer::try_parse_from(["rlox-verify-server", "--port", "8231", "--timeout-secs", "5"]);
        assert!(cli.is_ok());
    }
}
