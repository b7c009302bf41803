"""What the program refers to, as objects of this process: mirrors by number, their classes, exceptions.

All that a description says is a claim. What cannot be, or is not what it consists of, ends the conversation.
"""

import collections.abc
import dataclasses
import types
import weakref

import forwarding
import mirror
from library import builtin_error, library_class, library_function, library_module, library_type

import codec
import shared

# Exceptions of the program that are kept for their identity.
MAX_ERRORS = 500


class UnavailableModule:
    """A module that only the program has. Its functions would let the program judge itself."""

    def __init__(self, name):
        self.__dict__["_name"] = name[:80]

    def __getattr__(self, name):
        raise ImportError("the tests have no module %r of their own" % self._name)


class Objects:
    """The program's objects that the tests know."""

    def __init__(self, session):
        self._session = session
        self._mirrors = weakref.WeakValueDictionary()
        self._values = {}
        self._errors = {}
        self._error_numbers = {}
        self._classes = {}
        self._coroutines = weakref.WeakKeyDictionary()

    def mirrors(self):
        """By their numbers; one that nobody refers to any more is not there."""
        return self._mirrors

    def is_error(self, error):
        """Whether an exception came from the program."""
        return id(error) in self._error_numbers

    def known(self, number):
        """A mirror by its number; an object that is gone there is an error there."""
        found = self._mirrors.get(number)
        return self._keep(mirror.MirrorObject, number) if found is None else found

    def value(self, number):
        """An instance of a subclass of a builtin type, or None."""
        return self._values.get(number)

    def remember_coroutine(self, made, awaitable):
        self._coroutines[made] = awaitable

    def handle(self, value):
        kind = type(value)
        if isinstance(value, mirror.MirrorValue) and isinstance(value, (str, bytes)) and not is_kept(value):
            # As text it goes back, without what the program may have attached to it.
            return codec.storage(value)
        if isinstance(kind, mirror.MirrorType):
            return codec.Handle(codec.PROGRAM, value._rlox_number)
        if isinstance(value, mirror.MirrorType):
            return codec.Handle(codec.PROGRAM, value.__dict__["_rlox_class"])
        if id(value) in self._error_numbers and isinstance(value, BaseException):
            return codec.Handle(codec.PROGRAM, self._error_numbers[id(value)])
        if kind is _COROUTINE and value in self._coroutines:
            return codec.Handle(codec.PROGRAM, self._coroutines[value]._rlox_number)
        return self._session.handed.handle(value)

    def of_program(self, number, kind, *details):
        if type(number) is not int or type(kind) is not str:
            raise codec.WireError("malformed reference")
        if kind == "class":
            return self._class(number, *details)
        if kind == "module":
            return library_module(details[0]) or UnavailableModule(details[0])
        known = self._mirrors.get(number, self._errors.get(number))
        if known is not None:
            return known
        if kind == "function":
            module, name = details
            own = library_function(module, name)
            if own is not None:
                return own
            return self._keep(mirror.MirrorFunction, number)
        if kind == "generator":
            return self._keep(mirror.MirrorGenerator, number)
        if kind == "async_generator":
            return self._keep(self._async_generator(), number)
        if kind == "coroutine":
            return self._session.coroutine(self._keep(mirror.MirrorObject, number))
        if kind == "exception":
            return self._exception(number, *details)
        if kind == "object":
            (cls,) = details
            if not isinstance(cls, mirror.MirrorType):
                cls = mirror.MirrorObject
            if not issubclass(cls, mirror.MirrorObject):
                raise codec.WireError("an instance of %s without its value" % cls.__name__)
            return self._keep(cls, number)
        raise codec.WireError("unknown kind of reference")

    def _keep(self, cls, number, mode=0):
        made = object.__new__(self._bound(cls))
        object.__setattr__(made, "_rlox_number", number)
        object.__setattr__(made, "_rlox_mode", mode)
        if number in self._session.released:
            self._session.released.remove(number)
        self._mirrors[number] = made
        return made

    def derived(self, result):
        made = object.__new__(type(result))
        object.__setattr__(made, "_rlox_number", result._rlox_number)
        object.__setattr__(made, "_rlox_mode", mirror.DERIVED)
        object.__setattr__(made, "_rlox_kept", result)
        return made

    def _bound(self, cls):
        """The class with this session: one process has one session."""
        if "_rlox_session" not in mirror.Mirror.__dict__:
            type.__setattr__(mirror.Mirror, "_rlox_session", self._session)
        return cls

    def _async_generator(self):
        cls = self._classes.get(0)
        if cls is None:
            body = forwarding.object_body(("__anext__",), False)
            body["__aiter__"] = lambda this: this
            body["asend"] = lambda this, value: self._session.coroutine(
                self._session.request("getattr", this, "asend")(value)
            )
            body["aclose"] = lambda this: self._session.coroutine(
                self._session.request("getattr", this, "aclose")()
            )
            body["__class__"] = property(lambda this: types.AsyncGeneratorType)
            cls = self._classes[0] = mirror.make_class("async_generator", (mirror.MirrorObject,), body)
        return cls

    def stored(self, number, cls, storage):
        if type(number) is not int:
            raise codec.WireError("malformed reference")
        base = type(storage)
        if not isinstance(cls, mirror.MirrorType) or base not in cls.__mro__:
            # What it claims to be is not what it consists of: it is plain data.
            if isinstance(cls, type) and issubclass(cls, base):
                return storage
            raise codec.WireError("a value that is not of its class")
        known = self._values.get(number)
        if known is not None and type(known) is cls:
            shared.merge(known, storage)
            return known
        self._bound(cls)
        if base in (list, set, dict, bytearray):
            made = base.__new__(cls)
            base.__init__(made, storage)
        else:
            made = base.__new__(cls, storage)
        object.__setattr__(made, "_rlox_number", number)
        object.__setattr__(made, "_rlox_mode", 0)
        self._values[number] = made
        return made

    def _exception(self, number, cls, args, text, state, chain):
        if type(args) is not tuple or type(state) is not dict or type(text) is not str or type(chain) is not tuple:
            raise codec.WireError("malformed exception")
        if not isinstance(cls, type) or not issubclass(cls, BaseException):
            raise codec.WireError("an exception of a class that is none")
        if issubclass(cls, mirror.MirrorError):
            self._bound(cls)
            made = builtin_error(cls).__new__(cls, *(args if issubclass(cls, BaseExceptionGroup) else ()))
            object.__setattr__(made, "_rlox_number", number)
            object.__setattr__(made, "_rlox_mode", 0)
            object.__setattr__(made, "_rlox_text", text)
            BaseException.args.__set__(made, args)
        else:
            made = make(cls, args)
        for name, value in state.items():
            if type(name) is str and not name.startswith("_"):
                try:
                    object.__setattr__(made, name, value)
                except (AttributeError, TypeError):
                    continue
        if number in self._errors:
            # One came while the other was made: it would be forgotten here, but not its identity.
            raise codec.WireError("two exceptions of one number")
        self._errors[number] = made
        self._error_numbers[id(made)] = number
        if len(self._errors) > MAX_ERRORS:
            oldest = next(iter(self._errors))
            self._error_numbers.pop(id(self._errors.pop(oldest)), None)
            self._session.released.append(oldest)
        cause, context, suppressed, notes = chain
        if isinstance(cause, BaseException):
            BaseException.__cause__.__set__(made, cause)
        if isinstance(context, BaseException):
            BaseException.__context__.__set__(made, context)
        BaseException.__suppress_context__.__set__(made, suppressed is True)
        if type(notes) is tuple:
            object.__setattr__(made, "__notes__", list(notes))
        return made

    def _class(self, number, *details):
        if number in self._classes:
            return self._classes[number]
        if len(details) != 6:
            raise codec.WireError("a class that was never described")
        module, name, doc, bases, specials, flags = details
        if type(module) is not str or type(name) is not str or type(bases) is not tuple or type(flags) is not dict:
            raise codec.WireError("malformed class")
        cls = library_class(module, name)
        if cls is None:
            cls = self._mirror_class(number, module, name, doc, bases, specials, flags)
        self._classes[number] = cls
        return cls

    def _mirror_class(self, number, module, name, doc, bases, specials, flags):
        parents = [base for base in bases if isinstance(base, type)]
        roots = [base for parent in parents for base in parent.__mro__]
        value = next((base for base in roots if base in mirror.VALUES), None)
        error = next((base for base in roots if isinstance(base, type) and issubclass(base, BaseException)), None)
        specials = tuple(each for each in specials if type(each) is str)
        if value is not None:
            kind, root = mirror.MirrorValue, value
            body = forwarding.value_body(value, specials, set(flags.get("overrides", ())))
        elif error is not None:
            kind, root, body = mirror.MirrorError, builtin_error(error), forwarding.error_body(specials)
        else:
            kind, root = mirror.MirrorObject, None
            body = forwarding.object_body(specials, flags.get("unhashable") is True)
        short = name.rpartition(".")[2][:80] or "Object"
        body.update(__module__=module[:80], __qualname__=name[:200], __doc__=doc if type(doc) is str else None)
        body.update(_rlox_class=number, _rlox_session=self._session, _rlox_meta=tuple(flags.get("meta", ())))
        stands_for = library_type(module, name)
        if stands_for is not None and kind is mirror.MirrorObject:
            body["__class__"] = property(lambda this: stands_for)
        inherited = {each for parent in parents for each in getattr(parent, "_rlox_specials", ())}
        body["_rlox_specials"] = frozenset(specials) | inherited
        body["_rlox_enum"] = flags.get("enum") is True
        # Not of exceptions: `suppress` would ask the program whether to swallow a failed check.
        body["_rlox_instancecheck"] = flags.get("instancecheck") is True and error is None
        if type(flags.get("fields")) is list:
            body["__dataclass_fields__"] = {
                each: data_field(each) for each in flags["fields"] if type(each) is str
            }
        made = self._derive(short, parents, kind, root, body)
        for abstract in flags.get("abstract", ()):
            if abstract in ABSTRACT and not issubclass(getattr(collections.abc, abstract), made):
                getattr(collections.abc, abstract).register(made)
        return made

    def _derive(self, name, parents, kind, root, body):
        """A class with the parents' mirrors as bases, or, where Python cannot lay that out, without them."""
        mirrored = [parent for parent in parents if issubclass(parent, kind)]
        others = [parent for parent in parents if root is not None and issubclass(parent, root)]
        others = [parent for parent in others if parent not in mirrored]
        simple = [kind] if root is None else [kind, root]
        for bases in ([*(mirrored or [kind]), *others], [*(mirrored or [kind]), *simple[1:]], simple):
            # A class must not list its own ancestors before itself.
            try:
                made = mirror.make_class(name, tuple(dict.fromkeys(bases)), dict(body))
            except TypeError:
                continue
            if root is None or issubclass(made, root):
                return made
        raise codec.WireError("a class that cannot be")


ABSTRACT = frozenset(
    "Container Iterable Iterator Sequence MutableSequence Mapping MutableMapping Set MutableSet Callable".split()
)


async def _nothing():
    pass


_sample = _nothing()
_COROUTINE = type(_sample)
_sample.close()


def is_kept(value):
    """Text of a class of the program that goes back as the object it is."""
    return value._rlox_mode & mirror.OWN or type(value)._rlox_enum


def data_field(name):
    field = dataclasses.field()
    field.name = name
    field._field_type = dataclasses._FIELD
    return field


def make(cls, args):
    """An exception of the library; its constructor may want more than `args`."""
    try:
        made = cls(*args)
    except Exception:
        made = None
    if type(made) is not cls or made.args != args:
        try:
            made = cls.__new__(cls, *args)
            BaseException.args.__set__(made, args)
        except Exception:
            made = Exception(*args)
    return made
