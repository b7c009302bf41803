//! Puts files in place atomically: a reader sees the old file or the new one, never half of either, also
//! after a power cut.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

use crate::error::ReportError;
use crate::markdown::markdown;
use crate::summary::Summary;

/// Where [`write_summary`] put its two files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryFiles {
    /// `p3_summary.json`.
    pub json: PathBuf,
    /// `p3_summary.md`.
    pub markdown: PathBuf,
}

/// Writes `p3_summary.json` and `p3_summary.md` into `out_dir`, which is made where it is missing.
///
/// # Errors
///
/// Where the directory cannot be made, or a file cannot be encoded, written, synced or renamed.
pub fn write_summary(summary: &Summary, out_dir: &Path) -> Result<SummaryFiles, ReportError> {
    create_directory(out_dir)?;
    let files =
        SummaryFiles { json: out_dir.join("p3_summary.json"), markdown: out_dir.join("p3_summary.md") };
    let json = summary.to_json()?;
    write_atomically(&files.json, &json)?;
    write_atomically(&files.markdown, summary.to_markdown().as_bytes())?;
    Ok(files)
}

impl Summary {
    /// The bytes of `p3_summary.json`.
    ///
    /// # Errors
    ///
    /// [`ReportError::EncodeJson`], which no summary of ours brings about.
    pub fn to_json(&self) -> Result<Vec<u8>, ReportError> {
        encode(self).map_err(|source| ReportError::EncodeJson { source })
    }

    /// The text of `p3_summary.md`.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        markdown(self)
    }
}

pub(crate) fn create_directory(path: &Path) -> Result<(), ReportError> {
    std::fs::create_dir_all(path)
        .map_err(|source| ReportError::CreateDirectory { path: path.to_owned(), source })
}

/// Temporary file beside it, fsync, rename, fsync of the directory.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), ReportError> {
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || -> io::Result<()> {
        let mut file = tempfile::Builder::new()
            .prefix(".p3_")
            .suffix(".tmp")
            .permissions(Permissions::from_mode(0o644))
            .tempfile_in(directory)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        File::open(directory)?.sync_all()
    };
    write().map_err(|source| ReportError::Write { path: path.to_owned(), source })
}

/// Indented objects with arrays on one line, as the tutorial prints them.
fn encode(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut bytes, FlatArrays(PrettyFormatter::new())))?;
    bytes.push(b'\n');
    Ok(bytes)
}

struct FlatArrays(PrettyFormatter<'static>);

impl Formatter for FlatArrays {
    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object(writer)
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object(writer)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object_value(writer)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object_value(writer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_existing_file_is_replaced_and_nothing_else_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.json");
        write_atomically(&path, b"old").unwrap();
        write_atomically(&path, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_in_the_files_place_is_replaced_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (path, target) = (directory.path().join("a.json"), directory.path().join("target"));
        std::fs::write(&target, "untouched").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        write_atomically(&path, b"new").unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"untouched");
        assert!(path.symlink_metadata().unwrap().is_file());
    }

    #[test]
    fn errors_name_the_file() {
        let error = write_atomically(Path::new("/nonexistent/a.json"), b"").unwrap_err();
        assert!(error.to_string().contains("/nonexistent/a.json"));
    }

    #[test]
    fn arrays_stay_on_one_line() {
        let value = serde_json::json!({"a": [1, 2], "b": [{"c": []}, {}]});
        let text = String::from_utf8(encode(&value).unwrap()).unwrap();
        assert_eq!(text, "{\n  \"a\": [1, 2],\n  \"b\": [{\n    \"c\": []\n  }, {}]\n}\n");
    }
}
