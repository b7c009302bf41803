//! A sweep survives its controller: killed at any moment, or on a full disk, it loses no finished trial and runs none
//! twice. Trials are short programs in real containers.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use crate::support::disk::SmallDisk;
use crate::support::host::{need, processes, wait_until};
use crate::support::tiny::{Ground, TinyHome};
use crate::support::{nothing_left, ready, stderr, stdout};

const KILLS: usize = 50;
const LONG: Duration = Duration::from_secs(120);
/// Twelve trials of four steps.
const PLAN: [&str; 8] = ["--seeds", "0,1,2", "--percents", "0,10", "--max-steps", "4", "--parallel", "2"];
/// The service beside the trials is not what is tested: it may be small.
const SMALL: [&str; 6] = ["--workers", "1", "--pool", "0", "--interpreter", "exec"];

/// A generator whose seed is printed, so that a failure can be had again.
struct Moments(u64);

impl Moments {
    fn new() -> Self {
        let given = std::env::var("RLOX_TESTS_SEED").ok().and_then(|text| text.parse().ok());
        let seed = given.unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            u64::try_from(now.as_micros()).unwrap()
        });
        eprintln!("RLOX_TESTS_SEED={seed}");
        Self(seed)
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn up_to(&mut self, limit: Duration) -> Duration {
        Duration::from_micros(self.next() % u64::try_from(limit.as_micros()).unwrap().max(1))
    }
}

fn begin(home: &TinyHome, scratch: &Path, sweep: &Path, more: &[&str]) -> Child {
    let arguments =
        [&["sweep", "run", "--sweep-dir", sweep.to_str().unwrap()][..], &SMALL, &PLAN, more].concat();
    home.controller(scratch, &arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[track_caller]
fn succeeds(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    stdout(&output)
}

/// What the database says of each trial: its state, and how often it was told to be finished.
fn trials(sweep: &Path) -> BTreeMap<String, (String, i64)> {
    let path = sweep.join(".sweeps.db");
    let Ok(connection) = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY) else {
        return BTreeMap::new();
    };
    connection.busy_timeout(LONG).unwrap();
    let query = "SELECT name, state, (SELECT count(*) FROM events WHERE json_extract(what, '$.name') = trials.name
        AND json_extract(what, '$.kind') = 'trial' AND json_extract(what, '$.state') = 'finished') FROM trials";
    let Ok(mut statement) = connection.prepare(query) else { return BTreeMap::new() };
    let rows = statement.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?)))).unwrap();
    rows.map(Result::unwrap).collect()
}

/// Inode and time of a recorded summary: it is written once.
fn mark(sweep: &Path, name: &str) -> (u64, i64, i64) {
    let found = std::fs::symlink_metadata(sweep.join(name).join("run_summary.json")).unwrap();
    (found.ino(), found.mtime(), found.mtime_nsec())
}

/// What a trial's summary says that does not depend on the machine's speed.
fn lasting(sweep: &Path, name: &str) -> Value {
    let text = std::fs::read_to_string(sweep.join(name).join("run_summary.json")).unwrap();
    let mut value: Value = serde_json::from_str(&text).unwrap();
    for field in ["wall_secs", "cpu_secs", "memory_peak_bytes", "pids_peak"] {
        assert!(value[field].is_number(), "{field}: {value}");
        value[field] = Value::Null;
    }
    value
}

/// Summaries, metrics and checkpoints of a whole sweep.
fn result(sweep: &Path) -> BTreeMap<String, (Value, String, Vec<u8>)> {
    let names = std::fs::read_dir(sweep).unwrap().flatten().filter(|entry| entry.path().is_dir());
    let names = names.map(|entry| entry.file_name().into_string().unwrap());
    let read = |name: String| {
        let file = |file: &str| std::fs::read(sweep.join(&name).join(file)).unwrap();
        let metrics = String::from_utf8(file("metrics.jsonl")).unwrap();
        (name.clone(), (lasting(sweep, &name), metrics, file("checkpoint_final.pt")))
    };
    names.map(read).collect()
}

#[test]
fn a_sweep_whose_controller_is_killed_fifty_times_is_the_undisturbed_one() {
    if !ready() {
        return;
    }
    let ground = Ground::new();
    let undisturbed = ground.path("undisturbed");
    let begun = Instant::now();
    succeeds(begin(&ground.home, ground.scratch.path(), &undisturbed, &[]));
    let whole = begun.elapsed();
    let expected = result(&undisturbed);
    assert_eq!(expected.len(), 12);
    assert!(expected.values().all(|(summary, ..)| summary["survived"] == true), "{expected:?}");

    let mut moments = Moments::new();
    let (mut kills, mut caught, mut round, mut again) = (0, 0, 0, 0);
    while kills < KILLS {
        round += 1;
        let sweep = ground.path(&format!("killed-{round}"));
        let mut marks = BTreeMap::new();
        loop {
            let mut child = begin(&ground.home, ground.scratch.path(), &sweep, &[]);
            if kills == KILLS {
                succeeds(child);
                break;
            }
            std::thread::sleep(moments.up_to(whole));
            // Those in the middle of a trial are what this is about.
            let alive = child.try_wait().unwrap().is_none();
            let running = processes(&format!("rlox-{}.", child.id()))
                .iter()
                .any(|pid| line(*pid).contains("trl_grpo_run.py"));
            kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGKILL).unwrap_or_default();
            let output = child.wait_with_output().unwrap();
            if output.status.signal() != Some(9) {
                assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
                break;
            }
            kills += 1;
            caught += usize::from(alive && running);
            for (name, (state, finished)) in trials(&sweep) {
                assert!(
                    finished <= 1 && (state == "finished") == (finished == 1),
                    "{name}: {state} {finished}"
                );
                if state == "finished" {
                    let now = mark(&sweep, &name);
                    assert_eq!(*marks.entry(name.clone()).or_insert(now), now, "{name} was recorded twice");
                }
            }
        }
        for (name, now) in marks {
            assert_eq!(mark(&sweep, &name), now, "{name} was recorded twice");
        }
        let told = trials(&sweep);
        assert!(told.values().all(|(state, finished)| state == "finished" && *finished == 1), "{told:?}");
        assert_eq!(result(&sweep), expected, "round {round}");
        let connection = Connection::open(sweep.join(".sweeps.db")).unwrap();
        let attempts: i64 =
            connection.query_row("SELECT sum(attempts) FROM trials", [], |row| row.get(0)).unwrap();
        again += attempts - 12;
    }
    eprintln!(
        "{KILLS} kills in {round} sweeps, {caught} while a trial ran; {again} attempts were made again"
    );
    assert!(caught > 0 && again > 0, "no kill met a trial: nothing was tested");
}

#[test]
fn a_full_disk_loses_nothing_and_the_sweep_goes_on_when_there_is_room() {
    if !ready() {
        return;
    }
    let ground = Ground::new();
    let Some(disk) = SmallDisk::mounted(ground.path("disk"), 16) else {
        need(false, "the right to mount a tmpfs");
        return;
    };
    let sweep = disk.path().join("sweep_out");
    let small = ["--trial-disk-mb", "1", "--", "--pause", "0.1"];
    let mut child = begin(&ground.home, ground.scratch.path(), &sweep, &small);
    let finished = || trials(&sweep).into_iter().filter(|(_, (state, _))| state == "finished").count();
    wait_until("the first finished trials", LONG, || finished() >= 2);
    let filler = disk.fill();
    // The trials in flight end or break, and nothing can be recorded of them.
    let log = std::thread::spawn({
        let pipe = child.stderr.take().unwrap();
        move || {
            let mut seen = String::new();
            let mut lines = std::io::BufRead::lines(std::io::BufReader::new(pipe)).map_while(Result::ok);
            for line in lines.by_ref() {
                seen += &format!("{line}\n");
                if line.contains("the disk is full") {
                    break;
                }
            }
            std::thread::spawn(move || lines.for_each(drop));
            seen
        }
    });
    wait_until("word of the full disk", LONG, || log.is_finished());
    let text = log.join().unwrap();
    assert!(text.contains("the disk is full") && text.contains("free some space"), "{text}");
    assert!(child.try_wait().unwrap().is_none(), "the sweep gave up: {text}");
    let before: Vec<_> = trials(&sweep).into_iter().filter(|(_, (state, _))| state == "finished").collect();
    assert!(before.len() >= 2 && before.len() < 12, "{before:?}");
    // Killed on the full disk, too.
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGKILL).unwrap();
    child.wait().unwrap();
    std::fs::remove_file(&filler).unwrap();
    let after: Vec<_> = trials(&sweep).into_iter().filter(|(_, (state, _))| state == "finished").collect();
    assert_eq!(after, before);

    // And once more, with room that comes while it waits.
    let child = begin(&ground.home, ground.scratch.path(), &sweep, &small);
    wait_until("more finished trials", LONG, || finished() > before.len());
    let filler = disk.fill();
    let seen = finished();
    std::thread::sleep(Duration::from_secs(2));
    assert!(finished() <= seen + 2, "trials were finished on a full disk");
    std::fs::remove_file(&filler).unwrap();
    succeeds(child);
    let told = trials(&sweep);
    assert_eq!(told.len(), 12);
    assert!(told.values().all(|(state, count)| state == "finished" && *count == 1), "{told:?}");
    for (name, (summary, ..)) in result(&sweep) {
        assert_eq!(
            summary["survived"], true,
            "{name}: a full disk was taken for the trainer's end: {summary}"
        );
    }
}

/// The state, the attempts and the handle of a sweep's trials that run.
fn handles(sweep: &Path) -> Vec<(String, String)> {
    let path = sweep.join(".sweeps.db");
    let Ok(connection) = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY) else {
        return Vec::new();
    };
    let query = "SELECT name, json_extract(handle, '$.id') FROM trials WHERE state = 'running' AND handle IS NOT NULL";
    let Ok(mut statement) = connection.prepare(query) else { return Vec::new() };
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.filter_map(Result::ok).collect()
}

fn line(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

#[test]
fn trials_die_with_their_controller_and_what_does_not_is_ended_before_they_run_again() {
    if !ready() {
        return;
    }
    let ground = Ground::new();
    let sweep = ground.path("sweep_out");
    let slow = ["--", "--pause", "20"];
    let mut child = begin(&ground.home, ground.scratch.path(), &sweep, &slow);
    let token = format!("rlox-{}.", child.id());
    let trainers = |token: &str| {
        processes(token).into_iter().filter(|pid| line(*pid).contains("trl_grpo_run.py")).count()
    };
    wait_until("two running trials", LONG, || trainers(&token) == 2);
    let left = handles(&sweep);
    assert_eq!(left.len(), 2, "{left:?}");
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGKILL).unwrap();
    child.wait().unwrap();
    wait_until("the end of the trials by themselves", LONG, || processes(&token).is_empty());

    // A launcher that hangs does not leave. Its command line is all that tells whose it is.
    let (name, container) = &left[0];
    let mut parts = container.split('-');
    let (owner, slot) = (parts.next().unwrap(), parts.next().unwrap());
    let directory = format!("/run/rlox-{owner}/launcher-{slot}");
    let mut hanging = std::process::Command::new("/bin/sh")
        .args(["-c", "while :; do sleep 1; done", "launcher", "--slot", slot, "--directory", &directory])
        .spawn()
        .unwrap();
    let mut next = begin(&ground.home, ground.scratch.path(), &sweep, &slow);
    let token = format!("rlox-{}.", next.id());
    wait_until("the hanging launcher's end", LONG, || {
        let ended = hanging.try_wait().unwrap();
        assert!(ended.is_some() || trainers(&token) == 0, "{name} began beside its earlier attempt");
        ended.is_some()
    });
    assert_eq!(hanging.wait().unwrap().signal(), Some(9));
    wait_until("two running trials again", LONG, || trainers(&token) == 2);
    kill(Pid::from_raw(i32::try_from(next.id()).unwrap()), Signal::SIGTERM).unwrap();
    assert_eq!(next.wait().unwrap().code(), Some(130));
    let told = trials(&sweep);
    assert!(told.values().all(|(state, finished)| state == "cancelled" && *finished == 0), "{told:?}");
    nothing_left(next.id(), ground.scratch.path());
}
