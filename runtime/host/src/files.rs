//! Small reads and writes of kernel files, with the path in every error.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Reads a text file of at most 1 MiB.
pub fn read_bounded(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(1 << 20).read_to_string(&mut text))
        .map_err(|error| io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display())))?;
    Ok(text)
}

/// Writes a kernel file in one `write`, as cgroup files require; it has to exist.
pub fn write_file(path: &Path, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path).and_then(|mut file| file.write_all(value.as_bytes())).map_err(
        |error| {
            io::Error::new(error.kind(), format!("cannot write {value:?} to {}: {error}", path.display()))
        },
    )
}

/// Where run directories go: `/run` for root, the user's runtime directory otherwise.
pub fn run_directory() -> PathBuf {
    if nix::unistd::geteuid().is_root() && Path::new("/run").is_dir() {
        return "/run".into();
    }
    std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}
