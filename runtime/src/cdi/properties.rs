//! What has to hold for any CDI file, for `crate::fuzzing`: its edits arrive, each as it was described, and everything
//! else of the container stays as it was.

use std::collections::BTreeMap;

use oci_spec::runtime::{Hooks, LinuxDeviceCgroup, Mount, Spec};

use super::document::{Document, Edits, HookName};
use super::edits::{Nodes, apply};
use super::registry::{Registry, Selection};
use crate::fuzzing::{reads_back, refused, there};

/// A container with something in every section.
const TEMPLATE: &str = include_str!("../../../bundles/snippet/config.json");

/// Reads a file as both of its kinds; JSON is YAML, so both have to mean the same.
pub(crate) fn hold(data: &[u8]) {
    let (json, yaml) = (Registry::of(data, true), Registry::of(data, false));
    for registry in [&json, &yaml] {
        match registry.only() {
            Ok(document) => devices(registry, document),
            Err(reason) => refused(&reason),
        }
    }
    if let (Ok(json), Ok(yaml)) = (json.only(), yaml.only()) {
        assert_eq!(json, yaml);
    }
}

fn devices(registry: &Registry, document: &Document) {
    let name = |device: &super::document::Device| format!("{}={}", document.kind, device.name);
    let names: Vec<String> = document.devices.iter().map(name).collect();
    let selection = registry.select(&names).expect("a described device can be selected");
    assert_eq!(selection.len(), names.len() + 1, "the file's own edits, and each device's");
    let twice = [names.clone(), names].concat();
    let again = registry.select(&twice).expect("a device can be named twice");
    assert_eq!(again.len(), selection.len(), "it comes once all the same");
    for nodes in [Nodes::Made, Nodes::Bound] {
        let asked: Spec = serde_json::from_str(TEMPLATE).expect("the bundle's configuration is valid");
        let mut got = asked.clone();
        match apply(&mut got, &selection, nodes) {
            Ok(()) => applied(&got, &asked, &selection),
            Err(error) => refused(&error),
        }
    }
}

fn applied(got: &Spec, asked: &Spec, selection: &Selection<'_>) {
    reads_back(got);
    let all: Vec<&Edits> = selection.iter().map(|(_, edits)| *edits).collect();
    let mut undone = got.clone();
    let (mut process, process_asked) = (there(got.process()), there(asked.process()));
    environment(&there(process.env()), &there(process_asked.env()), &all);
    process.set_env(process_asked.env().clone());
    let described = |gid: &u32| *gid != 0 && all.iter().any(|edits| edits.additional_gids.contains(gid));
    assert!(process.user().additional_gids().iter().flatten().all(described), "a group was added");
    process.set_user(process_asked.user().clone());

    let (mut linux, linux_asked) = (there(got.linux()), there(asked.linux()));
    let mut resources = there(linux.resources());
    let wanted = there(linux_asked.resources());
    rules(&there(resources.devices()), &there(wanted.devices()), &all);
    resources.set_devices(wanted.devices().clone());
    linux.set_resources(Some(resources));
    let paths = || all.iter().flat_map(|edits| edits.device_nodes.iter().map(|node| &node.path));
    for device in linux.devices().iter().flatten() {
        assert!(paths().any(|path| path == device.path()), "{device:?}");
    }
    linux.set_devices(linux_asked.devices().clone());
    linux.set_net_devices(linux_asked.net_devices().clone()).set_intel_rdt(linux_asked.intel_rdt().clone());

    let binds = || all.iter().flat_map(|edits| edits.mounts.iter().map(|mount| &mount.container_path));
    let is_described = |mount: &&Mount| paths().chain(binds()).any(|path| path == mount.destination());
    let (mounts, mounts_asked) = (there(got.mounts()), there(asked.mounts()));
    let kept: Vec<&Mount> = mounts.iter().filter(|mount| !is_described(mount)).collect();
    let wanted: Vec<&Mount> = mounts_asked.iter().filter(|mount| !is_described(mount)).collect();
    assert_eq!(kept, wanted, "a mount was added or is gone");
    for path in binds() {
        assert!(mounts.iter().any(|mount| mount.destination() == path), "{path:?} is not mounted");
    }
    hooks(got.hooks().as_ref(), &all);
    undone.set_process(Some(process)).set_linux(Some(linux));
    undone.set_mounts(asked.mounts().clone()).set_hooks(asked.hooks().clone());
    assert_eq!(&undone, asked, "something else was changed");
}

/// The last value described for each name, and the container's own for the rest.
fn environment(got: &[String], asked: &[String], all: &[&Edits]) {
    fn last<'a>(entries: impl Iterator<Item = &'a String>) -> BTreeMap<&'a str, &'a str> {
        entries.map(|entry| entry.split_once('=').unwrap_or((entry, ""))).collect()
    }
    let wanted = last(asked.iter().chain(all.iter().flat_map(|edits| &edits.env)));
    assert_eq!(last(got.iter()), wanted);
    assert_eq!(got.len(), wanted.len(), "a name is there twice");
}

/// The container's own rules first, so that what they refuse stays refused but for the nodes described.
fn rules(got: &[LinuxDeviceCgroup], asked: &[LinuxDeviceCgroup], all: &[&Edits]) {
    let added = got.strip_prefix(asked).expect("the rules of the container are gone");
    let nodes: Vec<_> = all.iter().flat_map(|edits| &edits.device_nodes).collect();
    assert!(added.len() <= nodes.len());
    for rule in added {
        let number = |number: Option<i64>| number.is_some_and(|number| u32::try_from(number).is_ok());
        assert!(
            rule.allow() && number(rule.major()) && number(rule.minor()),
            "{rule:?} is for more than one"
        );
        let access = rule.access().clone().unwrap_or_default();
        assert!(
            nodes.iter().any(|node| {
                let wanted = node.permissions.as_deref().filter(|text| !text.is_empty()).unwrap_or("rwm");
                let same = |wanted: Option<i64>, found: Option<i64>| wanted.is_none() || wanted == found;
                wanted == access && same(node.major, rule.major()) && same(node.minor, rule.minor())
            }),
            "{rule:?} was not described"
        );
    }
}

/// Every hook described, each at its moment.
fn hooks(got: Option<&Hooks>, all: &[&Edits]) {
    type List = fn(&Hooks) -> &Option<Vec<oci_spec::runtime::Hook>>;
    let lists: [(HookName, List); 6] = [
        (HookName::Prestart, Hooks::prestart),
        (HookName::CreateRuntime, Hooks::create_runtime),
        (HookName::CreateContainer, Hooks::create_container),
        (HookName::StartContainer, Hooks::start_container),
        (HookName::Poststart, Hooks::poststart),
        (HookName::Poststop, Hooks::poststop),
    ];
    for (name, list) in lists {
        let wanted = all.iter().flat_map(|edits| &edits.hooks).filter(|hook| hook.hook_name == name);
        let found = got.and_then(|hooks| list(hooks).clone()).unwrap_or_default();
        assert!(
            found
                .iter()
                .map(|hook| (hook.path(), hook.timeout()))
                .eq(wanted.map(|hook| (&hook.path, hook.timeout))),
            "{name:?}: {found:?}"
        );
    }
}
