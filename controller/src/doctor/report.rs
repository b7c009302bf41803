//! The containment table, for people and as a JSON document.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use crate::corpus::Pinned;

/// One family.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(super) family: String,
    attacks: usize,
    contained: usize,
    twins: usize,
    twins_passed: usize,
    pub(super) control: Option<ControlRow>,
}

/// What happened to the family with a layer taken away.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ControlRow {
    pub(super) layer: &'static str,
    pub(super) tried: usize,
    pub(super) succeeded: usize,
}

impl Row {
    pub(super) fn new(family: String) -> Self {
        Self { family, attacks: 0, contained: 0, twins: 0, twins_passed: 0, control: None }
    }

    pub(super) fn attack(&mut self, contained: bool) {
        self.attacks += 1;
        self.contained += usize::from(contained);
    }

    pub(super) fn twin(&mut self, passed: bool) {
        self.twins += 1;
        self.twins_passed += usize::from(passed);
    }
}

/// Everything that was shown, and what was not.
#[derive(Debug)]
pub(crate) struct Proof {
    pub(super) rows: Vec<Row>,
    /// What is wrong, by snippet.
    pub(super) failures: Vec<(String, String)>,
    pub(super) pins: Vec<Pinned>,
    pub(super) workers: u16,
    pub(super) secs: f64,
}

/// Names the shape of the document; a field may be added to it, none changes or goes.
const SCHEMA: &str = "rlox-proof/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    version: &'static str,
    proven: bool,
    host: Value,
    families: &'a [Row],
    failures: Vec<Failure<'a>>,
    corpus: Vec<Pin<'a>>,
    secs: f64,
}

#[derive(Serialize)]
struct Failure<'a> {
    what: &'a str,
    reason: &'a str,
}

#[derive(Serialize)]
struct Pin<'a> {
    name: &'a str,
    sha256: &'a str,
}

impl Proof {
    /// Whether every attack was contained, every twin passed and every control failed as it has to.
    pub(crate) fn holds(&self) -> bool {
        self.failures.is_empty()
    }

    /// The document, with the runtime's own report on the host in it.
    pub(crate) fn json(&self, host: Value) -> Value {
        let document = Document {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            proven: self.holds(),
            host,
            families: &self.rows,
            failures: self.failures.iter().map(|(what, reason)| Failure { what, reason }).collect(),
            corpus: self.pins.iter().map(|pin| Pin { name: &pin.name, sha256: &pin.digest }).collect(),
            secs: self.secs,
        };
        serde_json::to_value(document).unwrap_or_default()
    }

    /// The table.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let mut line = |arguments: std::fmt::Arguments<'_>| writeln!(text, "{arguments}").unwrap_or_default();
        line(format_args!("family         contained  twins passed  control: attacks that succeed without …"));
        let mut sums = [0usize; 4];
        for row in &self.rows {
            let control = row.control.as_ref().map_or_else(
                || "–".to_owned(),
                |control| format!("{} of {}  {}", control.succeeded, control.tried, control.layer),
            );
            let contained = format!("{}/{}", row.contained, row.attacks);
            let twins = format!("{}/{}", row.twins_passed, row.twins);
            line(format_args!("{:<14} {contained:>9}  {twins:>12}  {control}", row.family));
            for (sum, each) in sums.iter_mut().zip([row.contained, row.attacks, row.twins_passed, row.twins])
            {
                *sum += each;
            }
        }
        let (contained, twins) = (format!("{}/{}", sums[0], sums[1]), format!("{}/{}", sums[2], sums[3]));
        line(format_args!("{:<14} {contained:>9}  {twins:>12}", "all"));
        line(format_args!(""));
        for (what, reason) in &self.failures {
            line(format_args!("  NOT PROVEN  {what}: {reason}"));
        }
        let took = format!("{:.0} s, {} at a time", self.secs, self.workers);
        if self.holds() {
            line(format_args!(
                "Proven on this host in {took}: every attack contained, every twin passed, every control failed."
            ));
            line(format_args!("Next: rlox-controller serve"));
        } else {
            line(format_args!("NOT proven on this host ({took})."));
            line(format_args!(
                "Next: rlox-runtime doctor, then again with --workers 1; an attack that still escapes is a fault to report"
            ));
        }
        text
    }
}
