//! A sweep that this process runs itself, in a directory.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use super::{HowArgs, show};
use crate::cli::{Failure, runtime};
use crate::home::Home;
use crate::service::Service;
use crate::sweep::{
    ALL_BUT_FINISHED, Audience, Plan, Runner, Stop, Store, SweepError, SweepState, SweepView, check_tasks,
};
use crate::{corpus, server};

/// Runs what is not recorded yet.
pub(super) fn run(directory: &Path, mut plan: Plan, fresh: bool, how: &HowArgs) -> Result<ExitCode, Failure> {
    let home = Home::find()?;
    let pins = corpus::check(&home.corpus())?;
    home.bundle("trainer")?;
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
        let view = sweep(&runner, &store, &id, &stop).await;
        signals.abort();
        drop(runner);
        server::drain(service).await;
        view
    })?;
    ended(&view, directory, how.json)
}

/// The first signal ends the running trials in order, the second ends this process at once: what is recorded is safe.
async fn interrupted(mut signals: server::StopSignals, stop: Arc<Stop>) {
    signals.next().await;
    eprintln!("\nstopping the running trials; recorded ones are kept (once more: stop at once)");
    stop.cancel();
    // This process serves nothing else: where the end cannot be written, it does not wait for room.
    stop.leave();
    signals.next().await;
    let this = nix::unistd::Pid::this();
    if let Err(errno) = nix::sys::signal::kill(this, nix::sys::signal::Signal::SIGKILL) {
        eprintln!("cannot stop at once: {errno}");
    }
}

async fn sweep(
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

fn ended(view: &SweepView, directory: &Path, json: bool) -> Result<ExitCode, Failure> {
    let (trials, directory) = (view.trials, directory.display());
    let say = |text: &str| {
        if !json {
            println!("{text}");
        }
    };
    if json {
        show(view)?;
    }
    say(&format!(
        "{} of {} trials recorded in {directory}, {} survived",
        trials.finished, trials.total, trials.survived
    ));
    match view.state {
        SweepState::Finished => {
            say(&format!("Next: rlox-controller sweep aggregate --sweep-dir {directory}"));
            Ok(ExitCode::SUCCESS)
        }
        SweepState::Cancelled | SweepState::Interrupted => {
            say(&format!("Next: rlox-controller sweep resume --sweep-dir {directory}"));
            Ok(ExitCode::from(130))
        }
        SweepState::Failed | SweepState::Queued | SweepState::Running => Err(format!(
            "{} trials could not be run (see above); run them with: rlox-controller sweep resume --sweep-dir {directory}",
            trials.total - trials.finished
        )
        .into()),
    }
}
