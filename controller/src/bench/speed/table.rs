//! What a run found as Markdown, and what to do next.

use super::results::{Row, Throughput};
use super::run::{Compared, Missing, SpeedResults};
use crate::bench::stats::Ratio;
use crate::bench::table::markdown;

impl SpeedResults {
    /// Tables, and below them what was not measured.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for compared in &self.workloads {
            text += &format!("Program: {}.\n\n", compared.workload.title);
            if compared.ways.is_empty() {
                text += "No way can run it here.\n\n";
                continue;
            }
            text += &latencies(compared);
            text += &crowds(&compared.ways);
            text += &pairs(compared);
        }
        text += &format!(
            "ms; wall: of single verifications; CPU: of rounds' means, everything counted that was started, waited for \
             and removed; ratios: of medians, with 95 % intervals. Host's Python: {}.\n",
            self.python
        );
        text + &foot(&self.missing)
    }

    /// What to do next.
    pub(crate) fn next(&self) -> String {
        let absent = self.missing.iter().filter(|each| each.remedy.is_some()).count();
        let again = match absent {
            0 => String::new(),
            _ => "Install what is missing and run again for the whole table. ".into(),
        };
        format!(
            "{again}Next: `rlox-controller bench cost` shows where a verification's time goes, `bench soak` whether \
             it stays so over many."
        )
    }
}

fn latencies(compared: &Compared) -> String {
    let base = compared.ways.iter().find(|row| Some(row.way) == compared.base);
    let base = base.map(|row| row.label).unwrap_or_default();
    let mut table = vec![
        ["way", "wall p50", "p99", "n", "CPU p50", "p99", "n", "wall, ratio", "CPU, ratio"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for row in &compared.ways {
        let (wall, cpu) = (row.wall_ms, row.cpu_ms);
        table.push(vec![
            row.label.to_owned(),
            ms(wall.p50),
            ms(wall.p99),
            wall.n.to_string(),
            ms(cpu.p50),
            ms(cpu.p99),
            cpu.n.to_string(),
            times(row.wall_ratio),
            times(row.cpu_ratio),
        ]);
    }
    format!("{}\nRatios are to {base}.\n\n", markdown(&table))
}

fn crowds(rows: &[Row]) -> String {
    let mut sizes: Vec<u32> = rows.iter().flat_map(|row| &row.throughput).map(|each| each.clients).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.is_empty() {
        return String::new();
    }
    let named = |clients: &u32| format!("{clients} client{}", if *clients == 1 { "" } else { "s" });
    let mut table =
        vec![[vec!["verifications a second".to_owned()], sizes.iter().map(named).collect()].concat()];
    for row in rows {
        let cell = |clients: &u32| {
            let found = row.throughput.iter().find(|each| each.clients == *clients);
            found.map_or("–".to_owned(), |each: &Throughput| format!("{:.1}", each.per_second))
        };
        table.push([vec![row.label.to_owned()], sizes.iter().map(cell).collect()].concat());
    }
    format!("{}\n", markdown(&table))
}

fn pairs(compared: &Compared) -> String {
    let mut text = String::new();
    for pair in &compared.pairs {
        let (wall, cpu) = (times(pair.wall_ratio), times(pair.cpu_ratio));
        text += &format!("{} to {}: wall {wall}, CPU {cpu}.\n", pair.way, pair.to);
    }
    for row in compared.ways.iter().filter(|row| row.failed > 0) {
        text +=
            &format!("{}: {} calls failed and are not in the numbers: {}\n", row.label, row.failed, row.why);
    }
    if text.is_empty() { text } else { text + "\n" }
}

/// One line for each reason, with all ways that it keeps out.
fn foot(missing: &[Missing]) -> String {
    let mut lines: Vec<(String, Vec<&str>, String)> = Vec::new();
    for each in missing {
        let program = each.workload.map(|name| format!(" with the {name} program")).unwrap_or_default();
        let remedy = each.remedy.map(|command| format!("; install it: {command}")).unwrap_or_default();
        let reason = format!("{}{remedy}", each.why);
        match lines.iter_mut().find(|(other, _, why)| (other, why) == (&program, &reason)) {
            Some((_, labels, _)) => labels.push(each.label),
            None => lines.push((program, vec![each.label], reason)),
        }
    }
    let line = |(program, labels, reason): (String, Vec<&str>, String)| {
        format!("Not measured{program}: {}: {reason}.\n", labels.join(", "))
    };
    lines.into_iter().map(line).collect()
}

fn ms(value: f64) -> String {
    format!("{value:.1}")
}

fn times(ratio: Option<Ratio>) -> String {
    match ratio {
        Some(Ratio { value, interval: Some([low, high]) }) => format!("{value:.2} [{low:.2}, {high:.2}]"),
        Some(Ratio { value, interval: None }) => format!("{value:.2}"),
        None => "–".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::{rows, tests::samples};
    use super::super::workloads::WORKLOADS;
    use super::*;
    use crate::bench::record::Place;
    use crate::bench::speed::Plan;

    fn results(missing: Vec<Missing>) -> SpeedResults {
        let plan = Plan {
            rounds: 3,
            each: 4,
            clients: vec![1, 8],
            duration_secs: 1.0,
            passes: 1,
            only: Vec::new(),
            allow_missing_cgroup: false,
        };
        let ways = rows(&[samples("bare", "`python3 -I -S FILE`", 1.0), samples("runc", "`runc run`", 3.0)]);
        let compared = Compared { workload: WORKLOADS[0], base: Some("bare"), ways, pairs: Vec::new() };
        let place = Place::default();
        SpeedResults { plan, python: "python3 3.11".into(), workloads: vec![compared], missing, place }
    }

    #[test]
    fn tables_are_markdown_whose_columns_stand_below_each_other() {
        let text = results(Vec::new()).text();
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(lines.len(), 8, "{text}");
        for table in lines.chunks(4) {
            for line in table {
                assert_eq!(line.chars().count(), table[0].chars().count(), "{text}");
                assert_eq!(line.matches('|').count(), table[0].matches('|').count(), "{text}");
            }
            assert!(table[1].chars().all(|each| "|-:".contains(each)), "{text}");
        }
        assert!(text.contains("3.00 [") && text.contains("15.0 |"), "{text}");
    }

    #[test]
    fn what_is_missing_is_named_with_the_command_that_installs_it() {
        let missing = vec![
            Missing {
                way: "bwrap",
                label: "`bwrap`",
                workload: None,
                why: "not installed".into(),
                remedy: Some("apt install bubblewrap"),
            },
            Missing {
                way: "bare",
                label: "`python3 -I -S FILE`",
                workload: Some("imports"),
                why: "its interpreter has no numpy".into(),
                remedy: None,
            },
            Missing {
                way: "runc",
                label: "`runc run`",
                workload: Some("imports"),
                why: "its interpreter has no numpy".into(),
                remedy: None,
            },
        ];
        let found = results(missing);
        let text = found.text();
        assert!(
            text.contains("Not measured: `bwrap`: not installed; install it: apt install bubblewrap."),
            "{text}"
        );
        let both = "Not measured with the imports program: `python3 -I -S FILE`, `runc run`: its interpreter";
        assert!(text.contains(both), "{text}");
        assert!(found.next().starts_with("Install what is missing"));
        assert!(results(Vec::new()).next().starts_with("Next:"));
    }
}
