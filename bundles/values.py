"""Values of the standard library that cross by value: a name that both sides know, and plain parts.

Each is rebuilt by the receiving side's own library. A class that only has the name of one crosses as an object.
"""


class Malformed(ValueError):
    """Parts of which no value of the library is made."""


def parts(value):
    """Values of the standard library that cross by value: a name that the other side knows, and plain parts."""
    kind = type(value)
    describe = _KNOWN.get((kind.__module__, kind.__name__))
    if describe is None:
        return None
    module, name, function = describe
    # The name alone proves nothing: a program may call its own class `deque`.
    import sys

    own = _UNNAMED.get(name) if module == "builtins" else getattr(sys.modules.get(module), name, None)
    if own is not kind:
        return None
    try:
        return function(value)
    except TypeError:
        return None


def _zone(value):
    """A fixed offset: what comparison and arithmetic of aware values rest on."""
    if value.tzinfo is None:
        return None
    import datetime

    offset = value.utcoffset()
    if not isinstance(offset, datetime.timedelta):
        raise TypeError("no fixed offset")
    name = value.tzname()
    return [offset.days * 86400 + offset.seconds + offset.microseconds / 1e6, name if type(name) is str else None]


def _factory(value):
    kind = value.default_factory
    if kind is not None and kind not in (int, float, str, list, dict, set, tuple, bool):
        raise TypeError("the factory is the program's")
    return ["defaultdict", kind and kind.__name__, dict(value)]


def _datetime(value):
    fields = [value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond]
    return ["datetime", *fields, value.fold, _zone(value)]


def _time(value):
    return ["time", value.hour, value.minute, value.second, value.microsecond, value.fold, _zone(value)]


# Builtin types by their own names, under which most of them cannot be found.
_UNNAMED = {
    kind.__name__: kind for kind in map(type, (memoryview(b""), {}.keys(), {}.values(), {}.items(), type.__dict__))
}
_KNOWN = {
    ("collections", "deque"): ("collections", "deque", lambda v: ["deque", list(v), v.maxlen]),
    ("collections", "Counter"): ("collections", "Counter", lambda v: ["Counter", dict(v)]),
    ("collections", "OrderedDict"): ("collections", "OrderedDict", lambda v: ["OrderedDict", list(v.items())]),
    ("collections", "defaultdict"): ("collections", "defaultdict", _factory),
    ("decimal", "Decimal"): ("decimal", "Decimal", lambda v: ["Decimal", str(v)]),
    ("fractions", "Fraction"): ("fractions", "Fraction", lambda v: ["Fraction", v.numerator, v.denominator]),
    ("datetime", "date"): ("datetime", "date", lambda v: ["date", v.year, v.month, v.day]),
    ("datetime", "datetime"): ("datetime", "datetime", _datetime),
    ("datetime", "time"): ("datetime", "time", _time),
    ("datetime", "timedelta"): (
        "datetime",
        "timedelta",
        lambda v: ["timedelta", v.days, v.seconds, v.microseconds],
    ),
    ("datetime", "timezone"): (
        "datetime",
        "timezone",
        lambda v: ["timezone", v.utcoffset(None).total_seconds(), v.tzname(None)],
    ),
    ("array", "array"): ("array", "array", lambda v: ["array", v.typecode, v.tolist()]),
    ("uuid", "UUID"): ("uuid", "UUID", lambda v: ["UUID", v.int]),
    ("pathlib", "PosixPath"): ("pathlib", "PosixPath", lambda v: ["Path", str(v)]),
    ("pathlib", "PurePosixPath"): ("pathlib", "PurePosixPath", lambda v: ["PurePath", str(v)]),
    ("types", "SimpleNamespace"): ("types", "SimpleNamespace", lambda v: ["SimpleNamespace", dict(vars(v))]),
    ("builtins", "memoryview"): ("builtins", "memoryview", lambda v: ["memoryview", bytes(v), v.readonly]),
    ("builtins", "dict_keys"): ("builtins", "dict_keys", lambda v: ["keys", list(v)]),
    ("builtins", "dict_values"): ("builtins", "dict_values", lambda v: ["values", list(v)]),
    ("builtins", "dict_items"): ("builtins", "dict_items", lambda v: ["items", list(v)]),
    ("builtins", "mappingproxy"): ("builtins", "mappingproxy", lambda v: ["mappingproxy", dict(v)]),
}


def _timezone(zone):
    import datetime

    if zone is None:
        return None
    seconds, name = zone
    if type(seconds) is not float or type(name) not in (str, _NOTHING):
        raise Malformed("malformed time zone")
    offset = datetime.timedelta(seconds=seconds)
    if not offset and name in (None, "UTC"):
        return datetime.timezone.utc
    return datetime.timezone(offset) if name is None else datetime.timezone(offset, name)


def rebuild(name, *parts):
    """A value of the standard library from its parts."""
    builder = _BUILDERS.get(name)
    if builder is None:
        raise Malformed("unknown value type")
    # Builders rely on plain parts: anything else would be asked what it is while the value is made.
    if not all(type(part) in _PARTS.get(name, _NUMBERS) for part in parts):
        raise Malformed("malformed %s" % name)
    module, build = builder
    return build(__import__(module), *parts)


_NUMBERS = (int,)
_NOTHING = type(None)
_PARTS = {
    "deque": (list, int, _NOTHING),
    "Counter": (dict,),
    "OrderedDict": (list,),
    "defaultdict": (str, _NOTHING, dict),
    "Decimal": (str,),
    "datetime": (int, list, _NOTHING),
    "time": (int, list, _NOTHING),
    "timezone": (float, str, _NOTHING),
    "array": (str, list),
    "Path": (str,),
    "PurePath": (str,),
    "SimpleNamespace": (dict,),
    "memoryview": (bytes, bool),
    "keys": (list,),
    "values": (list,),
    "items": (list,),
    "mappingproxy": (dict,),
}


def _array(module, code, items):
    if type(code) is not str or len(code) != 1:
        raise Malformed("malformed array")
    return module.array(code, items)


def _default_dict(module, factory, items):
    kinds = {kind.__name__: kind for kind in (int, float, str, list, dict, set, tuple, bool)}
    return module.defaultdict(None if factory is None else kinds[factory], items)


_BUILDERS = {
    "deque": ("collections", lambda m, items, size: m.deque(items, size)),
    "Counter": ("collections", lambda m, counts: m.Counter(counts)),
    "OrderedDict": ("collections", lambda m, items: m.OrderedDict(items)),
    "defaultdict": ("collections", _default_dict),
    "Decimal": ("decimal", lambda m, text: m.Decimal(text)),
    "Fraction": ("fractions", lambda m, above, below: m.Fraction(above, below)),
    "date": ("datetime", lambda m, *parts: m.date(*parts)),
    "datetime": (
        "datetime",
        lambda m, *parts: m.datetime(*parts[:7], fold=parts[7], tzinfo=_timezone(parts[8])),
    ),
    "time": ("datetime", lambda m, *parts: m.time(*parts[:4], fold=parts[4], tzinfo=_timezone(parts[5]))),
    "timedelta": ("datetime", lambda m, *parts: m.timedelta(*parts)),
    "timezone": ("datetime", lambda m, *zone: _timezone(zone)),
    "array": ("array", _array),
    "UUID": ("uuid", lambda m, number: m.UUID(int=number)),
    "Path": ("pathlib", lambda m, text: m.PosixPath(text)),
    "PurePath": ("pathlib", lambda m, text: m.PurePosixPath(text)),
    "SimpleNamespace": ("types", lambda m, items: m.SimpleNamespace(**items)),
    "memoryview": ("builtins", lambda m, data, fixed: memoryview(bytes(data) if fixed else bytearray(data))),
    "keys": ("builtins", lambda m, items: dict.fromkeys(items).keys()),
    "values": ("builtins", lambda m, items: dict(enumerate(items)).values()),
    "items": ("builtins", lambda m, items: dict(items).items()),
    "mappingproxy": ("types", lambda m, items: m.MappingProxyType(items)),
}
