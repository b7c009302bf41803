//! Messages of the OCI commands: to standard error for people, to `--log` for the engine that called us, which reads
//! the last line with level `error` to its user.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::args::LogFormat;
use super::time::now;
use crate::error::printable;

/// Writes events as other runtimes do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lines(pub(crate) LogFormat);

#[derive(Default)]
struct Words {
    message: String,
    rest: String,
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.rest.push_str(&format!(" {}={value:?}", field.name()));
        }
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut words = Words::default();
        event.record(&mut words);
        let level = event.metadata().level().to_string().to_lowercase();
        let level = if level == "warn" { "warning".into() } else { level };
        writeln!(writer, "{}", line(self.0, &level, &format!("{}{}", words.message, words.rest)))
    }
}

fn line(format: LogFormat, level: &str, message: &str) -> String {
    match format {
        LogFormat::Json => json!({"level": level, "msg": message, "time": now()}).to_string(),
        LogFormat::Text => format!("time={:?} level={level} msg={message:?}", now()),
    }
}

/// The log file, to be appended to.
pub(crate) fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// The last word of a command that failed.
pub(crate) fn failure(message: &str, log: Option<(&Path, LogFormat)>) {
    if let Some((path, format)) = log {
        let written = open(path).and_then(|mut file| writeln!(file, "{}", line(format, "error", message)));
        if let Err(error) = written {
            eprintln!("rlox-runtime: cannot write to {}: {error}", path.display());
        }
    }
    eprintln!("rlox-runtime: {}", printable(message));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_lines_have_the_keys_that_engines_read() {
        let value: serde_json::Value =
            serde_json::from_str(&line(LogFormat::Json, "error", "a \"b\"")).unwrap();
        assert_eq!((&value["level"], &value["msg"]), (&json!("error"), &json!("a \"b\"")));
        assert!(line(LogFormat::Text, "error", "x y").contains("level=error msg=\"x y\""));
    }
}
