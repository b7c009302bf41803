//! Whatever a bundle asks for, nothing of it is left: random bundles through the real program, some of them with the
//! program killed at a random moment.
//!
//! A case is made from its seed: a `config.json` of good, bad and doubtful parts, and a sequence of commands. After it
//! there is no process, mount, cgroup, state, run directory or temporary file that was not there before, and every
//! command ended with a documented code, those that failed with a line of text. What runs inside is harmless.
//!
//! `RLOX_RANDOM_BUNDLES` is the number of cases, `RLOX_RANDOM_SEED` the first one's seed; a failure prints both.

mod course;
mod dice;
mod list;
mod parts;
mod traces;

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use course::Course;
use dice::Dice;
use parts::{Place, Verdict, compose};
use serde_json::{Value, json};
use traces::Traces;

use crate::oci::support::{World, world};
use crate::support::host::patience;

/// Cases of an ordinary run; an emulated machine has fewer.
const CASES: u64 = 240;
/// The seed of an ordinary run: a change of ours is then the only reason for another outcome.
const SEED: u64 = 1;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: no number")))
}

/// The document before its parts: a container in which `echo` runs.
fn document(world: &World, dice: &mut Dice) -> Value {
    world.configure(|config| {
        config["process"]["args"] = dice.pick(&[
            json!(["/bin/true"]),
            json!(["/bin/echo", "hello"]),
            json!(["/bin/sh", "-c", "exit 7"]),
            json!(["/bin/sleep", "0.05"]),
            json!(["/bin/sh", "-c", "sleep 0.05 & exit 0"]),
        ]);
    });
    serde_json::from_slice(&fs::read(world.bundle().join("config.json")).unwrap()).unwrap()
}

/// What stays from case to case.
fn furnish(world: &World) {
    for name in ["state", "tmp"] {
        fs::create_dir(world.path(name)).unwrap();
    }
    fs::write(world.path("messages"), "").unwrap();
}

/// One case; returns what became of it, or what was wrong.
fn case(world: &World, rootfs: &std::path::Path, seed: u64) -> Result<&'static str, String> {
    let mut dice = Dice::new(seed);
    let token = format!("rb{}x{seed}", std::process::id());
    let mut config = document(world, &mut dice);
    let mut place = Place::new(&mut dice, &token, rootfs);
    let course = Course::draw(world, &token, place.dice);
    let (names, verdict) = compose(&mut config, &mut place, course.is_sandbox());
    let text = place.text.take().unwrap_or_else(|| config.to_string());
    fs::write(world.bundle().join("config.json"), &text).unwrap();
    let before = Traces::find(world, &token);
    let described = format!("{}\nparts: {names:?}, so {verdict:?}\n{text}", course.describe());
    let ended = course.walk();
    place.put_right();
    let left = Traces::find(world, &token).since(&before, course.kills());
    let ended = match left {
        Ok(()) => ended,
        Err(left) => Err(format!("{left}\nof {ended:?}")),
    };
    let outcome = ended.map_err(|reason| format!("{reason}\n{described}"))?;
    match (verdict, outcome.succeeded()) {
        (_, None) => Ok("killed or never started"),
        (Verdict::Good | Verdict::Either, Some(true)) => Ok("ran"),
        (Verdict::Bad | Verdict::Either, Some(false)) => Ok("refused"),
        (Verdict::Good, Some(false)) => Err(format!("refused without a reason: {outcome:?}\n{described}")),
        (Verdict::Bad, Some(true)) => Err(format!("it should have been refused: {outcome:?}\n{described}")),
    }
}

#[test]
fn nothing_is_left_of_random_bundles() {
    let Some(world) = world() else { return };
    let rootfs = world.own_rootfs();
    furnish(&world);
    let cases = number("RLOX_RANDOM_BUNDLES").unwrap_or(if patience() > 1 { CASES / 12 } else { CASES });
    let first = number("RLOX_RANDOM_SEED").unwrap_or(SEED);
    let mut outcomes: BTreeMap<&str, u64> = BTreeMap::new();
    let mut failures = Vec::new();
    let begun = Instant::now();
    for seed in first..first + cases {
        match case(&world, &rootfs, seed) {
            Ok(outcome) => *outcomes.entry(outcome).or_default() += 1,
            Err(reason) => failures.push(format!("RLOX_RANDOM_SEED={seed} RLOX_RANDOM_BUNDLES=1: {reason}")),
        }
        // What hangs takes its time: the first few say enough.
        if failures.len() >= 20 {
            break;
        }
    }
    println!("random bundles: {outcomes:?} in {:.1} s", begun.elapsed().as_secs_f64());
    assert!(failures.is_empty(), "{} of {cases} cases\n{}", failures.len(), failures.join("\n\n"));
    // A runtime that refuses everything, and one that accepts everything, leave nothing either.
    if cases >= CASES / 12 {
        for outcome in ["ran", "refused", "killed or never started"] {
            assert!(outcomes.get(outcome).is_some_and(|count| *count > 0), "{outcomes:?}");
        }
    }
}

#[test]
fn what_is_left_would_be_found() {
    let Some(world) = world() else { return };
    furnish(&world);
    let token = format!("rb{}xtwin", std::process::id());
    let before = Traces::find(&world, &token);
    before.clone().since(&before, false).unwrap();
    let container = world.path("state").join(&token);
    let bundle = world.bundle();
    let mut command = course::runtime(&world, &token);
    command.args(["create", "--bundle", bundle.to_str().unwrap(), &token]);
    assert!(command.status().unwrap().success());
    fs::write(world.path("tmp").join("left"), "").unwrap();
    let left = Traces::find(&world, &token).since(&before, false).unwrap_err();
    for kind in ["process ", "cgroup ", "state ", "file "] {
        assert!(left.contains(kind), "no {kind}in {left}");
    }
    assert!(container.is_dir());
    let mut command = course::runtime(&world, &token);
    assert!(command.args(["delete", "--force", &token]).status().unwrap().success());
    fs::remove_file(world.path("tmp").join("left")).unwrap();
    Traces::find(&world, &token).since(&before, false).unwrap();
}
