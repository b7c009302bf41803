"""Classes that stand for the program's classes and functions in the grader.

A mirror holds a number and forwards operations to the program's process; nothing of the program runs here. What a
program says about its own objects is believed as long as it cannot know what the test expects. Hence the rules:

- a mirror never equals plain data, whatever the program says;
- a value of a subclass of a builtin type is what its storage is;
- an operation that shows the program a plain operand may answer plainly only for an object that the test made
  itself from a class that it names as one (`Money(5) + 3`); for what a function returned, `f(2) - 3.5` would let
  the program answer the comparison.
"""

import inspect
import types

# How an object came about: made by a test from a class, or computed by the program from a plain operand.
OWN, DERIVED = 1, 2

VALUES = (int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict)
# Methods that change the value: these always run in the program, where the value lives.
MUTATORS = frozenset(
    "append extend insert remove pop clear sort reverse popitem update setdefault add discard "
    "difference_update intersection_update symmetric_difference_update".split()
)
# Questions with a plain answer that hold what the test expects.
QUESTIONS = frozenset(
    "startswith endswith issubset issuperset isdisjoint equals union intersection difference symmetric_difference "
    "compare index count find rfind rindex".split()
)
# The same, where a second argument says what to answer.
DEFAULTING = frozenset("get setdefault pop".split())
# What `ExitStack` looks up on a class: one that was not described would be the program's own, and could swallow a
# failed check.
MANAGING = frozenset(("__enter__", "__exit__", "__aenter__", "__aexit__"))
# What plain data can be asked: of a result that the test's operand went into, the program would answer knowingly.
PLAIN_NAMES = frozenset(
    name
    for kind in (*VALUES, __import__("datetime").timedelta, __import__("datetime").datetime)
    for name in dir(kind)
) | frozenset("all any max min mean sum item tolist shape size total".split())

NEEDLESS = "the result of an operator of the program can only be compared with its own objects"


_MRO = type.__dict__["__mro__"]


class Refused(TypeError):
    """The program would answer knowing what the test expects."""


class MirrorType(type):
    """The type of every mirror of a class."""

    def __new__(mcs, name, bases, body, **named):
        session = next((base._rlox_session for base in bases if "_rlox_class" in base.__dict__), None)
        if session is None:
            return type.__new__(mcs, name, bases, body)
        return session.subclass(name, bases, body, named)

    def __init__(cls, name, bases, body, **named):
        type.__init__(cls, name, bases, body)

    def __call__(cls, *args, **kwargs):
        return cls._rlox_session.construct(cls, args, kwargs)

    def __getattr__(cls, name):
        if name.startswith("_rlox") or name in MANAGING or "_rlox_session" not in cls.__dict__:
            raise AttributeError(name)
        value = cls._rlox_session.request("getattr", cls, name)
        if isinstance(value, MirrorType):
            value._rlox_session.name_class(value, name)
        return value

    def __setattr__(cls, name, value):
        if name.startswith(("_rlox", "__abstract")):
            type.__setattr__(cls, name, value)
        else:
            cls._rlox_session.request("setattr", cls, name, value)

    def __delattr__(cls, name):
        cls._rlox_session.request("delattr", cls, name)

    def __instancecheck__(cls, value):
        if type.__instancecheck__(cls, value):
            return True
        if not cls.__dict__.get("_rlox_instancecheck"):
            return False
        return cls._rlox_session.request("isinstance", value, cls) is True

    def __subclasscheck__(cls, kind):
        if type.__subclasscheck__(cls, kind):
            return True
        if not cls.__dict__.get("_rlox_instancecheck") or not isinstance(kind, type):
            return False
        return cls._rlox_session.request("issubclass", kind, cls) is True

    @property
    def __mro__(cls):
        """As the program sees it, without the classes that only this module has."""
        return tuple(each for each in _MRO.__get__(cls) if each not in HIDDEN)

    def mro(cls):
        full = type.mro(cls)
        return [each for each in full if each not in HIDDEN] if cls.__dict__.get("_rlox_made") else full

    def __dir__(cls):
        return list(cls._rlox_session.request("dir", cls))

    def __bool__(cls):
        return True

    def _of_class(cls, special, *args):
        if special not in cls.__dict__.get("_rlox_meta", ()):
            raise TypeError("%r is no collection" % cls.__name__)
        return cls._rlox_session.request("special", special.strip("_"), cls, *args)

    def __iter__(cls):
        return cls._of_class("__iter__")

    def __len__(cls):
        return cls._of_class("__len__")

    def __getitem__(cls, key):
        if "__getitem__" not in cls.__dict__.get("_rlox_meta", ()):
            return types.GenericAlias(cls, key)
        return cls._of_class("__getitem__", key)

    def __contains__(cls, value):
        return any(value is each or value == each for each in cls)


class Mirror(metaclass=MirrorType):
    """What all mirrors of instances share."""

    __slots__ = ()
    # The special methods of the program's class; and what a mirror of one of its own adds.
    _rlox_specials = ()
    _rlox_enum = False

    def __getattr__(self, name):
        if name.startswith("_rlox"):
            raise AttributeError(name)
        if self._rlox_mode & DERIVED and name in PLAIN_NAMES:
            self._rlox_session.refuse(NEEDLESS)
        if name in QUESTIONS and not self._rlox_mode & OWN:
            value = self._rlox_session.request("getattr", self, name)
            return _unanswered(self, name) if type(value) is MirrorFunction else value
        if name in DEFAULTING and not self._rlox_mode & OWN:
            return _without_default(self, name)
        return self._rlox_session.request("getattr", self, name)

    def __setattr__(self, name, value):
        if name.startswith("_rlox"):
            object.__setattr__(self, name, value)
        else:
            self._rlox_session.request("setattr", self, name, value)

    def __delattr__(self, name):
        self._rlox_session.request("delattr", self, name)

    def __dir__(self):
        return list(self._rlox_session.request("dir", self))

    def __reduce_ex__(self, protocol):
        # It stays with the program; unpickling makes the program's copy of it.
        return (unpickled, (self._rlox_number,))


class MirrorObject(Mirror):
    """An instance without builtin storage."""

    # `kept` is what a derived mirror shares its number with.
    __slots__ = ("__weakref__", "_rlox_kept", "_rlox_mode", "_rlox_number")

    def __eq__(self, other):
        if not isinstance(type(other), MirrorType):
            return False
        if other._rlox_number == self._rlox_number and "__eq__" not in type(self)._rlox_specials:
            return True
        return self._rlox_session.equal(self, other)

    def __ne__(self, other):
        if "__ne__" in type(self)._rlox_specials and isinstance(type(other), MirrorType):
            differs = self._rlox_session.request("special", "ne", self, other) is True
            if differs == (self == other):
                self._rlox_session.lied("equality: equal and unequal at once")
            return differs
        return not self == other

    def __hash__(self):
        return hash((MirrorObject, self._rlox_number))

    def __str__(self):
        return self._rlox_ask("str")

    def __repr__(self):
        return self._rlox_ask("repr")

    def __format__(self, form):
        return self._rlox_ask("format", form)

    @property
    def __dict__(self):
        return self._rlox_session.request("getattr", self, "__dict__")

    def _rlox_ask(self, name, *args):
        if self._rlox_mode & DERIVED and name == "format":
            self._rlox_session.refuse(NEEDLESS)
        return self._rlox_session.request("special", name, self, *args)

    def __del__(self):
        if not self._rlox_mode & DERIVED:
            self._rlox_session.released.append(self._rlox_number)


class MirrorFunction(MirrorObject):
    """A function or bound method of the program."""

    __slots__ = ()

    def __call__(self, *args, **kwargs):
        return self._rlox_session.call(self, args, kwargs)

    def __get__(self, instance, owner=None):
        return self if instance is None else types.MethodType(self, instance)

    @property
    def __class__(self):
        return types.FunctionType

    @property
    def __name__(self):
        return self._rlox_session.request("getattr", self, "__name__")

    @property
    def __doc__(self):
        return self._rlox_session.request("getattr", self, "__doc__")

    @property
    def __module__(self):
        return self._rlox_session.request("getattr", self, "__module__")

    @property
    def __signature__(self):
        parameters, returns = self._rlox_session.request("signature", self)
        empty = inspect.Parameter.empty
        made = [
            inspect.Parameter(
                name,
                inspect._ParameterKind(kind),
                default=default[0] if default else empty,
                annotation=annotation[0] if annotation else empty,
            )
            for default, annotation, name, kind in parameters
        ]
        return inspect.Signature(made, return_annotation=returns[0] if returns else empty)


class MirrorGenerator(MirrorObject):
    """A generator of the program."""

    __slots__ = ()

    def __iter__(self):
        return self

    def __next__(self):
        return self._rlox_session.advance("special", "next", self)

    @property
    def __class__(self):
        return types.GeneratorType

    def send(self, value):
        return self._rlox_session.advance("call", self._rlox_method("send"), (value,), {})

    def throw(self, *error):
        return self._rlox_session.advance("call", self._rlox_method("throw"), error, {})

    def close(self):
        return self._rlox_session.request("call", self._rlox_method("close"), (), {})

    def _rlox_method(self, name):
        return self._rlox_session.request("getattr", self, name)


class MirrorValue(Mirror):
    """An instance of a subclass of a builtin type: its storage is here, its other methods are the program's."""


class MirrorError(Mirror):
    """An exception of a class of the program, or one with state of its own."""

    def __str__(self):
        return self._rlox_text

    def __setattr__(self, name, value):
        if name.startswith("__"):
            object.__setattr__(self, name, value)
        else:
            Mirror.__setattr__(self, name, value)


HIDDEN = frozenset((Mirror, MirrorObject, MirrorValue, MirrorError))


def _unanswered(self, name):
    def method(*args, **kwargs):
        self._rlox_session.refuse("%r asks the program to judge itself: it returned no plain value" % name)

    return method


def _without_default(self, name):
    """`get` and the like of an object that a function returned: with a default it could return just that."""

    def method(*args):
        if len(args) > 1:
            self._rlox_session.refuse("%r with a default asks the program to repeat it" % name)
        return self._rlox_session.call(self._rlox_session.request("getattr", self, name), args, {})

    return method


def is_derived(value):
    return isinstance(value, Mirror) and bool(value._rlox_mode & DERIVED)


def make_class(name, bases, body):
    """A mirror of a class as the program describes it."""
    made = type.__new__(MirrorType, name, bases, body)
    type.__setattr__(made, "_rlox_made", True)
    return made


def unpickled(number):
    return Mirror._rlox_session.request("pickled", Mirror._rlox_session.known(number))


type.__setattr__(
    MirrorType, "__slots__", property(lambda cls: cls._rlox_session.request("getattr", cls, "__slots__"))
)


# What a class statement puts into a class by itself.
CLASS_NAMES = frozenset(("__module__", "__qualname__", "__classcell__", "__annotations__", "__doc__", "__dict__"))


def member(value):
    """How a member of a test's class crosses: functions stay here and are called back."""
    if isinstance(value, types.FunctionType):
        return ("function", value)
    if isinstance(value, property):
        return ("property", (value.fget, value.fset, value.fdel))
    if isinstance(value, (classmethod, staticmethod)):
        return (type(value).__name__, value.__func__)
    return ("value", value)


class Inherited:
    """A member of a class of the program from which a test derives, for `super()`."""

    def __init__(self, owner, name):
        self._owner = owner
        self._name = name

    def __get__(self, instance, owner=None):
        session = self._owner._rlox_session
        if instance is None:
            return session.request("getattr", owner, self._name)
        if type(instance) is self._owner:
            return session.request("getattr", instance, self._name)
        return session.request("inherited", self._owner, self._name, instance)
