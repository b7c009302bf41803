"""What surrounds a call as tests set it up: replaced streams and functions, seeds, and files in /tmp.

The tests run in another container. Where they replace `sys.stdout` or `input`, seed a generator or write a file,
the program has to see it, and what it prints or writes has to come back, as plain data.
"""

import builtins
import io
import os
import sys

from files import MAX_BYTES, MAX_FILES, look


class Stage:
    """Applied around each call; empty unless the tests set something."""

    def __init__(self):
        self._overrides = []
        self._streams = {}
        self._saved = []
        self._depth = 0
        self._watching = False
        self._seen = {}
        self._warnings = None
        self._records = None

    def set(self, overrides):
        self._overrides = []
        self._streams = {}
        for name, value in overrides:
            if name in ("stdout", "stderr"):
                self._streams[name] = io.StringIO()
                self._overrides.append((sys, name, self._streams[name]))
            elif name == "stdin":
                self._overrides.append((sys, name, io.StringIO(value)))
            elif name == "seed":
                import random

                random.seed(value)
            elif name == "environ":
                for key, content in value:
                    if content is None:
                        os.environ.pop(key, None)
                    else:
                        os.environ[key] = content
            elif name == "warnings":
                import warnings

                self._warnings = []
                show = lambda text, kind, *rest, **named: self._warnings.append((kind, str(text)))  # noqa: E731
                warnings.simplefilter("always")
                self._overrides.append((warnings, "showwarning", show))
            elif name == "logging":
                self._records = self._records if self._records is not None else listen()
            elif name == "files":
                self._watching = True
                self._seen = look()
            else:
                module, _, attribute = name.rpartition(".")
                owner = builtins if module == "builtins" else __import__("importlib").import_module(module)
                self._overrides.append((owner, attribute, value))

    def __enter__(self):
        self._depth += 1
        if self._depth == 1 and self._overrides:
            self._saved = [(owner, name, getattr(owner, name, None)) for owner, name, _ in self._overrides]
            for owner, name, value in self._overrides:
                setattr(owner, name, value)

    def __exit__(self, *error):
        self._depth -= 1
        if self._depth == 0 and self._saved:
            for owner, name, value in self._saved:
                setattr(owner, name, value)
            self._saved = []
        return False

    def changes(self):
        """What was printed to replaced streams, and which files changed, since the last reply."""
        found = []
        for name, stream in self._streams.items():
            text = stream.getvalue()
            if text:
                found.append(("printed", name, text))
                stream.seek(0)
                stream.truncate()
        if self._warnings:
            found += [("warned", kind, text) for kind, text in self._warnings]
            self._warnings.clear()
        if self._records:
            found += [("logged", record.name, (record.levelno, record.getMessage())) for record in self._records]
            self._records.clear()
        if self._watching:
            now = look()
            for path in [path for path, mark in now.items() if self._seen.get(path) != mark][:MAX_FILES]:
                content = read(path)
                if content is not None:
                    found.append(("file", path, content))
            found += [("file", path, None) for path in self._seen if path not in now]
            self._seen = now
        return found

    def write_files(self, files):
        for path, content in files:
            if content is None:
                remove(path)
            elif content is True:
                os.makedirs(path, exist_ok=True)
            else:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as stream:
                    stream.write(content)
        self._watching = True
        self._seen = look()


def listen():
    """Collects what the program logs; the tests' own handlers and levels decide about it."""
    import logging

    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(1)
    return records


def read(path):
    if os.path.isdir(path):
        return True
    if os.path.getsize(path) > MAX_BYTES:
        return None
    with open(path, "rb") as stream:
        return stream.read()


def remove(path):
    try:
        if os.path.isdir(path):
            os.rmdir(path)
        else:
            os.remove(path)
    except OSError:
        pass
