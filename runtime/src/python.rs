//! CPython inside a launcher: loaded from the bundle, started once, and forked with every container.
//!
//! Starting an interpreter costs more than everything else that a container needs. The launcher therefore starts one
//! and hands each container's first process a copy of it, by fork. The library is opened at run time: which CPython it
//! is, the bundle decides. Only functions of its stable interface are called, and no structure of it is read.
#![expect(unsafe_code, reason = "calls of a library that is opened at run time, each with its reason")]

mod arenas;

pub(crate) use arenas::settle;

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};

/// Room for a `PyConfig`, which the library fills in and reads; 3.14 needs less than a kilobyte.
const CONFIG_BYTES: usize = 8192;

#[repr(C, align(16))]
struct Config([u8; CONFIG_BYTES]);

/// The library's `PyStatus`, which it returns by value.
#[repr(C)]
struct Status {
    kind: c_int,
    function: *const c_char,
    message: *const c_char,
    exit_code: c_int,
}

type NoArguments = unsafe extern "C" fn();

/// A started interpreter.
#[derive(Clone, Copy)]
pub(crate) struct Python {
    run: unsafe extern "C" fn(*const c_char, *mut c_void) -> c_int,
    finalize: unsafe extern "C" fn() -> c_int,
    before_fork: NoArguments,
    after_fork_parent: NoArguments,
    after_fork_child: NoArguments,
}

struct Library(*mut c_void);

/// How the dynamic loader says that a library which is needed is not there; before it stands the name.
const NOT_FOUND: &str = ": cannot open shared object file: No such file or directory";

/// Libraries that a library may need, each of which may need others.
const MOST_NEEDED: usize = 32;

impl Library {
    /// Opens the bundle's library. What it needs and the host does not have, the bundle has beside it.
    fn open(path: &Path) -> Result<Self, String> {
        for _ in 0..MOST_NEEDED {
            let error = match Self::load(path) {
                Ok(library) => return Ok(library),
                Err(error) => error,
            };
            let missing = error.strip_suffix(NOT_FOUND).map(|name| path.with_file_name(name));
            match missing.filter(|missing| missing != path && missing.exists()) {
                Some(missing) => Self::open(&missing)?,
                None => return Err(format!("cannot load {}: {error}", path.display())),
            };
        }
        Err(format!("cannot load {}: it needs too much", path.display()))
    }

    fn load(path: &Path) -> Result<Self, String> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: the name is a valid string; extension modules look the library's symbols up globally. Its
        // initialisers are CPython's, which expect nothing of the process.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if handle.is_null() {
            return Err(last_error());
        }
        Ok(Self(handle))
    }

    /// The address of a function, which the caller gives its type.
    fn symbol(&self, name: &CStr) -> Result<*mut c_void, String> {
        // SAFETY: the handle is open for the life of the process and the name is a valid string.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if address.is_null() {
            return Err(format!("{} is missing: {}", name.to_string_lossy(), last_error()));
        }
        Ok(address)
    }

    fn no_arguments(&self, name: &CStr) -> Result<NoArguments, String> {
        // SAFETY: called for functions that CPython declares as `void (*)(void)`.
        Ok(unsafe { std::mem::transmute::<*mut c_void, NoArguments>(self.symbol(name)?) })
    }
}

fn last_error() -> String {
    // SAFETY: dlerror returns null or a string that is valid until the next call of this thread.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return "no reason given".into();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}

impl Python {
    /// Loads the library and starts the interpreter as this command line would.
    pub(crate) fn start(library: &Path, command_line: &[&str]) -> Result<Self, String> {
        let library = Library::open(library)?;
        // SAFETY: each is given the type with which CPython declares it.
        let (init, arguments, initialize, clear, run, finalize) = unsafe {
            (
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut Config)>(
                    library.symbol(c"PyConfig_InitPythonConfig")?,
                ),
                std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut Config, isize, *const *const c_char) -> Status,
                >(library.symbol(c"PyConfig_SetBytesArgv")?),
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const Config) -> Status>(
                    library.symbol(c"Py_InitializeFromConfig")?,
                ),
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut Config)>(
                    library.symbol(c"PyConfig_Clear")?,
                ),
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char, *mut c_void) -> c_int>(
                    library.symbol(c"PyRun_SimpleStringFlags")?,
                ),
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(
                    library.symbol(c"Py_FinalizeEx")?,
                ),
            )
        };
        let python = Self {
            run,
            finalize,
            before_fork: library.no_arguments(c"PyOS_BeforeFork")?,
            after_fork_parent: library.no_arguments(c"PyOS_AfterFork_Parent")?,
            after_fork_child: library.no_arguments(c"PyOS_AfterFork_Child")?,
        };
        arenas::provide(library.symbol(c"PyObject_SetArenaAllocator")?)?;
        let words = command_line
            .iter()
            .map(|word| CString::new(*word).map_err(|error| error.to_string()))
            .collect::<Result<Vec<_>, _>>()?;
        let pointers: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
        let count = isize::try_from(pointers.len()).map_err(|error| error.to_string())?;
        let mut config = Box::new(Config([0; CONFIG_BYTES]));
        let config: *mut Config = &raw mut *config;
        // SAFETY: the structure is larger than any version's; the pointers are as many as is said, and outlive the
        // call, which copies the words. The library is not initialised yet and this is the only thread.
        let started = unsafe {
            init(config);
            let status = arguments(config, count, pointers.as_ptr());
            if status.failed() { status } else { initialize(config) }
        };
        let result = if started.failed() { Err(started.reason()) } else { Ok(python) };
        // SAFETY: the structure was initialised above and is cleared once.
        unsafe { clear(config) };
        result
    }

    /// Runs a piece of text in `__main__`; what it raises is printed to standard error. `SystemExit` ends the process.
    pub(crate) fn run(&self, text: &str) -> Result<(), String> {
        let text = CString::new(text).map_err(|error| error.to_string())?;
        // SAFETY: the text is a valid string; null asks for no compiler flags. The interpreter is started, and this
        // thread, the only one, holds its lock.
        let code = unsafe { (self.run)(text.as_ptr(), std::ptr::null_mut()) };
        if code == 0 { Ok(()) } else { Err("it raised an exception".into()) }
    }

    /// Before this process forks.
    pub(crate) fn before_fork(&self) {
        // SAFETY: the interpreter is started and this thread holds its lock; the calls around a fork come in order.
        unsafe { (self.before_fork)() }
    }

    /// After it, in this process.
    pub(crate) fn after_fork_parent(&self) {
        // SAFETY: as above.
        unsafe { (self.after_fork_parent)() }
    }

    /// After it, in the copy.
    pub(crate) fn after_fork_child(&self) {
        // SAFETY: as above; the copy has one thread.
        unsafe { (self.after_fork_child)() }
    }

    /// Ends the interpreter and the process as `python` does at the end of a program.
    pub(crate) fn exit(&self, code: i32) -> ! {
        // SAFETY: the interpreter is started and not finalised yet.
        let flushed = unsafe { (self.finalize)() } == 0;
        // SAFETY: ends the process; handlers that libraries registered are meant to run.
        unsafe { libc::exit(if flushed { code } else { 120 }) }
    }
}

impl Status {
    /// Kind 0 is success; 2 is a wish to exit, which no command line of ours asks for.
    fn failed(&self) -> bool {
        self.kind != 0
    }

    fn reason(&self) -> String {
        if self.message.is_null() {
            return format!("the interpreter does not start (code {})", self.exit_code);
        }
        // SAFETY: CPython's messages are strings that live as long as the library.
        let message = unsafe { CStr::from_ptr(self.message) }.to_string_lossy().into_owned();
        let function = if self.function.is_null() {
            String::new()
        } else {
            // SAFETY: as above.
            format!("{}: ", unsafe { CStr::from_ptr(self.function) }.to_string_lossy())
        };
        format!("the interpreter does not start: {function}{message}")
    }
}

/// The process in which handlers of libraries run at its end, as they expect.
static ORIGINAL: AtomicI32 = AtomicI32::new(0);

unsafe extern "C" {
    fn on_exit(handler: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Lets copies of this process end at once. Handlers that the interpreter's libraries have registered would take apart
/// what the copy shares with it, page by page, which costs more than all else that a copy does.
pub(crate) fn end_copies_at_once() -> Result<(), String> {
    ORIGINAL.store(std::process::id().cast_signed(), Ordering::Relaxed);
    // SAFETY: the handler is a function of this program and lives as long as it; it takes no argument.
    let result = unsafe { on_exit(end_copy, std::ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err("no room for a handler of the process's end".into()) }
}

extern "C" fn end_copy(status: c_int, _: *mut c_void) {
    if std::process::id().cast_signed() == ORIGINAL.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: null asks for all streams of C to be written out.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    // SAFETY: ends the process. Handlers registered later have run already, earlier ones are those to be left out.
    unsafe { libc::_exit(status) }
}

/// The bytes of this process's command line, which a copy of it shows as `/proc/PID/cmdline`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommandLine {
    start: usize,
    length: usize,
}

impl CommandLine {
    /// Where the kernel put the words with which this process was executed.
    pub(crate) fn own() -> Result<Self, String> {
        let stat = std::fs::read_to_string("/proc/self/stat").map_err(|error| error.to_string())?;
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        // Fields 48 and 49; the first after the name is the third.
        let field = |number: usize| after_name.split_whitespace().nth(number - 3)?.parse::<usize>().ok();
        let (start, end) = field(48).zip(field(49)).ok_or("/proc/self/stat has no place of the words")?;
        let length = end.checked_sub(start).filter(|length| *length > 0).ok_or("there are no words")?;
        Ok(Self { start, length })
    }

    /// Writes other words over them, and zeros over the rest.
    pub(crate) fn overwrite(self, words: &[String]) {
        let mut text: Vec<u8> = words.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect();
        text.resize(self.length, 0);
        let target = self.start as c_long as *mut u8;
        // SAFETY: the kernel named this range of our own stack, which is writable and lives as long as the process; it
        // is the copy of a process in which nobody reads its arguments any more, and the text is exactly as long.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), target, self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_this_process_are_where_the_kernel_says() {
        let place = CommandLine::own().unwrap();
        let shown = std::fs::read("/proc/self/cmdline").unwrap();
        assert_eq!(place.length, shown.len());
    }

    #[test]
    fn a_library_that_is_not_there_or_is_none_is_an_error_with_its_name() {
        let error = Python::start(Path::new("/nonexistent/libpython.so"), &[]).err().unwrap();
        assert!(error.contains("/nonexistent/libpython.so"), "{error}");
        let error = Python::start(Path::new("libc.so.6"), &[]).err().unwrap();
        assert!(error.contains("PyConfig_InitPythonConfig is missing"), "{error}");
    }
}
