"""What the program's values become on the wire when they are not plain data: numbered handles with a description.

A description says what a class looks like from outside (its name, bases and special methods), so that the grader
can build something that behaves alike. It is the program's claim about itself and is treated as one there.
"""

import sys

import codec

BUILTIN_VALUES = (int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict)
SCALARS = (bool, int, float, complex, str, bytes)
ROOTS = frozenset((object, BaseException, Exception, *BUILTIN_VALUES))
SOLUTION = "solution"
# Special methods that the grader can forward.
SPECIAL = frozenset(
    "__%s__" % name
    for name in (
        "call len iter next reversed getitem setitem delitem missing contains bool eq ne lt le gt ge hash "
        "str repr format bytes int float complex index round trunc floor ceil abs neg pos invert divmod rdivmod "
        "add radd sub rsub mul rmul matmul rmatmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow "
        "lshift rshift and or xor rand ror rxor iadd isub imul imatmul itruediv ifloordiv imod ipow iand ior ixor "
        "enter exit aenter aexit aiter anext await fspath"
    ).split()
)
ABSTRACT = frozenset(
    "Container Iterable Iterator Sequence MutableSequence Mapping MutableMapping Set MutableSet Callable".split()
)
# Types whose instances are functions; any other callable object is an object.
FUNCTIONS = frozenset(
    "function builtin_function_or_method method method-wrapper method_descriptor wrapper_descriptor".split()
)
MODULE = type(codec)
MEMBER = type(AttributeError.name)


def numpy_scalar(value):
    """The number, truth value or text that a scalar of numpy holds, or None: tests compare it with plain ones."""
    generic = getattr(sys.modules.get("numpy"), "generic", None)
    if isinstance(generic, type) and isinstance(value, generic):
        plain = value.item()
        if type(plain) in SCALARS:
            return plain
    return None


class Exports:
    """Numbers for objects of the program that the grader refers to."""

    def __init__(self, foreign):
        self._foreign = foreign
        self._objects = {}
        self._numbers = {}
        self._last = 0
        # In the order in which they were described.
        self._described = {}
        # Instances of subclasses of list, dict and set: their storage crosses again when it has changed.
        self.stored = {}

    def __getitem__(self, number):
        return self._objects[number]

    def number(self, value):
        number = self._numbers.get(id(value))
        if number is None:
            self._last += 1
            number = self._last
            # Keeping the object keeps its id from meaning another one.
            self._objects[number] = value
            self._numbers[id(value)] = number
        return number

    def release(self, numbers):
        """Forgets objects to which the grader no longer refers, so that they can end as usual."""
        for number in numbers:
            value = self._objects.pop(number, None)
            self.stored.pop(number, None)
            self._numbers.pop(id(value), None)

    def undescribed(self, mark):
        """How many classes are described; with a mark, those after it were not sent after all."""
        if mark is not None:
            while len(self._described) > mark:
                self._described.popitem()
        return len(self._described)

    def handle(self, value):
        kind = type(value)
        number = self._foreign.number(value)
        if number is not None:
            return codec.Handle(codec.TESTS, number)
        if isinstance(value, type):
            return self.of_class(value)
        if isinstance(value, MODULE):
            return codec.Handle(codec.PROGRAM, 0, "module", str(getattr(value, "__name__", "")))
        if isinstance(value, BaseException):
            return self.of_exception(value)
        scalar = numpy_scalar(value)
        if scalar is not None:
            return scalar
        stored = codec.storage(value)
        if stored is not None:
            number = self.number(value)
            if isinstance(value, (list, dict, set, bytearray)):
                self.stored[number] = value
            return codec.Handle(codec.STORED, number, self.of_class(kind), stored)
        if kind.__module__ == "builtins" and kind.__name__ in ("generator", "coroutine", "async_generator"):
            return codec.Handle(codec.PROGRAM, self.number(value), kind.__name__)
        name = getattr(value, "__qualname__", None)
        if kind.__name__ in FUNCTIONS and kind.__module__ == "builtins" and isinstance(name, str):
            module = getattr(value, "__module__", None)
            module = module if isinstance(module, str) else ""
            return codec.Handle(codec.PROGRAM, self.number(value), "function", module, name)
        return codec.Handle(codec.PROGRAM, self.number(value), "object", self.of_class(kind))

    def of_class(self, kind):
        number = self.number(kind)
        if number in self._described:
            return codec.Handle(codec.PROGRAM, number, "class")
        self._described[number] = True
        bases = tuple(self.of_class(base) for base in kind.__bases__ if base is not object)
        lineage = [base for base in kind.__mro__ if base not in ROOTS and not is_builtin_error(base)]
        names = set()
        for base in lineage:
            names.update(base.__dict__)
        return codec.Handle(
            codec.PROGRAM,
            number,
            "class",
            known_module(kind),
            kind.__qualname__,
            kind.__doc__ if type(kind.__doc__) is str else None,
            bases,
            tuple(sorted(SPECIAL & names)),
            self._flags(kind, lineage, names),
        )

    def _flags(self, kind, lineage, names):
        flags = {}
        if kind.__hash__ is None:
            flags["unhashable"] = True
        fields = kind.__dict__.get("__dataclass_fields__")
        if isinstance(fields, dict):
            flags["fields"] = [name for name in fields if isinstance(name, str)]
        meta = type(kind)
        if meta is not type:
            flags["meta"] = [name for name in ("__iter__", "__len__", "__getitem__") if hasattr(meta, name)]
            check = getattr(meta, "__instancecheck__", None)
            if getattr(check, "__module__", None) in ("abc", "typing") and known_module(meta) != SOLUTION:
                flags["instancecheck"] = True
        if any(base.__module__ == "enum" and known_module(base) != SOLUTION for base in lineage):
            flags["enum"] = True
        for base in kind.__mro__:
            if base in BUILTIN_VALUES:
                flags["overrides"] = [n for n in names if not n.startswith("__") and hasattr(base, n)]
                break
        abstract = [b.__name__ for b in lineage if known_module(b) == "collections.abc" and b.__name__ in ABSTRACT]
        if abstract:
            flags["abstract"] = abstract
        return flags

    def of_exception(self, error, depth=0):
        number = self._foreign.number(error)
        if number is not None:
            return codec.Handle(codec.TESTS, number)
        try:
            text = str(error)[:2000]
        except BaseException:
            text = ""
        # The class first: the description of a class comes where it is first mentioned.
        kind = self.of_class(type(error))
        state = {k: v for k, v in vars(error).items() if isinstance(k, str) and not k.startswith("_")}
        for name in ("name", "path", "filename", "filename2"):
            if isinstance(getattr(type(error), name, None), MEMBER) and isinstance(getattr(error, name), str):
                state[name] = getattr(error, name)
        if depth < 3:
            chain = [each and self.of_exception(each, depth + 1) for each in (error.__cause__, error.__context__)]
        else:
            chain = [None, None]
        notes = getattr(error, "__notes__", None)
        return codec.Handle(
            codec.PROGRAM,
            self.number(error),
            "exception",
            kind,
            # An argument that is large stays behind; the text is there in any case.
            tuple(a if is_small(a) else None for a in error.args),
            text,
            {k: v for k, v in state.items() if is_small(v)},
            (*chain, error.__suppress_context__, tuple(notes) if isinstance(notes, list) else None),
        )


def known_module(kind):
    """The module of a class of the library; any other class is the program's, whatever it says."""
    import sys

    module = kind.__module__
    if not isinstance(module, str):
        return SOLUTION
    found = sys.modules.get(module)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return module if found is kind else (module if module == "builtins" and not is_heap(kind) else SOLUTION)


def is_heap(kind):
    """Whether a class was made by a class statement and not by the interpreter."""
    return bool(kind.__flags__ & 1 << 9)


def is_builtin_error(kind):
    return kind.__module__ == "builtins" and issubclass(kind, BaseException)


def is_small(value):
    return not isinstance(value, (str, bytes, list, tuple, dict, set)) or len(value) < 2000
