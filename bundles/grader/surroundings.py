"""What tests change around a call, so that the program sees it: streams, functions, seeds, environment, files.

Only what the statements' own text mentions is looked at, so that most verifications pay nothing for it.
"""

import contextlib
import importlib
import os
import re
import stat
import sys
import warnings

from files import DIRECTORY, MAX_BYTES, MAX_FILES, look

STREAMS = re.compile(r"redirect_std|sys\.std|\bpatch\b|capsys|\bstdout\b|\bstdin\b")
PATCHES = re.compile(r"\bpatch\b|setattr|builtins|\btime\.\w+ *=|\brandom\.\w+ *=|\bos\.\w+ *=")
PATCHED = re.compile(r"""patch\(\s*["']([\w.]+)\.(\w+)["']""")
SEEDS = re.compile(r"\bseed\b")
WARNINGS = re.compile(r"warns\b|catch_warnings|simplefilter|assertWarns")
LOGGING = re.compile(r"\blogging\b|assertLogs|assertNoLogs")
ENVIRONMENT = re.compile(r"environ|putenv")
FILES = re.compile(
    r"\bopen\b|tempfile|\bPath\b|pathlib|shutil|sqlite3|os\.(path|listdir|remove|mkdir|makedirs|walk|unlink)"
)

# None of the above without one of these: most statements are through with one search.
ANY = re.compile(
    r"std(out|err|in)|redirect|patch|capsys|setattr|builtins|time|random|\bos\b|warn|simplefilter|logging|Logs|seed|"
    r"environ|putenv|open|tempfile|[Pp]ath|shutil|sqlite3"
)

# Functions whose replacement by a test reaches the program.
REPLACEABLE = {
    "builtins": ("input", "print", "open"),
    "time": ("sleep", "time", "perf_counter", "monotonic", "time_ns"),
    "random": ("random", "randint", "choice", "choices", "shuffle", "uniform", "sample", "randrange"),
    "os": ("getenv", "listdir", "getcwd"),
    "os.path": ("exists", "isfile", "isdir"),
}


class Surroundings:
    """Watches what the statements may change; `send` tells the program before it is asked something."""

    def __init__(self, text):
        if not ANY.search(text):
            text = ""
        self._streams = bool(STREAMS.search(text))
        self._environment = dict(os.environ) if ENVIRONMENT.search(text) else None
        self._files = bool(FILES.search(text))
        self._replaced = {}
        if PATCHES.search(text):
            for module, names in REPLACEABLE.items():
                owner = importlib.import_module(module)
                self._replaced.update({(module, name): (owner, getattr(owner, name)) for name in names})
            for module, name in PATCHED.findall(text):
                owner = sys.modules.get(module) if module.partition(".")[0] in sys.stdlib_module_names else None
                if owner is not None and hasattr(owner, name):
                    self._replaced[module, name] = (owner, getattr(owner, name))
        self._original = {name: getattr(sys, name) for name in ("stdout", "stderr", "stdin")}
        self._warnings = bool(WARNINGS.search(text))
        self._logging = bool(LOGGING.search(text))
        self._seeds = []
        self._seeding = bool(SEEDS.search(text))
        self._inputs = {}
        self._sent = {}
        self._seen = {}
        self._busy = False

    @property
    def needed(self):
        return bool(
            self._streams
            or self._environment is not None
            or self._files
            or self._replaced
            or self._seeding
            or self._warnings
            or self._logging
        )

    @property
    def files(self):
        return self._files

    def start(self):
        """Begins to watch; for files, in a /tmp of this job's own."""
        if self._seeding:
            import random

            original = random.seed

            def seed(*args, **kwargs):
                value = args[0] if args else kwargs.get("a")
                if type(value) in (int, float, str, bytes):
                    self._seeds.append(value)
                return original(*args, **kwargs)

            random.seed = seed
        if self._files:
            self._seen = look()

    def send(self, session):
        if self._busy:
            return
        self._busy = True
        try:
            if self._files:
                self._send_files(session)
            overrides = self._overrides()
            marks = {name: id(value) for name, value in overrides.items() if name != "environ"}
            if self._seeds or "environ" in overrides or marks != self._sent:
                self._sent = marks
                if self._seeds:
                    overrides["seed"], self._seeds = self._seeds[-1], []
                if "environ" in overrides:
                    overrides["environ"] = tuple(overrides["environ"].items())
                session.request("stage", tuple(overrides.items()))
        finally:
            self._busy = False

    def _overrides(self):
        found = {}
        if self._streams:
            for name in ("stdout", "stderr"):
                if getattr(sys, name) is not self._original[name]:
                    found[name] = True
            stdin = sys.stdin
            if stdin is not self._original["stdin"] and hasattr(stdin, "read"):
                if id(stdin) not in self._inputs:
                    text = stdin.read()
                    # The object is kept, so that its id means it and no later one.
                    self._inputs[id(stdin)] = (stdin, text if type(text) is str else "")
                found["stdin"] = self._inputs[id(stdin)][1]
        for (module, name), (owner, original) in self._replaced.items():
            current = getattr(owner, name)
            if current is not original:
                found["%s.%s" % (module, name)] = current
        if self._environment is not None:
            before, now = self._environment, dict(os.environ)
            changed = {key: now.get(key) for key in now.keys() | before if now.get(key) != before.get(key)}
            if changed:
                self._environment = now
                found["environ"] = changed
        for name, wanted in (("files", self._files), ("warnings", self._warnings), ("logging", self._logging)):
            if wanted:
                found[name] = True
        return found

    def _send_files(self, session):
        now = look()
        changed = {}
        for path, mark in now.items():
            if self._seen.get(path) != mark and len(changed) < MAX_FILES:
                changed[path] = True if mark is True else read(path)
        changed.update({path: None for path in self._seen if path not in now})
        self._seen = now
        changed = {path: content for path, content in changed.items() if content != b"" or now.get(path)}
        if changed:
            session.request("files", tuple(changed.items()))

    def changed(self, kind, key, value):
        """What a reply says of streams and files."""
        if kind == "printed" and type(value) is str and key in ("stdout", "stderr"):
            if getattr(sys, key) is not self._original[key]:
                getattr(sys, key).write(value)
        elif kind == "warned" and isinstance(key, type) and issubclass(key, Warning) and type(value) is str:
            warnings.warn_explicit(value, key, "main.py", 1)
        elif kind == "logged" and type(key) is str and type(value) is tuple and len(value) == 2:
            level, text = value
            if type(level) is int and type(text) is str:
                import logging

                logger = logging.getLogger(key if key != "root" else None)
                if logger.isEnabledFor(level):
                    logger.handle(logger.makeRecord(key, level, "main.py", 1, text, (), None))
        elif kind == "file" and self._files and type(key) is str:
            write(key, value)
            self._seen = look()


def read(path):
    if os.path.getsize(path) > MAX_BYTES:
        raise ValueError("a file of more than %d bytes cannot be handed to the program" % MAX_BYTES)
    with open(path, "rb") as stream:
        return stream.read()


def write(path, content):
    """Makes /tmp here what the program made of it there: plain files and directories, no links."""
    normal = os.path.normpath(path)
    if not normal.startswith(DIRECTORY + "/") or "\0" in path or normal != path:
        return
    if content is None:
        with contextlib.suppress(OSError):
            os.rmdir(path) if stat.S_ISDIR(os.lstat(path).st_mode) else os.remove(path)
    elif content is True:
        os.makedirs(path, exist_ok=True)
    elif type(content) is bytes:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb") as stream:
            stream.write(content)
