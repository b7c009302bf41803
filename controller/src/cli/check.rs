//! `verify` and `corpus check`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::serve::ServiceArgs;
use super::{Failure, runtime};
use crate::api::{VerifyRequest, VerifyResponse};
use crate::home::Home;
use crate::service::Service;

#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// Python source to verify; `-` for standard input.
    file: PathBuf,
    /// A Python test statement; may be repeated. Without any, the file is only run.
    #[arg(long = "test", value_name = "STATEMENT")]
    tests: Vec<String>,
    /// A file of test statements, run as one.
    #[arg(long, value_name = "FILE")]
    tests_file: Vec<PathBuf>,
    #[command(flatten)]
    service: ServiceArgs,
}

fn read(path: &Path) -> Result<String, Failure> {
    let text = if path == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(path)
    };
    text.map_err(|error| format!("cannot read {}: {error}", path.display()).into())
}

/// Verifies one file; exits 0 where the reward is 1 or, without tests, where the program completed.
pub(super) fn verify(args: VerifyArgs) -> Result<ExitCode, Failure> {
    let code = read(&args.file)?;
    let mut tests = args.tests;
    for file in &args.tests_file {
        tests.push(read(file)?);
    }
    let config = args.service.config();
    let job = VerifyRequest::new(code, tests)
        .into_job(&config.ceilings)
        .map_err(|problem| format!("{problem:?}"))?;
    let service = Service::start(Home::find()?, config)?;
    let runtime = runtime()?;
    let finished = runtime.block_on(service.verify(job))?;
    let response = VerifyResponse::new(finished, &service.environment);
    println!("{}", serde_json::to_string_pretty(&response)?);
    service.pool.shut_down();
    Ok(if response.good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[derive(Debug, Subcommand)]
pub(super) enum CorpusCommands {
    /// Compare every corpus file with its pinned SHA-256.
    Check {
        /// The corpus directory.
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

pub(super) fn corpus(command: CorpusCommands) -> Result<ExitCode, Failure> {
    let CorpusCommands::Check { dir } = command;
    let directory = match dir {
        Some(dir) => dir,
        None => Home::find()?.corpus(),
    };
    for pin in crate::corpus::check(&directory)? {
        println!("{}  {}", pin.digest, pin.name);
    }
    println!("corpus integrity verified: {}", directory.display());
    Ok(ExitCode::SUCCESS)
}
