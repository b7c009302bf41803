"""Objects of the tests that were handed to the program, and what it may do with them.

The program may call what it was given and use public attributes of objects whose classes the tests define, and
nothing else of this process: no private name, no frame, no test case, no code.
"""

import _thread
import inspect
import io
import operator
import sys
import types

import codec

MODULE = "__main__"
# Classes of the library whose instances tests hand over for their methods.
OPEN = (
    io.IOBase,
    type(_thread.allocate_lock()),
    _thread.RLock,
)
# More of them, by name: what nobody has imported has no instances, and costs each fork nothing.
OPEN_NAMES = (
    ("queue", ("Queue",)),
    ("threading", ("Event", "Condition", "Semaphore")),
    ("random", ("Random",)),
)
CLOSED = (types.ModuleType, types.FrameType, types.CodeType)
FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType)
SPECIALS = (
    "call len iter next reversed getitem setitem delitem contains bool eq lt le gt ge hash str repr format int "
    "float index abs neg add radd sub rsub mul rmul truediv rtruediv floordiv mod and or xor enter exit"
).split()
MOCK_WORDS = frozenset(
    "side_effect return_value called call_count call_args call_args_list mock_calls method_calls".split()
)


def of_tests(kind):
    return getattr(kind, "__module__", None) == MODULE


def is_test_case(value):
    unittest = sys.modules.get("unittest")
    kind = value if isinstance(value, type) else type(value)
    return unittest is not None and issubclass(kind, unittest.TestCase)


def is_open(value):
    """Whether a class of the library has instances that tests hand over for their methods."""
    loaded = ((sys.modules.get(module), names) for module, names in OPEN_NAMES)
    found = tuple(getattr(module, name) for module, names in loaded if module for name in names)
    return isinstance(value, (*OPEN, *found))


def is_mock(value):
    return type(value).__module__ == "unittest.mock"


class Handed:
    """The tests' objects by number."""

    def __init__(self, session):
        self._session = session
        self._objects = []
        self._numbers = {}
        self._running = {}

    def resolve(self, number, *rest):
        if type(number) is not int or rest or not 0 <= number < len(self._objects):
            raise codec.WireError("an object of the tests that was never handed over")
        return self._objects[number]

    def _number(self, value):
        number = self._numbers.get(id(value))
        if number is not None:
            return number, True
        self._objects.append(value)
        self._numbers[id(value)] = len(self._objects) - 1
        return len(self._objects) - 1, False

    def handle(self, value):
        named = library_name(value)
        if named is not None:
            return codec.Handle(codec.TESTS, 0, "library", *named)
        if isinstance(value, types.ModuleType) and value.__name__ in sys.stdlib_module_names:
            return codec.Handle(codec.TESTS, 0, "module", value.__name__)
        if isinstance(value, types.TracebackType):
            return None
        if isinstance(value, CLOSED) or is_test_case(value):
            raise TypeError("a %s of a test cannot be handed to the program" % type(value).__name__)
        number, known = self._number(value)
        if known:
            return codec.Handle(codec.TESTS, number)
        if isinstance(value, BaseException):
            return codec.Handle(codec.TESTS, number, "exception", type(value), value.args)
        if isinstance(value, types.CoroutineType):
            return codec.Handle(codec.TESTS, number, "coroutine")
        if isinstance(value, type) and issubclass(value, BaseException):
            base = value.__bases__[0]
            return codec.Handle(codec.TESTS, number, "error-class", value.__name__, base)
        kind = type(value)
        if isinstance(value, type):
            return self._of_class(number, value)
        if isinstance(value, FUNCTIONS):
            return codec.Handle(codec.TESTS, number, "function", *described(value))
        stored = codec.storage(value)
        if stored is not None:
            own = {name for base in kind.__mro__ if of_tests(base) for name in base.__dict__}
            specials = tuple(name for name in special_names(kind) if name in own)
            return codec.Handle(codec.TESTS, number, "stored", kind.__name__, specials, stored)
        of = kind if of_tests(kind) else None
        return codec.Handle(codec.TESTS, number, "object", of, kind.__name__, special_names(kind))

    def _of_class(self, number, kind):
        """A class that the tests define: the program can tell its instances, and make some."""
        bases = tuple(base for base in kind.__bases__ if of_tests(base) and not issubclass(base, BaseException))
        return codec.Handle(codec.TESTS, number, "class", kind.__name__, special_names(kind), bases)

    def perform(self, operation, args, kwargs):
        """Does what the program asks of an object that it was given."""
        if not args:
            raise TypeError("a question without its object")
        value, *rest = args
        if id(value) not in self._numbers:
            raise TypeError("an object that was never handed over")
        if operation == "call":
            return value(*rest, **kwargs)
        if operation == "await" and isinstance(value, types.CoroutineType):
            if id(value) not in self._running:
                self._running[id(value)] = Running(value)
            return self._running[id(value)].poll()
        if kwargs:
            raise TypeError("unknown question")
        if operation == "getattr":
            return self._attribute(value, *rest)
        if operation == "setattr":
            name, content = rest
            if not of_tests(value if isinstance(value, type) else type(value)) or not is_public(name):
                raise AttributeError("attribute %r of a test's object cannot be set" % (name,))
            if self._session.held_attributes is not None:
                self._session.held_attributes.append((value, name, content))
            else:
                setattr(value, name, content)
            return None
        special = "__%s__" % operation
        if operation not in SPECIALS or not defines(type(value), special):
            raise TypeError("a test's object does not support %r" % (operation,))
        return PERFORM[operation](value, *rest)

    def _attribute(self, value, name):
        if not is_public(name):
            raise AttributeError("attribute %r of a test's object is private" % (name,))
        kind = value if isinstance(value, type) else type(value)
        open_kind = of_tests(kind) or is_open(value) or codec.storage(value) is not None
        mock = (
            is_mock(value)
            and name not in MOCK_WORDS
            and not name.startswith(("assert", "mock_", "reset", "configure"))
        )
        if not (open_kind or mock):
            raise AttributeError("%r object has no attribute %r" % (kind.__name__, name))
        return getattr(value, name)


def special_names(kind):
    return tuple("__%s__" % name for name in SPECIALS if defines(kind, "__%s__" % name))


def described(value):
    """Name, documentation, whether calling it gives a coroutine, and its parameters if it is written in Python."""
    name, doc = getattr(value, "__name__", None), getattr(value, "__doc__", None)
    parameters = None
    if (
        isinstance(value, (types.FunctionType, types.MethodType))
        and type(getattr(value, "__code__", None)) is types.CodeType
    ):
        empty = inspect.Parameter.empty
        try:
            parameters = tuple(
                (p.name, int(p.kind), None if p.default is empty else (p.default,))
                for p in inspect.signature(value, follow_wrapped=False).parameters.values()
            )
        except (ValueError, TypeError):
            parameters = None
    return (
        name if type(name) is str else "function",
        doc if type(doc) is str else None,
        inspect.iscoroutinefunction(value),
        parameters,
    )


class Running:
    """A test's coroutine that the program awaits: in an event loop of its own, as the tests' loop waits itself."""

    def __init__(self, coroutine):
        self._result = None
        import threading

        threading.Thread(target=self._run, args=(coroutine,), daemon=True).start()

    def _run(self, coroutine):
        try:
            import asyncio

            self._result = (True, asyncio.run(coroutine))
        except BaseException as error:
            self._result = (False, error)

    def poll(self):
        """(done, result); raises what the coroutine raised."""
        if self._result is None:
            return (False, None)
        succeeded, result = self._result
        if not succeeded:
            raise result
        return (True, result)


def is_public(name):
    return type(name) is str and not name.startswith("_")


def defines(kind, special):
    """Whether the class, and not only `object`, has this special method."""
    for base in kind.__mro__:
        if base is not object and special in base.__dict__:
            return base.__dict__[special] is not None
    return False


PERFORM = {
    "len": len,
    "iter": iter,
    "next": next,
    "reversed": reversed,
    "bool": bool,
    "hash": hash,
    "str": str,
    "repr": repr,
    "format": format,
    "int": int,
    "float": float,
    "and": operator.and_,
    "or": operator.or_,
    "enter": lambda value: type(value).__enter__(value),
    "exit": lambda value, *error: type(value).__exit__(value, *error),
}
for _name in SPECIALS:
    if _name not in PERFORM and _name != "call":
        _reversed = _name.startswith("r") and hasattr(operator, _name[1:])
        _function = getattr(operator, _name[1:] if _reversed else _name)
        PERFORM[_name] = (lambda f: lambda value, other: f(other, value))(_function) if _reversed else _function


def library_name(value):
    """(module, path) of something of the standard library that is better taken from the program's own copy."""
    if not (isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)) or is_descriptor(value)):
        return None
    owner = getattr(value, "__objclass__", None)
    module = getattr(value, "__module__", None) or getattr(owner, "__module__", None)
    path = getattr(value, "__qualname__", None)
    if type(module) is not str or type(path) is not str or "<" in path:
        return None
    if module.partition(".")[0] not in sys.stdlib_module_names or module == MODULE:
        return None
    found = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    return (module, path) if found is value else None


def is_descriptor(value):
    return isinstance(value, (types.MethodDescriptorType, types.WrapperDescriptorType))
