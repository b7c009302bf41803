//! The sweep: which trials, in which order, each in a container of its own, recorded from outside, durably.
//!
//! `plan` says which trials there are, `store` (over `database`, `queries` and `files`) what became of them, `engine`
//! runs one, `trial` watches it, `record` judges it, `lanes` run many, `runner` runs a sweep and `manager` one after
//! the other for a service. [`states`] is the state machine.

mod contagion;
mod database;
mod discard;
mod engine;
mod files;
mod lanes;
mod manager;
mod outside;
mod plan;
mod progress;
mod queries;
mod record;
mod runner;
mod states;
mod stop;
mod store;
mod tail;
mod tree;
mod trial;
mod view;

pub(crate) use files::read_log;
pub(crate) use manager::{LogPiece, Sweeps, SweepsError, check_tasks};
pub(crate) use plan::{Plan, Profile};
pub(crate) use runner::{ALL_BUT_FINISHED, Audience, Runner, SweepError};
pub(crate) use states::{SweepState, TrialState};
pub(crate) use stop::Stop;
pub(crate) use store::{RequestKey, Store, StoreError};
pub(crate) use view::{Event, SweepList, SweepView, TrialList, TrialView, parse_trial_id};
