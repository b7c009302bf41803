//! `rlox-verify-server`: the service under the tutorial's name and flags.

use std::process::ExitCode;

fn main() -> ExitCode {
    rlox_controller::cli::verify_server()
}
