//! Hooks: when, where, with what, and what their failure does.

use std::fs;

use serde_json::{Value, json};

use super::support::{World, world};

const KINDS: [&str; 6] =
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

/// A hook that appends its name, its state and its mount namespace to a file.
fn note(world: &World, kind: &str) -> Value {
    let script = format!(
        "{{ echo {kind}; cat; echo; readlink /proc/self/ns/mnt; pwd; }} >> {}",
        world.path("notes").display()
    );
    json!({"path": "/bin/sh", "args": ["sh", "-c", script], "env": ["PATH=/usr/bin:/bin"]})
}

#[test]
fn every_kind_runs_in_its_place_with_the_state() {
    let Some(world) = world() else { return };
    let shared = world.directory.path().to_owned();
    let rootfs = world.own_rootfs();
    let inner_notes = rootfs.join("notes");
    world.configure(|config| {
        config["root"] = json!({"path": rootfs});
        config["annotations"] = json!({"k": "v"});
        for kind in KINDS {
            config["hooks"][kind] = json!([note(&world, kind)]);
        }
        // This one runs where the container's root is the root.
        config["hooks"]["startContainer"][0]["args"][2] =
            json!("{ echo startContainer; cat; echo; echo mnt:inside; pwd; } >> /notes");
    });
    let container = world.created();
    let pid = container.state()["pid"].clone();
    let lines = |path: &std::path::Path| -> Vec<String> {
        fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
    };
    let names = |lines: &[String]| -> Vec<String> {
        lines.iter().filter(|line| KINDS.contains(&line.as_str())).cloned().collect()
    };
    let notes = shared.join("notes");
    assert_eq!(names(&lines(&notes)), ["prestart", "createRuntime", "createContainer"]);
    assert!(!inner_notes.exists(), "startContainer hooks wait for start");
    world.ok(&["start", &container.id]);
    assert_eq!(names(&lines(&inner_notes)), ["startContainer"]);
    assert_eq!(names(&lines(&notes)).last().unwrap(), "poststart");
    world.ok(&["delete", "--force", &container.id]);
    let all = lines(&notes);
    assert_eq!(names(&all), ["prestart", "createRuntime", "createContainer", "poststart", "poststop"]);
    let own = fs::read_link("/proc/self/ns/mnt").unwrap();
    let bundle = fs::canonicalize(world.bundle()).unwrap();
    for (kind, status) in [
        ("prestart", "creating"),
        ("createRuntime", "creating"),
        ("createContainer", "creating"),
        ("poststart", "running"),
        ("poststop", "stopped"),
    ] {
        let at = all.iter().position(|line| line == kind).unwrap();
        let state: Value = serde_json::from_str(&all[at + 1]).unwrap();
        assert_eq!(state["status"], status, "{kind}");
        assert_eq!(state["id"], container.id.as_str(), "{kind}");
        assert_eq!(state["bundle"], bundle.to_str().unwrap(), "{kind}");
        assert_eq!(state["annotations"], json!({"k": "v"}), "{kind}");
        if kind == "poststop" {
            assert!(state.get("pid").is_none_or(|pid| *pid == 0));
        } else {
            assert_eq!(state["pid"], pid, "{kind}");
        }
        let in_runtime_namespace = all[at + 2] == own.to_str().unwrap();
        assert_eq!(in_runtime_namespace, kind != "createContainer", "{kind}");
    }
    let started: Value = serde_json::from_str(&lines(&inner_notes)[1]).unwrap();
    assert_eq!((&started["status"], &started["pid"]), (&json!("created"), &json!(1)));
}

#[test]
fn hooks_of_one_kind_run_in_order_with_their_environment() {
    let Some(world) = world() else { return };
    let file = world.path("order");
    let hook = |word: &str| {
        json!({"path": "/bin/sh", "args": ["sh", "-c", format!("echo $0 {word} $X $HOME >> {}", file.display())],
            "env": [format!("X={word}")]})
    };
    world.python("pass", |config| config["hooks"]["createRuntime"] = json!([hook("1"), hook("2")]));
    let (code, _, err) = world.run();
    assert_eq!(code, 0, "{err}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "sh 1 1\nsh 2 2\n");
}

#[test]
fn a_hook_that_fails_during_create_fails_it_and_leaves_nothing() {
    let Some(world) = world() else { return };
    let bundle = world.bundle();
    let stopped = world.path("stopped");
    for kind in ["prestart", "createRuntime", "createContainer"] {
        world.configure(|config| {
            config["hooks"][kind] = json!([{"path": "/bin/false"}]);
            let line = format!("echo {kind} >> {}", stopped.display());
            config["hooks"]["poststop"] = json!([{"path": "/bin/sh", "args": ["sh", "-c", line]}]);
        });
        let message = world.refused(&["create", "--bundle", bundle.to_str().unwrap(), "failing"]);
        let shown = if kind == "prestart" { "createRuntime" } else { kind };
        assert!(message.contains(&format!("{shown} hook /bin/false: exit status 1")), "{message}");
        assert_eq!(world.ok(&["list", "-q"]), "", "{kind}");
    }
    assert_eq!(fs::read_to_string(&stopped).unwrap(), "prestart\ncreateRuntime\ncreateContainer\n");
}

#[test]
fn a_hook_that_fails_during_start_stops_the_container() {
    let Some(world) = world() else { return };
    world.configure(|config| config["hooks"]["poststart"] = json!([{"path": "/bin/false"}]));
    let container = world.created();
    assert!(world.refused(&["start", &container.id]).contains("poststart hook /bin/false"));
    container.wait_for("stopped");
    world.configure(|config| config["hooks"]["startContainer"] = json!([{"path": "/bin/false"}]));
    let container = world.created();
    let output = world.output(&["start", &container.id]);
    // Where its parent has waited for the process already, the command cannot know how it ended.
    assert!(output.status.code() != Some(0) || container.status() == "stopped");
    container.wait_for("stopped");
}

#[test]
fn a_hook_that_fails_after_the_end_is_a_warning() {
    let Some(world) = world() else { return };
    let file = world.path("second");
    world.configure(|config| {
        config["hooks"]["poststop"] = json!([
            {"path": "/bin/false"},
            {"path": "/bin/sh", "args": ["sh", "-c", format!("echo ran > {}", file.display())]}
        ]);
    });
    let container = world.created();
    world.ok(&["delete", &container.id]);
    assert!(file.exists(), "the hooks after it run all the same");
}

#[test]
fn a_hook_that_hangs_is_killed_at_its_timeout() {
    let Some(world) = world() else { return };
    world.configure(|config| {
        config["hooks"]["createRuntime"] =
            json!([{"path": "/bin/sleep", "args": ["sleep", "100"], "timeout": 1}]);
    });
    let bundle = world.bundle();
    let begun = std::time::Instant::now();
    world.refused(&["create", "--bundle", bundle.to_str().unwrap(), "hanging"]);
    assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
    world.configure(|config| config["hooks"]["poststop"] = json!([{"path": "relative"}]));
    assert!(world.refused(&["create", "--bundle", bundle.to_str().unwrap(), "x"]).contains("absolute"));
}
