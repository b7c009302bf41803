//! Sweeps of a running service: hand one over, look, end, go on, read logs.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{show, status};
use crate::cli::client::{Client, ClientError, ServerArgs, absolute};
use crate::cli::serve::state_directory;
use crate::cli::{Failure, runtime};
use crate::home::Home;
use crate::job::random_id;
use crate::sweep::{Plan, SweepList, SweepView, TrialList};

/// A service imports, makes containers and proves itself first.
const START: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(200);

/// Hands a sweep over to a service; starts one where none listens and the address is this machine's own.
pub(super) fn hand_over(
    client: &Client,
    server: &ServerArgs,
    state_dir: Option<&Path>,
    plan: &Plan,
    json: bool,
) -> Result<ExitCode, Failure> {
    plan.check()?;
    let key = random_id().map_err(|error| error.to_string())?;
    let body = serde_json::to_value(plan)?;
    let runtime = runtime()?;
    let send = || runtime.block_on(client.post_once::<SweepView>("/v1/sweeps", &key, &body));
    let view = match send() {
        Err(ClientError::Absent { .. }) if client.place.port_here().is_some() => {
            start(client, server, state_dir, &runtime)?;
            send()?
        }
        answer => answer?,
    };
    if json {
        show(&view)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (id, place) = (&view.id, &client.place);
    println!(
        "sweep {id} is {} at {place}, {} trials in {}",
        view.state.word(),
        view.trials.total,
        view.directory
    );
    let server = if server.server.is_some() { format!(" --server {place}") } else { String::new() };
    println!("See:  rlox-controller sweep status{server} {id}");
    println!("Stop: rlox-controller sweep cancel{server} {id}");
    Ok(ExitCode::SUCCESS)
}

/// Starts a service that stays when this command and its terminal go.
fn start(
    client: &Client,
    server: &ServerArgs,
    state_dir: Option<&Path>,
    runtime: &tokio::runtime::Runtime,
) -> Result<(), Failure> {
    let port = client.place.port_here().ok_or("a service is only started on this machine's own address")?;
    let state = state_directory(state_dir, &Home::find()?)?;
    std::fs::create_dir_all(&state)?;
    let log = absolute(&state.join("serve.log"));
    let file = std::fs::File::options().create(true).append(true).open(&log)?;
    let token = server.token_file.iter().flat_map(|path| [Path::new("--token-file"), path.as_path()]);
    let mut child = Command::new(std::env::current_exe()?)
        .args(["serve", "--port", port, "--new-session", "--state-dir"])
        .arg(&state)
        .args(token)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file)
        .spawn()?;
    eprintln!("starting a service at {}, process {}, log {}", client.place, child.id(), log.display());
    wait_for(client, &mut child, runtime).map_err(|reason| format!("{reason}; see {}", log.display()).into())
}

fn wait_for(client: &Client, child: &mut Child, runtime: &tokio::runtime::Runtime) -> Result<(), String> {
    let end = Instant::now() + START;
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Err(format!("the service did not start ({status})"));
        }
        if runtime.block_on(client.get::<Value>("/health")).is_ok() {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(format!("the service does not answer after {} s", START.as_secs()));
        }
        std::thread::sleep(LOOK);
    }
}

/// The state of one sweep, or a line for each.
pub(super) fn status(client: &Client, id: Option<&str>, json: bool) -> Result<ExitCode, Failure> {
    let runtime = runtime()?;
    let Some(id) = id else {
        let list: SweepList = runtime.block_on(client.get("/v1/sweeps"))?;
        if json {
            show(&list)?;
        } else {
            for sweep in &list.sweeps {
                let (counts, state) = (sweep.trials, sweep.state.word());
                println!(
                    "{} {state:12} {} of {} recorded, {} survived, {}",
                    sweep.id, counts.finished, counts.total, counts.survived, sweep.created_at
                );
            }
            println!("{} sweeps at {}", list.sweeps.len(), client.place);
        }
        return Ok(ExitCode::SUCCESS);
    };
    let (sweep, trials) = runtime.block_on(async {
        let sweep: SweepView = client.get(&format!("/v1/sweeps/{id}")).await?;
        let trials: TrialList = client.get(&format!("/v1/sweeps/{id}/trials")).await?;
        Ok::<_, ClientError>((sweep, trials))
    })?;
    if json {
        show(&serde_json::json!({ "sweep": sweep, "trials": trials.trials }))?;
    } else {
        status::print(&sweep, &trials.trials, sweep.state.word());
    }
    Ok(ExitCode::SUCCESS)
}

/// `cancel` or `resume`.
pub(super) fn tell(client: &Client, id: &str, word: &str, json: bool) -> Result<ExitCode, Failure> {
    let view: SweepView = runtime()?.block_on(client.post(&format!("/v1/sweeps/{id}/{word}")))?;
    if json {
        show(&view)?;
    } else {
        println!("sweep {id}: {word}; it is {}", view.state.word());
    }
    Ok(ExitCode::SUCCESS)
}

/// What a trainer printed.
pub(super) fn logs(client: &Client, trial: &str, follow: bool, json: bool) -> Result<ExitCode, Failure> {
    // Ids are letters, digits, `_` and dots; anything else is no id, and must not become another path.
    let plain = |each: char| each.is_ascii_alphanumeric() || each == '_' || each == '.';
    if trial.is_empty() || !trial.chars().all(plain) {
        return Err(
            format!("{trial:?} is no trial's id, such as 9f86d081884c7d65.rlox_seed0_fraction0").into()
        );
    }
    let path = format!("/v1/trials/{trial}/logs?{}", if follow { "follow=1" } else { "limit=1048576" });
    if json {
        let mut bytes = Vec::new();
        runtime()?.block_on(client.stream(&path, |piece| bytes.write_all(&piece)))?;
        show(&serde_json::json!({ "trial": trial, "log": String::from_utf8_lossy(&bytes) }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = std::io::stdout();
    runtime()?.block_on(client.stream(&path, |piece| {
        out.write_all(&piece)?;
        out.flush()
    }))?;
    Ok(ExitCode::SUCCESS)
}
