//! `bench integrity` and `bench cost`; the other measurements have files of their own.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde::Serialize;

use super::serve::{Layer, seconds};
use super::{Failure, bench_soak, bench_speed, runtime};
use crate::bench::{self, CostPlan, Machine, Record, Row, Selection, Tally};
use crate::config::{Ceilings, ServiceConfig};
use crate::home::Home;
use crate::progress::clock;
use crate::server;
use crate::service::Service;

#[derive(Debug, Subcommand)]
pub(super) enum BenchCommands {
    /// Count wrong programs that are rewarded and honest ones that are not, by /verify and by the usual ways.
    #[command(after_help = "\
Each program of corpus/forgeries_v1.json and corpus/honest_v1.json is graded in four ways, always in a container:\n  \
rlox: /verify                  what the service answers\n  \
exec in the trainer's process  program and tests share the interpreter that decides; exceptions caught, a timer\n  \
subprocess, exit code 0        program and tests as one file\n  \
subprocess, nonce at the end   the same, and the output has to end with a random word\n\n\
Programs with inputs and outputs are graded by comparing output, in all ways.\n\n\
Examples:\n  \
rlox-controller bench integrity --limit 60            a minute or less, spread over all families\n  \
rlox-controller bench integrity --family exit         one family\n  \
rlox-controller bench integrity --json results.json   all, with every program's result\n\n\
Exit codes: 0 /verify made no mistake; 1 it did, or the sandbox failed; 130 interrupted.")]
    Integrity(IntegrityArgs),
    /// Measure the CPU time of a verification with 3 asserts beside the same program alone.
    #[command(after_help = "\
CPU time is user and system time of the controller, its launchers, the snippet's containers and the grader with\n\
its forks. Rounds of both kinds alternate. Run it on a machine that is quiet; neighbours cost caches, too.\n\n\
Example:\n  rlox-controller bench cost --rounds 10 --each 20")]
    Cost(CostArgs),
    /// Measure time, CPU time and throughput of a verification beside the usual ways to run a program.
    #[command(after_help = bench_speed::HELP)]
    Speed(bench_speed::SpeedArgs),
    /// Send many verifications, a share of them hostile: are all right, are latencies steady, does anything grow?
    #[command(after_help = bench_soak::HELP)]
    Soak(bench_soak::SoakArgs),
    /// Start programs and time them (started by `bench speed`).
    #[command(hide = true)]
    Meter,
}

#[derive(Debug, Args)]
pub(super) struct IntegrityArgs {
    /// Write all results to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Grade at most so many programs, spread over all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Grade one family: equality, exit, introspection, output, patching, survival or honest.
    #[arg(long, value_name = "FAMILY")]
    family: Option<String>,
    /// Wall-clock seconds of one execution, in every way.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = seconds)]
    timeout_secs: f64,
    /// Sandboxes at once; default: one a core, so that programs seldom wait for each other.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// Run although this layer is missing.
    #[arg(long, value_name = "LAYER", value_enum)]
    allow_missing: Vec<Layer>,
}

#[derive(Debug, Args)]
pub(super) struct CostArgs {
    /// Write the result to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Rounds of each kind.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Runs in a round.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    each: u32,
    /// Run although this layer is missing.
    #[arg(long, value_name = "LAYER", value_enum)]
    allow_missing: Vec<Layer>,
}

pub(super) fn execute(command: BenchCommands) -> Result<ExitCode, Failure> {
    match command {
        BenchCommands::Integrity(args) => integrity(&args),
        BenchCommands::Cost(args) => cost(&args),
        BenchCommands::Speed(args) => bench_speed::execute(&args),
        BenchCommands::Soak(args) => bench_soak::execute(&args),
        BenchCommands::Meter => bench::serve_meter().map(|()| ExitCode::SUCCESS).map_err(Into::into),
    }
}

fn config(workers: u16, timeout: Duration, allow_missing: &[Layer]) -> ServiceConfig {
    let default = ServiceConfig::default();
    ServiceConfig {
        ceilings: Ceilings { timeout, ..default.ceilings },
        workers,
        pool: workers,
        allow_missing_cgroup: allow_missing.contains(&Layer::Cgroup),
        ..default
    }
}

/// Runs a measurement on a service of its own; `None` where a signal ended it.
fn measured<T, M>(
    config: ServiceConfig,
    measure: impl FnOnce(Arc<Service>) -> M,
) -> Result<Option<(T, Machine)>, Failure>
where
    M: Future<Output = Result<T, Failure>>,
{
    let runtime = runtime()?;
    let signals = {
        let _context = runtime.enter();
        server::StopSignals::catch()?
    };
    let service = Service::start(Home::find()?, config)?;
    let machine = Machine::now(&service.environment);
    let result = runtime.block_on(async {
        let result = tokio::select! {
            result = measure(Arc::clone(&service)) => result.map(Some),
            () = signals.wait() => Ok(None),
        };
        server::drain(service).await;
        result
    })?;
    if result.is_none() {
        eprintln!("\ninterrupted; nothing is recorded");
    }
    Ok(result.map(|result| (result, machine)))
}

#[derive(Serialize)]
struct IntegrityResults<'a> {
    ways: &'a [Tally],
    programs: &'a [Row],
}

fn integrity(args: &IntegrityArgs) -> Result<ExitCode, Failure> {
    let limit = args.limit.and_then(|limit| usize::try_from(limit).ok());
    let selection = Selection { family: args.family.clone(), limit };
    let (programs, pins) = bench::load(&Home::find()?.corpus(), &selection)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = args.workers.unwrap_or_else(|| u16::try_from(cores).unwrap_or(64).clamp(1, 256));
    let timeout = Duration::from_secs_f64(args.timeout_secs);
    let config = config(workers, bench::longest_step(&programs, timeout), &args.allow_missing);
    let (count, begun) = (programs.len(), Instant::now());
    let measure = |service: Arc<Service>| async move { Ok(bench::run(&service, programs, timeout).await) };
    let Some((rows, machine)) = measured(config, measure)? else { return Ok(ExitCode::from(130)) };
    let tallies = Tally::all(&rows);
    println!("{}", bench::table(&tallies));
    print!("{}", bench::mistakes(&rows));
    println!(
        "{count} programs, {} s each, {workers} at once, in {}; {}",
        args.timeout_secs,
        clock(begun.elapsed().as_secs_f64()),
        machine.words()
    );
    println!("{}", bench::final_line(&tallies));
    if let Some(path) = &args.json {
        let results = IntegrityResults { ways: &tallies, programs: &rows };
        Record::new("integrity", machine, pins, args.timeout_secs, workers, results).write(path)?;
        println!("{}", path.display());
    }
    let flawless = tallies.first().is_some_and(Tally::flawless);
    Ok(if flawless { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn cost(args: &CostArgs) -> Result<ExitCode, Failure> {
    let plan = CostPlan { rounds: args.rounds, each: args.each };
    let config = config(1, bench::PATIENCE, &args.allow_missing);
    let measure = |service: Arc<Service>| async move { Ok(bench::measure(&service, plan).await?) };
    let Some((cost, machine)) = measured(config, measure)? else { return Ok(ExitCode::from(130)) };
    println!("{}", machine.words());
    println!("\n{}", cost.text());
    if let Some(path) = &args.json {
        Record::new("cost", machine, Vec::new(), bench::PATIENCE.as_secs_f64(), 1, &cost).write(path)?;
        println!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}
