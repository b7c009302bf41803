"""Objects of the tests, as the program sees them: each operation is asked of the grader.

The grader decides what it answers: calls of what was handed over, public attributes of the tests' own classes.
"""

# Operations by special method, and whether they answer with what they got.
FORWARDED = {
    "__%s__" % name: name
    for name in (
        "call len iter next reversed getitem setitem delitem contains bool eq lt le gt ge hash str repr format "
        "int float index abs neg add radd sub rsub mul rmul truediv rtruediv floordiv mod and or xor enter exit"
    ).split()
}


class Foreign:
    """Base of all stand-ins for objects of the tests."""

    __slots__ = ()

    def __getattr__(self, name):
        return self._rlox_ask("getattr", self, name)

    def __setattr__(self, name, value):
        self._rlox_ask("setattr", self, name, value)


class Instance(Foreign):
    __slots__ = ("__weakref__", "_rlox_ask", "_rlox_number")


class ForeignType(type):
    """The type of classes that the tests define."""

    def __call__(cls, *args, **kwargs):
        return cls._rlox_class("call", cls, *args, **kwargs)

    def __getattr__(cls, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return cls._rlox_class("getattr", cls, name)

    def __setattr__(cls, name, value):
        cls._rlox_class("setattr", cls, name, value)


def _forward(name):
    def method(self, *args, **kwargs):
        return self._rlox_ask(name, self, *args, **kwargs)

    return method


def forwarders(specials):
    body = {special: _forward(FORWARDED[special]) for special in specials if special in FORWARDED}
    if "__eq__" in body:
        body.setdefault("__hash__", object.__hash__)
    return body


def with_parameters(parameters, call, is_async):
    """A function of these parameters that hands them to `call`."""
    if parameters is None or not all(name.isidentifier() for name, _, _ in parameters):
        parameters = (("args", 2, None), ("kwargs", 4, None))
    scope = {"call": call}
    declared, passed = [], []
    stars = False
    for place, (name, kind, default) in enumerate(parameters):
        if kind == 3 and not stars:
            declared.append("*")
            stars = True
        stars = stars or kind == 2
        if kind == 1 and place and parameters[place - 1][1] == 0:
            declared.append("/")
        scope["default%d" % place] = default and default[0]
        text = ("*" * (kind // 2) if kind in (2, 4) else "") + name
        declared.append(text + ("=default%d" % place if default else ""))
        passed.append("%s=%s" % (name, name) if kind == 3 else text)
    if parameters and parameters[-1][1] == 0:
        declared.append("/")
    prefix, answer = ("async ", "await call(%s)") if is_async else ("", "call(%s)")
    lines = "%sdef function(%s): return %s" % (prefix, ", ".join(declared), answer % ", ".join(passed))
    exec(compile(lines, "<test>", "exec"), scope)
    return scope["function"]


class Foreigners:
    """The tests' objects by number, and the classes of their stand-ins."""

    def __init__(self, ask):
        self._ask = ask
        self._known = {}
        self._classes = {}
        self._errors = {}

    def number(self, value):
        """The number of a test's object that the program has, or None."""
        if issubclass(type(value), Foreign) and hasattr(value, "_rlox_number"):
            return value._rlox_number
        return self._errors.get(id(value))

    def of_parts(self, number, kind=None, *details):
        if kind is None:
            return self._known[number]
        if kind == "library":
            return resolve(*details)
        if kind == "module":
            return __import__("importlib").import_module(details[0])
        if number in self._known:
            return self._known[number]
        if kind == "error-class":
            name, base = details
            made = self._error(number, type(name, (base,), {}))
        elif kind == "exception":
            made = self._error(number, make_error(*details))
        elif kind == "coroutine":
            made = self._coroutine(number)
            self._errors[id(made)] = number
        else:
            made = self._stand_in(number, kind, *details)
        self._known[number] = made
        return made

    def _error(self, number, made):
        """Classes and instances of the tests' exceptions are real ones here, known by their identity."""
        self._errors[id(made)] = number
        return made

    async def _coroutine(self, number):
        import asyncio

        while True:
            done, result = self._ask("await", self._known[number])
            if done:
                return result
            await asyncio.sleep(0.002)

    def _stand_in(self, number, kind, *details):
        if kind == "function":
            return self._error(number, self._function(number, *details))
        if kind == "class":
            name, specials, bases = details
            made = type.__new__(ForeignType, name, bases or (Instance,), {**forwarders(specials), "__slots__": ()})
            type.__setattr__(made, "_rlox_class", self._ask)
            return self._error(number, made)
        if kind == "object":
            of, name, specials = details
            made = of
            if of is None:
                key = (name, specials)
                if key not in self._classes:
                    self._classes[key] = type(name, (Instance,), {**forwarders(specials), "__slots__": ()})
                made = self._classes[key]
            return self._named(object.__new__(made), number)
        name, specials, storage = details
        base = type(storage)
        key = (name, specials, base)
        if key not in self._classes:
            self._classes[key] = type(name, (Foreign, base), forwarders(specials))
        made = base.__new__(self._classes[key], storage)
        if base in (list, dict, set):
            base.__init__(made, storage)
        return self._named(made, number)

    def _function(self, number, name, doc, is_async, parameters):
        """A real function with the same parameters, which asks for the test's one to be called."""
        call = lambda *args, **kwargs: self._ask("call", self._known[number], *args, **kwargs)  # noqa: E731
        made = with_parameters(parameters, call, is_async)
        made.__name__ = made.__qualname__ = name
        made.__doc__ = doc
        made.__module__ = "__main__"
        return made

    def _named(self, made, number):
        object.__setattr__(made, "_rlox_ask", self._ask)
        object.__setattr__(made, "_rlox_number", number)
        return made


def resolve(module, path):
    """Something of the standard library, by name: the program gets its own."""
    value = __import__("importlib").import_module(module)
    for name in path.split("."):
        value = getattr(value, name)
    return value


def make_error(kind, args):
    try:
        return kind(*args)
    except Exception:
        error = Exception.__new__(kind)
        error.args = args
        return error


def derive(name, bases, body, named):
    """A class that a test derived from one of the program's: its functions stay in the tests."""
    made = {}
    for key, (kind, value) in body:
        if kind == "function":
            made[key] = _as_function(value)
        elif kind == "property":
            made[key] = property(*(each and _as_function(each) for each in value))
        elif kind in ("classmethod", "staticmethod"):
            made[key] = (classmethod if kind == "classmethod" else staticmethod)(_as_function(value))
        else:
            made[key] = value
    return type(bases[0])(name, bases, {"__module__": "__main__", **made}, **named)


def _as_function(foreign):
    def function(*args, **kwargs):
        return foreign(*args, **kwargs)

    function.__name__ = function.__qualname__ = foreign.__name__
    return function
