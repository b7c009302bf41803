"""What of the standard library the grader takes from its own copy where the program refers to it by name.

A patched `math.isclose`, `Counter` or `json` of the program thereby stays in the program's container.
"""

import builtins
import importlib
import sys

import mirror

# Modules whose import does something, or that hold this process's own secrets.
EXCLUDED = frozenset(
    "antigravity this idlelib turtle turtledemo tkinter lib2to3 ensurepip venv __main__ gc".split()
)
# Classes that are the same on both sides; instances cross by value, or are made by tests.
CLASSES = {
    "collections": frozenset("Counter OrderedDict defaultdict deque".split()),
    "datetime": frozenset("date datetime time timedelta timezone".split()),
    "decimal": frozenset(("Decimal",)),
    "fractions": frozenset(("Fraction",)),
    "array": frozenset(("array",)),
    "pathlib": frozenset(("Path", "PosixPath", "PurePath", "PurePosixPath")),
    "types": frozenset(("SimpleNamespace",)),
    "uuid": frozenset(("UUID",)),
    "builtins": frozenset(
        (
            *(kind.__name__ for kind in mirror.VALUES),
            "bool",
            "range",
            "slice",
            "object",
            "type",
            "NoneType",
            "memoryview",
        )
    ),
}
# Modules of pure functions: calling this process's own copy is calling the program's.
PURE = frozenset(("math", "cmath", "operator"))
FUNCTIONS = {"copy": frozenset(("copy", "deepcopy"))}
# Names with which tests compare: never the program's, whatever it defines.
TRUSTED = {
    "Counter": "collections",
    "OrderedDict": "collections",
    "defaultdict": "collections",
    "deque": "collections",
    "Decimal": "decimal",
    "Fraction": "fractions",
    "deepcopy": "copy",
    "isclose": "math",
    "isinf": "math",
    "isnan": "math",
}
TRUSTED_CLASSES = frozenset(name for name in TRUSTED if name != name.lower() or name in ("defaultdict", "deque"))
# Modules whose names nobody gives to a function: always this process's own.
TRUSTED_MODULES = frozenset(("cmath", "collections", "functools", "itertools", "json", "math", "operator", "re"))
# Exceptions with which a test runner is told something else than a failure.
NO_ERRORS = frozenset(("unittest", "doctest", "_pytest", "bdb"))


VALUE_NAMES = frozenset(name for names in CLASSES.values() for name in names)


def library_module(name):
    """This process's own module of a name, if it is one of the standard library."""
    if type(name) is not str:
        return None
    top, *inner = name.split(".")
    # `unittest.__main__` runs tests and ends the process, as a runner of the tests' own does.
    if "__main__" in inner or top.startswith("_") or top in EXCLUDED:
        return None
    if top in sys.stdlib_module_names:
        try:
            return importlib.import_module(name)
        except ImportError:
            return None
    return None


def library_class(module, name):
    """This process's own class, where the program names one of the library."""
    if module == "builtins":
        kind = getattr(builtins, name, None) if name != "NoneType" else type(None)
        if name in CLASSES["builtins"]:
            return kind
        return kind if is_error(kind) else None
    if name in CLASSES.get(module.lstrip("_"), ()):
        return getattr(importlib.import_module(module.lstrip("_")), name)
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names and top not in NO_ERRORS:
        found = library_module(module.lstrip("_"))
        kind = getattr(found, name, None) if found is not None else None
        if is_error(kind):
            return kind
    return None


def library_function(module, name):
    module = module.lstrip("_")
    found = getattr(importlib.import_module(module), name, None) if module in PURE or module in FUNCTIONS else None
    if module in PURE:
        return found if callable(found) and not name.startswith("_") else None
    return found if name in FUNCTIONS.get(module, ()) else None


def library_type(module, name):
    """The class of the library that a class of the program's interpreter is, for `isinstance`; never a value's."""
    found = builtins if module == "builtins" else library_module(module)
    kind = getattr(found, name, None) if found is not None and name not in VALUE_NAMES else None
    # What passes for a class or for an exception would be taken for one here.
    return kind if isinstance(kind, type) and not issubclass(kind, (*mirror.VALUES, type, BaseException)) else None


def is_error(kind):
    """Exceptions that may cross as themselves; those that end a process or a runner may not, but for these."""
    if not isinstance(kind, type) or not issubclass(kind, BaseException):
        return False
    return issubclass(kind, Exception) or kind in (BaseException, SystemExit, KeyboardInterrupt, GeneratorExit)


def builtin_error(kind):
    """The nearest exception class that is no mirror."""
    return next(base for base in kind.__mro__ if not isinstance(base, mirror.MirrorType))
