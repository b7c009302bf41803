//! The commands of a case, each with a bounded time, and what became of them.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::dice::Dice;
use crate::oci::support::World;
use crate::support::host::{patience, traces};

/// Longest that a command may take; the slowest waits for a hook with a timeout of a second.
const LIMIT: Duration = Duration::from_secs(20);

/// Which commands, in order.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// `run` in the foreground.
    Run,
    /// `run --detach`, `kill`, `delete`.
    Detached,
    /// `create`, `start`, perhaps `exec`, `kill`, `delete`.
    Steps { exec: bool },
    /// `create`, `delete`.
    NeverStarted,
    /// `run DIR`, the form for one untrusted program.
    Sandbox,
    /// A command that is killed after so many milliseconds, then `delete --force`.
    Killed { command: &'static str, millis: u64 },
}

pub(crate) struct Course<'a> {
    world: &'a World,
    token: &'a str,
    kind: Kind,
}

/// Codes of commands and what they said.
#[derive(Debug)]
pub(crate) struct Outcome(Option<bool>, String);

impl Outcome {
    /// Whether the program ran; nothing where a command was killed.
    pub(crate) fn succeeded(&self) -> Option<bool> {
        self.0
    }
}

struct Ended {
    code: i32,
    text: String,
}

/// A command line of the runtime in this case's world.
pub(crate) fn runtime(world: &World, token: &str) -> Command {
    let mut command = world.command(&[]);
    command.env("RLOX_CASE", token).env("TMPDIR", world.path("tmp"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

impl<'a> Course<'a> {
    pub(crate) fn draw(world: &'a World, token: &'a str, dice: &mut Dice) -> Self {
        let longest = if dice.one_in(4) { 400 } else { 70 };
        let kind = match dice.below(12) {
            0..=2 => Kind::Run,
            3 => Kind::Detached,
            4 | 5 => Kind::Steps { exec: dice.one_in(3) },
            6 => Kind::NeverStarted,
            7 | 8 => Kind::Sandbox,
            _ => Kind::Killed {
                command: dice.pick(&["run", "create", "run", "create", "start", "delete"]),
                millis: u64::try_from(dice.below(longest)).unwrap(),
            },
        };
        Self { world, token, kind }
    }

    pub(crate) fn describe(&self) -> String {
        format!("{:?} of {}", self.kind, self.token)
    }

    pub(crate) fn is_sandbox(&self) -> bool {
        matches!(self.kind, Kind::Sandbox)
    }

    pub(crate) fn kills(&self) -> bool {
        matches!(self.kind, Kind::Killed { .. })
    }

    /// Does it; the error is what no command may do.
    pub(crate) fn walk(&self) -> Result<Outcome, String> {
        let bundle = self.world.bundle();
        let bundle = bundle.to_str().unwrap();
        match self.kind {
            Kind::Run => {
                let args = ["run", "--bundle", bundle, self.token];
                self.judged(self.start(&args)?, &args, &[1])
            }
            Kind::Sandbox => self.sandbox(bundle),
            Kind::Detached => {
                let run = self.done(&["run", "--detach", "--bundle", bundle, self.token])?;
                self.remove(run)
            }
            Kind::NeverStarted => {
                let create = self.done(&["create", "--bundle", bundle, self.token])?;
                let made = create.code == 0;
                let outcome = self.remove(create)?;
                // A program is looked for at once, and arguments may be none until the start.
                Ok(Outcome(if made { None } else { Some(false) }, outcome.1))
            }
            Kind::Steps { exec } => {
                let create = self.done(&["create", "--bundle", bundle, self.token])?;
                if create.code != 0 {
                    return self.remove(create);
                }
                self.done(&["state", self.token])?;
                let start = self.done(&["start", self.token])?;
                if exec && start.code == 0 {
                    // It may have ended by now.
                    self.expect(&["exec", self.token, "/bin/true"], &|code| {
                        matches!(code, 0 | 255 | 126 | 127 | 137)
                    })?;
                }
                self.done(&["kill", self.token, "KILL"])?;
                self.remove(start)
            }
            Kind::Killed { command, millis } => self.killed(command, bundle, millis),
        }
    }

    fn sandbox(&self, bundle: &str) -> Result<Outcome, String> {
        let args = ["run", "--timeout-secs", "10", bundle];
        let child = self.start(&args)?;
        let pid = child.id();
        let outcome = self.judged(child, &args, &[64, 65, 69, 70])?;
        let left = traces(pid);
        if left.is_empty() { Ok(outcome) } else { Err(format!("left by process {pid}: {left:?}")) }
    }

    /// A `run` in the foreground: the program's code, or one of the runtime's own with a word.
    fn judged(&self, child: Child, args: &[&str], failures: &[i32]) -> Result<Outcome, String> {
        let ended = self.finish(child, args)?;
        let known = matches!(ended.code, 0 | 7 | 126 | 127 | 129..=192) || failures.contains(&ended.code);
        match ended.code {
            code if !known => Err(format!("{args:?} ended with {code}: {}", ended.text)),
            0 | 7 => Ok(Outcome(Some(true), ended.text)),
            code if failures.contains(&code) && ended.text.trim().is_empty() => {
                Err(format!("{args:?} failed with {code} without a word"))
            }
            _ => Ok(Outcome(Some(false), ended.text)),
        }
    }

    /// Takes the container away, whatever came of the command before.
    fn remove(&self, before: Ended) -> Result<Outcome, String> {
        let removed = self.done(&["delete", "--force", self.token])?;
        if removed.code != 0 {
            return Err(format!("delete --force failed: {}", removed.text));
        }
        Ok(Outcome(Some(before.code == 0), before.text))
    }

    fn killed(&self, command: &str, bundle: &str, millis: u64) -> Result<Outcome, String> {
        let args: Vec<&str> = match command {
            "run" | "create" => vec![command, "--bundle", bundle, self.token],
            _ => {
                self.done(&["create", "--bundle", bundle, self.token])?;
                if command == "delete" {
                    vec![command, "--force", self.token]
                } else {
                    vec![command, self.token]
                }
            }
        };
        let mut child = self.start(&args)?;
        std::thread::sleep(Duration::from_millis(millis));
        child.kill().map_err(|error| error.to_string())?;
        child.wait().map_err(|error| error.to_string())?;
        let mut outcome = self.remove(Ended { code: 0, text: String::new() })?;
        outcome.0 = None;
        Ok(outcome)
    }

    /// A command with code 0, or 1 and a word.
    fn done(&self, args: &[&str]) -> Result<Ended, String> {
        let ended = self.expect(args, &|code| matches!(code, 0 | 1))?;
        if ended.code == 1 && ended.text.trim().is_empty() {
            return Err(format!("{args:?} failed without a word"));
        }
        Ok(ended)
    }

    fn expect(&self, args: &[&str], known: &dyn Fn(i32) -> bool) -> Result<Ended, String> {
        let ended = self.finish(self.start(args)?, args)?;
        if known(ended.code) {
            Ok(ended)
        } else {
            Err(format!("{args:?} ended with {}: {}", ended.code, ended.text))
        }
    }

    /// Where messages go: outside of what is searched for leftovers.
    fn messages(&self) -> PathBuf {
        self.world.path("messages")
    }

    fn start(&self, args: &[&str]) -> Result<Child, String> {
        let messages = File::create(self.messages()).map_err(|error| error.to_string())?;
        runtime(self.world, self.token).args(args).stderr(messages).spawn().map_err(|error| error.to_string())
    }

    fn finish(&self, mut child: Child, args: &[&str]) -> Result<Ended, String> {
        let end = Instant::now() + LIMIT * patience();
        loop {
            if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
                let text =
                    String::from_utf8_lossy(&fs::read(self.messages()).unwrap_or_default()).into_owned();
                let code = status.code().ok_or_else(|| format!("{args:?} died of {status}: {text}"))?;
                let bad = |line: &str| {
                    line.contains("panicked at") || line.chars().any(|each| each.is_control() && each != '\t')
                };
                if text.lines().any(bad) {
                    return Err(format!("{args:?}: {text:?}"));
                }
                return Ok(Ended { code, text });
            }
            if Instant::now() >= end {
                child.kill().map_err(|error| error.to_string())?;
                child.wait().map_err(|error| error.to_string())?;
                // Whatever it was making goes, so that the next case finds nothing of it.
                runtime(self.world, self.token).args(["delete", "--force", self.token]).status().ok();
                return Err(format!("{args:?} hangs"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
