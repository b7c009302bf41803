"""Operations of mirrors: what the program is asked, what a value's storage answers, and what is refused.

`object_body`, `value_body` and `error_body` give a mirror class the special methods that the program's class has.
"""

import inspect

from mirror import (
    MUTATORS,
    NEEDLESS,
    OWN,
    VALUES,
    MirrorObject,
    MirrorType,
    MirrorValue,
    is_derived,
)


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


REVERSIBLE = frozenset("add sub mul matmul truediv floordiv mod pow lshift rshift and or xor divmod".split())
OPPOSITE = {"lt": "__gt__", "gt": "__lt__", "le": "__gt__", "ge": "__lt__"}


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
