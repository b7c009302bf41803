//! `doctor` on this host, and on one made worse on purpose.

use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{RUNTIME, ready, stderr};

fn layer<'a>(report: &'a Value, name: &str) -> &'a Value {
    let layers = report["layers"].as_array().unwrap();
    layers.iter().find(|layer| layer["name"] == name).unwrap_or_else(|| panic!("no layer {name}: {report}"))
}

#[test]
fn a_host_that_contains_is_told_so_by_a_container() {
    if !ready() {
        return;
    }
    let output = Command::new(RUNTIME).args(["doctor", "--json"]).output().unwrap();
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    assert_eq!((output.status.code(), &report["contains"]), (Some(0), &Value::Bool(true)), "{report}");
    assert_eq!(report["schema"], "rlox-doctor/1");
    for name in ["user namespaces", "cgroups", "seccomp", "sandbox"] {
        assert_eq!(layer(&report, name)["status"], "ok", "{report}");
        assert_eq!(layer(&report, name)["required"], true, "{report}");
    }
    let (median, bare) = (&report["sandbox"]["median_ms"], &report["sandbox"]["bare_median_ms"]);
    assert!(median.as_f64().unwrap() > bare.as_f64().unwrap() && bare.as_f64().unwrap() > 0.0, "{report}");
    assert!(report["noise"]["slow_ratio"].as_f64().unwrap() >= 1.0, "{report}");
    let output = Command::new(RUNTIME).arg("doctor").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("This host contains programs.") && text.contains("doctor --prove"), "{text}");
    assert!(text.lines().count() <= 24, "more than one screen:\n{text}");
}

type Doctor = Box<dyn Fn(&str) -> Output>;

/// Runs `doctor` without user namespaces: in one that allows no further ones or, where AppArmor does not even let a
/// test have that, from a path that no profile exempts. Says what the remedy has to name.
fn worse(scratch: &std::path::Path) -> (Doctor, &'static str) {
    let namespaced = |script: &str| {
        Command::new("unshare").args(["--user", "--map-root-user", "sh", "-c", script]).output().unwrap()
    };
    if namespaced("echo 0 >/proc/sys/user/max_user_namespaces").status.success() {
        let set = "echo 0 >/proc/sys/user/max_user_namespaces";
        let run = move |arguments: &str| namespaced(&format!("{set} && exec '{RUNTIME}' doctor {arguments}"));
        return (Box::new(run), "user.max_user_namespaces=");
    }
    let copy = scratch.join("rlox-runtime");
    std::fs::copy(RUNTIME, &copy).unwrap();
    let run = move |arguments: &str| {
        Command::new(&copy).arg("doctor").args(arguments.split_whitespace()).output().unwrap()
    };
    (Box::new(run), "dist/apparmor/install.sh")
}

/// The control: where a layer is taken away, the same command has to say so.
#[test]
fn a_missing_layer_is_named_with_its_remedy_and_is_69() {
    if !ready() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let (run, remedy) = worse(scratch.path());
    let output = run("--json");
    assert_eq!(output.status.code(), Some(69), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["contains"], false, "{report}");
    let missing = layer(&report, "user namespaces");
    assert_eq!(missing["status"], "missing", "{report}");
    assert!(missing["remedy"].as_str().unwrap().contains(remedy), "{report}");
    // What the kernel still gives is not blamed too.
    assert_eq!(layer(&report, "seccomp")["status"], "ok", "{report}");
    let output = run("");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(69), "{text}");
    assert!(text.contains("MISSING  user namespaces") && text.contains("does NOT contain"), "{text}");
}

#[test]
fn a_bundle_that_is_not_prepared_is_65_and_says_what_to_do() {
    if !ready() {
        return;
    }
    let empty = tempfile::tempdir().unwrap();
    let output = Command::new(RUNTIME).arg("doctor").arg("--bundle").arg(empty.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(65), "{text}");
    assert!(text.contains("rlox-runtime bundle prepare"), "{text}");
}
