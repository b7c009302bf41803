//! What the container's first process does in place of libcontainer's own last steps.

use libcontainer::workload::default::get_executor;
use libcontainer::workload::{Executor, ExecutorError, ExecutorValidationError};
use oci_spec::runtime::Spec;

use crate::landlock;

/// Restricts itself, waits for the start, becomes the program.
#[derive(Clone)]
pub(crate) struct Confined;

impl Executor for Confined {
    /// The last call before the process says that it is ready: what fails here is a failed creation.
    fn validate(&self, spec: &Spec) -> Result<(), ExecutorValidationError> {
        get_executor().validate(spec)?;
        landlock::restrict(spec).map_err(ExecutorValidationError::ArgValidationError)
    }

    fn exec(&self, spec: &Spec) -> Result<(), ExecutorError> {
        get_executor().exec(spec)
    }
}
