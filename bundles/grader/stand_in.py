"""Stand-ins for what lives in the snippet's container.

A stand-in holds a number and forwards operations. It never equals a plain value, is never hashed by the
program's rules and never shows the program's text as its own. Names that the program took from the standard
library resolve to the grader's own copy, so that a patched `math.isclose` stays in the other container.
"""

import builtins
import importlib

import codec

# Pure modules that a test statement may reach through the program's own `import`: it gets this process's copy.
MODULES = frozenset(
    "array bisect calendar cmath collections copy dataclasses datetime decimal enum fractions functools heapq "
    "itertools json math numbers operator random re statistics string textwrap typing".split()
)
# Names that the program may have imported for the tests to use, again from this process's copy. Short on purpose:
# every other callable stays in the program's container and is called there.
LIBRARY = {
    "collections": frozenset(("Counter", "OrderedDict", "defaultdict", "deque", "namedtuple")),
    "copy": frozenset(("copy", "deepcopy")),
    "datetime": frozenset(("date", "datetime", "time", "timedelta")),
    "decimal": frozenset(("Decimal",)),
    "fractions": frozenset(("Fraction",)),
    "math": frozenset(
        ("ceil", "floor", "fsum", "gcd", "hypot", "isclose", "isinf", "isnan", "log", "sqrt", "trunc")
    ),
}


# Names of the library with which tests compare: never the program's, whatever it defines.
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
# Modules whose names nobody gives to a function: always this process's own.
TRUSTED_MODULES = frozenset(("cmath", "collections", "functools", "itertools", "json", "math", "operator", "re"))
PLAIN_TYPES = frozenset(
    ("bool", "bytes", "complex", "dict", "float", "frozenset", "int", "list", "set", "str", "tuple")
)


def trusted(name):
    """This process's own object of a name that tests compare with, or None."""
    if name in TRUSTED_MODULES:
        return importlib.import_module(name)
    if name in TRUSTED:
        return getattr(importlib.import_module(TRUSTED[name]), name)
    return None


class SnippetGone(BaseException):
    """The program's process ended or broke the protocol. Not an Exception: tests must not swallow it."""


class Session:
    """One conversation with one program."""

    def __init__(self, channel):
        self._channel = channel
        self._callbacks = []
        self._exceptions = {}
        self._stand_ins = {}
        self.gone = None
        # Questions asked: tests that never use the program prove nothing about it.
        self.questions = 0
        self._encoder = codec.Encoder(self._opaque)
        self._decoder = codec.Decoder(self._reference, self._no_callback)

    def wait_ready(self):
        """Waits until the program is loaded; returns what went wrong, or None."""
        try:
            message = self._receive()
        except SnippetGone:
            return "the program ended while loading: %s" % self.gone
        if type(message) is tuple and message[:1] == ("ready",):
            return None
        if type(message) is tuple and message[:1] == ("failed",) and len(message) == 3:
            self.gone = "loading failed"
            return _text(message[2])
        self.gone = "protocol: unexpected first message"
        return self.gone

    def alive(self):
        """Whether the program is still there after the last statement, shown by an answer made just now."""
        if self.gone:
            return False
        import secrets

        number = secrets.randbits(62)
        try:
            self.questions -= 1
            return self.request("ping", number) == number
        except BaseException:
            return False

    def lookup(self, name):
        """(found, value) of a name in the program."""
        answer = self._exchange(("get", name))
        if answer == ("absent",):
            return False, None
        return True, self._result(answer, ())

    def request(self, operation, *arguments):
        return self._result(self._exchange((operation, *arguments)), ())

    def call(self, target, args, kwargs):
        mutable = [a for a in args if type(a) in (list, dict, set, bytearray)]
        try:
            return self._result(self._exchange(("call", target, args, kwargs)), mutable)
        except StopIteration as error:
            # Only `next` may end an iteration of the test, as in a generator.
            raise RuntimeError("the program raised StopIteration") from error

    def _result(self, answer, mutable):
        if type(answer) is not tuple or not answer:
            self._broken("answer is no tuple")
        if answer[0] == "value" and len(answer) == 3 and type(answer[2]) is tuple:
            for mine, theirs in zip(mutable, answer[2], strict=False):
                _replace(mine, theirs)
            return answer[1]
        if answer[0] == "raised" and len(answer) == 6:
            raise self._exception(*answer[1:])
        self._broken("unknown answer")

    def _exchange(self, message):
        if self.gone:
            raise SnippetGone(self.gone)
        self.questions += 1
        data = self._encoder.encode(message)
        self._send(data)
        while True:
            answer = self._receive()
            if type(answer) is tuple and answer[:1] == ("callback",) and len(answer) == 4:
                self._call_back(*answer[1:])
                continue
            return answer

    def _call_back(self, number, args, kwargs):
        if type(number) is not int or not 0 <= number < len(self._callbacks):
            self._broken("callback of an unknown number")
        if type(args) is not tuple or type(kwargs) is not dict:
            self._broken("callback without arguments")
        try:
            reply = ("returned", self._callbacks[number](*args, **kwargs))
            data = self._encoder.encode(reply)
        except Exception as error:
            base = next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")
            data = self._encoder.encode(("raised", base, str(error)[:2000]))
        self._send(data)

    def _send(self, data):
        try:
            codec.send_frame(self._channel.send, data)
        except codec.WireError as error:
            self._broken(str(error))

    def _receive(self):
        try:
            return self._decoder.decode(codec.receive_frame(self._channel.recv))
        except codec.Closed:
            self._broken("its process ended")
        except codec.WireError as error:
            self._broken("protocol: %s" % error)

    def _broken(self, reason):
        self.gone = self.gone or reason
        raise SnippetGone(self.gone)

    def _opaque(self, value):
        if type(value) is StandIn:
            return codec.Ref(value._StandIn__number)
        if isinstance(value, type) and value in self._exceptions.values():
            return codec.Ref(next(n for n, kind in self._exceptions.items() if kind is value))
        if callable(value):
            self._callbacks.append(value)
            return codec.Callback(len(self._callbacks) - 1)
        raise TypeError("a %s of a test cannot be handed to the program" % type(value).__name__)

    def _reference(self, number, kind, name):
        """What a reference of the program becomes here."""
        if kind == "builtin" and name in PLAIN_TYPES:
            return getattr(builtins, name)
        if kind == "module":
            return importlib.import_module(name) if name in MODULES else UnavailableModule(name)
        if kind.startswith("library:"):
            library = kind.partition(":")[2].lstrip("_")
            if name in LIBRARY.get(library, ()):
                return getattr(importlib.import_module(library), name)
        if kind.startswith("exception:"):
            return self._exception_class(number, kind.partition(":")[2], name)
        if number not in self._stand_ins:
            self._stand_ins[number] = StandIn(self, number, name)
        return self._stand_ins[number]

    def _no_callback(self, number):
        raise codec.WireError("the program sent a callback")

    def _exception_class(self, number, base, name):
        if number not in self._exceptions:
            parent = _builtin_exception(base)
            self._exceptions[number] = type(name[:80] or "Error", (parent,), {})
        return self._exceptions[number]

    def _exception(self, base, name, number, text, args):
        if type(args) is not tuple or type(number) is not int:
            self._broken("malformed exception")
        parent = _builtin_exception(_text(base))
        kind = self._exception_class(number, _text(base), _text(name)) if number else parent
        try:
            return kind(*args) if args else kind(_text(text))
        except Exception:
            return Exception("%s: %s" % (_text(name), _text(text)))


def _builtin_exception(name):
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        return kind
    return Exception


def _text(value):
    return value if type(value) is str else "?"


def _replace(mine, theirs):
    """Makes an argument what the program made of its copy."""
    if type(mine) is not type(theirs):
        return
    if type(mine) in (list, bytearray):
        mine[:] = theirs
    else:
        mine.clear()
        mine.update(theirs)


class UnavailableModule:
    """A module that only the program has. Its functions would let the program judge itself."""

    def __init__(self, name):
        self.__dict__["_name"] = name[:80]

    def __getattr__(self, name):
        raise ImportError("the tests have no module %r of their own" % self._name)


class StandIn:
    """An object in the program's process.

    There is no `in`, no ordering against plain values and no arithmetic with a plain result: with these, the
    program would see what the test expects and answer the comparison itself.
    """

    __slots__ = ("__derived", "__name", "__number", "__session")

    def __init__(self, session, number, name):
        object.__setattr__(self, "_StandIn__session", session)
        # Made by an operator from a plain operand of the test: it may only be compared with another object of
        # the program, for every other question would let the program answer knowing what the test expects.
        object.__setattr__(self, "_StandIn__derived", False)
        object.__setattr__(self, "_StandIn__number", number)
        object.__setattr__(self, "_StandIn__name", name[:80])

    def __ask(self, operation, *arguments):
        if self.__derived:
            raise TypeError("the result of an operator of the program can only be compared with its own objects")
        return self.__session.request(operation, *arguments)

    def __call__(self, *args, **kwargs):
        if self.__derived:
            raise TypeError("the result of an operator of the program can only be compared with its own objects")
        return self.__session.call(self, args, kwargs)

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__") and name not in _READABLE:
            raise AttributeError(name)
        return self.__ask("getattr", self, name)

    def __setattr__(self, name, value):
        self.__ask("setattr", self, name, value)

    def __delattr__(self, name):
        self.__ask("delattr", self, name)

    def __getitem__(self, key):
        return self.__ask("getitem", self, key)

    def __setitem__(self, key, value):
        self.__ask("setitem", self, key, value)

    def __delitem__(self, key):
        self.__ask("delitem", self, key)

    def __len__(self):
        return self.__ask("len", self)

    def __bool__(self):
        return self.__ask("truth", self) is True

    def __iter__(self):
        return self.__ask("iter", self)

    def __next__(self):
        return self.__ask("next", self)

    def __int__(self):
        return self.__ask("int", self)

    def __float__(self):
        return self.__ask("float", self)

    def __str__(self):
        return _text(self.__ask("str", self))

    def __repr__(self):
        return "<%s of the program>" % self.__name

    def __enter__(self):
        return self.__ask("enter", self)

    def __exit__(self, *error):
        self.__ask("exit", self)
        return False

    def __instancecheck__(self, other):
        return type(other) is StandIn and self.__session.request("isinstance", other, self) is True

    def __subclasscheck__(self, other):
        return type(other) is StandIn and self.__session.request("issubclass", other, self) is True

    def __hash__(self):
        return hash((StandIn, self.__number))

    def __eq__(self, other):
        # Only two objects of the program compare by its rules; a plain value never equals an opaque one.
        if type(other) is not StandIn:
            return False
        if other._StandIn__number == self.__number:
            return True
        return self.__session.request("operator", "eq", self, other) is True

    def __ne__(self, other):
        return not self == other


_READABLE = frozenset(("__name__", "__doc__", "__qualname__", "__dict__", "__wrapped__"))


def _operate(session, name, *operands):
    """An operator of the program's own; what comes back has to stay opaque."""
    result = session.request("operator", name, *operands)
    if result is NotImplemented:
        return result
    if type(result) is not StandIn:
        raise TypeError("an operator of the program's object gave a plain value")
    if all(type(operand) is StandIn and not operand._StandIn__derived for operand in operands):
        return result
    derived = StandIn(session, result._StandIn__number, "result")
    object.__setattr__(derived, "_StandIn__derived", True)
    return derived


def _forward(name):
    def method(self, *others):
        return _operate(self._StandIn__session, name, self, *others)

    return method


def _forward_reversed(name):
    def method(self, other):
        return _operate(self._StandIn__session, name, other, self)

    return method


def _ordering(name):
    def method(self, other):
        if type(other) is not StandIn:
            raise TypeError("an object of the program is not ordered against a plain value")
        return self._StandIn__session.request("operator", name, self, other) is True

    return method


for _name in "add sub mul matmul truediv floordiv mod pow lshift rshift and_ or_ xor".split():
    _dunder = _name.strip("_")
    setattr(StandIn, "__%s__" % _dunder, _forward(_name))
    setattr(StandIn, "__r%s__" % _dunder, _forward_reversed(_name))
for _name in "neg pos abs invert".split():
    setattr(StandIn, "__%s__" % _name, _forward(_name))
for _name in "lt le gt ge".split():
    setattr(StandIn, "__%s__" % _name, _ordering(_name))
