//! The OCI command line: containers that outlive the command which made them.
//!
//! Every command is a process of its own and shares nothing with the others but the state directories (`store`). A
//! command that changes a container holds its lock, and writes down what it is about to make before it makes it. Only
//! `crate::container` speaks to libcontainer.

pub(crate) mod adapt;
pub(crate) mod args;
pub(crate) mod create;
mod delete;
mod error;
pub(crate) mod events;
mod exec;
mod features;
pub(crate) mod hooks;
pub(crate) mod inspect;
mod log;
mod run;
mod scope;
mod signal;
mod start;
pub(crate) mod store;
pub(crate) mod template;
mod terminal;
mod time;
pub(crate) mod update;
mod wait;

use args::{Globals, LogFormat, OciCommand};
use error::OciError;
pub(crate) use features::CAPABILITIES;
pub(crate) use log::{Lines, open as open_log};
pub(crate) use run::Run;

/// The version of the OCI runtime specification that this follows.
pub(crate) const OCI_VERSION: &str = "1.2.1";
/// Every failure of an OCI command but `exec`.
const FAILED: i32 = 1;
/// A failure of `exec`: 1 is a code that programs use.
const EXEC_FAILED: i32 = 255;

/// What every command needs to know.
pub(crate) struct Context {
    pub(crate) globals: Globals,
}

impl Context {
    /// Does what was asked for; returns the exit code. Failures are told here.
    pub(crate) fn execute(&self, command: &OciCommand) -> i32 {
        let code = if matches!(command, OciCommand::Exec(_)) { EXEC_FAILED } else { FAILED };
        self.told(self.dispatch(command), code)
    }

    /// `run` in its OCI form.
    pub(crate) fn run(&self, run: Run) -> i32 {
        let result = run.execute(self);
        self.told(result, FAILED)
    }

    fn told(&self, result: Result<i32, OciError>, failed: i32) -> i32 {
        match result {
            Ok(code) => code,
            Err(error) => {
                let log: Option<(&std::path::Path, LogFormat)> =
                    self.globals.log.as_deref().map(|path| (path, self.globals.log_format));
                log::failure(&error.to_string(), log);
                failed
            }
        }
    }

    fn dispatch(&self, command: &OciCommand) -> Result<i32, OciError> {
        match command {
            OciCommand::Create(args) => create::create(self, args).map(drop),
            OciCommand::Start { id } => start::start(self, id),
            OciCommand::State { id } => inspect::state(self, id),
            OciCommand::Kill(args) => signal::kill(self, args),
            OciCommand::Delete { id, force } => delete::delete(self, id, *force),
            OciCommand::Exec(args) => return exec::exec(self, args),
            OciCommand::List { format, quiet } => inspect::list(self, *format, *quiet),
            OciCommand::Ps { format, id, options } => inspect::ps(self, id, *format, options),
            OciCommand::Pause { id } => signal::pause(self, id),
            OciCommand::Resume { id } => signal::resume(self, id),
            OciCommand::Update(args) => update::update(self, args),
            OciCommand::Events { stats, interval, id } => events::events(self, id, *stats, *interval),
            OciCommand::Spec(args) if args.prints() => inspect::print(&args.text().map_err(OciError::from)?),
            OciCommand::Spec(args) => {
                let rootless = self.globals.rootless.as_deref() == Some("true");
                template::write(args.bundle(), rootless)
            }
            OciCommand::Features => inspect::print(&format!("{:#}", features::document())),
            OciCommand::Hook { kind, bundle, report, plan } => hooks::stand_in(*kind, bundle, *report, plan),
        }
        .map(|()| 0)
    }
}
