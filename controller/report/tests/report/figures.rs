//! Figures: four PNG files of the right size, whatever part of a sweep there is.

use std::fs;
use std::path::Path;

use crate::made::{Made, full, write_all};
use rlox_report::{load, plot, summarise, write_summary};
use tempfile::tempdir;

/// Draws into a directory under cargo's, so that the figures can be looked at.
fn draw(name: &str, trials: &[Made]) {
    let sweep = tempdir().unwrap();
    write_all(sweep.path(), trials);
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("figures").join(name);
    let loaded = load(sweep.path()).unwrap();
    let summary = summarise(&loaded);
    write_summary(&summary, &out).unwrap();
    let figures = plot(&loaded, &summary, &out).unwrap();
    let names: Vec<_> = figures.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["p3_survival.png", "quality_parity.png", "step_time_stall.png", "gpu_util.png"]);
    for path in figures {
        let mut reader = png::Decoder::new(fs::File::open(&path).map(std::io::BufReader::new).unwrap())
            .read_info()
            .unwrap();
        assert_eq!(reader.info().size(), (1600, 1000));
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        let ink = pixels.chunks_exact(3).filter(|pixel| pixel[0] < 128).count();
        assert!(ink > 5_000, "{} is nearly empty: {ink} dark pixels", path.display());
    }
}

#[test]
fn a_full_sweep_without_a_gpu() {
    draw("full", &full(false));
}

#[test]
fn a_full_sweep_with_a_gpu() {
    draw("gpu", &full(true));
}

#[test]
fn a_smoke_sweep_of_four_trials() {
    let trials: Vec<_> =
        full(false).into_iter().filter(|m| m.seed == 0 && (m.percent == "0" || m.percent == "5")).collect();
    assert_eq!(trials.len(), 4);
    draw("smoke", &trials);
}

#[test]
fn no_survivor_of_the_baseline() {
    let mut trials = full(false);
    for made in trials.iter_mut().filter(|made| made.condition == "in_loop") {
        made.death = Some(("OomKilled", "memory bomb", 3 + u64::from(made.seed) * 4));
    }
    draw("no_survivor", &trials);
}

#[test]
fn one_condition_one_trial_and_none() {
    let rlox: Vec<_> = full(false).into_iter().filter(|m| m.condition == "rlox").collect();
    draw("one_condition", &rlox);
    draw("one_trial", &rlox[..1]);
    draw("none", &[]);
}
