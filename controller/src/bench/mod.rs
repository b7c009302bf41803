//! Measures what the service is worth: how often it is fooled beside the usual ways of grading, and what a
//! verdict costs beside running the program alone.
//!
//! Both measurements start a service of their own and go through the same calls as `serve` and `verify` do.
//! Programs run in the sandbox only, whichever way they are graded.

mod cost;
mod cpu;
mod integrity;
mod programs;
mod progress;
mod record;
mod tally;
mod ways;

pub(crate) use cost::{PATIENCE, Plan as CostPlan, measure};
pub(crate) use integrity::{Row, longest_step, run};
pub(crate) use programs::{Selection, load};
pub(crate) use record::{Machine, Record};
pub(crate) use tally::{Tally, final_line, mistakes, table};
