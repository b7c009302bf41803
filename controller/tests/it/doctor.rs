//! `doctor --prove`: that it proves this host, and that it does not prove one that is weaker.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{controller, host, nothing_left, output_within, ready, stderr, stdout};

const LONG: Duration = Duration::from_secs(240);
const PROVE: [&str; 4] = ["doctor", "--prove", "--json", "--workers"];

/// A checkout of its own whose snippet bundle was edited; everything else is this checkout's.
fn weakened(directory: &Path, weaken: impl Fn(&mut Value)) {
    let from = host::checkout();
    symlink(from.join("corpus"), directory.join("corpus")).unwrap();
    for name in ["snippet", "grader"] {
        let (source, target) = (from.join("bundles").join(name), directory.join("bundles").join(name));
        std::fs::create_dir_all(&target).unwrap();
        let text = std::fs::read_to_string(source.join("config.json")).unwrap();
        let mut config: Value = serde_json::from_str(&text).unwrap();
        config["root"]["path"] = json!(source.join("rootfs"));
        if name == "snippet" {
            weaken(&mut config);
        }
        std::fs::write(target.join("config.json"), config.to_string()).unwrap();
        symlink(source.join("rootfs"), target.join("rootfs")).unwrap();
    }
}

#[test]
fn this_host_is_proven_and_every_control_fails() {
    if !ready() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let arguments = [&PROVE[..], &["2"]].concat();
    let (pid, output) = output_within(&mut controller(scratch.path(), &arguments), LONG);
    assert_eq!(output.status.code(), Some(0), "{}\n{}", stdout(&output), stderr(&output));
    let proof: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&proof["schema"], &proof["proven"]), (&json!("rlox-proof/1"), &json!(true)), "{proof}");
    assert_eq!(proof["host"]["contains"], true, "{proof}");
    assert_eq!(proof["failures"], json!([]));
    let families = proof["families"].as_array().unwrap();
    let sum = |field: &str| families.iter().map(|family| family[field].as_u64().unwrap()).sum::<u64>();
    assert_eq!((families.len(), sum("attacks"), sum("contained")), (9, 100, 100), "{proof}");
    assert_eq!((sum("twins"), sum("twins_passed")), (38, 38), "{proof}");
    for family in families {
        assert!(family["control"]["succeeded"].as_u64().unwrap() > 0, "{family}");
    }
    nothing_left(pid, scratch.path());
}

/// The proof has to fail where the bundle is weaker than it should be.
#[test]
fn a_weaker_bundle_is_not_proven_and_the_attack_is_named() {
    if !ready() {
        return;
    }
    let (scratch, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    weakened(home.path(), |config| {
        config["process"]["capabilities"]["bounding"] = json!(["CAP_NET_BIND_SERVICE"]);
    });
    let arguments = [&PROVE[..], &["2"]].concat();
    let mut command = controller(scratch.path(), &arguments);
    let (pid, output) = output_within(command.env("RLOX_HOME", home.path()), LONG);
    assert_eq!(output.status.code(), Some(1), "{}\n{}", stdout(&output), stderr(&output));
    let proof: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(proof["proven"], false, "{proof}");
    let failures = proof["failures"].as_array().unwrap();
    assert!(failures.iter().any(|failure| failure["what"] == "kernel-privileges"), "{failures:?}");
    let rows = proof["families"].as_array().unwrap();
    let kernel = rows.iter().find(|row| row["family"] == "kernel").unwrap();
    assert_eq!((&kernel["contained"], &kernel["attacks"]), (&json!(11), &json!(12)), "{kernel}");
    nothing_left(pid, scratch.path());
}

/// Without a filter no service starts, so there is nothing to prove.
#[test]
fn without_the_filter_nothing_starts() {
    if !ready() {
        return;
    }
    let (scratch, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    weakened(home.path(), |config| drop(config["linux"].as_object_mut().unwrap().remove("seccomp")));
    let mut command = controller(scratch.path(), &[&PROVE[..], &["2"]].concat());
    let (pid, output) = output_within(command.env("RLOX_HOME", home.path()), LONG);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stderr(&output).contains("self-test failed"), "{}", stderr(&output));
    nothing_left(pid, scratch.path());
}
