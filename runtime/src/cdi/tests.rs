//! The rules of files and edits, on files in a temporary directory; nodes are of the host's `/dev/null`.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::edits::Nodes;
use super::*;

/// A file as `nvidia-ctk cdi generate` writes it, less most of its libraries.
const GENERATED: &str = include_str!("../../tests/it/fixtures/cdi-nvidia.yaml");

fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

fn minimal(kind: &str, names: &[&str], variable: &str) -> String {
    let devices: Vec<Value> =
        names.iter().map(|name| json!({"name": name, "containerEdits": {"env": [variable]}})).collect();
    json!({"cdiVersion": "0.6.0", "kind": kind, "devices": devices}).to_string()
}

fn edited(directories: &[&Path], devices: &[&str], nodes: Nodes) -> Result<Value, CdiError> {
    let directories: Vec<PathBuf> = directories.iter().map(|path| path.to_path_buf()).collect();
    let names: Vec<String> = devices.iter().map(|name| (*name).to_owned()).collect();
    let mut spec = Spec::default();
    let registry = Registry::read(&directories);
    edits::apply(&mut spec, &registry.select(&names)?, nodes)?;
    Ok(serde_json::to_value(&spec).unwrap())
}

fn has(list: &Value, wanted: &Value) -> bool {
    list.as_array().unwrap().contains(wanted)
}

#[test]
fn a_generated_file_becomes_nodes_mounts_variables_and_hooks() {
    let files = directory(&[("nvidia.yaml", GENERATED)]);
    let spec = edited(&[files.path()], &["nvidia.com/gpu=0"], Nodes::Made).unwrap();
    assert!(has(&spec["process"]["env"], &json!("NVIDIA_VISIBLE_DEVICES=void")));
    let nodes = spec["linux"]["devices"].as_array().unwrap();
    let paths: Vec<_> = nodes.iter().map(|node| node["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"]);
    // Type and numbers come from the host's node that hostPath names.
    assert_eq!(
        (&nodes[2]["type"], &nodes[2]["major"], &nodes[2]["minor"]),
        (&json!("c"), &json!(1), &json!(3))
    );
    let rule = json!({"allow": true, "type": "c", "major": 1, "minor": 3, "access": "rw"});
    assert!(has(&spec["linux"]["resources"]["devices"], &rule), "{}", spec["linux"]["resources"]["devices"]);
    let library = spec["mounts"].as_array().unwrap().last().unwrap();
    assert_eq!(library["destination"], "/usr/lib/x86_64-linux-gnu/libcuda.so.550");
    assert_eq!(library["options"], json!(["ro", "nosuid", "nodev", "rbind", "rprivate"]));
    let hooks = spec["hooks"]["createContainer"].as_array().unwrap();
    assert_eq!(hooks.len(), 2);
    assert_eq!(hooks[0]["args"][2], "create-symlinks");
}

#[test]
fn edits_of_a_file_come_once_and_those_of_each_device_each() {
    let files = directory(&[("nvidia.yaml", GENERATED)]);
    let names = ["nvidia.com/gpu=0", "nvidia.com/gpu=all", "nvidia.com/gpu=0"];
    let spec = edited(&[files.path()], &names, Nodes::Made).unwrap();
    assert_eq!(spec["hooks"]["createContainer"].as_array().unwrap().len(), 2);
    let rules = spec["linux"]["resources"]["devices"].as_array().unwrap();
    let ours = rules.iter().filter(|rule| rule["access"] == "rw").count();
    assert_eq!(ours, 2, "one of each of two devices: {rules:?}");
}

#[test]
fn where_mknod_is_impossible_the_hosts_node_is_bound() {
    let files = directory(&[("nvidia.yaml", GENERATED)]);
    let spec = edited(&[files.path()], &["nvidia.com/gpu=0"], Nodes::Bound).unwrap();
    assert_eq!(spec["linux"].get("devices"), None);
    let mounts = spec["mounts"].as_array().unwrap();
    let node = mounts.iter().find(|mount| mount["destination"] == "/dev/nvidia0").unwrap();
    assert_eq!((&node["source"], &node["type"]), (&json!("/dev/null"), &json!("bind")));
    assert!(has(&node["options"], &json!("bind")) && !has(&node["options"], &json!("nodev")), "{node}");
    let rule = json!({"allow": true, "type": "c", "major": 1, "minor": 3, "access": "rw"});
    assert!(has(&spec["linux"]["resources"]["devices"], &rule));
}

#[test]
fn a_missing_device_names_those_found_the_directories_and_what_is_broken() {
    let files = directory(&[
        ("nvidia.yaml", GENERATED),
        ("broken.json", "{\"cdiVersion\": \"0.6.0\""),
        ("readme.txt", "not CDI"),
    ]);
    let absent = Path::new("/nonexistent/cdi");
    let error = edited(&[files.path(), absent], &["nvidia.com/gpu=7"], Nodes::Made).unwrap_err().to_string();
    for part in [
        "nvidia.com/gpu=7",
        "nvidia.com/gpu=0, nvidia.com/gpu=GPU-4f0e9c1a-0000-0000-0000-000000000000, nvidia.com/gpu=all",
        &files.path().display().to_string(),
        "/nonexistent/cdi",
        "broken.json",
        "nvidia-ctk cdi generate",
    ] {
        assert!(error.contains(part), "no {part:?} in {error}");
    }
    assert!(!error.contains("readme.txt"), "{error}");
    let nothing = edited(&[absent], &["nvidia.com/gpu=0"], Nodes::Made).unwrap_err().to_string();
    assert!(nothing.contains("found none"), "{nothing}");
}

#[test]
fn a_later_directory_goes_first_and_equals_conflict() {
    let early = directory(&[("a.json", &minimal("v.com/d", &["x", "y"], "FROM=early"))]);
    let late = directory(&[("b.json", &minimal("v.com/d", &["x"], "FROM=late"))]);
    let environment = |name: &str| {
        let spec = edited(&[early.path(), late.path()], &[name], Nodes::Made).unwrap();
        spec["process"]["env"].as_array().unwrap().last().unwrap().clone()
    };
    assert_eq!(
        (environment("v.com/d=x"), environment("v.com/d=y")),
        (json!("FROM=late"), json!("FROM=early"))
    );
    let twice = directory(&[
        ("a.json", &minimal("v.com/d", &["x", "y"], "A=1")),
        ("b.json", &minimal("v.com/d", &["x"], "A=2")),
    ]);
    let error = edited(&[twice.path()], &["v.com/d=x"], Nodes::Made).unwrap_err();
    assert!(matches!(error, CdiError::Conflict { .. }), "{error}");
    assert!(error.to_string().contains("a.json") && error.to_string().contains("b.json"), "{error}");
    // What does not conflict goes on working.
    assert!(edited(&[twice.path()], &["v.com/d=y"], Nodes::Made).is_ok());
    // A later directory also settles a conflict.
    assert!(edited(&[twice.path(), late.path()], &["v.com/d=x"], Nodes::Made).is_ok());
}

#[test]
fn what_the_specification_forbids_is_refused() {
    let edits = |edits: Value| json!({"cdiVersion": "1.1.0", "kind": "v.com/d", "devices": [{"name": "x", "containerEdits": edits}]});
    let file = |version: &str, kind: &str, name: &str| json!({"cdiVersion": version, "kind": kind, "devices": [{"name": name, "containerEdits": {"env": ["A=1"]}}]});
    for (bad, why) in [
        (file("0.9.0", "v.com/d", "x"), "cdiVersion"),
        (file("2.0.0", "v.com/d", "x"), "cdiVersion"),
        (file("0.4.0", "v.com/d", "0"), "digit"),
        (file("0.5.0", "v.com/d.e", "x"), "dot"),
        (file("0.6.0", "v.com", "x"), "VENDOR/CLASS"),
        (file("0.6.0", "v.com/d", "-x"), "device name"),
        (edits(json!({})), "no edits"),
        (edits(json!({"env": ["=1"]})), "NAME=VALUE"),
        (edits(json!({"unknown": 1})), "unknown"),
        (edits(json!({"hooks": [{"hookName": "later", "path": "/x"}]})), "later"),
        (edits(json!({"hooks": [{"hookName": "poststop", "path": "x"}]})), "absolute"),
        (edits(json!({"mounts": [{"hostPath": "/x", "containerPath": "x"}]})), "absolute"),
        (edits(json!({"deviceNodes": [{"path": "/dev/x", "type": "z"}]})), "type"),
        (edits(json!({"deviceNodes": [{"path": "/dev/x", "permissions": "rx"}]})), "permissions"),
        (edits(json!({"deviceNodes": [{"path": "/dev/x", "type": "c", "major": -1, "minor": 3}]})), "number"),
        (
            edits(json!({"deviceNodes": [{"path": "/dev/x", "type": "c", "major": 1, "minor": 1u64 << 32}]})),
            "number",
        ),
        (edits(json!({"hooks": [{"hookName": "poststop", "path": "/x", "timeout": 0}]})), "timeout"),
    ] {
        let error = document::Document::parse(&bad.to_string(), true).unwrap_err();
        assert!(error.contains(why), "{why:?} not in {error:?}");
        // JSON is YAML.
        assert!(document::Document::parse(&bad.to_string(), false).is_err(), "{bad}");
    }
    let later = json!({"cdiVersion": "0.6.0", "kind": "v.com/d", "containerEdits": {"additionalGids": [44]},
        "devices": [{"name": "x", "containerEdits": {"env": ["A=1"]}}]});
    assert!(document::Document::parse(&later.to_string(), true).unwrap_err().contains("additionalGids"));
}

#[test]
fn every_edit_of_the_specification_is_applied() {
    let node = |path: &str| json!({"path": path, "hostPath": "/dev/zero", "permissions": "r", "fileMode": 0o600, "uid": 5, "gid": 6});
    let hook = |name: &str| json!({"hookName": name, "path": "/bin/true", "args": ["true", name], "env": ["H=1"], "timeout": 3});
    let hooks: Vec<Value> =
        ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"]
            .map(hook)
            .to_vec();
    let all = json!({"cdiVersion": "1.1.0", "kind": "v.com/d", "devices": [{"name": "x", "containerEdits": {
        "env": ["TERM=none"], "deviceNodes": [node("/dev/x")],
        "netDevices": [{"hostInterfaceName": "eth7", "name": "fast"}],
        "mounts": [{"hostPath": "/a/b", "containerPath": "/in/side", "type": "tmpfs", "options": ["size=1k"]},
            {"hostPath": "/a", "containerPath": "/in", "options": ["ro"]}],
        "hooks": hooks, "intelRdt": {"closID": "c", "schemata": ["L3:0=1"], "enableMonitoring": true},
        "additionalGids": [0, 44, 44]}}]});
    let files = directory(&[("all.json", &all.to_string())]);
    let spec = edited(&[files.path()], &["v.com/d=x"], Nodes::Made).unwrap();
    let environment = spec["process"]["env"].as_array().unwrap();
    let terms: Vec<_> =
        environment.iter().filter(|entry| entry.as_str().unwrap().starts_with("TERM=")).collect();
    assert_eq!(terms, [&json!("TERM=none")], "it replaces the bundle's");
    let wanted =
        json!({"path": "/dev/x", "type": "c", "major": 1, "minor": 5, "fileMode": 0o600, "uid": 5, "gid": 6});
    assert_eq!(spec["linux"]["devices"], json!([wanted]));
    assert!(has(
        &spec["linux"]["resources"]["devices"],
        &json!({"allow": true, "type": "c", "major": 1, "minor": 5, "access": "r"})
    ));
    assert_eq!(spec["linux"]["netDevices"]["eth7"]["name"], "fast");
    let mounts: Vec<_> = spec["mounts"].as_array().unwrap().iter().rev().take(2).collect();
    assert_eq!((&mounts[0]["destination"], &mounts[1]["destination"]), (&json!("/in/side"), &json!("/in")));
    assert_eq!(mounts[1]["options"], json!(["ro", "bind"]));
    for name in ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"] {
        let wanted = json!({"path": "/bin/true", "args": ["true", name], "env": ["H=1"], "timeout": 3});
        assert_eq!(spec["hooks"][name], json!([wanted]), "{name}");
    }
    assert_eq!(spec["linux"]["intelRdt"]["closID"], "c");
    assert_eq!(spec["process"]["user"]["additionalGids"], json!([44]));
}

#[test]
fn a_node_that_the_host_lacks_is_named() {
    let lacking = json!({"cdiVersion": "0.6.0", "kind": "v.com/d", "devices": [{"name": "x", "containerEdits": {"deviceNodes": [{"path": "/dev/no-such-node"}]}}]});
    let files = directory(&[("l.json", &lacking.to_string())]);
    for nodes in [Nodes::Made, Nodes::Bound] {
        let error = edited(&[files.path()], &["v.com/d=x"], nodes).unwrap_err().to_string();
        assert!(error.contains("/dev/no-such-node"), "{error}");
    }
}
