//! A launcher's own interpreter, of which every program gets a copy.
//!
//! It is the bundle's CPython with the bundle's modules imported, started once, in a process that never sees a
//! program's code, output or tests. What a program can read of it is what it could read of any fresh interpreter. Two
//! things are shared that are each interpreter's own otherwise, the seed of string hashes and the layout of memory:
//! both differ from launcher to launcher, and neither protects anything inside one sandbox.

use std::fs::File;
use std::io::{Read, Seek};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::sys::memfd::{MemFdCreateFlag, memfd_create};
use rlox_protocol::Interpreter as Report;

use crate::interpreter::Interpreter;
use crate::python::{CommandLine, Python, end_copies_at_once, settle};
use crate::spec::{absolute, load};
use crate::sys;

/// Annotation of a bundle's `config.json`: the program that gets an interpreter ready, compiled, as in the container.
const ANNOTATION: &str = "org.rlox.zygote";
/// Beside the standard library; a bundle without packages lacks it.
const SITE: &str = "/opt/rlox/site";
/// As the bundle's `process.args` have them.
const OPTIONS: [&str; 4] = ["-I", "-S", "-B", "-Xutf8"];

/// An interpreter that is ready to be copied.
#[derive(Clone, Copy)]
pub(crate) struct Zygote {
    python: Python,
    command_line: CommandLine,
    /// Memory that every copy writes to.
    written: &'static [Range<usize>],
}

impl Zygote {
    /// Starts the bundle's interpreter in this process and imports these modules; says why where that cannot be.
    pub(crate) fn start(bundle: &Path, modules: &[String]) -> Result<(Self, Report), String> {
        let spec = load(bundle).map_err(|error| error.to_string())?;
        let spec = absolute(spec, bundle);
        let annotations = spec.annotations().clone().unwrap_or_default();
        let program = annotations.get(ANNOTATION).ok_or("the bundle names no program for it")?;
        let root = spec.root().as_ref().ok_or("the bundle has no root")?.path();
        let root = std::fs::canonicalize(root).map_err(|error| format!("{}: {error}", root.display()))?;
        let interpreter = Interpreter::of_root(&root)?;
        let library = interpreter.library.as_ref().ok_or_else(|| {
            let version: Vec<_> = interpreter.version.split('.').take(2).collect();
            format!(
                "this host has Python {} without its shared library; install it (Debian, Ubuntu: apt install \
                 libpython{}), then prepare the bundles again",
                interpreter.version,
                version.join(".")
            )
        })?;
        let below = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
        let executable = below(&interpreter.executable);
        let executable = executable.to_str().ok_or("the bundle's path is no text")?;
        let command_line = CommandLine::own()?;
        let words: Vec<&str> = [executable].into_iter().chain(OPTIONS).chain(["-c", ""]).collect();
        let python = Python::start(&below(library), &words)?;
        let mut zygote = Self { python, command_line, written: &[] };
        let report = zygote.warm(&root, Path::new(program), modules)?;
        let mut lines = report.lines().map(str::to_owned);
        let version = lines.next().unwrap_or_default();
        if version != interpreter.version {
            return Err(format!("the library is Python {version}, the bundle's {}", interpreter.version));
        }
        let threads = std::fs::read_dir("/proc/self/task").map_err(|error| error.to_string())?.count();
        if threads != 1 {
            return Err(format!("importing {} started {} threads", modules.join(", "), threads - 1));
        }
        settle()?;
        // Lives as long as the process.
        zygote.written = zygote.written_pages()?.leak();
        end_copies_at_once()?;
        look_at_the_processor();
        Ok((zygote, Report::Warm { version, missing: lines.collect() }))
    }

    fn warm(&self, root: &Path, program: &Path, modules: &[String]) -> Result<String, String> {
        let literal = |text: &str| serde_json::to_string(text).map_err(|error| error.to_string());
        let place = program.parent().unwrap_or(program);
        let place = root.join(place.strip_prefix("/").unwrap_or(place));
        let name = program.file_stem().and_then(|name| name.to_str()).ok_or("its program has no name")?;
        let modules = modules.iter().map(|module| literal(module)).collect::<Result<Vec<_>, _>>()?.join(", ");
        let text = format!(
            "import sys\n\
             sys.path.insert(0, {place})\n\
             import {name} as zygote\n\
             del sys.path[0]\n\
             _failed = zygote.warm({root}, [{modules}], {site})\n\
             _answer = \"\\n\".join([sys.version.split()[0], *_failed]).encode()\n",
            place = literal(&place.to_string_lossy())?,
            root = literal(&root.to_string_lossy())?,
            site = literal(SITE)?,
        );
        let report = self.answer(&text).map_err(|reason| format!("{}: {reason}", program.display()))?;
        String::from_utf8(report).map_err(|error| error.to_string())
    }

    /// Memory that every copy writes to, from a first one that is no container.
    fn written_pages(&self) -> Result<Vec<Range<usize>>, String> {
        let words = self.answer("_answer = zygote.written_pages()\n")?;
        let words: Vec<usize> = words
            .as_chunks::<{ size_of::<usize>() }>()
            .0
            .iter()
            .map(|bytes| usize::from_ne_bytes(*bytes))
            .collect();
        Ok(words.as_chunks().0.iter().map(|[start, end]| *start..*end).collect())
    }

    /// The bytes that a piece of text leaves in `_answer`.
    fn answer(&self, text: &str) -> Result<Vec<u8>, String> {
        let mut file = memfd_create(c"rlox-zygote", MemFdCreateFlag::MFD_CLOEXEC)
            .map(File::from)
            .map_err(|error| error.to_string())?;
        self.python.run(&format!("{text}import posix\nposix.write({}, _answer)\n", file.as_raw_fd()))?;
        let mut answer = Vec::new();
        file.rewind()
            .and_then(|()| file.read_to_end(&mut answer))
            .map_err(|error| format!("reading the interpreter's answer: {error}"))?;
        Ok(answer)
    }

    /// Around the making of a container, of which each process is a copy of this one.
    pub(crate) fn around_fork<T>(&self, fork: impl FnOnce() -> T) -> T {
        self.python.before_fork();
        let result = fork();
        self.python.after_fork_parent();
        result
    }

    /// In a container's first process, which does not know yet what it is for: does what any program needs.
    pub(crate) fn arrive(&self) -> Result<(), String> {
        // A copy of a process that may not be looked into cannot look into itself either, in /proc.
        nix::sys::prctl::set_dumpable(true).map_err(|errno| format!("prctl: {errno}"))?;
        nix::sys::prctl::set_name(c"python3").map_err(|errno| format!("prctl: {errno}"))?;
        for range in self.written {
            // Page by page, at the first write to each, takes half as long again. What cannot be is done then.
            sys::populate(range).unwrap_or_default();
        }
        self.python.after_fork_child();
        self.python.run("zygote.arrive()")
    }

    /// Goes on as the interpreter that was started with this command line.
    pub(crate) fn enter(&self, args: &[String]) -> Result<(), String> {
        self.command_line.overwrite(args);
        let words = args.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>();
        let words = words.map_err(|error| error.to_string())?.join(", ");
        let ended = self.python.run(&format!("zygote.enter([{words}])"));
        self.python.exit(i32::from(ended.is_err()))
    }
}

/// The standard library asks the processor what it can when that first matters, and a virtual machine takes long to
/// answer. Every copy would ask again.
fn look_at_the_processor() {
    #[cfg(target_arch = "x86_64")]
    tracing::debug!(avx2 = std::arch::is_x86_feature_detected!("avx2"), "the processor");
}
