//! The service, the sweep and the command line from outside: real binaries, real containers, real signals.
//!
//! Hostile programs go only through `/verify`. What a host cannot give is skipped aloud, and fails where
//! `RLOX_FORBID_SKIPS=1` is set.

#[cfg(test)]
mod batches;
#[cfg(test)]
mod bench;
#[cfg(test)]
mod cli;
#[cfg(test)]
mod contract;
#[cfg(test)]
mod corpus;
#[cfg(test)]
mod dialects;
#[cfg(test)]
mod doctor;
#[cfg(test)]
mod durable;
#[cfg(test)]
mod fairness;
#[cfg(test)]
mod growth;
#[cfg(test)]
mod listeners;
#[cfg(test)]
mod load;
#[cfg(test)]
mod robustness;
#[cfg(test)]
mod shutdown;
#[cfg(test)]
mod support;
#[cfg(test)]
mod sweep;
#[cfg(test)]
mod sweep_command;
#[cfg(test)]
mod sweeps_http;
#[cfg(test)]
mod verdicts;
