//! Measures what the service is worth: how often it is fooled beside the usual ways of grading, what a verdict costs
//! beside running the program alone, how long it takes beside other sandboxes, and whether that lasts.
//!
//! Every measurement starts a service of its own. `integrity` and `cost` make the same calls as `serve` and `verify`
//! do; `speed` and `soak` go through HTTP to a service in a process of its own. Programs that are not ours run in the
//! sandbox only, whichever way they are graded.

mod client;
mod cost;
mod cpu;
mod footprint;
mod integrity;
mod load;
mod processes;
mod programs;
mod progress;
mod record;
mod served;
mod soak;
mod speed;
mod stats;
mod table;
mod tally;
mod ways;

pub(crate) use cost::{PATIENCE, Plan as CostPlan, measure};
pub(crate) use integrity::{Row, longest_step, run};
pub(crate) use programs::{Selection, load};
pub(crate) use record::{Machine, Record};
pub(crate) use soak::{Plan as SoakPlan, Soak};
pub(crate) use speed::{KEYS as SPEED_WAYS, Plan as SpeedPlan, Speed, serve_meter};
pub(crate) use tally::{Tally, final_line, mistakes, table};
