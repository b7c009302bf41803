//! The life of a container, and which command is admitted when.

use std::fs;

use serde_json::{Value, json};

use super::support::{texts, world};
use crate::support::host::traces;

type Change = fn(&mut Value);

#[test]
fn created_running_stopped_deleted() {
    let Some(world) = world() else { return };
    let container = world.created();
    let state = container.state();
    assert_eq!(state["status"], "created");
    assert_eq!(state["id"], container.id.as_str());
    assert_eq!(state["bundle"], fs::canonicalize(world.bundle()).unwrap().to_str().unwrap());
    assert!(state["pid"].as_i64().unwrap() > 0 && state["ociVersion"].as_str().unwrap().starts_with("1."));
    world.ok(&["start", &container.id]);
    assert_eq!(container.status(), "running");
    world.ok(&["kill", &container.id, "KILL"]);
    container.wait_for("stopped");
    assert_eq!(container.state()["pid"], 0);
    world.ok(&["delete", &container.id]);
    assert!(world.refused(&["state", &container.id]).contains("does not exist"));
}

#[test]
fn each_command_is_refused_in_the_wrong_state() {
    let Some(world) = world() else { return };
    let container = world.created();
    let id = container.id.as_str();
    let bundle = world.bundle();
    let bundle = bundle.to_str().unwrap();
    assert!(world.refused(&["create", "--bundle", bundle, id]).contains("already exists"));
    assert!(world.refused(&["resume", id]).contains("created"));
    world.ok(&["start", id]);
    assert!(world.refused(&["start", id]).contains("running"));
    assert!(world.refused(&["delete", id]).contains("running"));
    assert!(world.refused(&["resume", id]).contains("running"));
    assert_eq!(container.status(), "running", "a refused delete changes nothing");
    world.ok(&["kill", id, "9"]);
    container.wait_for("stopped");
    assert!(world.refused(&["kill", id, "9"]).contains("container not running"));
    assert!(world.refused(&["start", id]).contains("stopped"));
    assert!(world.refused(&["pause", id]).contains("stopped"));
    assert!(world.refused(&["update", "--pids-limit", "5", id]).contains("stopped"));
    assert!(world.refused(&["events", "--stats", id]).contains("container not running"));
    let output = world.output(&["exec", id, "/bin/true"]);
    assert_eq!(output.status.code(), Some(255), "{}", texts(&output).1);
}

#[test]
fn what_does_not_exist_is_an_error_but_for_a_forced_delete() {
    let Some(world) = world() else { return };
    for args in [
        &["start", "none"][..],
        &["state", "none"],
        &["kill", "none"],
        &["delete", "none"],
        &["pause", "none"],
        &["resume", "none"],
        &["ps", "none"],
        &["events", "--stats", "none"],
        &["update", "--pids-limit", "5", "none"],
    ] {
        assert!(world.refused(args).contains("does not exist"), "{args:?}");
    }
    assert_eq!(world.output(&["exec", "none", "true"]).status.code(), Some(255));
    world.ok(&["delete", "--force", "none"]);
}

#[test]
fn a_created_container_can_be_deleted_and_a_running_one_by_force() {
    let Some(world) = world() else { return };
    let container = world.created();
    world.ok(&["delete", &container.id]);
    let container = world.running();
    let pid = container.state()["pid"].as_i64().unwrap();
    world.ok(&["delete", "--force", &container.id]);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    // Its parent, which is not us, may not have waited for it yet.
    assert!(status.is_empty() || status.contains("State:\tZ"), "{status}");
    assert_eq!(world.ok(&["list", "--quiet"]), "");
}

#[test]
fn options_may_stand_after_the_id() {
    let Some(world) = world() else { return };
    let container = world.id();
    let (bundle, pid_file) = (world.bundle(), world.path("pid"));
    let pid_file_text = pid_file.to_str().unwrap();
    world.ok(&["create", &container.id, "--bundle", bundle.to_str().unwrap(), "--pid-file", pid_file_text]);
    let pid: i64 = fs::read_to_string(pid_file).unwrap().parse().unwrap();
    assert_eq!(container.state()["pid"], pid);
    world.ok(&["delete", &container.id, "--force"]);
}

#[test]
fn list_shows_every_container_in_both_formats() {
    let Some(world) = world() else { return };
    assert_eq!(world.ok(&["list", "--format", "json"]).trim(), "[]");
    let (first, second) = (world.created(), world.running());
    let listed: Value = serde_json::from_str(&world.ok(&["list", "--format=json"])).unwrap();
    let mut seen: Vec<_> =
        listed.as_array().unwrap().iter().map(|each| (each["id"].clone(), each["status"].clone())).collect();
    seen.sort_by_key(|(_, status)| status.to_string());
    assert_eq!(seen, [(json!(first.id), json!("created")), (json!(second.id), json!("running"))]);
    for key in ["pid", "bundle", "created", "owner", "rootfs", "ociVersion"] {
        assert!(!listed[0][key].is_null(), "{key}");
    }
    let table = world.ok(&["list"]);
    let header: Vec<_> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(header, ["ID", "PID", "STATUS", "BUNDLE", "CREATED", "OWNER"]);
    assert_eq!(table.lines().count(), 3);
    let mut ids: Vec<_> = world.ok(&["list", "-q"]).lines().map(str::to_owned).collect();
    ids.sort();
    assert_eq!(ids, [first.id.clone(), second.id.clone()]);
}

#[test]
fn run_returns_the_programs_code_and_leaves_nothing() {
    let Some(world) = world() else { return };
    for (code, wanted) in [
        ("raise SystemExit(7)", 7),
        ("pass", 0),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM); os._exit(143)", 143),
    ] {
        world.python(code, |_| {});
        assert_eq!(world.run().0, wanted, "{code}");
    }
    // A signal to the first process from outside: 128 and its number.
    world.configure(|_| {});
    let container = world.id();
    let bundle = world.bundle();
    let mut child =
        world.command(&["run", "--bundle", bundle.to_str().unwrap(), &container.id]).spawn().unwrap();
    crate::support::host::wait_until("the container", super::support::SOON, || {
        let output = world.output(&["state", &container.id]);
        texts(&output).0.contains("running")
    });
    world.ok(&["kill", &container.id, "KILL"]);
    assert_eq!(child.wait().unwrap().code(), Some(137));
    assert_eq!(traces(child.id()), Vec::<String>::new());
    assert_eq!(world.ok(&["list", "-q"]), "");
}

#[test]
fn run_detached_returns_at_once_and_keep_keeps() {
    let Some(world) = world() else { return };
    let bundle = world.bundle();
    let bundle = bundle.to_str().unwrap();
    let container = world.id();
    world.ok(&["run", "--detach", "--bundle", bundle, &container.id]);
    assert_eq!(container.status(), "running");
    world.python("pass", |_| {});
    let kept = world.id();
    world.ok(&["run", "--keep", "--bundle", bundle, &kept.id]);
    assert_eq!(kept.status(), "stopped");
}

#[test]
fn signals_to_run_reach_the_program() {
    let Some(world) = world() else { return };
    world.python(
        "import signal, sys, time\n\
         signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n\
         print('up', flush=True)\n\
         while True: time.sleep(60)",
        |_| {},
    );
    let container = world.id();
    let bundle = world.bundle();
    let mut child =
        world.command(&["run", "--bundle", bundle.to_str().unwrap(), &container.id]).spawn().unwrap();
    let mut word = [0u8; 3];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut word).unwrap();
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

#[test]
fn configurations_that_cannot_be_used_are_refused_and_leave_nothing() {
    let Some(world) = world() else { return };
    let bundle = world.bundle();
    let bundle = bundle.to_str().unwrap();
    let cases: [(&str, Change); 8] = [
        ("ociVersion", |config| config["ociVersion"] = json!("2.0.0")),
        ("ociVersion", |config| config["ociVersion"] = json!("invalid")),
        ("root", |config| drop(config.as_object_mut().unwrap().remove("root"))),
        ("process", |config| drop(config.as_object_mut().unwrap().remove("process"))),
        ("root.path", |config| config["root"]["path"] = json!("absent")),
        ("console-socket", |config| config["process"]["terminal"] = json!(true)),
        ("not found", |config| config["process"]["args"] = json!(["no-such-program"])),
        ("process.args", |config| config["process"]["args"] = json!([])),
    ];
    for (word, change) in cases {
        world.configure(change);
        let message = world.refused(&["create", "--bundle", bundle, "refused"]);
        assert!(message.contains(word), "{word}: {message}");
        assert_eq!(world.ok(&["list", "-q"]), "", "{word}");
    }
    fs::write(world.bundle().join("config.json"), "{").unwrap();
    assert!(world.refused(&["create", "--bundle", bundle, "refused"]).contains("config.json"));
    fs::remove_file(world.bundle().join("config.json")).unwrap();
    assert!(world.refused(&["create", "--bundle", bundle, "refused"]).contains("config.json"));
    for id in ["a/b", "..", "a b"] {
        assert!(world.refused(&["create", "--bundle", bundle, id]).contains("container id"), "{id}");
    }
}

#[test]
fn unknown_properties_are_ignored() {
    let Some(world) = world() else { return };
    world.python("pass", |config| {
        config["unknown"] = json!({"a": 1});
        config["process"]["unknown"] = json!([]);
        config["linux"]["unknown"] = json!(1);
    });
    assert_eq!(world.run().0, 0);
}

#[test]
fn failures_are_written_to_the_log_as_json() {
    let Some(world) = world() else { return };
    let log = world.path("log");
    world.refused(&["--log", log.to_str().unwrap(), "--log-format", "json", "start", "none"]);
    let text = fs::read_to_string(&log).unwrap();
    let line: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(line["level"], "error");
    assert!(line["msg"].as_str().unwrap().contains("does not exist") && line["time"].is_string());
    world.refused(&["--log", log.to_str().unwrap(), "start", "none"]);
    assert!(fs::read_to_string(&log).unwrap().lines().last().unwrap().contains("level=error"));
}

#[test]
fn a_command_line_that_makes_no_sense_is_an_error_of_the_command() {
    let Some(world) = world() else { return };
    for args in [&["create"][..], &["start"], &["state", "a", "b"], &["list", "--format", "xml"]] {
        world.refused(args);
    }
}

#[test]
fn annotations_are_part_of_the_state() {
    let Some(world) = world() else { return };
    world.configure(|config| config["annotations"] = json!({"org.example": "value", "empty": ""}));
    let container = world.created();
    assert_eq!(container.state()["annotations"], json!({"org.example": "value", "empty": ""}));
}

#[test]
fn spec_writes_a_configuration_and_never_over_one() {
    let Some(world) = world() else { return };
    let directory = world.path("fresh");
    fs::create_dir(&directory).unwrap();
    let at = directory.to_str().unwrap();
    world.ok(&["spec", "--bundle", at]);
    assert!(world.refused(&["spec", "--bundle", at]).contains("exists"));
    let read = || -> Value {
        serde_json::from_str(&fs::read_to_string(directory.join("config.json")).unwrap()).unwrap()
    };
    assert_eq!(read()["process"]["args"], json!(["sh"]));
    fs::remove_file(directory.join("config.json")).unwrap();
    world.ok(&["spec", "--rootless", "--bundle", at]);
    let config = read();
    assert!(config["linux"]["namespaces"].as_array().unwrap().contains(&json!({"type": "user"})));
    assert_eq!(config["linux"]["uidMappings"][0]["size"], 1);
}

#[test]
fn features_are_json_with_the_keys_of_the_specification() {
    let Some(world) = world() else { return };
    let features: Value = serde_json::from_str(&world.ok(&["features"])).unwrap();
    for key in ["ociVersionMin", "ociVersionMax", "hooks", "mountOptions", "linux", "annotations"] {
        assert!(!features[key].is_null(), "{key}");
    }
    for key in ["namespaces", "capabilities", "cgroup", "seccomp", "apparmor", "selinux"] {
        assert!(!features["linux"][key].is_null(), "{key}");
    }
    assert_eq!(features["linux"]["cgroup"]["v2"], true);
}

#[test]
fn descriptors_are_preserved_as_many_as_asked_for() {
    let Some(world) = world() else { return };
    world.configure(|config| config["process"]["args"] = json!(["/bin/ls", "/proc/self/fd"]));
    let bundle = world.bundle();
    let run = |options: &str| {
        let container = world.id();
        let line = format!(
            "exec 3</etc/hostname 4</etc/hostname 5</etc/hostname; exec {} --root {} run {options} --bundle {} {}",
            crate::support::RUNTIME,
            world.path("state").display(),
            bundle.display(),
            container.id
        );
        let output = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
        texts(&output).0.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(run(""), ["0", "1", "2", "3"], "standard streams and the directory itself");
    assert_eq!(run("--preserve-fds 2"), ["0", "1", "2", "3", "4", "5"]);
}
