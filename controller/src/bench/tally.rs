//! From rows to rates and a table. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use super::integrity::Row;
use super::ways::Way;

/// So many of so many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    hits: u32,
    of: u32,
}

/// As it is in JSON: with the rate and its 95 % interval.
#[derive(Serialize)]
struct CountBody {
    count: u32,
    of: u32,
    rate: Option<f64>,
    interval: Option<rlox_report::Interval>,
}

impl Serialize for Count {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        CountBody {
            count: self.hits,
            of: self.of,
            rate: self.rate(),
            interval: rlox_report::wilson(self.hits, self.of),
        }
        .serialize(serializer)
    }
}

impl Count {
    fn add(&mut self, hit: bool) {
        self.of += 1;
        self.hits += u32::from(hit);
    }

    fn rate(self) -> Option<f64> {
        (self.of > 0).then(|| f64::from(self.hits) / f64::from(self.of))
    }

    fn cell(self) -> String {
        let percent = self.rate().map(|rate| format!(" ({:.1} %)", rate * 100.0)).unwrap_or_default();
        format!("{}/{}{percent}", self.hits, self.of)
    }
}

/// What one way made of all programs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Tally {
    pub(crate) way: Way,
    pub(crate) label: &'static str,
    /// Wrong programs that were rewarded.
    pub(crate) forged: Count,
    /// Honest programs that were not.
    pub(crate) refused: Count,
    /// `forged` by family.
    pub(crate) families: BTreeMap<String, Count>,
    /// Programs after which the process that decides the reward was gone or hung; none for ways with a judge apart.
    pub(crate) judge_lost: u32,
    /// Programs without a verdict, as the sandbox failed; they are in no other count.
    pub(crate) unknown: u32,
}

impl Tally {
    /// One for each way.
    pub(crate) fn all(rows: &[Row]) -> Vec<Self> {
        Way::ALL.map(|way| Self::of(way, rows)).into()
    }

    fn of(way: Way, rows: &[Row]) -> Self {
        let mut tally = Self {
            way,
            label: way.label(),
            forged: Count::default(),
            refused: Count::default(),
            families: BTreeMap::new(),
            judge_lost: 0,
            unknown: 0,
        };
        for row in rows {
            let Some(graded) = row.ways.get(&way) else {
                tally.unknown += 1;
                continue;
            };
            if row.honest {
                tally.refused.add(!graded.rewarded);
            } else {
                tally.forged.add(graded.rewarded);
                tally.families.entry(row.family.clone()).or_default().add(graded.rewarded);
            }
            tally.judge_lost += u32::from(graded.judge_lost);
        }
        tally
    }

    /// Whether it judged everything, and all of it rightly.
    pub(crate) fn flawless(&self) -> bool {
        self.forged.hits == 0 && self.refused.hits == 0 && self.unknown == 0
    }
}

/// A Markdown table with aligned columns, and what does not fit into it below.
pub(crate) fn table(tallies: &[Tally]) -> String {
    // A program without a verdict is missing in one way only: each family has its size where it is whole.
    let mut families: BTreeMap<&String, u32> = BTreeMap::new();
    for (name, count) in tallies.iter().flat_map(|tally| &tally.families) {
        let size = families.entry(name).or_default();
        *size = count.of.max(*size);
    }
    let mut cells = vec![vec![
        "way of grading".to_owned(),
        "wrong programs rewarded".to_owned(),
        "honest programs not rewarded".to_owned(),
    ]];
    cells[0].extend(families.iter().map(|(name, size)| format!("{name} (of {size})")));
    for tally in tallies {
        let mut row = vec![tally.label.to_owned(), tally.forged.cell(), tally.refused.cell()];
        let hits = |name: &String| tally.families.get(name).map(|count| count.hits).unwrap_or_default();
        row.extend(families.keys().map(|name| hits(name).to_string()));
        cells.push(row);
    }
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..cells[0].len()).map(width).collect();
    let rule = widths.iter().map(|width| "-".repeat(*width)).collect();
    cells.insert(1, rule);
    let mut text = String::new();
    for row in &cells {
        for (cell, width) in row.iter().zip(&widths) {
            text += &format!("| {cell:width$} ");
        }
        text += "|\n";
    }
    for tally in tallies.iter().filter(|tally| tally.judge_lost > 0) {
        let (label, lost) = (tally.label, tally.judge_lost);
        text += &format!("\n{label}: {lost} programs ended or hung the process that decides the reward.\n");
    }
    for tally in tallies.iter().filter(|tally| tally.unknown > 0) {
        text += &format!("\n{}: {} programs without a verdict, in no count.\n", tally.label, tally.unknown);
    }
    text
}

/// A line for each program that the service judged wrongly.
pub(crate) fn mistakes(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let Some(graded) = row.ways.get(&Way::Verify).filter(|graded| graded.rewarded != row.honest) else {
            continue;
        };
        let kind = if row.honest { "honest, not rewarded" } else { "wrong, rewarded" };
        let message = graded.message.as_deref().unwrap_or_default();
        text += &format!("/verify: {} ({kind}): {} {message}\n", row.id, graded.verdict.word());
    }
    text
}

/// The result in one line.
pub(crate) fn final_line(tallies: &[Tally]) -> String {
    let Some(ours) = tallies.iter().find(|tally| tally.way == Way::Verify) else { return String::new() };
    let others = tallies.iter().filter(|tally| tally.way != Way::Verify).map(|tally| tally.forged.hits);
    format!(
        "/verify rewarded {} of {} wrong programs and did not reward {} of {} honest ones; the usual ways rewarded \
         {} to {} wrong ones",
        ours.forged.hits,
        ours.forged.of,
        ours.refused.hits,
        ours.refused.of,
        others.clone().min().unwrap_or(0),
        others.max().unwrap_or(0)
    )
}

#[cfg(test)]
mod tests {
    use super::super::ways::Graded;
    use super::*;
    use crate::judge::Verdict;

    fn row(family: &str, honest: bool, ways: &[(Way, bool, Verdict)]) -> Row {
        let ways = ways
            .iter()
            .map(|(way, rewarded, verdict)| {
                (
                    *way,
                    Graded {
                        rewarded: *rewarded,
                        verdict: *verdict,
                        judge_lost: *verdict == Verdict::Timeout,
                        message: None,
                    },
                )
            })
            .collect();
        Row { id: "x".into(), family: family.into(), honest, ways }
    }

    fn rows() -> Vec<Row> {
        use Verdict::{Completed, Error, Failed, Passed, Timeout};
        vec![
            row(
                "exit",
                false,
                &[
                    (Way::Verify, false, Failed),
                    (Way::InProcess, false, Timeout),
                    (Way::ExitCode, true, Completed),
                    (Way::Nonce, false, Completed),
                ],
            ),
            row(
                "exit",
                false,
                &[
                    (Way::Verify, false, Failed),
                    (Way::InProcess, true, Completed),
                    (Way::ExitCode, true, Completed),
                    (Way::Nonce, true, Completed),
                ],
            ),
            row(
                "output",
                false,
                &[
                    (Way::InProcess, false, Completed),
                    (Way::ExitCode, false, Error),
                    (Way::Nonce, false, Error),
                ],
            ),
            row(
                "honest",
                true,
                &[
                    (Way::Verify, true, Passed),
                    (Way::InProcess, true, Completed),
                    (Way::ExitCode, true, Completed),
                    (Way::Nonce, false, Error),
                ],
            ),
        ]
    }

    #[test]
    fn wrong_and_honest_programs_are_counted_apart_and_unknown_ones_in_neither() {
        let tallies = Tally::all(&rows());
        let counts: Vec<_> = tallies
            .iter()
            .map(|each| (each.forged.hits, each.forged.of, each.refused.hits, each.refused.of))
            .collect();
        assert_eq!(counts, [(0, 2, 0, 1), (1, 3, 0, 1), (2, 3, 0, 1), (1, 3, 1, 1)]);
        assert_eq!((tallies[0].unknown, tallies[1].judge_lost, tallies[2].judge_lost), (1, 1, 0));
        assert_eq!(tallies[2].families["exit"], Count { hits: 2, of: 2 });
        assert!(!tallies[0].flawless());
    }

    #[test]
    fn a_mistake_of_the_service_is_named_and_none_of_the_others() {
        assert_eq!(mistakes(&rows()), "");
        let wrong = row("exit", false, &[(Way::Verify, true, Verdict::Passed)]);
        assert_eq!(mistakes(&[wrong]), "/verify: x (wrong, rewarded): passed \n");
    }

    #[test]
    fn rates_have_intervals_and_none_where_there_is_nothing() {
        let body = |hits, of| serde_json::to_value(Count { hits, of }).unwrap();
        assert_eq!(body(1, 4)["rate"], 0.25);
        let interval = body(0, 500)["interval"].clone();
        assert!(interval[0] == 0.0 && interval[1].as_f64().is_some_and(|high| high < 0.01), "{interval}");
        assert!(body(0, 0)["rate"].is_null());
    }

    #[test]
    fn the_table_has_a_row_for_each_way_and_a_column_for_each_family() {
        let text = table(&Tally::all(&rows()));
        let lines: Vec<_> = text.lines().take_while(|line| !line.is_empty()).collect();
        assert_eq!(lines.len(), 6);
        assert!(lines.iter().all(|line| line.matches('|').count() == 6), "{text}");
        assert!(lines[4].contains("2/3 (66.7 %)") && lines[4].contains("0/1 (0.0 %)"), "{text}");
        assert!(text.contains("1 programs ended or hung") && text.contains("without a verdict"), "{text}");
        let line = final_line(&Tally::all(&rows()));
        assert!(line.contains("0 of 2 wrong") && line.ends_with("1 to 2 wrong ones"), "{line}");
    }
}
