//! `rlox-runtime`: see the library for the why, `--help` for the how.

use std::process::ExitCode;

use clap::Parser as _;
use rlox_runtime::cli::Cli;
use tracing_subscriber::EnvFilter;

/// `EX_USAGE` of sysexits.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors. Text that cannot be shown changes nothing about the code.
            error.print().unwrap_or_default();
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    // libcontainer warns of every cgroup v1 hierarchy that a host lacks and logs each error that it also returns.
    let filter = format!("{},libcontainer=off,libcgroups=off", cli.log_level);
    let filter = EnvFilter::try_new(&filter).unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().init();
    match cli.execute() {
        Ok(code) => ExitCode::from(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
        Err(error) => {
            eprintln!("rlox-runtime: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
