//! Names and sizes of files that clients place beside a program or want back.
//!
//! The container writes and reads them itself, as the program's user; a name is checked so that a wrong one is an
//! error of the client, with a reason, and not a program that fails.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::Refusal;
use crate::sandbox::FETCH_BYTES;
use crate::script::Placed;

/// Most files in, and their bytes: they lie in the container's memory, in a file system of 64 MiB.
const MAX_FILES: usize = 256;
pub(crate) const MAX_BYTES: usize = 48 << 20;
/// Most files back.
const MAX_WANTED: usize = 64;
const MAX_PATH: usize = 512;
const MAX_DEPTH: usize = 16;

const LENIENT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A relative path without `..`, as short as it can be.
pub(crate) fn relative(path: &str) -> Result<String, Refusal> {
    let refused = |why: &str| Refusal::invalid(format!("file name {path:?} {why}"));
    if path.len() > MAX_PATH {
        return Refusal::invalid(format!("a file name has {} bytes; at most {MAX_PATH}", path.len()));
    }
    if path.starts_with('/') {
        return refused("is absolute; names are relative to the program's directory");
    }
    if path.contains('\0') {
        return refused("holds a NUL character");
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.contains(&"..") {
        return refused("leads out of the program's directory");
    }
    if parts.is_empty() || path.ends_with('/') || path.ends_with("/.") {
        return refused("names no file");
    }
    if parts.len() > MAX_DEPTH {
        return refused("has too many directories");
    }
    if parts.iter().any(|part| part.len() > 255) {
        return refused("has a part of more than 255 bytes");
    }
    Ok(parts.join("/"))
}

/// Files to place: each name once, none a directory of another, all within bounds.
pub(crate) fn placed(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Result<Vec<Placed>, Refusal> {
    let mut all = Vec::new();
    let (mut names, mut bytes) = (BTreeSet::new(), 0usize);
    for (name, content) in files {
        let path = relative(&name)?;
        bytes = bytes.saturating_add(content.len());
        if !names.insert(path.clone()) {
            return Refusal::invalid(format!("file name {name:?} comes twice"));
        }
        all.push(Placed { path, content });
    }
    for name in &names {
        let directories = name.match_indices('/').map(|(at, _)| &name[..at]);
        if let Some(both) = directories.into_iter().find(|directory| names.contains(*directory)) {
            return Refusal::invalid(format!("{both:?} is a file and the directory of {name:?}"));
        }
    }
    if all.len() > MAX_FILES || bytes > MAX_BYTES {
        let (count, most) = (all.len(), MAX_BYTES >> 20);
        return Err(Refusal::TooLarge(format!(
            "{count} files with {bytes} bytes; at most {MAX_FILES} with {most} MiB together"
        )));
    }
    Ok(all)
}

/// Paths to read back, as the client wrote them, with what they mean.
pub(crate) fn wanted(paths: &[String]) -> Result<Vec<String>, Refusal> {
    if paths.len() > MAX_WANTED {
        return Refusal::invalid(format!("{} files to fetch; at most {MAX_WANTED}", paths.len()));
    }
    paths.iter().map(|path| relative(path)).collect()
}

/// Why a file is not in an answer.
pub(crate) fn not_fetched(path: &str, found: &crate::script::Fetched) -> Option<String> {
    use crate::script::Fetched;
    match found {
        Fetched::Content(_) => None,
        Fetched::Missing => Some(format!("{path:?} is missing")),
        Fetched::TooLarge => Some(format!("{path:?} does not fit into {} MiB", FETCH_BYTES >> 20)),
        Fetched::NotRead => Some(format!("{path:?} was not read: the program did not come to an end")),
    }
}

/// Base64 as other servers take it: white space and padding as they come.
pub(crate) fn from_base64(name: &str, text: &str) -> Result<Vec<u8>, Refusal> {
    let bytes: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let decoded = LENIENT_BASE64.decode(bytes);
    decoded.map_err(|error| Refusal::Invalid(format!("file {name:?} is not base64: {error}")))
}

pub(crate) fn to_base64(bytes: &[u8]) -> String {
    LENIENT_BASE64.encode(bytes)
}

/// Hexadecimal digits, two a byte.
pub(crate) fn from_hex(name: &str, text: &str) -> Result<Vec<u8>, Refusal> {
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).ok().filter(|text| text.len() == 2 && !text.starts_with('+'));
        text.and_then(|text| u8::from_str_radix(text, 16).ok())
    };
    let decoded: Option<Vec<u8>> = pairs.map(byte).collect();
    decoded.ok_or_else(|| Refusal::Invalid(format!("file {name:?} is not hexadecimal")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_the_programs_directory() {
        for (name, path) in [("a.txt", "a.txt"), ("./d//a", "d/a"), ("..a/b..", "..a/b.."), ("ü", "ü")] {
            assert_eq!(relative(name).as_deref(), Ok(path), "{name}");
        }
        let long = "x".repeat(300);
        let deep = "d/".repeat(20) + "x";
        for bad in ["", ".", "/etc/passwd", "..", "a/../../b", "a/..", "a\0b", "d/", "d/.", &long, &deep] {
            assert!(relative(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn files_are_bounded_and_do_not_collide() {
        let of = |names: &[&str]| placed(names.iter().map(|name| ((*name).to_owned(), vec![1])));
        assert_eq!(of(&["a", "d/b"]).unwrap().len(), 2);
        for bad in [&["a", "./a"][..], &["d", "d/b"], &["d/b/c", "d/b"]] {
            assert!(matches!(of(bad), Err(Refusal::Invalid(_))), "{bad:?}");
        }
        let large = placed([("a".to_owned(), vec![0; MAX_BYTES + 1])]);
        assert!(matches!(large, Err(Refusal::TooLarge(_))));
    }

    #[test]
    fn content_is_decoded_or_refused() {
        assert_eq!(from_base64("x", "aGV\nsbG8"), Ok(b"hello".to_vec()));
        assert_eq!(from_base64("x", "aGVsbG8="), Ok(b"hello".to_vec()));
        assert_eq!(from_base64("x", ""), Ok(Vec::new()));
        assert!(from_base64("x", "%%%").is_err());
        assert_eq!(from_hex("x", "00fF"), Ok(vec![0, 255]));
        for bad in ["0", "0g", "+1", "zz", "é"] {
            assert!(from_hex("x", bad).is_err(), "{bad}");
        }
    }
}
