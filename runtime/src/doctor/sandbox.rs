//! A real container with a program that does nothing, timed beside the bare program.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde::Serialize;

use super::report::{Layer, Status};
use crate::error::RuntimeError;

const RUNS: u32 = 5;
/// Every prepared bundle has it.
const PROGRAM: &str = "/usr/bin/true";
/// Wherever this host has it.
const BARE: &str = "true";

/// Milliseconds from the start of the runtime to its end.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Timing {
    runs: u32,
    median_ms: f64,
    least_ms: f64,
    most_ms: f64,
    /// The same program without a container, where this host has it.
    bare_median_ms: Option<f64>,
}

/// How the try went.
pub(super) enum Tried {
    Entered(Timing),
    Failed(String),
    NotPrepared,
    /// A layer is missing: nothing was tried.
    Skipped,
}

/// Enters the bundle's container a few times.
pub(super) fn measure(bundle: Option<&Path>) -> Result<Tried, RuntimeError> {
    let Some(bundle) = bundle.filter(|bundle| bundle.join("rootfs/opt/rlox/prepared").is_file()) else {
        return Ok(Tried::NotPrepared);
    };
    let runtime = std::env::current_exe().map_err(RuntimeError::system("finding this program"))?;
    let (mut contained, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let begun = Instant::now();
        let output = Command::new(&runtime)
            .args(["run", "--timeout-secs", "30"])
            .arg(bundle)
            .args(["--", PROGRAM])
            .stdin(Stdio::null())
            .output()
            .map_err(RuntimeError::system("starting the runtime"))?;
        contained.push(begun.elapsed().as_secs_f64() * 1000.0);
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Ok(Tried::Failed(if text.is_empty() { output.status.to_string() } else { text }));
        }
        let begun = Instant::now();
        if Command::new(BARE).status().is_ok_and(|status| status.success()) {
            bare.push(begun.elapsed().as_secs_f64() * 1000.0);
        }
    }
    let (contained, bare) = (sorted(contained), sorted(bare));
    Ok(Tried::Entered(Timing {
        runs: RUNS,
        median_ms: contained[contained.len() / 2],
        least_ms: contained[0],
        most_ms: contained[contained.len() - 1],
        bare_median_ms: bare.get(bare.len() / 2).copied(),
    }))
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

impl Tried {
    pub(super) fn timing(&self) -> Option<Timing> {
        match self {
            Self::Entered(timing) => Some(*timing),
            Self::Failed(_) | Self::NotPrepared | Self::Skipped => None,
        }
    }

    pub(super) fn layer(&self, bundle: Option<&Path>) -> Layer {
        const NAME: &str = "sandbox";
        match self {
            Self::Entered(timing) => Layer::ok(
                NAME,
                true,
                format!(
                    "entered and left in {:.0} ms, median of {RUNS} ({:.0} to {:.0}{})",
                    timing.median_ms,
                    timing.least_ms,
                    timing.most_ms,
                    timing.bare_median_ms.map_or_else(String::new, |bare| format!("; bare {bare:.1} ms"))
                ),
            ),
            Self::Failed(reason) => Layer::lacking(
                NAME,
                true,
                format!("a container could not be made: {reason}"),
                "rlox-runtime --log-level debug run bundles/snippet -- /usr/bin/true   (shows where it fails)",
            ),
            Self::NotPrepared => {
                let path = bundle.map_or_else(|| "bundles/snippet".into(), |path| path.display().to_string());
                Layer::lacking(
                    NAME,
                    true,
                    "not tried: no prepared bundle",
                    format!("rlox-runtime bundle prepare {path}"),
                )
                .with_status(Status::Unknown)
            }
            Self::Skipped => {
                let mut layer =
                    Layer::ok(NAME, true, "not tried: a layer is missing").with_status(Status::Unknown);
                layer.required = false;
                layer
            }
        }
    }
}
