//! The ways to run a program that are compared, and how each is called.

use std::path::Path;

use super::meter::UNIQUE;
use super::workspace::{INSIDE, Workspace};

/// How a program is started.
#[derive(Debug, Clone)]
pub(super) enum How {
    /// As a process of the spawner; forms are tried in order until one works.
    Spawned(Vec<Form>),
    /// By `subprocess.run` in a Python that lives as long as the measurement.
    FromPython(Form),
    /// By `POST /verify` to a service with these flags of `serve`, if `/health` then says this mode of its pool.
    Verified { flags: Vec<String>, mode: &'static str },
}

/// Arguments before the path of the program's file, and those that remove what a failed call leaves.
#[derive(Debug, Clone)]
pub(super) struct Form {
    pub(super) argv: Vec<String>,
    pub(super) cleanup: Vec<String>,
    /// What stands for the program's file, with the workload's name in place of `{workload}`.
    pub(super) last: String,
}

/// One way.
#[derive(Debug, Clone)]
pub(super) struct Way {
    /// For `--only` and in JSON.
    pub(super) key: &'static str,
    pub(super) label: &'static str,
    /// The program that has to be in `PATH`, and the command that installs it.
    pub(super) needs: Option<(&'static str, &'static str)>,
    pub(super) how: How,
}

/// The way to which all others are compared; always measured.
pub(super) const BASE: &str = "bare";
/// Names for `--only`, in the table's order.
pub(crate) const KEYS: [&str; 11] = [
    "bare",
    "python",
    "subprocess",
    "bwrap",
    "runc",
    "runsc",
    "podman",
    "rlox-runtime",
    "verify-exec",
    "verify-cold",
    "verify-warm",
];

const RUNSC_HINT: &str = "apt install runsc, or https://gvisor.dev/docs/user_guide/install/";

/// All ways on this host.
pub(super) fn all(space: &Workspace, allow_missing_cgroup: bool) -> Vec<Way> {
    let python = space.python.as_str();
    let file = space.programs.join("{workload}.py");
    let on_host = |argv: &[&str]| form(argv, &[], &file);
    let bundles = text(&space.directory.join("bundle-{workload}"));
    let in_bundle = |argv: &[&str], cleanup: &[&str]| Form {
        // The bundle stands in the middle, and the name of the container at the end.
        argv: strings(argv).into_iter().chain([bundles.clone()]).collect(),
        cleanup: strings(cleanup),
        last: UNIQUE.into(),
    };
    let state = |name: &str| text(&space.directory.join(name));
    let runc = state("runc");
    let runsc = state("runsc");
    let runsc_flags = ["runsc", "--root", &runsc, "--network=none", "--ignore-cgroups"];
    let allowed: &[&str] = if allow_missing_cgroup { &["--allow-missing", "cgroup"] } else { &[] };
    let runtime = text(&space.home.runtime);
    let mut own = strings(&[&runtime, "run"]);
    own.extend(strings(allowed));
    let verified = |mode, flags: &[&str]| How::Verified { flags: strings(&[allowed, flags].concat()), mode };
    let way = |key, label, needs, how| Way { key, label, needs, how };
    vec![
        way("bare", "`python3 -I -S FILE`", None, How::Spawned(vec![on_host(&[python, "-I", "-S"])])),
        way("python", "`python3 FILE`", None, How::Spawned(vec![on_host(&[python])])),
        way("subprocess", "`subprocess.run` in Python", None, How::FromPython(on_host(&[python]))),
        way("bwrap", "`bwrap`", Some(("bwrap", "apt install bubblewrap")), How::Spawned(vec![bwrap(space)])),
        way(
            "runc",
            "`runc run`",
            Some(("runc", "apt install runc")),
            How::Spawned(vec![in_bundle(
                &["runc", "--root", &runc, "run", "--bundle"],
                &["runc", "--root", &runc, "delete", "--force", UNIQUE],
            )]),
        ),
        way(
            "runsc",
            "`runsc run` (gVisor)",
            Some(("runsc", RUNSC_HINT)),
            How::Spawned(vec![in_bundle(
                &[&runsc_flags[..], &["run", "--bundle"]].concat(),
                &[&runsc_flags[..], &["delete", "--force", UNIQUE]].concat(),
            )]),
        ),
        way("podman", "`podman run`", Some(("podman", "apt install podman")), How::Spawned(podman(space))),
        way(
            "rlox-runtime",
            "`rlox-runtime run`",
            None,
            How::Spawned(vec![Form { argv: own, cleanup: Vec::new(), last: bundles.clone() }]),
        ),
        way(
            "verify-exec",
            "rlox: `/verify`, no warm interpreter",
            None,
            verified("exec", &["--pool", "0", "--interpreter", "exec"]),
        ),
        way("verify-cold", "rlox: `/verify`, no pool", None, verified("warm", &["--pool", "0"])),
        way("verify-warm", "rlox: `/verify`", None, verified("warm", &[])),
    ]
}

/// The tools' own defaults for a program that is not trusted, over the root file system of the snippet bundle.
fn bwrap(space: &Workspace) -> Form {
    let (root, programs) = (text(&space.root), text(&space.programs));
    let argv = [
        &["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"][..],
        &["--ro-bind", &root, "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"],
        &["--ro-bind", &programs, INSIDE, "/usr/bin/python3", "-I", "-S"],
    ];
    form(&argv.concat(), &[], &Path::new(INSIDE).join("{workload}.py"))
}

/// An engine of the measurement's own, with files in its directory; which runtime and cgroup manager work is found
/// by trying.
fn podman(space: &Workspace) -> Vec<Form> {
    let place = |name: &str| text(&space.directory.join("podman").join(name));
    let (storage, run, tmp) = (place("storage"), place("run"), place("tmp"));
    let (root, bind) = (format!("{}:O", text(&space.root)), format!("{}:{INSIDE}:ro", text(&space.programs)));
    let variants: [&[&str]; 4] = [
        &[],
        &["--cgroup-manager", "cgroupfs"],
        &["--runtime", "runc"],
        &["--runtime", "runc", "--cgroup-manager", "cgroupfs"],
    ];
    let forms = variants.map(|variant| {
        let engine =
            [&["podman", "--root", &storage, "--runroot", &run, "--tmpdir", &tmp][..], variant].concat();
        let container = [
            &["run", "--rm", "--name", UNIQUE, "--network", "none", "--read-only", "--volume", &bind][..],
            // The defaults are for hosts whose root may raise them.
            &["--ulimit", "nofile=256:256", "--ulimit", "nproc=1024:1024"],
            &["--rootfs", &root, "/usr/bin/python3", "-I", "-S"],
        ];
        let argv = [&engine[..], &container.concat()].concat();
        let cleanup = [&engine[..], &["rm", "--force", UNIQUE]].concat();
        form(&argv, &cleanup, &Path::new(INSIDE).join("{workload}.py"))
    });
    forms.into()
}

fn form(argv: &[&str], cleanup: &[&str], file: &Path) -> Form {
    Form { argv: strings(argv), cleanup: strings(cleanup), last: text(file) }
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

impl Form {
    /// The whole command line for one workload.
    pub(super) fn of(&self, workload: &str) -> Vec<String> {
        let words = self.argv.iter().chain([&self.last]);
        words.map(|word| word.replace("{workload}", workload)).collect()
    }
}

/// Whether a program of this name is in `PATH`.
pub(super) fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways() -> Vec<Way> {
        all(&Workspace::imagined(), true)
    }

    #[test]
    fn every_way_has_its_name_for_only() {
        assert_eq!(ways().iter().map(|way| way.key).collect::<Vec<_>>(), KEYS);
        assert!(KEYS.contains(&BASE));
    }

    #[test]
    fn a_command_line_holds_the_workload_and_a_name_of_the_calls_own() {
        for way in ways() {
            let forms = match way.how {
                How::Spawned(forms) => forms,
                How::FromPython(form) => vec![form],
                How::Verified { flags, mode } => {
                    assert_eq!(flags[..2], ["--allow-missing", "cgroup"]);
                    assert_eq!(flags.contains(&"exec".into()), mode == "exec");
                    assert_eq!(flags.len() == 2, way.key == "verify-warm");
                    continue;
                }
            };
            for form in forms {
                let line = form.of("trivial");
                assert!(line.iter().any(|word| word.contains("trivial")), "{line:?}");
                assert!(!line.iter().any(|word| word.contains("{workload}")), "{line:?}");
                let named = line.iter().any(|word| word == UNIQUE);
                assert_eq!(named, ["runc", "runsc", "podman"].contains(&way.key), "{line:?}");
                assert_eq!(form.cleanup.iter().any(|word| word == UNIQUE), named, "{form:?}");
            }
        }
    }

    #[test]
    fn a_program_that_is_nowhere_is_not_installed() {
        assert!(installed("sh") && !installed("rlox-no-such-program"));
    }
}
