//! The four figures. Each reads a partial sweep too: what is missing is said in the figure, not guessed.

mod axes;
mod canvas;
mod gpu;
mod parity;
mod step_time;
mod style;
mod survival;
mod text;
mod traces;

use std::path::{Path, PathBuf};

use crate::error::ReportError;
use crate::model::Sweep;
use crate::summary::Summary;
use crate::write::create_directory;
use canvas::{Canvas, Drawn, render};

type Figure = fn(&Canvas<'_>, &Sweep, &Summary) -> Drawn;

const FIGURES: [(&str, Figure); 4] = [
    ("p3_survival.png", survival::draw),
    ("quality_parity.png", parity::draw),
    ("step_time_stall.png", step_time::draw),
    ("gpu_util.png", gpu::draw),
];

/// Draws the four figures into `figures_dir`, which is made where it is missing, and says where they are.
///
/// # Errors
///
/// Where the directory cannot be made, or a figure cannot be drawn, encoded or written.
pub fn plot(sweep: &Sweep, summary: &Summary, figures_dir: &Path) -> Result<Vec<PathBuf>, ReportError> {
    create_directory(figures_dir)?;
    FIGURES
        .into_iter()
        .map(|(name, draw)| {
            let path = figures_dir.join(name);
            render(&path, |canvas| draw(canvas, sweep, summary))?;
            Ok(path)
        })
        .collect()
}
