//! What the container's first process does in place of libcontainer's own last steps.

use std::collections::HashMap;
use std::os::fd::{BorrowedFd, RawFd};

use libcontainer::workload::default::get_executor;
use libcontainer::workload::{Executor, ExecutorError, ExecutorSetEnvsError, ExecutorValidationError};
use oci_spec::runtime::Spec;

use crate::filter::Filter;
use crate::warm::Zygote;
use crate::{handover, landlock, null, sys};

/// Restricts itself, waits for the start, becomes the program.
#[derive(Clone, Default)]
pub(crate) struct Confined {
    /// The compiled seccomp filter, where libcontainer has none to compile.
    pub(crate) filter: Option<Filter>,
    /// The socket to the launcher, which says what the program is; without it, the bundle does.
    pub(crate) handover: Option<RawFd>,
    /// The interpreter to go on with, instead of executing one.
    pub(crate) zygote: Option<Zygote>,
}

impl Confined {
    fn restrict(&self, spec: &Spec) -> Result<(), String> {
        null::make_writable()?;
        landlock::restrict(spec)?;
        if let Some(socket) = self.socket() {
            // Whoever waits for a program must not outlive the launcher that would give it.
            sys::die_with_parent().map_err(|error| format!("asking to end with the launcher: {error}"))?;
            if let Some(listener) = self.filter.as_ref().map_or(Ok(None), Filter::load)? {
                handover::send_listener(socket, &listener)?;
            }
            return Ok(());
        }
        self.filter.as_ref().map_or(Ok(None), Filter::load).map(drop)
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.handover.map(sys::borrow)
    }
}

impl Executor for Confined {
    /// The last call before the process says that it is ready: what fails here is a failed creation.
    fn validate(&self, spec: &Spec) -> Result<(), ExecutorValidationError> {
        get_executor().validate(spec)?;
        self.restrict(spec).map_err(ExecutorValidationError::ArgValidationError)
    }

    fn exec(&self, spec: &Spec) -> Result<(), ExecutorError> {
        let Some(socket) = self.socket() else { return get_executor().exec(spec) };
        if let Some(zygote) = &self.zygote {
            zygote.arrive().map_err(ExecutorError::Other)?;
        }
        let program = handover::take(socket).map_err(ExecutorError::Other)?;
        let args = program
            .args
            .or_else(|| spec.process().as_ref().and_then(|process| process.args().clone()))
            .ok_or(ExecutorError::InvalidArg)?;
        if let Some(zygote) = &self.zygote {
            return zygote.enter(&args).map_err(ExecutorError::Other);
        }
        let mut spec = spec.clone();
        if let Some(process) = spec.process_mut() {
            process.set_args(Some(args));
        }
        get_executor().exec(&spec)
    }

    fn setup_envs(&self, envs: HashMap<String, String>) -> Result<(), ExecutorSetEnvsError> {
        // The launcher was started with the environment of its interpreter's bundle.
        if self.zygote.is_some() { Ok(()) } else { get_executor().setup_envs(envs) }
    }
}
