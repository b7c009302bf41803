//! What a script gets and gives back beside its output: a sealed file with everything for its container, and a file of
//! a fixed size for what is read at its end.
//!
//! Both are memory files. The container itself writes and reads its own file system; nobody outside ever opens a path
//! in it. What comes back is the program's word: it is decoded within bounds.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MemFdCreateFlag, memfd_create};

use super::SandboxError;
use super::memfd::sealed;
use crate::script::{Exits, Fetched, Script};

/// Room for all files that are read at a script's end, with their heads.
pub(crate) const FETCH_BYTES: u64 = 16 << 20;
/// Number and length.
const HEAD: usize = 12;
/// In place of a length, as `bundles/snippet/script.py` has them.
const MISSING: u64 = u64::MAX;
const TOO_LARGE: u64 = u64::MAX - 1;

/// Everything for `bundles/snippet/script.py`, in a sealed file.
pub(super) fn plan(script: &Script) -> Result<OwnedFd, SandboxError> {
    let size: usize = script.files.iter().map(|file| file.content.len() + file.path.len() + 8).sum();
    let mut bytes = Vec::with_capacity(size + 4096);
    text(&mut bytes, script.name.as_bytes())?;
    let exits: u32 = match script.exits {
        Exits::Last => 0,
        Exits::Anywhere => 1,
        Exits::Any => 2,
    };
    bytes.extend_from_slice(&exits.to_le_bytes());
    texts(&mut bytes, &script.arguments)?;
    bytes.extend_from_slice(&length(script.files.len())?);
    for file in &script.files {
        text(&mut bytes, file.path.as_bytes())?;
        text(&mut bytes, &file.content)?;
    }
    texts(&mut bytes, &script.wanted)?;
    sealed(c"rlox-plan", &bytes)
}

fn texts(bytes: &mut Vec<u8>, parts: &[String]) -> Result<(), SandboxError> {
    bytes.extend_from_slice(&length(parts.len())?);
    parts.iter().try_for_each(|part| text(bytes, part.as_bytes()))
}

fn text(bytes: &mut Vec<u8>, part: &[u8]) -> Result<(), SandboxError> {
    bytes.extend_from_slice(&length(part.len())?);
    bytes.extend_from_slice(part);
    Ok(())
}

fn length(value: usize) -> Result<[u8; 4], SandboxError> {
    let value = u32::try_from(value).map_err(SandboxError::system("describing a script's files"))?;
    Ok(value.to_le_bytes())
}

/// A file that nobody can make larger or smaller.
pub(super) fn fetch_file() -> Result<File, SandboxError> {
    let build = || -> std::io::Result<File> {
        let flags = MemFdCreateFlag::MFD_CLOEXEC | MemFdCreateFlag::MFD_ALLOW_SEALING;
        let file = File::from(memfd_create(c"rlox-fetched", flags)?);
        file.set_len(FETCH_BYTES)?;
        let seals = SealFlag::F_SEAL_SEAL | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
        fcntl(file.as_raw_fd(), FcntlArg::F_ADD_SEALS(seals))?;
        Ok(file)
    };
    build().map_err(SandboxError::system("making a file for what is read back"))
}

/// What is in it for `count` paths.
pub(super) fn fetched(file: &File, count: usize) -> Result<Vec<Fetched>, SandboxError> {
    let mut all = vec![Fetched::NotRead; count];
    let mut offset = 0;
    // Each entry once and in order: what a program writes there itself cannot make this longer.
    for index in 0..count {
        let mut head = [0u8; HEAD];
        if offset + HEAD as u64 > FETCH_BYTES {
            break;
        }
        read(file, &mut head, offset)?;
        let (number, length) = head.split_at(4);
        let number = number.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
        let length = length.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
        if number != index as u64 + 1 {
            break;
        }
        offset += HEAD as u64;
        let found = match length {
            MISSING => Fetched::Missing,
            TOO_LARGE => Fetched::TooLarge,
            length if length <= FETCH_BYTES - offset => {
                let room = usize::try_from(length).map_err(SandboxError::system("reading a file back"))?;
                let mut content = vec![0; room];
                read(file, &mut content, offset)?;
                offset += length;
                Fetched::Content(content)
            }
            _ => break,
        };
        if let Some(slot) = all.get_mut(index) {
            *slot = found;
        }
    }
    Ok(all)
}

fn read(file: &File, bytes: &mut [u8], offset: u64) -> Result<(), SandboxError> {
    file.read_exact_at(bytes, offset).map_err(SandboxError::system("reading a file back"))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::script::Placed;

    fn entry(number: u32, length: u64, content: &[u8]) -> Vec<u8> {
        [&number.to_le_bytes()[..], &length.to_le_bytes(), content].concat()
    }

    #[test]
    fn a_plan_is_what_the_driver_reads() {
        let script = Script {
            name: "m.py".into(),
            arguments: vec!["-v".into()],
            stdin: String::new(),
            files: vec![Placed { path: "d/x".into(), content: b"\0\xff".to_vec() }],
            wanted: vec!["out".into()],
            exits: Exits::Last,
            cpu: None,
            answer_by: Instant::now() + Duration::from_secs(1),
            room: None,
        };
        let mut bytes = Vec::new();
        File::from(plan(&script).unwrap()).read_to_end(&mut bytes).unwrap();
        let wanted = b"\x04\0\0\0m.py\0\0\0\0\x01\0\0\0\x02\0\0\0-v\x01\0\0\0\x03\0\0\0d/x\x02\0\0\0\0\xff\x01\0\0\0\x03\0\0\0out";
        assert_eq!(bytes, wanted);
    }

    #[test]
    fn what_comes_back_is_read_within_bounds() {
        let file = fetch_file().unwrap();
        assert_eq!(fetched(&file, 2).unwrap(), [Fetched::NotRead, Fetched::NotRead], "nothing was written");
        let bytes =
            [entry(1, 2, b"ab"), entry(2, MISSING, b""), entry(3, TOO_LARGE, b""), entry(4, 0, b"")].concat();
        file.write_all_at(&bytes, 0).unwrap();
        let all = fetched(&file, 5).unwrap();
        let content = |text: &[u8]| Fetched::Content(text.to_vec());
        let wanted = [content(b"ab"), Fetched::Missing, Fetched::TooLarge, content(b""), Fetched::NotRead];
        assert_eq!(all, wanted);
        for hostile in
            [entry(1, FETCH_BYTES, b""), entry(1, u64::MAX - 2, b""), entry(9, 1, b"a"), entry(0, 1, b"a")]
        {
            let file = fetch_file().unwrap();
            file.write_all_at(&hostile, 0).unwrap();
            assert_eq!(fetched(&file, 1).unwrap(), [Fetched::NotRead]);
        }
    }

    #[test]
    fn nobody_makes_the_file_larger() {
        let file = fetch_file().unwrap();
        assert!(file.set_len(FETCH_BYTES + 1).is_err() && file.set_len(0).is_err());
        assert!(file.write_all_at(b"xy", FETCH_BYTES - 1).is_err());
    }
}
