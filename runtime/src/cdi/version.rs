//! Versions of the CDI specification: which there are, and which one a file needs.

use super::document::{Document, Edits};

/// Released versions, oldest first.
const RELEASED: [&str; 8] = ["0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"];

/// Refuses versions that were never released or are newer than this program, and files that use what their own
/// version does not have: another program that keeps to the version would leave it out.
pub(super) fn check(document: &Document) -> Result<(), String> {
    // 1.1.1 changed nothing that a file could say.
    let declared = document.cdi_version.strip_prefix('v').unwrap_or(&document.cdi_version);
    let declared = if declared == "1.1.1" { "1.1.0" } else { declared };
    let age = |version: &str| RELEASED.iter().position(|released| *released == version);
    let Some(found) = age(declared) else {
        return Err(format!("cdiVersion {:?} is not one of {}", document.cdi_version, RELEASED.join(", ")));
    };
    let (needed, reason) = needed(document);
    if age(needed).is_some_and(|needed| needed > found) {
        return Err(format!("it uses {reason}, which needs cdiVersion {needed}, and says {declared}"));
    }
    Ok(())
}

/// The oldest version that has everything used here, with what needs it.
fn needed(document: &Document) -> (&'static str, &'static str) {
    let edits =
        || document.devices.iter().map(|device| &device.container_edits).chain([&document.container_edits]);
    let any = |test: fn(&Edits) -> bool| edits().any(test);
    let digit = |name: &str| name.starts_with(|letter: char| letter.is_ascii_digit());
    let annotated = !document.annotations.is_empty()
        || document.devices.iter().any(|device| !device.annotations.is_empty());
    let dotted = document.kind.split_once('/').is_some_and(|(_, class)| class.contains('.'));
    let newest_first = [
        (any(|edits| !edits.net_devices.is_empty()), "1.1.0", "netDevices"),
        (any(monitors), "1.1.0", "intelRdt.schemata or enableMonitoring"),
        (any(|edits| edits.intel_rdt.is_some()), "0.7.0", "intelRdt"),
        (any(|edits| !edits.additional_gids.is_empty()), "0.7.0", "additionalGids"),
        (annotated, "0.6.0", "annotations"),
        (dotted, "0.6.0", "a dot in the class"),
        (any(|edits| edits.device_nodes.iter().any(|node| node.host_path.is_some())), "0.5.0", "hostPath"),
        (
            document.devices.iter().any(|device| digit(&device.name)),
            "0.5.0",
            "a device name that begins with a digit",
        ),
        (any(|edits| edits.mounts.iter().any(|mount| mount.kind.is_some())), "0.4.0", "the type of a mount"),
    ];
    let found = newest_first.into_iter().find(|(used, _, _)| *used);
    found.map_or((RELEASED[0], "nothing special"), |(_, version, reason)| (version, reason))
}

fn monitors(edits: &Edits) -> bool {
    edits.intel_rdt.as_ref().is_some_and(|rdt| rdt.enable_monitoring || !rdt.schemata.is_empty())
}
