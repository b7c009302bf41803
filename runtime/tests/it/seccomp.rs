//! The bundles' filters and the page that explains them say the same.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::support::host::checkout;

/// Calls without a condition, by action.
fn calls(bundle: &str) -> BTreeMap<String, BTreeSet<String>> {
    let path = checkout().join("bundles").join(bundle).join("config.json");
    let config: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let seccomp = &config["linux"]["seccomp"];
    assert_eq!(
        (&seccomp["defaultAction"], &seccomp["defaultErrnoRet"]),
        (&json!("SCMP_ACT_ERRNO"), &json!(38))
    );
    assert_eq!(seccomp["architectures"], json!(["SCMP_ARCH_X86_64"]), "{bundle}");
    let mut calls: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for rule in seccomp["syscalls"].as_array().unwrap().iter().filter(|rule| rule.get("args").is_none()) {
        let names = rule["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned());
        let refused = rule["action"] == "SCMP_ACT_ERRNO";
        assert!(!refused || rule["errnoRet"] == 1, "{bundle}: {rule}");
        calls.entry(rule["action"].as_str().unwrap().to_owned()).or_default().extend(names);
    }
    calls
}

fn page() -> String {
    std::fs::read_to_string(checkout().join("docs/seccomp.md")).unwrap()
}

#[test]
fn no_call_is_both_allowed_and_refused_and_bundles_differ_only_where_it_is_written() {
    let snippet = calls("snippet");
    let grader = calls("grader");
    let more: Vec<_> = grader["SCMP_ACT_ALLOW"].difference(&snippet["SCMP_ACT_ALLOW"]).collect();
    assert_eq!(more, ["capset", "mount", "unshare"]);
    assert!(snippet["SCMP_ACT_ALLOW"].is_subset(&grader["SCMP_ACT_ALLOW"]));
    let trainer = calls("trainer");
    let (allowed, more) = (&snippet["SCMP_ACT_ALLOW"], &trainer["SCMP_ACT_ALLOW"]);
    assert!(allowed.is_subset(more));
    let page = page();
    let section = page.split("## Only in the trainer").nth(1).unwrap().split("\n## ").next().unwrap();
    for name in more.difference(allowed) {
        assert!(section.contains(&format!("`{name}`")), "{name} is not under \"Only in the trainer\"");
    }
    for calls in [&snippet, &grader, &trainer] {
        let both: Vec<_> = calls["SCMP_ACT_ALLOW"].intersection(&calls["SCMP_ACT_ERRNO"]).collect();
        assert!(both.is_empty(), "{both:?}");
    }
}

#[test]
fn every_call_of_the_filters_stands_on_the_page_and_the_numbers_are_right() {
    let page = page();
    for (action, names) in calls("trainer").into_iter().chain(calls("snippet")) {
        let absent: Vec<_> = names.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
        assert!(absent.is_empty(), "{action}: not on the page: {absent:?}");
    }
    let count = |bundle: &str| calls(bundle)["SCMP_ACT_ALLOW"].len().to_string();
    assert!(
        page.contains(&format!("{} calls without a condition", count("snippet"))),
        "{}",
        count("snippet")
    );
    assert!(page.contains(&format!("{} in all", count("trainer"))), "{}", count("trainer"));
}
