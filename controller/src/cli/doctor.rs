//! `doctor`: the runtime's view of this host and, with `--prove`, the corpus run on it.

use std::process::{Command, ExitCode, Stdio};

use clap::Args;
use serde_json::Value;

use super::Failure;
use super::serve::ServiceArgs;
use crate::doctor::prove;
use crate::home::Home;

#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// Run the attack corpus, its honest twins and controls that must fail, all in containers on this host.
    #[arg(long)]
    prove: bool,
    /// Print a JSON document, whose fields stay.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    service: ServiceArgs,
}

/// Exits with the runtime's own code where the host lacks a layer, 1 where something was not proven.
pub(super) fn execute(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let home = Home::find()?;
    let mut command = Command::new(&home.runtime);
    command.arg("doctor").stdin(Stdio::null()).stderr(Stdio::inherit());
    if let Ok(bundle) = home.bundle("snippet") {
        command.arg("--bundle").arg(bundle);
    }
    if args.json {
        command.arg("--json");
    }
    let output =
        command.output().map_err(|error| format!("cannot start {}: {error}", home.runtime.display()))?;
    let host = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || !args.prove {
        print!("{host}");
        let code = output.status.code().and_then(|code| u8::try_from(code).ok());
        return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
    }
    if !args.json {
        // Less its last line, which recommends what is happening.
        println!("{}\n", host.rsplit_once("\nNext:").map_or(host.as_ref(), |(found, _)| found));
    }
    let proof = prove(&home, &args.service.config())?;
    if args.json {
        let host: Value = serde_json::from_str(&host)?;
        println!("{}", serde_json::to_string_pretty(&proof.json(host))?);
    } else {
        print!("{}", proof.text());
    }
    Ok(if proof.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
