//! What the container's first process does in place of libcontainer's own last steps.

use libcontainer::workload::default::get_executor;
use libcontainer::workload::{Executor, ExecutorError, ExecutorValidationError};
use oci_spec::runtime::Spec;

use crate::{filter, landlock, null};

/// Restricts itself, waits for the start, becomes the program.
#[derive(Clone)]
pub(crate) struct Confined {
    /// The compiled seccomp filter, where libcontainer has none to compile.
    pub(crate) filter: Option<Vec<u8>>,
}

impl Executor for Confined {
    /// The last call before the process says that it is ready: what fails here is a failed creation.
    fn validate(&self, spec: &Spec) -> Result<(), ExecutorValidationError> {
        get_executor().validate(spec)?;
        let filter = || self.filter.as_deref().map_or(Ok(()), filter::load);
        null::make_writable()
            .and_then(|()| landlock::restrict(spec))
            .and_then(|()| filter())
            .map_err(ExecutorValidationError::ArgValidationError)
    }

    fn exec(&self, spec: &Spec) -> Result<(), ExecutorError> {
        get_executor().exec(spec)
    }
}
