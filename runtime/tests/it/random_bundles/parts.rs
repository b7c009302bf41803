//! What a random bundle is put together from: parts of a `config.json`, each known to be good, known to be bad, or
//! one whose outcome is the host's or libcontainer's to decide.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::dice::Dice;
use crate::support::rootless;

/// What has to come of a bundle that holds this part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// It runs.
    Good,
    /// It runs or is refused.
    Either,
    /// It is refused.
    Bad,
}

/// One part. Of those with the same section a bundle gets one at most.
pub(crate) struct Part {
    pub(crate) section: &'static str,
    pub(crate) verdict: Verdict,
    change: fn(&mut Value, &mut Place<'_>),
}

/// Where a case lives.
pub(crate) struct Place<'a> {
    pub(crate) dice: &'a mut Dice,
    /// In every name that the case gives to something.
    pub(crate) token: &'a str,
    /// A root file system that may be changed, and is put right after the case.
    pub(crate) rootfs: &'a Path,
    /// Links that were put into it, with what they stand for.
    links: Vec<(PathBuf, Option<PathBuf>)>,
    /// The text of the file, where it is not the document.
    pub(crate) text: Option<String>,
}

impl<'a> Place<'a> {
    pub(crate) fn new(dice: &'a mut Dice, token: &'a str, rootfs: &'a Path) -> Self {
        Self { dice, token, rootfs, links: Vec::new(), text: None }
    }

    /// Puts a link in place of what is there.
    fn link(&mut self, name: &str, target: &str) {
        let path = self.rootfs.join(name);
        let hidden = path
            .symlink_metadata()
            .is_ok()
            .then(|| self.rootfs.join(format!(".hidden-{}", self.links.len())));
        if let Some(hidden) = &hidden {
            fs::rename(&path, hidden).unwrap();
        }
        symlink(target, &path).unwrap();
        self.links.push((path, hidden));
    }

    /// Takes the links away again.
    pub(crate) fn put_right(&mut self) {
        for (path, hidden) in self.links.drain(..).rev() {
            fs::remove_file(&path).unwrap();
            if let Some(hidden) = hidden {
                fs::rename(hidden, path).unwrap();
            }
        }
    }
}

/// Changes a document by some parts; says which they were and what has to come of it.
pub(crate) fn compose(config: &mut Value, place: &mut Place<'_>, sandbox: bool) -> (Vec<String>, Verdict) {
    let mut chosen: Vec<&Part> = Vec::new();
    // Most bundles have few surprises: of two bad parts only the first would be seen.
    for _ in 0..place.dice.pick(&[0, 1, 1, 2, 2, 3, 4, 6]) {
        let part = &super::list::PARTS[place.dice.below(super::list::PARTS.len())];
        if chosen.iter().all(|other| other.section != part.section) {
            chosen.push(part);
        }
    }
    // The text is cut, and the process taken out, after everything else has been put in.
    chosen.sort_by_key(|part| ["root", "args", "text"].iter().position(|last| *last == part.section));
    let mut verdict = Verdict::Good;
    for part in &chosen {
        part.apply(config, place);
        // A user's container has one more reason to be refused: ids, groups, devices.
        let own = if rootless() { part.verdict.max(Verdict::Either) } else { part.verdict };
        // The form for one program has a cgroup of its own, whatever is asked for.
        verdict = verdict.max(if sandbox && part.section == "cgroup" { Verdict::Good } else { own });
    }
    let names = chosen.iter().map(|part| format!("{} ({:?})", part.section, part.verdict)).collect();
    (names, verdict)
}

impl Part {
    pub(crate) const fn good(section: &'static str, change: fn(&mut Value, &mut Place<'_>)) -> Self {
        Self { section, verdict: Verdict::Good, change }
    }

    pub(crate) const fn either(section: &'static str, change: fn(&mut Value, &mut Place<'_>)) -> Self {
        Self { section, verdict: Verdict::Either, change }
    }

    pub(crate) const fn bad(section: &'static str, change: fn(&mut Value, &mut Place<'_>)) -> Self {
        Self { section, verdict: Verdict::Bad, change }
    }

    fn apply(&self, config: &mut Value, place: &mut Place<'_>) {
        (self.change)(config, place);
    }
}

/// Adds to a list of the document, which is made where it is missing.
pub(crate) fn push(config: &mut Value, pointer: &[&str], value: Value) {
    let mut at = config;
    for key in pointer {
        at = &mut at[*key];
    }
    match at {
        Value::Array(list) => list.push(value),
        missing @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
            *missing = json!([value]);
        }
    }
}

/// A mount at a place that may not be there yet.
pub(crate) fn mount(config: &mut Value, value: Value) {
    push(config, &["mounts"], value);
}

pub(crate) fn own_root(config: &mut Value, place: &mut Place<'_>, links: &[(&str, &str)]) {
    for (name, target) in links {
        place.link(name, target);
    }
    config["root"] = json!({"path": place.rootfs});
}

pub(crate) fn hook(config: &mut Value, kind: &str, line: &str, timeout: Option<i64>) {
    let mut hook = json!({"path": "/bin/sh", "args": ["sh", "-c", line], "env": ["PATH=/usr/bin:/bin"]});
    if let Some(timeout) = timeout {
        hook["timeout"] = json!(timeout);
    }
    push(config, &["hooks", kind], hook);
}
