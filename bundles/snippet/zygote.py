"""Runs in a launcher, before any container: gets the interpreter ready that every snippet then starts from.

A launcher starts this interpreter once, from the bundle's files, and each container's first process is a copy of
it. Everything imported here therefore has to look as if it had been imported inside the container, where the
bundle's root is `/`: modules are read below the root and are told their paths without it.

No code of a snippet ever runs in this process. What it holds, every snippet can read.
"""

import _frozen_importlib_external as external
import _imp
import gc
import sys
from _frozen_importlib import ModuleSpec

PROGRAMS = "/opt/rlox"
# Read by both ends of the conversation, and by nothing that a program would miss.
OWN = ("driver", "server", "exports", "foreign", "staging", "channel", "codec", "shared", "values", "files")

root = ""
rehearsal = None


class Source(external.SourceFileLoader):
    """Reads below the root what lies in the container at `path`."""

    def get_data(self, path):
        return super().get_data(root + path)

    def path_stats(self, path):
        return super().path_stats(root + path)

    def _cache_bytecode(self, source_path, cache_path, data):
        """The bundle stays as it is."""


class Sourceless(external.SourcelessFileLoader):
    def get_data(self, path):
        return super().get_data(root + path)


class Extension(external.ExtensionFileLoader):
    def create_module(self, spec):
        module = _imp.create_dynamic(ModuleSpec(spec.name, self, origin=root + spec.origin))
        module.__file__ = spec.origin
        return module


MOVED = {
    external.SourceFileLoader: Source,
    external.SourcelessFileLoader: Sourceless,
    external.ExtensionFileLoader: Extension,
}


class Finder:
    """Finds modules below the root by their paths in the container."""

    def __init__(self):
        self._finders = {}

    def find_spec(self, name, path=None, target=None):
        for entry in sys.path if path is None else path:
            spec = self._in(entry).find_spec(name)
            if spec is not None and spec.loader is not None:
                return self._moved(spec)
        return None

    def _in(self, entry):
        if entry not in self._finders:
            kinds = external._get_supported_file_loaders()
            self._finders[entry] = external.FileFinder(root + entry, *kinds)
        return self._finders[entry]

    def _moved(self, spec):
        spec.loader = MOVED[type(spec.loader)](spec.name, inside(spec.origin))
        spec.origin = inside(spec.origin)
        if spec.cached:
            spec.cached = inside(spec.cached)
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations = [inside(each) for each in spec.submodule_search_locations]
        return spec


def inside(path):
    """A path below the root as the container has it."""
    return path[len(root) :] if path.startswith(root + "/") else path


def move_interpreter():
    """The interpreter was started from below the root; makes it forget that."""
    for name in ("prefix", "exec_prefix", "base_prefix", "base_exec_prefix", "executable", "_base_executable"):
        setattr(sys, name, inside(getattr(sys, name)))
    sys._stdlib_dir = inside(sys._stdlib_dir)
    sys.path[:] = [inside(each) for each in sys.path]
    sys.orig_argv[:] = [inside(each) for each in sys.orig_argv]
    # Frozen ones know where their source would be.
    for module in list(sys.modules.values()):
        for name in ("__file__", "__cached__"):
            if isinstance(getattr(module, name, None), str):
                setattr(module, name, inside(getattr(module, name)))
        if isinstance(getattr(module, "__path__", None), list):
            module.__path__ = [inside(each) for each in module.__path__]
        spec = getattr(module, "__spec__", None)
        state = getattr(spec, "loader_state", None)
        if isinstance(getattr(state, "filename", None), str):
            state.filename = inside(state.filename)


def read_again():
    """Modules that the start read from below the root, read as everything else is."""
    import codecs
    import encodings

    search = encodings.search_function
    for name in [each for each in sys.modules if each.partition(".")[0] == "encodings"]:
        module = sys.modules[name]
        spec = finder.find_spec(name, encodings.__path__ if "." in name else None)
        module.__spec__, module.__loader__ = spec, spec.loader
        module.__file__, module.__cached__ = spec.origin, spec.cached
        spec.loader.exec_module(module)
    codecs.unregister(search)


def settle():
    """Leaves nothing of this module's loaders behind: in the container the usual ones find the same files."""
    sys.meta_path.remove(finder)
    sys.path_importer_cache.clear()
    usual = {moved: loader for loader, moved in MOVED.items()}
    for module in list(sys.modules.values()):
        for loader in (
            getattr(module, "__loader__", None),
            getattr(getattr(module, "__spec__", None), "loader", None),
        ):
            if type(loader) in usual:
                loader.__class__ = usual[type(loader)]


finder = Finder()


def warm(below, modules, site):
    """Imports what snippets are likely to import; returns a line of text on each module that could not be."""
    global root, rehearsal
    root = below
    move_interpreter()
    # What is frozen into the interpreter is no file.
    sys.meta_path.insert(sys.meta_path.index(external.PathFinder), finder)
    read_again()
    sys.path.insert(0, PROGRAMS)
    for name in OWN:
        __import__(name)
    import rehearsal

    del sys.path[0]
    if finder.find_spec("numpy", [site]):
        sys.path.append(site)
    failed = []
    for name in modules:
        try:
            __import__(name)
        except Exception as error:
            failed.append("%s: %s: %s" % (name, type(error).__name__, error))
    rehearsal.rehearse()
    del sys.modules["rehearsal"]
    settle()
    gc.collect()
    # Objects made so far are shared with every copy as long as nobody writes to them; the collector would.
    gc.freeze()
    return failed


def written_pages():
    """What every copy writes to: to be asked when all else is done."""
    return rehearsal.written_pages()


def arrive():
    """In a container's first process, before it is known what it is for."""
    generator = sys.modules.get("numpy.random")
    if generator is not None:
        generator.seed()


def enter(command_line):
    """What the interpreter would do with this command line."""
    sys.orig_argv[:] = command_line
    options = sum(word.startswith("-") for word in command_line)
    arguments = command_line[1 + options :]
    if arguments[1:] != ["serve"]:
        for name in OWN[1:]:
            sys.modules.pop(name, None)
    sys.argv = arguments
    driver = sys.modules.pop("driver")
    driver.__name__ = "__main__"
    sys.modules["__main__"] = driver
    sys.modules.pop("zygote", None)
    try:
        driver.main()
        code = 0
    except SystemExit as error:
        code = status(error.code)
    end(code)


def status(code):
    """The exit status that the interpreter gives for `sys.exit(code)`."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def end(code):
    """Ends the process as the interpreter does, but for taking apart what is shared and dies with it anyway."""
    import _thread
    import atexit
    import os

    threading = sys.modules.get("threading")
    if threading is not None and threading._main_thread.ident == _thread.get_ident():
        threading._shutdown()
    atexit._run_exitfuncs()
    flushed = flush()
    program = sys.modules.get("__main__")
    if program is not None:
        # Objects of the program may have a last word.
        names = list(program.__dict__)
        for name in sorted(names, key=lambda name: not name.startswith("_")):
            if name != "__builtins__":
                program.__dict__[name] = None
        gc.collect()
    os._exit(code if flush() and flushed else 120)


def flush():
    """Writes out what was printed; false where standard output cannot be written to any more."""
    written = True
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name, None)
        try:
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
        except Exception:
            written = written and name != "stdout"
    return written
