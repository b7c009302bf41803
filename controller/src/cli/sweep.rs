//! `sweep`: plan, run, resume, status, cancel, aggregate, plot.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use rlox_report::{Sweep, TrialState};

use super::serve::ServiceArgs;
use super::{Failure, runtime};
use crate::home::Home;
use crate::service::Service;
use crate::sweep::{
    ALL_BUT_FINISHED, Audience, Plan, Profile, Runner, Stop, Store, SweepError, SweepState, SweepView,
    check_tasks,
};
use crate::{corpus, server};

#[derive(Debug, Subcommand)]
pub(super) enum SweepCommands {
    /// Print the command of each trial without running anything.
    Plan(PlanArgs),
    /// Run the trials that are not recorded yet, each in a container of its own.
    Run(RunArgs),
    /// Continue a sweep where it stopped, with the settings it was started with.
    Resume(ResumeArgs),
    /// Show which trials are done, and whether a sweep runs.
    Status(DirArgs),
    /// Stop a running sweep; recorded trials are kept.
    Cancel(DirArgs),
    /// Write p3_summary.json and p3_summary.md.
    Aggregate(AggregateArgs),
    /// Draw the figures.
    Plot(PlotArgs),
}

#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    /// Size of the sweep: full is 24 trials, smoke is 4.
    #[arg(long, value_enum, default_value_t = Profile::Full)]
    profile: Profile,
    /// Conditions, in place of the profile's.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    conditions: Option<Vec<String>>,
    /// Seeds, in place of the profile's.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    seeds: Option<Vec<u32>>,
    /// Adversarial fractions in percent, in place of the profile's.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    percents: Option<Vec<String>>,
    /// Training steps of each trial.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    max_steps: u64,
    /// Memory of one trial's container.
    #[arg(long, value_name = "MIB", default_value_t = 3072)]
    trial_memory_mb: u64,
    /// Wall-clock limit of one trial.
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    trial_wall_secs: u64,
    /// Most that a trial may write to its directory.
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    trial_disk_mb: u64,
    /// A trial whose step does not end for this long is ended.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    stall_secs: u64,
    /// Where the trials' directories are.
    #[arg(long, value_name = "DIR")]
    sweep_dir: Option<PathBuf>,
    /// Arguments for trl_grpo_run.py beyond those that name the trial.
    #[arg(last = true)]
    trainer_args: Vec<String>,
}

impl PlanArgs {
    fn plan(&self) -> Plan {
        let mut plan = Plan::of(self.profile);
        plan.conditions = self.conditions.clone().unwrap_or(plan.conditions);
        plan.seeds = self.seeds.clone().unwrap_or(plan.seeds);
        plan.percents = self.percents.clone().unwrap_or(plan.percents);
        plan.max_steps = self.max_steps;
        plan.trainer_args.clone_from(&self.trainer_args);
        plan.limits.memory_mb = self.trial_memory_mb;
        plan.limits.wall_secs = self.trial_wall_secs;
        plan.limits.stall_secs = self.stall_secs;
        plan.limits.disk_mb = self.trial_disk_mb;
        plan
    }
}

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    plan: PlanArgs,
    /// Remove the trials of an earlier sweep in that directory.
    #[arg(long)]
    fresh: bool,
    #[command(flatten)]
    how: HowArgs,
}

#[derive(Debug, Args)]
struct HowArgs {
    /// Trials at once; default: one a core, at most 8.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    parallel: Option<u16>,
    #[command(flatten)]
    service: ServiceArgs,
}

#[derive(Debug, Args)]
pub(super) struct ResumeArgs {
    #[command(flatten)]
    dir: DirArgs,
    #[command(flatten)]
    how: HowArgs,
}

#[derive(Debug, Args)]
pub(super) struct DirArgs {
    /// Where the trials' directories are; default: harness/sweep_out.
    #[arg(long, value_name = "DIR")]
    sweep_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct AggregateArgs {
    #[command(flatten)]
    dir: DirArgs,
    /// Where the summary goes; default: beside the sweep's directory.
    #[arg(long, value_name = "DIR")]
    out_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct PlotArgs {
    #[command(flatten)]
    dir: DirArgs,
    /// Where the figures go; default: figures/ beside the sweep's directory.
    #[arg(long, value_name = "DIR")]
    out_dir: Option<PathBuf>,
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

pub(super) fn execute(command: SweepCommands) -> Result<ExitCode, Failure> {
    match command {
        SweepCommands::Plan(args) => plan(&args),
        SweepCommands::Run(args) => {
            let directory = directory(args.plan.sweep_dir.as_ref())?;
            run(&directory, args.plan.plan(), args.fresh, &args.how)
        }
        SweepCommands::Resume(args) => {
            let directory = directory(args.dir.sweep_dir.as_ref())?;
            let plan = Store::plan(&directory)?.ok_or_else(|| {
                format!("{} holds no sweep; start one with: rlox-controller sweep run", directory.display())
            })?;
            run(&directory, plan, false, &args.how)
        }
        SweepCommands::Status(args) => status(&directory(args.sweep_dir.as_ref())?),
        SweepCommands::Cancel(args) => cancel(&directory(args.sweep_dir.as_ref())?),
        SweepCommands::Aggregate(args) => {
            let directory = directory(args.dir.sweep_dir.as_ref())?;
            let out = args.out_dir.unwrap_or_else(|| beside(&directory));
            let files = rlox_report::write_summary(&rlox_report::summarise(&load(&directory)?), &out)?;
            println!("{}\n{}", files.json.display(), files.markdown.display());
            println!("Next: rlox-controller sweep plot");
            Ok(ExitCode::SUCCESS)
        }
        SweepCommands::Plot(args) => {
            let directory = directory(args.dir.sweep_dir.as_ref())?;
            let out = args.out_dir.unwrap_or_else(|| beside(&directory).join("figures"));
            let sweep = load(&directory)?;
            for figure in rlox_report::plot(&sweep, &rlox_report::summarise(&sweep), &out)? {
                println!("{}", figure.display());
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn plan(args: &PlanArgs) -> Result<ExitCode, Failure> {
    let home = Home::find()?;
    let plan = args.plan();
    let directory = directory(args.sweep_dir.as_ref())?;
    for key in plan.trials()? {
        let output = directory.join(key.to_string());
        let arguments = plan.arguments(
            key,
            "http://localhost:8231",
            &output.display().to_string(),
            &home.corpus().display().to_string(),
        );
        println!(
            "{} {} {}",
            home.harness().join(".venv/bin/python").display(),
            home.harness().join("trl_grpo_run.py").display(),
            arguments.join(" ")
        );
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

fn run(directory: &Path, plan: Plan, fresh: bool, how: &HowArgs) -> Result<ExitCode, Failure> {
    let home = Home::find()?;
    let pins = corpus::check(&home.corpus())?;
    home.bundle("trainer")?;
    let mut plan = plan;
    plan.parallel = how.parallel.or(plan.parallel);
    let keys = plan.check()?;
    check_tasks(&plan, &pins)?;
    let store = Arc::new(Store::open(directory)?);
    let id = store.adopt(&plan, &keys, &pins, fresh)?;
    let runtime = runtime()?;
    let signals = {
        let _context = runtime.enter();
        server::StopSignals::catch()?
    };
    let service = Service::start(home, how.service.config())?;
    let stop = Arc::new(Stop::default());
    let view = runtime.block_on(async {
        let asked = Arc::clone(&stop);
        let signals = tokio::spawn(interrupted(signals, asked));
        let runner = Runner::new(Arc::clone(&service));
        let view = own(&runner, &store, &id, &stop).await;
        signals.abort();
        drop(runner);
        server::drain(service).await;
        view
    })?;
    ended(&view, directory)
}

/// The first signal ends the running trials in order, the second ends this process at once: what is recorded is safe.
async fn interrupted(mut signals: server::StopSignals, stop: Arc<Stop>) {
    signals.next().await;
    eprintln!("\nstopping the running trials; recorded ones are kept (once more: stop at once)");
    stop.cancel();
    signals.next().await;
    let this = nix::unistd::Pid::this();
    if let Err(errno) = nix::sys::signal::kill(this, nix::sys::signal::Signal::SIGKILL) {
        eprintln!("cannot stop at once: {errno}");
    }
}

async fn own(
    runner: &Runner,
    store: &Arc<Store>,
    id: &str,
    stop: &Arc<Stop>,
) -> Result<SweepView, SweepError> {
    runner.recover(store)?;
    runner.again(store, id, &ALL_BUT_FINISHED)?;
    let job = store.job(id)?.ok_or_else(|| SweepError::Unknown(id.to_owned()))?;
    runner.run(store, job, stop, Audience::Terminal, |_| ()).await
}

fn ended(view: &SweepView, directory: &Path) -> Result<ExitCode, Failure> {
    let (trials, directory) = (view.trials, directory.display());
    println!(
        "{} of {} trials recorded in {directory}, {} survived",
        trials.finished, trials.total, trials.survived
    );
    match view.state {
        SweepState::Finished => {
            println!("Next: rlox-controller sweep aggregate --sweep-dir {directory}");
            Ok(ExitCode::SUCCESS)
        }
        SweepState::Cancelled | SweepState::Interrupted => {
            println!("Next: rlox-controller sweep resume --sweep-dir {directory}");
            Ok(ExitCode::from(130))
        }
        SweepState::Failed | SweepState::Queued | SweepState::Running => Err(format!(
            "{} trials could not be run (see above); run them with: rlox-controller sweep resume --sweep-dir {directory}",
            trials.total - trials.finished
        )
        .into()),
    }
}

fn status(directory: &Path) -> Result<ExitCode, Failure> {
    let sweep = load(directory)?;
    let expected = sweep.expected();
    let recorded = sweep.trials.iter().filter(|trial| trial.finished().is_some()).count();
    let survived = sweep.trials.iter().filter(|trial| trial.survivor().is_some()).count();
    for key in &expected {
        let trial = sweep.trials.iter().find(|trial| trial.key == *key);
        let text = match trial.map(|trial| (&trial.state, trial.metrics.rows.len())) {
            None => "waiting".to_owned(),
            Some((TrialState::Unfinished, steps)) => format!("unfinished, {steps} steps"),
            Some((TrialState::Unusable(problem), _)) => format!("summary unusable: {problem}"),
            Some((TrialState::Finished(run), steps)) => {
                let end = if run.survived { "survived" } else { "did not finish" };
                let reason = run.reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
                format!("{end}, {}, {steps} steps{reason}", run.exit_status)
            }
        };
        println!("{:30} {text}", key.to_string());
    }
    let state = match Store::running(directory) {
        Some(pid) => format!("running (process {pid})"),
        None => "not running".into(),
    };
    println!("{recorded} of {} recorded, {survived} survived, {state}", expected.len());
    Ok(ExitCode::SUCCESS)
}

fn cancel(directory: &Path) -> Result<ExitCode, Failure> {
    let Some(pid) = Store::running(directory) else {
        return Err(format!("no sweep runs in {}", directory.display()).into());
    };
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM)?;
    println!(
        "asked process {pid} to stop; see: rlox-controller sweep status --sweep-dir {}",
        directory.display()
    );
    Ok(ExitCode::SUCCESS)
}
