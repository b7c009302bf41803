//! A home whose trials take a moment: the runtime, the containers, the service and the scheduler are the real ones,
//! only the trainer is a short program. It needs no trainer environment.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{controller, host, runtime};

/// One trial: its files, its steps, and nothing of torch. What it writes depends on its arguments alone.
const TRAINER: &str = r#"
import json, os, sys, time
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
out, seed = given["--output-dir"], int(given["--seed"])
pause = float(given.get("--pause", "0.02"))
print("trial", seed, flush=True)
if "--link" in given:
    os.unlink(os.path.join(out, "trainer.log"))
    os.symlink(given["--link"], os.path.join(out, "trainer.log"))
if given.get("--fail") == given["--backend"]:
    sys.exit(3)
open(os.path.join(out, ".began"), "w").close()
with open(os.path.join(out, "metrics.jsonl"), "w") as file:
    for step in range(1, int(given["--max-steps"]) + 1):
        time.sleep(pause)
        line = {"step": step, "reward": (step + seed) / 64, "open_fds": 4, "threads": 1, "children": 0,
                "step_time_secs": 0.5, "vm_rss_bytes": 1 << 24, "injected": 1, "injected_ids": ["a", "b"]}
        file.write(json.dumps(line) + "\n")
        file.flush()
        os.fsync(file.fileno())
        print("step", step, flush=True)
with open(os.path.join(out, "checkpoint_final.pt"), "wb") as file:
    file.write(b"checkpoint")
"#;

/// Such a home with directories for its files, to be looked through when its sweeps are over.
pub(crate) struct Ground {
    pub(crate) home: TinyHome,
    pub(crate) scratch: tempfile::TempDir,
    root: tempfile::TempDir,
}

impl Ground {
    pub(crate) fn new() -> Self {
        let directory = || tempfile::tempdir().unwrap();
        Self { home: TinyHome::new(), scratch: directory(), root: directory() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }
}

pub(crate) struct TinyHome {
    directory: tempfile::TempDir,
}

impl TinyHome {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let bundles = root.join("bundles");
        for name in ["bundles/trainer", "harness/.venv/bin", "corpus", "bin"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        for entry in fs::read_dir(host::checkout().join("bundles")).unwrap().flatten() {
            if entry.file_name() != "trainer" {
                symlink(entry.path(), bundles.join(entry.file_name())).unwrap();
            }
        }
        fs::copy(host::checkout().join("bundles/trainer/config.json"), bundles.join("trainer/config.json"))
            .unwrap();
        for entry in fs::read_dir(host::checkout().join("corpus")).unwrap().flatten() {
            fs::copy(entry.path(), root.join("corpus").join(entry.file_name())).unwrap();
        }
        fs::write(root.join("harness/trl_grpo_run.py"), TRAINER).unwrap();
        // As the container sees it.
        symlink("/usr/bin/python3", root.join("harness/.venv/bin/python")).unwrap();
        symlink(runtime(), root.join("bin/rlox-runtime")).unwrap();
        fs::write(root.join("bin/librlox_rl_ops_ffi.so"), "").unwrap();
        let output = Command::new(runtime())
            .args(["bundle", "prepare"])
            .arg(bundles.join("trainer"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { directory }
    }

    pub(crate) fn root(&self) -> &Path {
        self.directory.path()
    }

    fn bin(&self) -> PathBuf {
        self.root().join("bin/rlox-runtime")
    }

    /// The controller with this home.
    pub(crate) fn controller(&self, scratch: &Path, arguments: &[&str]) -> Command {
        let mut command = controller(scratch, arguments);
        self.apply(&mut command);
        command
    }

    /// Makes a command use this home.
    pub(crate) fn apply(&self, command: &mut Command) {
        command.env("RLOX_HOME", self.root()).env("RLOX_RUNTIME", self.bin());
    }
}
