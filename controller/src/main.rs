//! `rlox-controller`: see the library for the why, `--help` for the how.

use std::process::ExitCode;

fn main() -> ExitCode {
    rlox_controller::cli::controller()
}
