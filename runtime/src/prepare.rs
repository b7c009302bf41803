//! `rlox-runtime bundle prepare`: a bundle's root file system from what the host has, no registry needed.
//!
//! It holds a copy of one Python interpreter with its standard library and shared libraries, a shell and a few
//! small tools; nothing else of the host is visible in a container. The interpreter keeps its absolute path, so
//! that a virtual environment made with it works inside too.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use oci_spec::runtime::Spec;

use crate::error::RuntimeError;
use crate::interpreter::{self, Interpreter};
use crate::spec::is_bind;

/// Raised when the layout changes, so that older root file systems are rebuilt.
const LAYOUT: u32 = 7;
const STAMP: &str = "opt/rlox/prepared";
const TOOLS: [&str; 22] = [
    "sh", "env", "echo", "cat", "ls", "true", "false", "sleep", "sort", "head", "tail", "wc", "seq", "date",
    "cp", "mv", "rm", "mkdir", "touch", "tr", "cut", "grep",
];
/// Shared libraries that wheels expect from the host.
const WHEEL_LIBRARIES: [&str; 8] = [
    "libstdc++.so.6",
    "libgcc_s.so.1",
    "libz.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "libutil.so.1",
];
/// Parts of the standard library that no program of ours needs and that make up half of its size.
const LEFT_OUT: [&str; 9] = [
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "ensurepip",
    "turtledemo",
    "lib2to3",
];
/// Annotation of a bundle's `config.json`: Python files, separated by `:`, compiled into `/opt/rlox`.
const PROGRAM: &str = "org.rlox.program";
/// Annotation: modules that the bundle's programs may import beside the standard library, separated by `:`.
const PACKAGES: &str = "org.rlox.packages";
/// In a prepared root file system: the directory from which they came.
const PACKAGES_FROM: &str = "opt/rlox/packages-from";
/// Where they lie, in the container.
const SITE: &str = "/opt/rlox/site";
/// Annotation: directories that have to exist as mount points, separated by `:`.
const DIRECTORIES: &str = "org.rlox.directories";

/// Prepares one bundle; says whether anything had to be done.
pub(crate) fn prepare(
    bundle: &Path,
    python: Option<&Path>,
    packages: Option<&Path>,
) -> Result<bool, RuntimeError> {
    let error = |reason: String| RuntimeError::Bundle { bundle: bundle.to_owned(), reason };
    let spec = Spec::load(bundle.join("config.json")).map_err(|cause| error(cause.to_string()))?;
    let annotation = |name: &str| {
        spec.annotations().as_ref().and_then(|all| all.get(name).cloned()).filter(|value| !value.is_empty())
    };
    let interpreter = interpreter::find(python).map_err(error)?;
    let programs: Vec<PathBuf> =
        annotation(PROGRAM).iter().flat_map(|list| list.split(':')).map(|name| bundle.join(name)).collect();
    let wanted = annotation(PACKAGES);
    let target = bundle.join("rootfs");
    let before = packages.is_none().then(|| packages_before(&target)).flatten();
    let from = packages.or(before.as_deref()).map(fs::canonicalize).transpose();
    let from = from.map_err(|cause| error(format!("the packages' directory: {cause}")))?;
    let packages = match (from.as_deref(), &wanted) {
        (Some(from), Some(names)) => distributions(from, names).map_err(error)?,
        (None, _) | (_, None) => Vec::new(),
    };
    let key = key(&interpreter, &programs, &packages, &spec).map_err(error)?;
    if fs::read_to_string(target.join(STAMP)).is_ok_and(|stamp| stamp == key) {
        return Ok(false);
    }
    let fresh = bundle.join("rootfs.new");
    remove(&fresh).map_err(RuntimeError::system(format!("removing {}", fresh.display())))?;
    let build = || -> Result<(), String> {
        skeleton(&fresh)?;
        copy_interpreter(&fresh, &interpreter)?;
        copy_packages(&fresh, &interpreter, &packages, from.as_deref())?;
        copy_tools(&fresh)?;
        for program in &programs {
            compile(&interpreter, program, &fresh)?;
        }
        let mut directories: BTreeSet<PathBuf> =
            annotation(DIRECTORIES).iter().flat_map(|list| list.split(':')).map(PathBuf::from).collect();
        directories
            .extend(spec.mounts().iter().flatten().filter(|m| is_bind(m)).map(|m| m.destination().clone()));
        for directory in directories {
            make_directory(&inside(&fresh, &directory))?;
        }
        write(&fresh.join(STAMP), &key)
    };
    build().map_err(error)?;
    let replace = || -> std::io::Result<()> {
        let old = bundle.join("rootfs.old");
        remove(&old)?;
        if target.exists() {
            fs::rename(&target, &old)?;
        }
        fs::rename(&fresh, &target)?;
        remove(&old)
    };
    replace().map_err(RuntimeError::system(format!("replacing {}", target.display())))?;
    Ok(true)
}

fn remove(path: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Everything that the result depends on.
fn key(
    interpreter: &Interpreter,
    programs: &[PathBuf],
    packages: &[PathBuf],
    spec: &Spec,
) -> Result<String, String> {
    let mut source = String::new();
    for path in programs {
        source +=
            &fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    }
    let mounts: Vec<_> = spec.mounts().iter().flatten().map(|mount| mount.destination().clone()).collect();
    Ok(format!(
        "layout {LAYOUT}\npython {} {} {:?}\npackages {:?}\nmounts {mounts:?}\nannotations {:?}\nprogram\n{source}",
        interpreter.executable.display(),
        interpreter.version,
        interpreter.library,
        packages,
        spec.annotations().as_ref().map(|all| all.iter().collect::<std::collections::BTreeMap<_, _>>()),
    ))
}

/// An absolute host path below the new root.
fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn make_directory(path: &Path) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|error| format!("cannot create {}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    if let Some(parent) = path.parent() {
        make_directory(parent)?;
    }
    fs::File::create(path)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn link(target: &str, path: &Path) -> Result<(), String> {
    symlink(target, path).map_err(|error| format!("cannot link {}: {error}", path.display()))
}

fn skeleton(root: &Path) -> Result<(), String> {
    for directory in
        ["usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "etc", "proc", "dev", "tmp", "opt/rlox", "run"]
    {
        make_directory(&root.join(directory))?;
    }
    for name in ["bin", "sbin", "lib", "lib64"] {
        link(&format!("usr/{name}"), &root.join(name))?;
    }
    write(
        &root.join("etc/passwd"),
        "root:x:0:0:root:/tmp:/bin/sh\nsnippet:x:1000:1000:snippet:/tmp:/bin/sh\nnobody:x:65534:65534::/tmp:/bin/false\n",
    )?;
    write(&root.join("etc/group"), "root:x:0:\nsnippet:x:1000:\nnogroup:x:65534:\n")?;
    write(&root.join("etc/hosts"), "127.0.0.1 localhost\n::1 localhost\n")?;
    write(&root.join("etc/nsswitch.conf"), "passwd: files\ngroup: files\nhosts: files\n")
}

fn copy_interpreter(root: &Path, interpreter: &Interpreter) -> Result<(), String> {
    let mut binaries = vec![interpreter.executable.clone()];
    copy_file(&interpreter.executable, &inside(root, &interpreter.executable))?;
    for library in &interpreter.libraries {
        copy_tree(library, &inside(root, library), &mut binaries)?;
    }
    let python = root.join("usr/bin/python3");
    if !python.exists() && interpreter.executable != Path::new("/usr/bin/python3") {
        link(&interpreter.executable.to_string_lossy(), &python)?;
    }
    binaries.extend(wheel_libraries());
    if let Some(library) = &interpreter.library {
        copy_file(library, &inside(root, library))?;
        binaries.push(library.clone());
    }
    write(&root.join(interpreter::RECORD), &interpreter.record())?;
    copy_shared_libraries(root, &binaries)
}

/// Copies installed packages to where the driver looks for them, and leads other interpreters of the container there.
fn copy_packages(
    root: &Path,
    interpreter: &Interpreter,
    packages: &[PathBuf],
    from: Option<&Path>,
) -> Result<(), String> {
    let (site, mut binaries) = (inside(root, Path::new(SITE)), Vec::new());
    for package in packages {
        copy_tree(package, &site.join(package.file_name().unwrap_or_default()), &mut binaries)?;
    }
    let Some(from) = from.filter(|_| !packages.is_empty()) else { return Ok(()) };
    let from =
        fs::canonicalize(from).map_err(|error| format!("cannot resolve {}: {error}", from.display()))?;
    write(&root.join(PACKAGES_FROM), &from.to_string_lossy())?;
    let usual = inside(root, &interpreter.site);
    usual.parent().map_or(Ok(()), make_directory)?;
    link(SITE, &usual)
}

/// The directory from which an earlier preparation took packages, as long as it is there.
fn packages_before(root: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(root.join(PACKAGES_FROM)).ok()?;
    Some(PathBuf::from(text)).filter(|path| path.is_dir())
}

/// The directories of the packages named, their libraries and their metadata, which has the version in its name.
fn distributions(from: &Path, names: &str) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(from).map_err(|error| format!("cannot list {}: {error}", from.display()))?;
    let all: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    let mut found = Vec::new();
    for name in names.split(':') {
        let package = from.join(name);
        if !package.is_dir() {
            return Err(format!("package {name} is not in {}", from.display()));
        }
        let (libraries, metadata) = (format!("{name}.libs"), format!("{name}-"));
        found.extend(all.iter().filter(|path| {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            file == name || file == libraries || (file.starts_with(&metadata) && file.ends_with(".dist-info"))
        }));
    }
    let mut found: Vec<PathBuf> = found.into_iter().cloned().collect();
    found.sort_unstable();
    Ok(found)
}

fn copy_tools(root: &Path) -> Result<(), String> {
    let mut binaries = Vec::new();
    for name in TOOLS {
        let found = ["/usr/bin", "/bin"].iter().map(|d| Path::new(d).join(name)).find(|path| path.exists());
        let Some(found) = found else { continue };
        let real = fs::canonicalize(&found)
            .map_err(|error| format!("cannot resolve {}: {error}", found.display()))?;
        copy_file(&real, &root.join("usr/bin").join(name))?;
        binaries.push(real);
    }
    copy_shared_libraries(root, &binaries)
}

/// Copies files and directories; collects shared objects, whose own libraries are needed too.
fn copy_tree(from: &Path, to: &Path, binaries: &mut Vec<PathBuf>) -> Result<(), String> {
    make_directory(to)?;
    let entries = fs::read_dir(from).map_err(|error| format!("cannot list {}: {error}", from.display()))?;
    for entry in entries {
        let entry = entry.map_err(|error| format!("cannot list {}: {error}", from.display()))?;
        let name = entry.file_name();
        let text = name.to_string_lossy();
        if LEFT_OUT.contains(&text.as_ref()) || text.starts_with("config-") {
            continue;
        }
        let (source, target) = (entry.path(), to.join(&name));
        let metadata =
            fs::metadata(&source).map_err(|error| format!("cannot read {}: {error}", source.display()));
        match metadata {
            Ok(metadata) if metadata.is_dir() => copy_tree(&source, &target, binaries)?,
            Ok(_) => {
                copy_file(&source, &target)?;
                if text.contains(".so") {
                    binaries.push(source);
                }
            }
            // A dangling link, as some distributions ship.
            Err(reason) => tracing::debug!(reason, "left out"),
        }
    }
    Ok(())
}

/// Copies contents, executable bits and the modification time, which byte-compiled files are checked against.
fn copy_file(from: &Path, to: &Path) -> Result<(), String> {
    let copy = || -> std::io::Result<()> {
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::copy(from, to)?;
        let metadata = fs::metadata(from)?;
        let executable = metadata.permissions().mode() & 0o111 != 0;
        fs::set_permissions(to, fs::Permissions::from_mode(if executable { 0o755 } else { 0o644 }))?;
        fs::File::options().write(true).open(to)?.set_modified(metadata.modified()?)
    };
    copy().map_err(|error| format!("cannot copy {} to {}: {error}", from.display(), to.display()))
}

fn wheel_libraries() -> Vec<PathBuf> {
    let listing = ["/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig"]
        .iter()
        .find_map(|program| Command::new(program).arg("-p").output().ok())
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    WHEEL_LIBRARIES
        .iter()
        .filter_map(|name| {
            listing.lines().find(|line| line.trim().starts_with(name) && line.contains("x86-64"))
        })
        .filter_map(|line| line.split_once("=> "))
        .map(|(_, path)| PathBuf::from(path.trim()))
        .collect()
}

/// Copies what the dynamic loader would load for these binaries. They are the host's own, so asking `ldd` is safe.
fn copy_shared_libraries(root: &Path, binaries: &[PathBuf]) -> Result<(), String> {
    let output =
        Command::new("ldd").args(binaries).output().map_err(|error| format!("cannot run ldd: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut wanted: BTreeSet<PathBuf> = text
        .lines()
        .filter_map(|line| {
            let path = line.split_once("=> ").map_or(line.trim(), |(_, path)| path);
            path.split(" (").next().map(str::trim)
        })
        .filter(|path| path.starts_with('/') && path.contains(".so") && !path.ends_with(':'))
        .map(PathBuf::from)
        .collect();
    wanted.extend(
        binaries
            .iter()
            .filter(|path| path.to_string_lossy().contains("/lib"))
            .filter(|path| {
                path.file_name().is_some_and(|name| {
                    WHEEL_LIBRARIES.iter().any(|wheel| name.to_string_lossy().starts_with(wheel))
                })
            })
            .cloned(),
    );
    for library in wanted {
        let target = inside(root, &library);
        if !target.exists() {
            copy_file(&library, &target)?;
        }
    }
    Ok(())
}

/// Compiles the bundle's program once, so that no container spends time on it.
fn compile(interpreter: &Interpreter, program: &Path, root: &Path) -> Result<(), String> {
    let name = program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let target = root.join("opt/rlox").join(format!("{name}.pyc"));
    let script = "import py_compile, sys\n\
                  py_compile.compile(sys.argv[1], cfile=sys.argv[2], dfile=sys.argv[3], doraise=True, \
                  invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH, optimize=0)\n";
    let output = Command::new(&interpreter.executable)
        .args(["-I", "-c", script])
        .arg(program)
        .arg(&target)
        .arg(format!("/opt/rlox/{name}.py"))
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("cannot compile {}: {}", program.display(), String::from_utf8_lossy(&output.stderr)))
}
