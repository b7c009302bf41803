//! Controls: one layer taken away, every other in place, and the same attacks must succeed.
//!
//! Each runs in containers of a service whose copy of the bundle lacks the layer, or whose jobs ask for more than
//! the corpus assumes. The bundles of the installation are not touched.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::ProveError;
use super::attacks::{self, ATTACK_TIMEOUT, Ran};
use super::report::ControlRow;
use crate::config::ServiceConfig;
use crate::corpus::{Corpus, Snippet};
use crate::home::Home;
use crate::job::{Finished, Job};
use crate::judge::Verdict;
use crate::service::Service;

/// One layer under test.
pub(super) struct Control {
    /// What is taken away.
    pub(super) layer: &'static str,
    /// The families that rest on it.
    pub(super) families: &'static [&'static str],
    /// The attacks that show it; empty for all of the families.
    ids: &'static [&'static str],
    /// Takes it out of the snippet's `config.json`.
    weaken: fn(&mut Value),
    /// Takes it out of a job.
    relax: fn(&[String], Job) -> Job,
    /// Whether the attack succeeded.
    success: fn(&Finished) -> bool,
}

/// What each family rests on.
pub(super) fn all() -> [Control; 5] {
    [
        Control {
            layer: "a grader apart from the program",
            families: &["equality", "exit", "introspection", "output", "patching"],
            ids: &[],
            weaken: |_| {},
            relax: in_one_process,
            success: believed,
        },
        Control {
            layer: "the seccomp filter",
            families: &["kernel"],
            ids: &[],
            weaken: |config| remove(config, "seccomp"),
            relax: |_, job| job,
            success: attacks::escaped,
        },
        Control {
            layer: "Landlock, an ordinary user and a read-only /dev",
            families: &["runtime"],
            ids: &[],
            weaken: |config| {
                config["process"]["user"] = json!({ "uid": 0, "gid": 0 });
                remove(config, "readonlyPaths");
                config["annotations"] = json!({});
            },
            relax: |_, job| job,
            success: attacks::escaped,
        },
        Control {
            layer: "the limit of 64 tasks (1,200 granted)",
            families: &["exhaustion"],
            ids: &["exhaustion-threads"],
            weaken: |_| {},
            relax: |_, mut job| {
                job.granted.pids = 1200;
                job.granted.timeout = Duration::from_secs(20);
                job
            },
            success: attacks::escaped,
        },
        Control {
            layer: "the deadline of 2 s (5 s granted)",
            families: &["survival"],
            ids: &["survival-plain-loop", "survival-loop-swallows-exceptions"],
            weaken: |_| {},
            relax: |_, mut job| {
                job.granted.timeout = Duration::from_secs(5);
                job
            },
            success: |finished| finished.usage.wall_secs > 2.0 * ATTACK_TIMEOUT.as_secs_f64(),
        },
    ]
}

/// What a grader in the program's own process would run.
const ONE_PROCESS: &str = include_str!("one_process.py");

/// The attack and the statements in one process.
fn in_one_process(tests: &[String], mut job: Job) -> Job {
    // JSON's notation of text and lists is Python's.
    job.code = format!("SOURCE = {}\nTESTS = {}\n{ONE_PROCESS}", json!(job.code), json!(tests));
    job.tests = Vec::new();
    job
}

/// An exit code of 0 or a printed verdict taken for a pass.
fn believed(finished: &Finished) -> bool {
    let left_well =
        finished.judged.verdict == Verdict::Completed && finished.judged.exit_status == "Clean(0)";
    left_well || finished.stdout.text.contains("\"verdict\": \"passed\"")
}

/// A wrong program without any attack. A control that lets it succeed believes everything.
const HARMLESS: &str = "def f(a, b):\n    return -999\n";

fn remove(config: &mut Value, section: &str) {
    if let Some(linux) = config["linux"].as_object_mut() {
        linux.remove(section);
    }
}

/// What the control's attacks did.
pub(super) struct Outcome {
    layer: &'static str,
    /// Family and whether the attack succeeded.
    tried: Vec<(String, bool)>,
    /// A wrong program that attacks nothing succeeded too, or did not run.
    believes_everything: bool,
}

impl Control {
    /// Runs the attacks without the layer.
    pub(super) fn run(
        &self,
        home: &Home,
        config: &ServiceConfig,
        corpus: &Corpus,
    ) -> Result<Outcome, ProveError> {
        let chosen: Vec<&Snippet> = corpus
            .snippets
            .iter()
            .filter(|snippet| self.families.contains(&snippet.family.as_str()))
            .filter(|snippet| self.ids.is_empty() || self.ids.contains(&snippet.id.as_str()))
            .collect();
        let directory = tempfile::tempdir()
            .map_err(|error| ProveError::File { path: std::env::temp_dir(), reason: error.to_string() })?;
        let weakened = weakened_home(home, directory.path(), self.weaken)?;
        let service = Service::start_weakened(weakened, config.clone())?;
        let mut jobs: Vec<Job> = chosen
            .iter()
            .map(|snippet| (self.relax)(corpus.tests(snippet), corpus.attack(snippet)))
            .collect();
        jobs.extend(chosen.first().map(|snippet| {
            let harmless = Job { code: HARMLESS.into(), ..corpus.attack(snippet) };
            (self.relax)(corpus.tests(snippet), harmless)
        }));
        let mut ran = attacks::run(&service, jobs);
        drop(service);
        let succeeded = |ran: &Ran| ran.as_ref().is_ok_and(self.success);
        let harmless = ran.pop().filter(|ran| ran.is_err() || succeeded(ran));
        let tried =
            chosen.iter().zip(&ran).map(|(snippet, ran)| (snippet.family.clone(), succeeded(ran))).collect();
        Ok(Outcome { layer: self.layer, tried, believes_everything: harmless.is_some() })
    }
}

impl Outcome {
    pub(super) fn of(&self, family: &str) -> Option<ControlRow> {
        let tried: Vec<bool> =
            self.tried.iter().filter(|(name, _)| name == family).map(|(_, succeeded)| *succeeded).collect();
        let succeeded = tried.iter().filter(|succeeded| **succeeded).count();
        Some(ControlRow { layer: self.layer, tried: tried.len(), succeeded })
    }

    /// A family whose attacks all fail without the layer as well: then containing them shows nothing of it.
    pub(super) fn failures(&self, control: &Control) -> Vec<(String, String)> {
        let silent =
            control.families.iter().filter(|family| self.of(family).is_none_or(|row| row.succeeded == 0));
        let mut failures: Vec<_> = silent
            .map(|family| {
                let reason = format!("no attack succeeds without {}, so the check shows nothing", self.layer);
                (format!("{family} (control)"), reason)
            })
            .collect();
        if self.believes_everything {
            let reason = format!("without {} a program that attacks nothing is not told apart", self.layer);
            failures.push((format!("{} (control)", control.families.join(", ")), reason));
        }
        failures
    }
}

/// A home whose snippet bundle lacks the layer; its root file systems are the installation's own.
fn weakened_home(home: &Home, directory: &Path, weaken: fn(&mut Value)) -> Result<Home, ProveError> {
    for name in ["snippet", "grader"] {
        let (from, to) = (home.root.join("bundles").join(name), directory.join("bundles").join(name));
        let wrong = |path: &Path, reason: String| ProveError::File { path: path.to_owned(), reason };
        let path = from.join("config.json");
        let text = fs::read(&path).map_err(|error| wrong(&path, error.to_string()))?;
        let mut config: Value =
            serde_json::from_slice(&text).map_err(|error| wrong(&path, error.to_string()))?;
        config["root"]["path"] = json!(from.join("rootfs"));
        if name == "snippet" {
            weaken(&mut config);
        }
        fs::create_dir_all(&to).map_err(|error| wrong(&to, error.to_string()))?;
        let written = fs::write(to.join("config.json"), config.to_string())
            .and_then(|()| std::os::unix::fs::symlink(from.join("rootfs"), to.join("rootfs")));
        written.map_err(|error| wrong(&to, error.to_string()))?;
    }
    Ok(Home { root: directory.to_owned(), runtime: home.runtime.clone() })
}
