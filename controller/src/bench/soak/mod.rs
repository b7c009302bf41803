//! Many verifications, a share of them hostile: do verdicts stay right, latencies steady, and does anything grow?
//!
//! `mix` says which request is sent when and what its answer has to be, `run` sends them and looks at what the service
//! holds before and after, `report` judges growth and shows it. Hostile programs go through `/verify` only.

mod mix;
mod progress;
mod report;
mod run;

pub(crate) use run::{Plan, Soak};
