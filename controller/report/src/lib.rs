//! From the trial directories of a sweep to a summary, tables and figures.
//!
//! Three stages, each knowing only the one before it:
//!
//! 1. [`load`] reads `<condition>_seed<seed>_fraction<percent>/` directories. Hostile code ran beside some
//!    of these files, so every size is bounded, nothing but regular files is opened, and a file that is
//!    broken becomes a [`Problem`] on its trial, never a failure of the whole report.
//! 2. [`summarise`] is a pure function from the loaded [`Sweep`] to a [`Summary`].
//! 3. [`write_summary`] and [`plot`] put that summary on disk, atomically.
//!
//! ```no_run
//! # fn main() -> Result<(), rlox_report::ReportError> {
//! use std::path::Path;
//! let sweep = rlox_report::load(Path::new("sweep_out"))?;
//! let summary = rlox_report::summarise(&sweep);
//! rlox_report::write_summary(&summary, Path::new("."))?;
//! rlox_report::plot(&sweep, &summary, Path::new("figures"))?;
//! # Ok(())
//! # }
//! ```

mod error;
mod files;
mod json;
mod load;
mod markdown;
mod metrics;
mod model;
mod plot;
mod published;
mod run_summary;
mod stats;
mod summary;
mod write;

pub use error::ReportError;
pub use load::load;
pub use metrics::{Metrics, MetricsRow};
pub use model::{Condition, Fraction, Problem, Sweep, Trial, TrialKey, TrialState};
pub use plot::plot;
pub use published::{PUBLISHED, Published};
pub use run_summary::{ExitStatus, RunSummary};
pub use stats::{BOOTSTRAP_RESAMPLES, BOOTSTRAP_SEED, Interval, wilson};
pub use summary::{
    Gpu, Guardrail, GuardrailStatus, Headline, Integrity, Method, PARITY_MARGIN, Pair, Parity, RewardCell,
    StepTime, StepTimeRatio, Summary, SurvivalCell, TrialLine, TrialOutcome, UnjudgedTrial, summarise,
};
pub use write::{SummaryFiles, write_summary};
