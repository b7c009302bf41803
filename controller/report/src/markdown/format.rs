//! Cells, tables and text of the page.

use std::fmt::Write;

use crate::model::Fraction;
use crate::stats::Interval;

const REASON_LIMIT: usize = 120;

/// A table; cells must not hold unescaped pipes.
pub(super) fn table(page: &mut String, header: &[String], rows: impl IntoIterator<Item = Vec<String>>) {
    let mut line = |cells: &[String]| {
        page.push_str("| ");
        page.push_str(&cells.join(" | "));
        page.push_str(" |\n");
    };
    line(header);
    line(&vec!["---".to_owned(); header.len()]);
    for row in rows {
        line(&row);
    }
    page.push('\n');
}

pub(super) fn headers(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

pub(super) fn wln(page: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    if page.write_fmt(line).is_ok() {
        page.push('\n');
    }
}

pub(super) fn scope(fraction: Option<Fraction>) -> String {
    fraction.map_or("all".to_owned(), |f| format!("{f} %"))
}

pub(super) fn number(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |v| format!("{v:.3}"))
}

pub(super) fn signed(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |v| format!("{v:+.3}"))
}

pub(super) fn seconds(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |v| format!("{v:.3} s"))
}

pub(super) fn interval(interval: Option<Interval>) -> String {
    interval.map_or(String::new(), |i| format!(" [{:.3}, {:.3}]", i.low, i.high))
}

pub(super) fn percent_interval(interval: Option<Interval>) -> String {
    interval.map_or(String::new(), |i| format!(" [{:.0}–{:.0} %]", 100.0 * i.low, 100.0 * i.high))
}

/// Bounded and inert: neither table syntax, nor markup, nor HTML.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars().take(REASON_LIMIT) {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '|' | '`' | '*' | '_' | '[' | ']' | '!' | '\\' | '#' | '~' | '$' => {
                escaped.push('\\');
                escaped.push(c);
            }
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    if text.chars().nth(REASON_LIMIT).is_some() {
        escaped.push('…');
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_trials_is_inert() {
        assert_eq!(escape("a|b\n<img src=x>`_*[x](y)"), "a\\|b &lt;img src=x&gt;\\`\\_\\*\\[x\\](y)");
        assert_eq!(escape(&"x".repeat(500)).chars().count(), REASON_LIMIT + 1);
    }
}
