//! `rlox-runtime`: see the library for the why, `--help` for the how.

use std::process::ExitCode;

use clap::Parser as _;
use rlox_runtime::cli::Cli;

#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

/// `EX_USAGE` of sysexits.
const USAGE: u8 = 64;
/// What other OCI runtimes return for a command line that makes no sense.
const OCI_USAGE: u8 = 1;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors. Text that cannot be shown changes nothing about the code.
            error.print().unwrap_or_default();
            let usage = if Cli::names_oci_command(std::env::args()) { OCI_USAGE } else { USAGE };
            return ExitCode::from(if error.use_stderr() { usage } else { 0 });
        }
    };
    cli.start_logging();
    match cli.execute() {
        Ok(code) => ExitCode::from(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
        Err(error) => {
            eprintln!("rlox-runtime: {}", error.line());
            ExitCode::from(error.exit_code())
        }
    }
}
