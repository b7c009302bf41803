//! `bench soak`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::serve::{Layer, seconds};
use super::{Failure, runtime};
use crate::bench::{Machine, Record, Soak, SoakPlan};
use crate::config::ServiceConfig;
use crate::home::Home;
use crate::server::StopSignals;

pub(super) const HELP: &str = "\
Requests are drawn, always in the same order, from the adversarial corpus (the share --adversarial), the honest corpus\n\
and one small program that is always the same. Each answer is compared with what the corpus expects. Before and after,\n\
once the service is idle, everything that it holds is counted.\n\n\
It fails on one wrong verdict, on one descriptor, process, mount or cgroup more than after warming up, and where\n\
memory grew by more than a tenth and more than 16 MiB. A hostile program that meets its short limit, where something\n\
else should have ended it, is asked again with more time before it counts as wrong.\n\n\
Examples:\n  \
rlox-controller bench soak --verifications 2000                 a few minutes\n  \
rlox-controller bench soak --json soak.json                     100000, for hours on a small machine\n  \
rlox-controller bench soak --adversarial 0 --clients 8          honest programs only\n\n\
Exit codes: 0 all right and nothing grew; 1 not so, or the service failed; 130 interrupted.";

#[derive(Debug, Args)]
pub(super) struct SoakArgs {
    /// Write the result to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// How many, after warming up with a tenth of that, at most 2000.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    verifications: u64,
    /// Clients at once, each with a connection of its own.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    clients: u32,
    /// Share of hostile programs, from 0 to 1.
    #[arg(long, value_name = "SHARE", default_value_t = 0.05, value_parser = share)]
    adversarial: f64,
    /// Wall-clock limit of hostile programs, which some of them use up.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    timeout_secs: f64,
    /// Sandboxes at once; default: two a core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// Run although this layer is missing.
    #[arg(long, value_name = "LAYER", value_enum)]
    allow_missing: Vec<Layer>,
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        Ok(_) | Err(_) => Err("a share from 0 to 1, as 0.05 for one in twenty".into()),
    }
}

pub(super) fn execute(args: &SoakArgs) -> Result<ExitCode, Failure> {
    let corpus = Home::find()?.corpus();
    let plan = SoakPlan {
        verifications: args.verifications,
        clients: args.clients,
        adversarial: args.adversarial,
        timeout_secs: args.timeout_secs,
        workers: args.workers,
        allow_missing_cgroup: args.allow_missing.contains(&Layer::Cgroup),
    };
    let runtime = runtime()?;
    let done = runtime.block_on(async {
        let signals = StopSignals::catch()?;
        let mut soak = Soak::default();
        let done = tokio::select! {
            done = soak.run(&corpus, &plan) => done.map(Some),
            () = signals.wait() => Ok(None),
        };
        soak.stop().await;
        Ok::<_, Failure>(done?)
    })?;
    let Some((results, pins, place)) = done else {
        eprintln!("\ninterrupted; nothing is recorded");
        return Ok(ExitCode::from(130));
    };
    let machine = Machine::at(place);
    println!("{}\n\n{}", machine.words(), results.text());
    if let Some(path) = &args.json {
        let workers = plan.workers.unwrap_or(ServiceConfig::default().workers);
        Record::new("soak", machine, pins, plan.timeout_secs, workers, &results).write(path)?;
        println!("{}", path.display());
    }
    println!("{}", results.verdict());
    Ok(if results.good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: SoakArgs,
    }

    #[test]
    fn a_share_is_between_nothing_and_all() {
        assert_eq!((share("0"), share("1"), share("0.05")), (Ok(0.0), Ok(1.0), Ok(0.05)));
        for bad in ["-0.1", "1.1", "5%", "NaN"] {
            assert!(share(bad).is_err(), "{bad}");
        }
        let line = Line::try_parse_from(["soak"]).unwrap();
        assert_eq!((line.args.verifications, line.args.clients), (100_000, 64));
        assert!(Line::try_parse_from(["soak", "--clients", "0"]).is_err());
    }
}
