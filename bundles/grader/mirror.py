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

    __slots__ = ("_rlox_name",)

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


def _allowed(mirror, own, name, operands, result):
    """An operator's result, if the program could not know from a plain operand what to answer."""
    if result is NotImplemented:
        return result
    plain = [each for each in operands if not isinstance(type(each), MirrorType) or is_derived(each)]
    if isinstance(type(result), MirrorType):
        if own:
            result._rlox_mode |= OWN
            return result
        if isinstance(result, MirrorValue):
            return result
        return mirror._rlox_session.derived(result) if plain else result
    if plain and not own:
        mirror._rlox_session.refuse("an operator of the program's object gave a plain value")
    return result


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


REVERSIBLE = frozenset("add sub mul matmul truediv floordiv mod pow lshift rshift and or xor divmod".split())
OPPOSITE = {"lt": "__gt__", "gt": "__lt__", "le": "__gt__", "ge": "__lt__"}


def is_derived(value):
    return isinstance(value, Mirror) and bool(value._rlox_mode & DERIVED)


def _operator(special):
    name = special.strip("_")
    backwards = name.startswith("r") and name[1:] in REVERSIBLE
    plain_name = name[1:] if backwards else name

    def method(self, *others):
        session = self._rlox_session
        own = bool(self._rlox_mode & OWN)
        if isinstance(self, MirrorValue) and not own:
            return getattr(_base(type(self)), special)(self, *others)
        if is_derived(self) and not others:
            session.refuse(NEEDLESS)

        def ask(other):
            return session.request("special", plain_name, *((other, self) if backwards else (self, other)))

        if not others:
            return _allowed(self, own, name, (self,), session.request("special", plain_name, self))
        try:
            result = ask(others[0])
        except Exception as error:
            if own or isinstance(error, TypeError) or isinstance(type(others[0]), MirrorType):
                raise
            # It has seen the operand, and a test that tries again would ask one who knows.
            session.refuse("an operator of a result raised %s" % type(error).__name__)
        result = _allowed(self, own, name, (self, *others), result)
        numbers = type(others[0]) in (int, float) and type(result) in (int, float)
        # A difference to what the test expects must not be the same whatever that is.
        if plain_name in ("add", "sub") and numbers and ask(others[0] + 1) == result:
            session.lied("operators: the same result for any operand")
        return result

    return method


def _claim(special):
    """An operation without a plain operand that could be what the test expects."""
    name = special.strip("_")

    def method(self, *args):
        if isinstance(self, MirrorValue) and not self._rlox_mode & OWN and name not in ("str", "repr", "format"):
            return getattr(_base(type(self)), special)(self, *args)
        if is_derived(self) and name not in ("str", "repr"):
            self._rlox_session.refuse(NEEDLESS)
        if name == "next":
            return self._rlox_session.advance("special", name, self)
        return self._rlox_session.request("special", name, self, *args)

    return method


def _always(special):
    """An operation that only the program can carry out."""
    name = special.strip("_")

    def method(self, *args):
        if is_derived(self):
            self._rlox_session.refuse(NEEDLESS)
        return self._rlox_session.request("special", name, self, *args)

    return method


def _ordering(special):
    name = special.strip("_")
    strict = name in ("lt", "gt")

    def method(self, other):
        if isinstance(self, MirrorValue) and not self._rlox_mode & OWN:
            return getattr(_base(type(self)), special)(self, other)
        if not isinstance(type(other), MirrorType):
            if not self._rlox_mode & OWN:
                self._rlox_session.refuse("an object of the program is not ordered against a plain value")
            answer = self._rlox_session.request("special", name, self, other)
            opposite = OPPOSITE[name]
            contradicts = answer is True and opposite in type(self)._rlox_specials
            if contradicts and self._rlox_session.request("special", opposite.strip("_"), self, other) is True:
                self._rlox_session.lied("ordering: both less and greater than a value")
            return answer
        answer = self._rlox_session.request("special", name, self, other)
        if strict and answer is True and self._rlox_session.request("special", name, other, self) is True:
            self._rlox_session.lied("ordering: both are less than the other")
        return answer

    return method


def _iterate(self):
    if is_derived(self):
        self._rlox_session.refuse(NEEDLESS)
    if isinstance(self, MirrorValue) and not self._rlox_mode & OWN:
        return _base(type(self)).__iter__(self)
    specials = type(self)._rlox_specials
    iterated = self._rlox_session.request("special", "iter", self) if "__iter__" in specials else _indexed(self)
    if "__len__" not in specials or self._rlox_mode & OWN:
        return iterated
    return _counted(self, iterated)


def _indexed(self):
    place = 0
    try:
        while True:
            yield self[place]
            place += 1
    except IndexError:
        return


def _counted(self, iterated):
    """What a function returned has as many items as it says: a `zip` with fewer would compare nothing."""
    count = 0
    while True:
        try:
            each = next(iterated) if iterated is not self else self._rlox_session.advance("special", "next", self)
        except StopIteration:
            break
        count += 1
        yield each
    self._rlox_session.claim_length(self, count, "items")


def _length(self):
    if isinstance(self, MirrorValue) and not self._rlox_mode & OWN:
        return _base(type(self)).__len__(self)
    if is_derived(self):
        self._rlox_session.refuse(NEEDLESS)
    length = self._rlox_session.request("special", "len", self)
    if not self._rlox_mode & OWN:
        self._rlox_session.claim_length(self, length, "len")
    return length


def _truth(self):
    if isinstance(self, MirrorValue) and not self._rlox_mode & OWN:
        base = _base(type(self))
        return base.__bool__(self) if hasattr(base, "__bool__") else base.__len__(self) > 0
    if is_derived(self):
        self._rlox_session.refuse(NEEDLESS)
    return self._rlox_session.request("special", "bool", self) is True


def _contains(self, item):
    if self._rlox_mode & OWN:
        return self._rlox_session.request("special", "contains", self, item) is True
    if isinstance(self, MirrorValue):
        return _base(type(self)).__contains__(self, item)
    return any(each is item or each == item for each in self)


def _call(self, *args, **kwargs):
    if is_derived(self):
        self._rlox_session.refuse(NEEDLESS)
    return self._rlox_session.call(self, args, kwargs)


def _hash(self):
    value = self._rlox_session.request("special", "hash", self)
    if type(value) is not int:
        raise TypeError("a hash is no number")
    return value


def _asynchronous(special):
    name = special.strip("_")

    def method(self, *args):
        answer = self._rlox_session.request("special", name, self, *args)
        if name == "aiter":
            return answer
        if name == "aexit":
            return _left(self, answer, args)
        return answer if inspect.iscoroutine(answer) else self._rlox_session.coroutine(answer)

    return method


async def _left(self, answer, error):
    swallowed = await (answer if inspect.iscoroutine(answer) else self._rlox_session.coroutine(answer))
    return swallowed is True and self._rlox_session.may_swallow(error)


def _await(self):
    return self._rlox_session.coroutine(self).__await__()


def _base(kind):
    return next(base for base in kind.__mro__ if base in VALUES)


FORWARDS = {}
for _name in "add sub mul matmul truediv floordiv mod pow lshift rshift and or xor divmod".split():
    FORWARDS["__%s__" % _name] = _operator("__%s__" % _name)
    FORWARDS["__r%s__" % _name] = _operator("__r%s__" % _name)
    if _name != "divmod":
        FORWARDS["__i%s__" % _name] = _operator("__i%s__" % _name)
for _name in "abs neg pos invert round trunc floor ceil int float complex index str repr format bytes".split():
    FORWARDS["__%s__" % _name] = _claim("__%s__" % _name)
for _name in "next reversed getitem".split():
    FORWARDS["__%s__" % _name] = _claim("__%s__" % _name)
for _name in "setitem delitem enter exit fspath".split():
    FORWARDS["__%s__" % _name] = _always("__%s__" % _name)
for _name in "lt le gt ge".split():
    FORWARDS["__%s__" % _name] = _ordering("__%s__" % _name)
for _name in "aenter aexit aiter anext".split():
    FORWARDS["__%s__" % _name] = _asynchronous("__%s__" % _name)
FORWARDS.update(
    __iter__=_iterate,
    __len__=_length,
    __bool__=_truth,
    __contains__=_contains,
    __call__=_call,
    __hash__=_hash,
    __await__=_await,
    __exit__=lambda self, *error: self._rlox_session.leave(self, *error),
)


def _value_method(name, mutates):
    """A method of a builtin type on an instance of the program's subclass of it."""

    def fetch(self):
        if mutates or self._rlox_mode & OWN:
            return self._rlox_session.request("getattr", self, name)
        return getattr(_base(type(self)), name).__get__(self)

    return property(fetch)


def value_body(base, specials, overrides):
    """The methods of a mirror of a subclass of `base`."""
    body = {}
    for special in specials:
        # What an instance equals, and its hash, follow from its storage.
        if special in FORWARDS and special not in ("__eq__", "__hash__"):
            body[special] = FORWARDS[special]
    changeable = base in (list, dict, set, bytearray)
    if changeable:
        for special in ("__setitem__", "__delitem__", "__iadd__", "__imul__", "__ior__", "__iand__", "__isub__"):
            if hasattr(base, special):
                name = special.strip("_")
                body[special] = _changing(name)
        body["__hash__"] = None
    body.update(__copy__=_copy, __deepcopy__=_deepcopy)
    if "__missing__" in specials:
        body["__getitem__"] = _always("__getitem__")
        del body["__missing__"]
    for name in dir(base):
        if name in overrides or (changeable and name in MUTATORS):
            body[name] = _value_method(name, changeable and name in MUTATORS)
    return body


def _changing(name):
    def method(self, *args):
        return self._rlox_session.request("special", name, self, *args)

    return method


FORWARDS["__missing__"] = None


def _copy(self):
    return self._rlox_session.request("copy", self, False)


def _deepcopy(self, memo):
    return self._rlox_session.request("copy", self, True)


def object_body(specials, unhashable):
    body = {special: FORWARDS[special] for special in specials if FORWARDS.get(special)}
    if "__getitem__" in specials and "__len__" in specials:
        body.setdefault("__iter__", _iterate)
    if "__next__" not in specials:
        body.update(__copy__=_copy, __deepcopy__=_deepcopy)
    body["__slots__"] = ()
    if unhashable:
        body["__hash__"] = None
    return body


def error_body(specials):
    """An exception's own operators; what `raise` and `except` need is there already."""
    body = {special: FORWARDS[special] for special in specials if FORWARDS.get(special) and special != "__str__"}
    if "__eq__" in specials:
        body["__eq__"] = MirrorObject.__eq__
        body.setdefault("__hash__", None)
    return body


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
