//! `bench speed`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::serve::{Layer, seconds};
use super::{Failure, runtime};
use crate::bench::{Machine, Record, SPEED_WAYS, Speed, SpeedPlan};
use crate::home::Home;
use crate::server::StopSignals;

pub(super) const HELP: &str = "\
Two harmless programs run in every way: one that defines a function and prints, and one that imports first. What is\n\
not installed, or does not work here, is named below the table and left out.\n\n  \
bare          python3 -I -S FILE: what all ratios are to; always measured\n  \
python        python3 FILE\n  \
subprocess    subprocess.run([python, file]) in a Python that lives on, as trainers do it\n  \
bwrap, runc, runsc, podman\n                \
a container of theirs with the snippet's root file system\n  \
rlox-runtime  rlox-runtime run BUNDLE, with the same configuration as runc\n  \
verify-exec   POST /verify with 3 asserts over a connection that stays open: a new container, executing Python\n  \
verify-cold   the same with a fork of a warm interpreter in each new container\n  \
verify-warm   the same as `serve` does it by default: such containers, made ahead\n\n\
All ways take turns in every round. CPU time is that of everything that was started, until it is gone again.\n\
docs/performance.md says how it is measured.\n\n\
Examples:\n  \
rlox-controller bench speed --quick                       a minute or two, for a first look\n  \
rlox-controller bench speed --json speed.json             all, with every sample\n  \
rlox-controller bench speed --only runc rlox-runtime      these two, and bare python3\n  \
rlox-controller bench speed --clients 1,8 --duration-secs 10\n\n\
Exit codes: 0 measured; 1 nothing could be measured; 130 interrupted.";

#[derive(Debug, Args)]
pub(super) struct SpeedArgs {
    /// Write all results, with every sample, to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Rounds; default 10, with --quick 3.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: Option<u32>,
    /// Verifications of each way in a round, of /verify four times as many; default 10, with --quick 5.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    each: Option<u32>,
    /// Clients at once, for throughput; default 1,2,8,64, with --quick 1,8.
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    clients: Option<Vec<u32>>,
    /// Seconds of throughput for each way and number of clients; default 6, with --quick 1.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration_secs: Option<f64>,
    /// Measure little: a first look, not a result.
    #[arg(long)]
    quick: bool,
    /// Measure these ways only.
    #[arg(long, value_name = "NAME", num_args = 1.., value_parser = PossibleValuesParser::new(SPEED_WAYS))]
    only: Vec<String>,
    /// Run although this layer is missing.
    #[arg(long, value_name = "LAYER", value_enum)]
    allow_missing: Vec<Layer>,
}

impl SpeedArgs {
    fn plan(&self) -> SpeedPlan {
        let or = |quick, usual| if self.quick { quick } else { usual };
        let clients = || if self.quick { vec![1, 8] } else { vec![1, 2, 8, 64] };
        SpeedPlan {
            rounds: self.rounds.unwrap_or(or(3, 10)),
            each: self.each.unwrap_or(or(5, 10)),
            clients: self.clients.clone().unwrap_or_else(clients),
            duration_secs: self.duration_secs.unwrap_or(if self.quick { 1.0 } else { 6.0 }),
            passes: or(1, 2),
            only: self.only.clone(),
            allow_missing_cgroup: self.allow_missing.contains(&Layer::Cgroup),
        }
    }
}

pub(super) fn execute(args: &SpeedArgs) -> Result<ExitCode, Failure> {
    let (home, plan) = (Home::find()?, args.plan());
    let runtime = runtime()?;
    let measured = runtime.block_on(async {
        let signals = StopSignals::catch()?;
        let mut speed = Speed::default();
        let measured = tokio::select! {
            measured = speed.measure(home, &plan) => measured.map(Some),
            () = signals.wait() => Ok(None),
        };
        speed.stop().await;
        Ok::<_, Failure>(measured?)
    })?;
    let Some(mut results) = measured else {
        eprintln!("\ninterrupted; nothing is recorded");
        return Ok(ExitCode::from(130));
    };
    let machine = Machine::at(std::mem::take(&mut results.place));
    println!("{}\n\n{}", machine.words(), results.text());
    if let Some(path) = &args.json {
        let workers = crate::config::ServiceConfig::default().workers;
        let timeout = crate::config::Ceilings::default().timeout.as_secs_f64();
        Record::new("speed", machine, Vec::new(), timeout, workers, &results).write(path)?;
        println!("{}", path.display());
    }
    println!("{}", results.next());
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: SpeedArgs,
    }

    fn parse(words: &[&str]) -> Result<SpeedPlan, String> {
        let line = Line::try_parse_from([&["speed"], words].concat());
        line.map(|line| line.args.plan()).map_err(|error| error.to_string())
    }

    #[test]
    fn quick_is_smaller_and_what_is_named_stands() {
        let (usual, quick) = (parse(&[]).unwrap(), parse(&["--quick"]).unwrap());
        assert_eq!((usual.clients.as_slice(), quick.clients.as_slice()), (&[1, 2, 8, 64][..], &[1, 8][..]));
        assert!(quick.rounds < usual.rounds && quick.each < usual.each && quick.passes < usual.passes);
        let named =
            parse(&["--quick", "--rounds", "7", "--clients", "3,5", "--only", "runc", "bwrap"]).unwrap();
        assert_eq!((named.rounds, named.clients, named.only.len()), (7, vec![3, 5], 2));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (words, part) in [
            (["--clients", "1,x"], "1,x"),
            (["--clients", "0"], "0"),
            (["--rounds", "0"], "0"),
            (["--duration-secs", "0"], "0.1"),
            (["--only", "docker"], "podman"),
        ] {
            let error = parse(&words).unwrap_err();
            assert!(error.contains(part.trim_start_matches("1,")), "{words:?}: {error}");
        }
    }
}
