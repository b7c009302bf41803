//! `state`, `list` and `ps`: what there is, without changing it.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use rlox_host::read_bounded;
use serde_json::{Value, json};

use super::Context;
use super::args::Format;
use super::error::OciError;
use super::store::{Record, Status, Store};

/// The state of one container.
pub(crate) fn state(context: &Context, id: &str) -> Result<(), OciError> {
    let store = Store::open(context.globals.root.as_deref());
    let record = store.record(id)?;
    print(&format!("{:#}", describe(&record)))
}

pub(crate) fn describe(record: &Record) -> Value {
    let status = record.status();
    let mut value = json!({
        "ociVersion": record.oci_version,
        "id": record.id,
        "pid": if status == Status::Stopped { 0 } else { record.pid() },
        "status": status.name(),
        "bundle": record.bundle,
        "rootfs": record.rootfs,
        "created": record.created,
        "owner": owner(record.owner),
    });
    if !record.annotations.is_empty() {
        value["annotations"] = json!(record.annotations);
    }
    value
}

fn owner(uid: u32) -> String {
    nix::unistd::User::from_uid(uid.into()).ok().flatten().map_or_else(|| format!("#{uid}"), |user| user.name)
}

/// All containers.
pub(crate) fn list(context: &Context, format: Format, quiet: bool) -> Result<(), OciError> {
    let store = Store::open(context.globals.root.as_deref());
    let mut described = Vec::new();
    for id in store.ids()? {
        match store.peek(&id) {
            Ok(Some(record)) => described.push(describe(&record)),
            // Claimed by a command that died before it said for what.
            Ok(None) => described.push(json!({
                "ociVersion": super::OCI_VERSION, "id": id, "pid": 0, "status": "stopped",
                "bundle": "", "rootfs": "", "created": "", "owner": "",
            })),
            // Deleted in between.
            Err(OciError::NotFound { .. }) => {}
            Err(error) => tracing::error!(%error, id, "a container's record cannot be read"),
        }
    }
    if quiet {
        return described.iter().try_for_each(|each| print(each["id"].as_str().unwrap_or_default()));
    }
    match format {
        Format::Json => print(&json!(described).to_string()),
        Format::Table => {
            let header = ["ID", "PID", "STATUS", "BUNDLE", "CREATED", "OWNER"].map(String::from).to_vec();
            let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let rows = described.iter().map(|each| {
                ["id", "pid", "status", "bundle", "created", "owner"].map(|key| text(&each[key])).to_vec()
            });
            table(std::iter::once(header).chain(rows).collect())
        }
    }
}

/// The processes of one container.
pub(crate) fn ps(context: &Context, id: &str, format: Format, options: &[String]) -> Result<(), OciError> {
    let record = Store::open(context.globals.root.as_deref()).record(id)?;
    let pids: BTreeSet<i32> = match &record.group {
        Some(group) => group.members().into_iter().map(nix::unistd::Pid::as_raw).collect(),
        None => Some(record.pid()).into_iter().filter(|pid| *pid > 0).collect(),
    };
    match format {
        Format::Json => print(&json!(pids).to_string()),
        Format::Table if options.is_empty() => {
            let header = ["UID", "PID", "PPID", "STAT", "CMD"].map(String::from).to_vec();
            let rows = pids.iter().filter_map(|pid| process(*pid));
            table(std::iter::once(header).chain(rows).collect())
        }
        Format::Table => through_ps(&pids, options),
    }
}

fn process(pid: i32) -> Option<Vec<String>> {
    let status = read_bounded(Path::new(&format!("/proc/{pid}/status"))).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next().map(str::to_owned)
    };
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&words).replace('\0', " ").trim().to_owned();
    let command =
        if command.is_empty() { format!("[{}]", field("Name:").unwrap_or_default()) } else { command };
    Some(vec![field("Uid:")?, pid.to_string(), field("PPid:")?, field("State:")?, command])
}

/// The lines that ps prints for these processes, with its header.
fn through_ps(pids: &BTreeSet<i32>, options: &[String]) -> Result<(), OciError> {
    let output = Command::new("ps").args(options).output().map_err(OciError::system("running ps"))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(OciError::invalid(format!("ps {}: {reason}", options.join(" "))));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    let column = header.split_whitespace().position(|name| name == "PID");
    let column = column.ok_or_else(|| OciError::invalid("the output of ps has no column PID"))?;
    print(header)?;
    for line in lines {
        let pid = line.split_whitespace().nth(column).and_then(|pid| pid.parse().ok());
        if pid.is_some_and(|pid: i32| pids.contains(&pid)) {
            print(line)?;
        }
    }
    Ok(())
}

fn table(rows: Vec<Vec<String>>) -> Result<(), OciError> {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(8);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        print(cells.collect::<Vec<_>>().join("   ").trim_end())?;
    }
    Ok(())
}

/// Prints a line; a reader that went away is no failure of ours.
pub(crate) fn print(line: &str) -> Result<(), OciError> {
    let mut stdout = std::io::stdout().lock();
    match writeln!(stdout, "{line}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(OciError::system("writing the answer")(error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}
