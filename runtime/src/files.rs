//! Reading a file that somebody else wrote: regular and bounded, or refused. A pipe would hold the reader for ever,
//! `/dev/zero` would take all memory.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The content of a regular file of at most `most` bytes.
pub(crate) fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    // Without O_NONBLOCK the opening of a pipe waits for a writer.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut content = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 > most {
        return Err(io::Error::other(format!("it is longer than {most} bytes")));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_or_too_long_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [pipe.as_path(), directory.path(), Path::new("/dev/zero")] {
            assert!(read_regular(path, 10).unwrap_err().to_string().contains("no regular file"), "{path:?}");
        }
        let file = directory.path().join("file");
        std::fs::write(&file, "0123456789").unwrap();
        assert_eq!(read_regular(&file, 10).unwrap(), b"0123456789");
        assert!(read_regular(&file, 9).unwrap_err().to_string().contains("longer than 9 bytes"));
    }
}
