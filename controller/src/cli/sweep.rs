//! `sweep`: plan, run, resume, status, cancel, logs, aggregate, plot; in a directory, or by a running service.

mod logs;
mod own;
mod plan;
mod remote;
mod status;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use rlox_report::Sweep;
use serde::Serialize;
use serde_json::json;

use self::plan::PlanArgs;
use super::Failure;
use super::client::{Client, ServerArgs};
use super::serve::ServiceArgs;
use crate::home::Home;
use crate::sweep::Store;

#[derive(Debug, Subcommand)]
pub(super) enum SweepCommands {
    /// Print the command of each trial without running anything.
    Plan(ShowPlanArgs),
    /// Run the trials that are not recorded yet, each in a container of its own.
    Run(Box<RunArgs>),
    /// Continue a sweep where it stopped, with the settings it was started with.
    Resume(ResumeArgs),
    /// Show which trials are done, and whether a sweep runs.
    Status(WhichArgs),
    /// Stop a running sweep; recorded trials are kept.
    Cancel(WhichArgs),
    /// Print what a trial's trainer wrote to its standard streams.
    Logs(LogsArgs),
    /// Write p3_summary.json and p3_summary.md.
    Aggregate(OutArgs),
    /// Draw the figures.
    Plot(OutArgs),
}

#[derive(Debug, Args)]
pub(super) struct ShowPlanArgs {
    #[command(flatten)]
    plan: PlanArgs,
    /// Print the plan as a file for --file instead.
    #[arg(long, conflicts_with = "json")]
    toml: bool,
    /// Print the plan and the trials' commands as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    plan: PlanArgs,
    /// Remove the trials of an earlier sweep in that directory.
    #[arg(long, conflicts_with = "detach")]
    fresh: bool,
    /// Hand the sweep over to a running service and return. Where none listens and the address is this machine's own,
    /// one is started in the background. The sweep's trials are in a directory of their own there.
    #[arg(long, conflicts_with = "sweep_dir")]
    detach: bool,
    #[command(flatten)]
    server: ServerArgs,
    /// Where a service that is started keeps its sweeps; default: harness/sweeps.
    #[arg(long, value_name = "DIR", env = "RLOX_STATE_DIR")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    how: HowArgs,
}

#[derive(Debug, Args)]
struct HowArgs {
    /// Trials at once; default: one a core, at most 8.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    parallel: Option<u16>,
    /// Print the sweep at its end as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    service: ServiceArgs,
}

#[derive(Debug, Args)]
pub(super) struct ResumeArgs {
    /// A sweep of a running service; without it, the one in --sweep-dir.
    id: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    dir: DirArgs,
    #[command(flatten)]
    how: HowArgs,
}

#[derive(Debug, Args)]
pub(super) struct WhichArgs {
    /// A sweep of a running service; without it, the one in --sweep-dir.
    id: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    dir: DirArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct LogsArgs {
    /// The name of a trial in --sweep-dir, or the id of a trial of a running service.
    trial: String,
    /// Go on until the trial is over.
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    dir: DirArgs,
    /// Print one JSON object with the log in it; not with --follow.
    #[arg(long, conflicts_with = "follow")]
    json: bool,
}

#[derive(Debug, Args)]
struct DirArgs {
    /// Where the trials' directories are; default: harness/sweep_out.
    #[arg(long, value_name = "DIR")]
    sweep_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct OutArgs {
    #[command(flatten)]
    dir: DirArgs,
    /// Where the result goes; default: beside the sweep's directory, figures in figures/ there.
    #[arg(long, value_name = "DIR")]
    out_dir: Option<PathBuf>,
    /// Print the paths as JSON.
    #[arg(long)]
    json: bool,
}

fn directory(named: Option<&PathBuf>) -> Result<PathBuf, Failure> {
    match named {
        Some(path) => Ok(std::path::absolute(path)?),
        None => Ok(Home::find()?.harness().join("sweep_out")),
    }
}

fn beside(sweep: &Path) -> PathBuf {
    sweep.parent().unwrap_or(Path::new(".")).to_owned()
}

/// Prints JSON for a program.
fn show<T: Serialize>(value: &T) -> Result<(), Failure> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

/// The service to ask, where a sweep of one is meant: by its id, or by naming the service.
fn asked(id: Option<&str>, server: &ServerArgs, dir: &DirArgs) -> Result<Option<Client>, Failure> {
    let remote = dir.sweep_dir.is_none() && (id.is_some() || server.server.is_some());
    if id.is_some() && !remote {
        return Err("name a sweep of a service by its id, or a directory by --sweep-dir, not both".into());
    }
    remote.then(|| Client::of(server)).transpose()
}

pub(super) fn execute(command: SweepCommands) -> Result<ExitCode, Failure> {
    match command {
        SweepCommands::Plan(args) => show_plan(&args),
        SweepCommands::Run(args) => run(&args),
        SweepCommands::Resume(args) => {
            if let Some(client) = asked(args.id.as_deref(), &args.server, &args.dir)? {
                return remote::tell(&client, needed(args.id.as_deref())?, "resume", args.how.json);
            }
            let directory = directory(args.dir.sweep_dir.as_ref())?;
            let plan = Store::plan(&directory)?.ok_or_else(|| {
                format!("{} holds no sweep; start one with: rlox-controller sweep run", directory.display())
            })?;
            own::run(&directory, plan, false, &args.how)
        }
        SweepCommands::Status(args) => match asked(args.id.as_deref(), &args.server, &args.dir)? {
            Some(client) => remote::status(&client, args.id.as_deref(), args.json),
            None => status::of_directory(&directory(args.dir.sweep_dir.as_ref())?, args.json),
        },
        SweepCommands::Cancel(args) => match asked(args.id.as_deref(), &args.server, &args.dir)? {
            Some(client) => remote::tell(&client, needed(args.id.as_deref())?, "cancel", args.json),
            None => cancel(&directory(args.dir.sweep_dir.as_ref())?, args.json),
        },
        SweepCommands::Logs(args) => print_logs(&args),
        SweepCommands::Aggregate(args) => {
            let directory = directory(args.dir.sweep_dir.as_ref())?;
            let out = args.out_dir.unwrap_or_else(|| beside(&directory));
            let files = rlox_report::write_summary(&rlox_report::summarise(&load(&directory)?), &out)?;
            if args.json {
                show(&json!({ "json": files.json, "markdown": files.markdown }))?;
            } else {
                println!("{}\n{}", files.json.display(), files.markdown.display());
                println!("Next: rlox-controller sweep plot");
            }
            Ok(ExitCode::SUCCESS)
        }
        SweepCommands::Plot(args) => {
            let directory = directory(args.dir.sweep_dir.as_ref())?;
            let out = args.out_dir.unwrap_or_else(|| beside(&directory).join("figures"));
            let sweep = load(&directory)?;
            let figures = rlox_report::plot(&sweep, &rlox_report::summarise(&sweep), &out)?;
            if args.json {
                show(&json!({ "figures": figures }))?;
            } else {
                figures.iter().for_each(|figure| println!("{}", figure.display()));
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn needed(id: Option<&str>) -> Result<&str, Failure> {
    id.ok_or_else(|| "name the sweep by its id; see: rlox-controller sweep status --server URL".into())
}

fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let mut plan = args.plan.plan()?;
    if !args.detach {
        let directory = directory(args.plan.sweep_dir.as_ref())?;
        return own::run(&directory, plan, args.fresh, &args.how);
    }
    plan.parallel = args.how.parallel.or(plan.parallel);
    let client = Client::of(&args.server)?;
    remote::hand_over(&client, &args.server, args.state_dir.as_deref(), &plan, args.how.json)
}

fn show_plan(args: &ShowPlanArgs) -> Result<ExitCode, Failure> {
    let plan = args.plan.plan()?;
    let keys = plan.check()?;
    if args.toml {
        print!("{}", plan::as_toml(&plan)?);
        return Ok(ExitCode::SUCCESS);
    }
    let home = Home::find()?;
    let directory = directory(args.plan.sweep_dir.as_ref())?;
    let python = home.harness().join(".venv/bin/python").display().to_string();
    let script = home.harness().join("trl_grpo_run.py").display().to_string();
    let corpus = home.corpus().display().to_string();
    let commands = keys.into_iter().map(|key| {
        let output = directory.join(key.to_string()).display().to_string();
        let mut command = vec![python.clone(), script.clone()];
        command.extend(plan.arguments(key, super::client::DEFAULT_LOCALHOST, &output, &corpus));
        (key, command)
    });
    if args.json {
        let trials: Vec<_> =
            commands.map(|(key, command)| json!({ "name": key, "command": command })).collect();
        show(&json!({ "plan": plan, "trials": trials }))?;
    } else {
        commands.for_each(|(_, command)| println!("{}", command.join(" ")));
    }
    Ok(ExitCode::SUCCESS)
}

fn load(directory: &Path) -> Result<Sweep, Failure> {
    let sweep = rlox_report::load(directory)?;
    Ok(match Store::plan(directory)? {
        Some(plan) => sweep.with_plan(plan.trials()?),
        None => sweep,
    })
}

fn print_logs(args: &LogsArgs) -> Result<ExitCode, Failure> {
    // A trial of a service has its sweep's id before the name.
    let of_service = args.server.server.is_some() || crate::sweep::parse_trial_id(&args.trial).is_some();
    if args.dir.sweep_dir.is_none() && of_service {
        let client = Client::of(&args.server)?;
        return remote::logs(&client, &args.trial, args.follow, args.json);
    }
    logs::of_directory(&directory(args.dir.sweep_dir.as_ref())?, &args.trial, args.follow, args.json)
}

fn cancel(directory: &Path, as_json: bool) -> Result<ExitCode, Failure> {
    let Some(pid) = Store::running(directory) else {
        return Err(format!("no sweep runs in {}", directory.display()).into());
    };
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM)?;
    if as_json {
        show(&json!({ "process": pid }))?;
    } else {
        println!(
            "asked process {pid} to stop; see: rlox-controller sweep status --sweep-dir {}",
            directory.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}
