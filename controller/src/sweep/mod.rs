//! The sweep: which trials, in which order, each in a container of its own, recorded from outside.

mod plan;
mod progress;
mod record;
mod scheduler;
mod states;
mod store;
mod trial;
mod view;

pub(crate) use plan::{Plan, Profile};
pub(crate) use scheduler::run;
pub(crate) use store::Store;
