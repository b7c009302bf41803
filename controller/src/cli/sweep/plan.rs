//! What a sweep is, from a file and from flags. A flag wins over the file, the file over the tutorial's settings.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::Failure;
use crate::sweep::{Plan, Profile};

#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    /// A sweep described in TOML; what it leaves out is the full profile's. `sweep plan --toml` prints one.
    #[arg(long, value_name = "PATH", conflicts_with = "profile")]
    file: Option<PathBuf>,
    /// Size of the sweep: full is 24 trials, smoke is 4 [default: full].
    #[arg(long, value_enum)]
    profile: Option<Profile>,
    /// Conditions, in place of the profile's.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    conditions: Option<Vec<String>>,
    /// Seeds, in place of the profile's.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    seeds: Option<Vec<u32>>,
    /// Adversarial fractions in percent, in place of the profile's.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    percents: Option<Vec<String>>,
    /// Training steps of each trial [default: 30].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_steps: Option<u64>,
    /// Memory of one trial's container [default: 3072].
    #[arg(long, value_name = "MIB")]
    trial_memory_mb: Option<u64>,
    /// Wall-clock limit of one trial [default: 1800].
    #[arg(long, value_name = "SECONDS")]
    trial_wall_secs: Option<u64>,
    /// Most that a trial may write to its directory [default: 256].
    #[arg(long, value_name = "MIB")]
    trial_disk_mb: Option<u64>,
    /// A trial whose step does not end for this long is ended [default: 30].
    #[arg(long, value_name = "SECONDS")]
    stall_secs: Option<u64>,
    /// Where the trials' directories are; default: harness/sweep_out.
    #[arg(long, value_name = "DIR")]
    pub(super) sweep_dir: Option<PathBuf>,
    /// Arguments for trl_grpo_run.py beyond those that name the trial.
    #[arg(last = true)]
    trainer_args: Vec<String>,
}

impl PlanArgs {
    pub(super) fn plan(&self) -> Result<Plan, Failure> {
        let mut plan = match &self.file {
            Some(path) => read(path)?,
            None => Plan::of(self.profile.unwrap_or(Profile::Full)),
        };
        let limits = &mut plan.limits;
        set(&mut plan.conditions, self.conditions.as_ref());
        set(&mut plan.seeds, self.seeds.as_ref());
        set(&mut plan.percents, self.percents.as_ref());
        set(&mut plan.max_steps, self.max_steps.as_ref());
        set(&mut limits.memory_mb, self.trial_memory_mb.as_ref());
        set(&mut limits.wall_secs, self.trial_wall_secs.as_ref());
        set(&mut limits.stall_secs, self.stall_secs.as_ref());
        set(&mut limits.disk_mb, self.trial_disk_mb.as_ref());
        if !self.trainer_args.is_empty() {
            plan.trainer_args.clone_from(&self.trainer_args);
        }
        Ok(plan)
    }
}

fn set<T: Clone>(place: &mut T, given: Option<&T>) {
    if let Some(given) = given {
        place.clone_from(given);
    }
}

fn read(path: &Path) -> Result<Plan, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read the sweep's file {}: {error}", path.display()))?;
    Ok(toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?)
}

/// A plan as a file that `--file` takes.
pub(super) fn as_toml(plan: &Plan) -> Result<String, Failure> {
    let text = toml::to_string_pretty(plan)?;
    Ok(format!("# A sweep for: rlox-controller sweep run --file PATH. Everything may be left out.\n{text}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        plan: PlanArgs,
    }

    fn plan(arguments: &[&str]) -> Result<Plan, Failure> {
        Line::try_parse_from([&["x"], arguments].concat())?.plan.plan()
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_the_profile() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sweep.toml");
        std::fs::write(&path, "seeds = [7]\nmax_steps = 5\n[limits]\npids = 9\n").unwrap();
        let path = path.to_str().unwrap();
        let read = plan(&["--file", path, "--max-steps", "6"]).unwrap();
        assert_eq!((&read.seeds[..], read.max_steps, read.limits.pids), (&[7][..], 6, 9));
        assert_eq!(read.percents, ["0", "1", "5", "10"]);
        assert!(plan(&["--file", path, "--profile", "smoke"]).is_err());
        std::fs::write(path, "seed = [7]\n").unwrap();
        let text = plan(&["--file", path]).unwrap_err().to_string();
        assert!(text.contains("sweep.toml") && text.contains("seed"), "{text}");
    }

    #[test]
    fn the_printed_file_is_the_default_plan() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sweep.toml");
        std::fs::write(&path, as_toml(&plan(&[]).unwrap()).unwrap()).unwrap();
        assert_eq!(plan(&["--file", path.to_str().unwrap()]).unwrap(), Plan::of(Profile::Full));
    }
}
