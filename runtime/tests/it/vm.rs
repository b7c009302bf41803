//! The runtime as an ordinary user on cgroup v2, in a virtual machine: this very test program runs there again.
//!
//! QEMU emulates the machine, so neither nested virtualisation nor root is needed. The kernel is Debian's cloud kernel,
//! fetched once by apt; the file system is made of the prepared bundle and this host's own programs. The machine has no
//! network and no disk. Two boots: with newuidmap and a range of subordinate ids, and without.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};

use crate::support::host::{checkout, need};
use crate::support::{RUNTIME, bundle, ready};

/// How long the machine may take; emulated, it is some ten times slower than this one.
const LIFETIME: Duration = Duration::from_secs(1800);
const BUSYBOX: &str = "/bin/busybox";
/// Programs of this host that the machine has besides busybox.
const PROGRAMS: [&str; 2] = ["/usr/bin/setpriv", "/bin/busybox"];
/// What Podman consists of, for as far as it goes without a network.
const PODMAN: [&str; 3] = ["/usr/bin/podman", "/usr/bin/conmon", "/usr/bin/tar"];
/// The user's service manager and its bus, for containers in scopes of systemd.
const SYSTEMD: [&str; 3] = ["/lib/systemd/systemd", "/usr/bin/dbus-daemon", "/usr/bin/busctl"];
const MAP_PROGRAMS: [&str; 2] = ["/usr/bin/newuidmap", "/usr/bin/newgidmap"];

fn cache() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("vm")
}

fn manifest() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Whether this host can boot the machine; names what is missing.
#[track_caller]
fn machine() -> Option<PathBuf> {
    let tools = ["qemu-system-x86_64", "cpio", "python3"];
    for tool in tools {
        let found = Command::new("which").arg(tool).stdout(Stdio::null()).status().is_ok_and(|s| s.success());
        if !need(found, &format!("{tool} (Debian: apt install qemu-system-x86 busybox-static cpio)")) {
            return None;
        }
    }
    if !need(Path::new(BUSYBOX).exists(), "a static busybox (Debian: apt install busybox-static)") {
        return None;
    }
    match kernel() {
        Ok(kernel) => Some(kernel),
        Err(reason) => {
            need(
                false,
                &format!("a kernel for the virtual machine ({reason}); name one with RLOX_VM_KERNEL"),
            );
            None
        }
    }
}

/// The uncompressed kernel: named by the environment, cached, or fetched from the distribution.
fn kernel() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("RLOX_VM_KERNEL") {
        return Ok(named.into());
    }
    let directory = cache();
    fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    let lock = File::create(directory.join("lock")).map_err(|error| error.to_string())?;
    let _lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, errno)| errno.to_string())?;
    let kernel = directory.join("vmlinux");
    if kernel.exists() {
        return Ok(kernel);
    }
    let script = format!(
        "set -e; cd {}; rm -rf package; mkdir package; cd package\n\
         for meta in linux-image-cloud-amd64 linux-image-virtual; do\n\
         \x20   name=$(apt-cache depends $meta 2>/dev/null | awk '/Depends: linux-image/ {{print $2; exit}}')\n\
         \x20   [ -z \"$name\" ] || break\n\
         done\n\
         [ -n \"$name\" ] || {{ echo 'apt knows no linux-image-cloud-amd64 and no linux-image-virtual' >&2; exit 1; }}\n\
         apt-get download -q \"$name\" >&2\n\
         dpkg-deb --fsys-tarfile ./*.deb | tar -x --wildcards './boot/vmlinuz-*'\n\
         python3 {} ./boot/vmlinuz-* ../vmlinux.new\n\
         cd ..; mv vmlinux.new vmlinux; rm -rf package",
        directory.display(),
        manifest().join("tests/vm/vmlinux.py").display()
    );
    let output = Command::new("sh").args(["-c", &script]).output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(kernel);
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// Copies a file to the same place below the root, with the libraries that it needs.
fn install(root: &Path, program: &Path) {
    place(root, program, program);
    let listed = Command::new("ldd").arg(program).output().unwrap();
    for word in
        String::from_utf8_lossy(&listed.stdout).split_whitespace().filter(|word| word.starts_with('/'))
    {
        place(root, Path::new(word), Path::new(word));
    }
}

fn place(root: &Path, source: &Path, target: &Path) {
    let target = root.join(target.strip_prefix("/").unwrap());
    fs::create_dir_all(target.parent().unwrap()).unwrap();
    if !target.exists() {
        fs::copy(fs::canonicalize(source).unwrap(), target).unwrap();
    }
}

/// The file system of the machine, as an archive for the kernel.
fn file_system(directory: &Path, job: &str, kind: Kind) -> PathBuf {
    let with_ranges = kind != Kind::OneId;
    let root = directory.join("root");
    for name in [
        "bin", "sbin", "usr/bin", "usr/sbin", "lib64", "etc", "proc", "sys", "dev", "run", "tmp", "newroot",
        "home",
    ] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    let own = std::env::current_exe().unwrap();
    let programs = PROGRAMS.iter().chain(if with_ranges { &MAP_PROGRAMS[..] } else { &[] });
    let programs = programs.chain(match kind {
        Kind::Range if with_podman() => &PODMAN[..],
        Kind::Systemd => &SYSTEMD[..],
        Kind::Range | Kind::OneId | Kind::Root => &[],
    });
    for program in programs.map(Path::new).chain([Path::new(RUNTIME), &own]) {
        install(&root, program);
    }
    for program in [RUNTIME, own.to_str().unwrap()] {
        let inside = root.join(program.trim_start_matches('/'));
        // Debug information would be most of what the emulated machine has to unpack.
        Command::new("strip").arg(&inside).status().ok();
    }
    if with_ranges {
        for program in MAP_PROGRAMS {
            let inside = root.join(program.trim_start_matches('/'));
            fs::set_permissions(inside, fs::Permissions::from_mode(0o4755)).unwrap();
        }
    }
    let listed = Command::new(BUSYBOX).arg("--list").output().unwrap();
    for applet in String::from_utf8_lossy(&listed.stdout).lines().filter(|name| *name != "busybox") {
        let link = root.join("bin").join(applet);
        if !root.join("usr/bin").join(applet).exists() {
            std::os::unix::fs::symlink("busybox", link).unwrap();
        }
    }
    for (name, text) in [
        ("etc/passwd", "root:x:0:0::/root:/bin/sh\ntester:x:1000:1000::/home/tester:/bin/sh\n"),
        ("etc/group", "root:x:0:\ntty:x:5:\ntester:x:1000:\n"),
        ("etc/subuid", "tester:100000:65536\n"),
        ("etc/subgid", "tester:100000:65536\n"),
        ("etc/hostname", "vm\n"),
        ("etc/containers/policy.json", r#"{"default": [{"type": "insecureAcceptAnything"}]}"#),
        ("job", job),
    ] {
        fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        fs::write(root.join(name), text).unwrap();
    }
    if kind == Kind::Root {
        fs::write(root.join("as-root"), "").unwrap();
    }
    fs::copy(manifest().join("tests/vm/init"), root.join("init")).unwrap();
    fs::set_permissions(root.join("init"), fs::Permissions::from_mode(0o755)).unwrap();
    copy_tree(&root, &bundle());
    // Larger than all the rest, and no test here asks for one.
    let packages = bundle().join("rootfs/opt/rlox/site");
    fs::remove_dir_all(root.join(packages.strip_prefix("/").unwrap())).ok();
    if kind == Kind::Systemd {
        for tree in ["/usr/lib/systemd/user", "/usr/share/dbus-1/session.conf"] {
            copy_tree(&root, Path::new(tree));
        }
    } else if Path::new("/usr/share/containers").is_dir() {
        copy_tree(&root, Path::new("/usr/share/containers"));
    }
    // What the tests look up by the paths of this checkout.
    for empty in [manifest(), PathBuf::from(env!("CARGO_TARGET_TMPDIR"))] {
        let inside = root.join(empty.strip_prefix("/").unwrap());
        fs::create_dir_all(&inside).unwrap();
        fs::set_permissions(inside, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let archive = directory.join("initramfs");
    let line = format!(
        "cd {} && find . -print0 | cpio --null --create --format=newc --owner=0:0 --quiet > {}",
        root.display(),
        archive.display()
    );
    assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
    archive
}

/// Which host the machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A user with a range of subordinate ids, newuidmap and, where this host has it, Podman.
    Range,
    /// A user with nothing but their own id.
    OneId,
    /// As the first, with a service manager of the user's own.
    Systemd,
    /// Root on cgroup v2, which this host may not have.
    Root,
}

fn with_podman() -> bool {
    PODMAN.iter().all(|path| Path::new(path).exists())
}

fn copy_tree(root: &Path, tree: &Path) {
    let target = root.join(tree.strip_prefix("/").unwrap());
    fs::create_dir_all(target.parent().unwrap()).unwrap();
    let status = Command::new("cp").args(["-a", "-T"]).arg(tree).arg(&target).status().unwrap();
    assert!(status.success());
    let line = format!("chmod -R a+rX {}", root.display());
    assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
}

/// Boots, waits for the end; returns what the job printed.
fn boot(kernel: &Path, archive: &Path, directory: &Path) -> String {
    // One at a time: two would starve each other and every test beside them.
    let lock = File::create(cache().join("boot.lock")).unwrap();
    let _lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, errno)| errno).unwrap();
    let (console, output) = (directory.join("console"), directory.join("output"));
    let serial = |path: &Path| format!("file:{}", path.display());
    let mut machine = Command::new("qemu-system-x86_64")
        .args([
            "-machine",
            "q35",
            "-accel",
            "tcg,thread=multi,tb-size=512",
            "-cpu",
            "max,la57=off",
            "-smp",
            "2",
        ])
        .args(["-m", "3G", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
        .args(["-device", "virtio-rng-pci", "-serial", &serial(&console), "-serial", &serial(&output)])
        .args(["-append", "console=ttyS0 quiet mitigations=off tsc=unstable clocksource=acpi_pm panic=-1"])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(archive)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(directory.join("messages")).unwrap())
        .spawn()
        .unwrap();
    let end = std::time::Instant::now() + LIFETIME;
    let read = |path: &Path| {
        let mut bytes = Vec::new();
        File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    while machine.try_wait().unwrap().is_none() {
        if std::time::Instant::now() >= end {
            machine.kill().unwrap();
            machine.wait().unwrap();
            panic!("the machine was not done after {LIFETIME:?}\n{}\n{}", read(&console), read(&output));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let text = read(&output);
    assert!(
        text.contains("@@exit "),
        "the job did not end: {}\n{}\n{text}",
        read(&console),
        read(&directory.join("messages"))
    );
    text
}

/// Runs tests of this program in the machine; all of them have to pass, and none may be skipped.
fn passes(kernel: &Path, kind: Kind, filters: &str) {
    let directory = tempfile::Builder::new().prefix("rlox-vm").tempdir_in(cache()).unwrap();
    let own = std::env::current_exe().unwrap();
    let chosen = std::env::var("RLOX_VM_TESTS").ok();
    let filters = chosen.as_deref().unwrap_or(filters);
    let job = format!(
        "cd {}\n\
         export RLOX_TESTS_PREPARED=1 RLOX_TESTS_PATIENCE=10 RLOX_FORBID_SKIPS=1 RUST_BACKTRACE=0 {}\n\
         exec {} --test-threads=2 {filters}\n",
        manifest().display(),
        if kind == Kind::Systemd { "RLOX_TESTS_SYSTEMD=1" } else { "" },
        own.display()
    );
    let archive = file_system(directory.path(), &job, kind);
    let text = boot(kernel, &archive, directory.path());
    let mut stderr = std::io::stderr();
    let summary = text.lines().find(|line| line.starts_with("test result:")).unwrap_or("no result");
    writeln!(stderr, "in the virtual machine ({kind:?}): {summary}").unwrap();
    if let Some(keep) = std::env::var_os("RLOX_VM_KEEP") {
        fs::write(Path::new(&keep).join(format!("{kind:?}.log")), &text).unwrap();
    }
    assert!(text.contains("@@exit 0"), "{text}");
    assert!(!text.contains("SKIPPED "), "{text}");
    let passed = summary.split_whitespace().nth(3).and_then(|count| count.parse::<u32>().ok());
    assert!(passed.is_some_and(|count| count > 5), "{summary}");
}

#[test]
fn rootless_on_cgroup_v2_with_a_range_of_ids() {
    if !ready() {
        return;
    }
    let Some(kernel) = machine() else { return };
    if !need(
        MAP_PROGRAMS.iter().all(|path| Path::new(path).exists()),
        "newuidmap (Debian: apt install uidmap)",
    ) {
        return;
    }
    assert!(checkout().join("bundles/snippet/rootfs").is_dir());
    // The one test that is about real root.
    let mut but =
        "--skip vm:: --skip root_leaves_none_of_its_groups --skip seccomp:: --skip promises:: --skip dist::"
            .to_owned();
    if !need(with_podman(), "podman (Debian: apt install podman)") {
        but.push_str(" --skip podman::");
    }
    passes(&kernel, Kind::Range, &but);
}

#[test]
fn rootless_on_cgroup_v2_with_one_id() {
    if !ready() {
        return;
    }
    let Some(kernel) = machine() else { return };
    passes(&kernel, Kind::OneId, "oci::config oci::exec launcher::");
}

#[test]
fn rootless_in_scopes_of_systemd() {
    if !ready() {
        return;
    }
    let Some(kernel) = machine() else { return };
    let programs = MAP_PROGRAMS.iter().chain(&SYSTEMD);
    if !need(
        programs.map(Path::new).all(Path::exists),
        "systemd, dbus and newuidmap (Debian: dbus-user-session uidmap)",
    ) {
        return;
    }
    // What is different there: who makes, limits and removes the cgroup.
    let chosen = "oci::limits::limits_are_in_force every_flag events_tell kill_all_reaches creates_killed a_run_that_is_killed \
                  created_running_stopped it_joins_every";
    passes(&kernel, Kind::Systemd, chosen);
}

#[test]
fn root_on_cgroup_v2() {
    if !ready() {
        return;
    }
    let Some(kernel) = machine() else { return };
    // What is different there: ids, devices, and the cgroup at the root of all.
    let chosen = "oci::config oci::limits::limits_are_in_force every_flag a_limit_that_the_host the_containers_filter \
                  launcher::";
    passes(&kernel, Kind::Root, chosen);
}
