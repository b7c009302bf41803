//! What was found, as one screen and as a JSON document.

use std::fmt::Write as _;

use serde::Serialize;

use super::noise::Noise;
use super::sandbox::Timing;

/// How a layer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    /// In force.
    Ok,
    /// There, but less than it could be.
    Reduced,
    /// Not there.
    Missing,
    /// Could not be tried.
    Unknown,
    /// Of no use to this caller.
    NotNeeded,
}

/// One layer of isolation.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Layer {
    pub(super) name: &'static str,
    pub(super) status: Status,
    /// Whether the default configuration contains nothing without it.
    pub(super) required: bool,
    pub(super) detail: String,
    /// The command that adds what is missing.
    pub(super) remedy: Option<String>,
}

impl Layer {
    pub(super) fn ok(name: &'static str, required: bool, detail: impl Into<String>) -> Self {
        Self { name, status: Status::Ok, required, detail: detail.into(), remedy: None }
    }

    pub(super) fn lacking(
        name: &'static str,
        required: bool,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { name, status: Status::Missing, required, detail: detail.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn with_status(mut self, status: Status) -> Self {
        self.status = status;
        self
    }
}

/// All of it.
pub(super) struct Report {
    pub(super) layers: Vec<Layer>,
    /// Whether the default configuration contains programs here; nothing where that could not be tried.
    pub(super) contains: Option<bool>,
    pub(super) timing: Option<Timing>,
    pub(super) noise: Noise,
}

/// Names the shape of the document; a field may be added to it, none changes or goes.
const SCHEMA: &str = "rlox-doctor/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    version: &'static str,
    kernel: String,
    root: bool,
    contains: Option<bool>,
    layers: &'a [Layer],
    sandbox: &'a Option<Timing>,
    noise: &'a Noise,
    next: String,
}

fn kernel() -> String {
    rlox_host::read_bounded(std::path::Path::new("/proc/sys/kernel/osrelease"))
        .map_or_else(|_| "unknown".into(), |text| text.trim().to_owned())
}

impl Report {
    pub(super) fn json(&self) -> String {
        let document = Document {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            kernel: kernel(),
            root: nix::unistd::geteuid().is_root(),
            contains: self.contains,
            layers: &self.layers,
            sandbox: &self.timing,
            noise: &self.noise,
            next: self.next(),
        };
        serde_json::to_string_pretty(&document).unwrap_or_default()
    }

    /// One line a layer, its remedy below it, and what to do next.
    pub(super) fn text(&self) -> String {
        let who = if nix::unistd::geteuid().is_root() { "as root" } else { "as an ordinary user" };
        let mut text = format!("rlox-runtime {} on Linux {}, {who}\n\n", env!("CARGO_PKG_VERSION"), kernel());
        for layer in &self.layers {
            let word = match (layer.status, layer.required) {
                (Status::Ok, _) => "ok",
                (Status::Reduced, _) => "reduced",
                (Status::Missing, true) => "MISSING",
                (Status::Missing, false) => "missing",
                (Status::Unknown, _) => "unknown",
                (Status::NotNeeded, _) => "-",
            };
            push(&mut text, format_args!("  {word:<8} {:<16} {}", layer.name, layer.detail));
            if let Some(remedy) = &layer.remedy {
                push(&mut text, format_args!("           {:<16} remedy: {remedy}", ""));
            }
        }
        let verdict = match self.contains {
            Some(true) => "This host contains programs.",
            Some(false) => "This host does NOT contain programs as configured by default.",
            None => "Every layer is there; no container was tried.",
        };
        push(&mut text, format_args!("\n{verdict}\nNext: {}", self.next()));
        text
    }

    fn next(&self) -> String {
        let missing = self.layers.iter().find(|layer| layer.required && layer.status != Status::Ok);
        match missing.and_then(|layer| layer.remedy.clone()) {
            Some(remedy) => remedy,
            None if self.contains == Some(true) => {
                "rlox-controller doctor --prove   (runs the attack corpus on this host)".into()
            }
            None => "see the line above that is not ok".into(),
        }
    }
}

fn push(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    writeln!(text, "{line}").unwrap_or_default();
}
