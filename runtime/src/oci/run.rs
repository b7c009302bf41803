//! `run`: create, start, and in the foreground wait and delete.

use std::path::PathBuf;

use super::Context;
use super::args::{CreateArgs, How};
use super::create::create;
use super::delete::{delete, dispose};
use super::error::OciError;
use super::start::start;
use super::store::Store;
use super::terminal::Listener;
use super::wait::{Signals, foreground};

/// What `run` was asked for.
pub(crate) struct Run {
    pub(crate) id: String,
    pub(crate) bundle: PathBuf,
    pub(crate) detach: bool,
    pub(crate) keep: bool,
    pub(crate) how: How,
}

impl Run {
    /// Returns the program's exit code, or 0 once a detached one runs.
    pub(crate) fn execute(self, context: &Context) -> Result<i32, OciError> {
        let (_, spec) = super::create::load(&self.bundle)?;
        // Before anything that a new execution of this program would lose.
        crate::sealed::ensure_for(&spec)?;
        let terminal = spec.process().as_ref().is_some_and(|process| process.terminal() == Some(true));
        let mut how = self.how.clone();
        let mut listener = None;
        if terminal && !self.detach && how.console_socket.is_none() {
            let ours = Listener::bind(&std::env::temp_dir())?;
            how.console_socket = Some(ours.path.clone());
            listener = Some(ours);
        }
        let args = CreateArgs { id: self.id.clone(), bundle: self.bundle.clone(), how };
        let mut signals = Signals::block()?;
        signals.unblock()?;
        let pid = create(context, &args)?;
        let started = signals
            .block_again()
            .and_then(|()| listener.map(Listener::accept).transpose())
            .and_then(|terminal| start(context, &self.id).map(|()| terminal));
        let mut terminal = match started {
            Ok(terminal) => terminal,
            Err(error) => {
                self.discard(context);
                return Err(error);
            }
        };
        if self.detach {
            return Ok(0);
        }
        let code = foreground(pid, &mut signals, terminal.as_mut());
        drop(terminal);
        if !self.keep {
            delete(context, &self.id, true)?;
        }
        code
    }

    fn discard(&self, context: &Context) {
        let store = Store::open(context.globals.root.as_deref());
        let removed = store.entry(&self.id).and_then(|entry| {
            let record = entry.peek()?;
            dispose(entry, record.as_ref())
        });
        if let Err(error) = removed {
            tracing::error!(%error, "cleaning up after a failed start");
        }
    }
}
