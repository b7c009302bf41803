"""Plain data between a snippet's container and the grader's, and nothing else.

Neither side trusts a class, a method or a name of the other: a value crosses as a tag and its storage, is
rebuilt from builtins, and whatever is not plain data crosses as an opaque number. There is no pickle and no
eval here. Every size is bounded before memory is taken. docs/verify-protocol.md has the table.
"""

import struct

VERSION = 1
MAX_FRAME = 16 << 20
MAX_DEPTH = 128

MAGIC = b"rlox"

_HEADER = struct.Struct("<4sI")
_LENGTH = struct.Struct("<I")
_FLOAT = struct.Struct("<d")
_COMPLEX = struct.Struct("<dd")


class WireError(Exception):
    """The bytes are not a frame of this protocol, or a value cannot cross."""


class Closed(WireError):
    """The other side is gone."""


class Ref:
    """An object that stays in the snippet's container, named by a number."""

    __slots__ = ("kind", "name", "number")

    def __init__(self, number, kind="object", name=""):
        self.number = number
        self.kind = kind
        self.name = name


class Callback:
    """A callable that stays in the grader's container, named by a number."""

    __slots__ = ("number",)

    def __init__(self, number):
        self.number = number


class Encoder:
    """Values to bytes. `opaque` says what a value that is not plain data becomes (a Ref or a Callback)."""

    def __init__(self, opaque):
        self._opaque = opaque

    def encode(self, value):
        out = bytearray((VERSION,))
        self._value(value, out, 0)
        if len(out) > MAX_FRAME:
            raise WireError("value of %d bytes is over the limit of %d" % (len(out), MAX_FRAME))
        return bytes(out)

    def _value(self, value, out, depth):
        if depth > MAX_DEPTH:
            raise WireError("value is nested deeper than %d" % MAX_DEPTH)
        if len(out) > MAX_FRAME:
            raise WireError("value is over the limit of %d bytes" % MAX_FRAME)
        kind = type(value)
        if value is None:
            out += b"N"
        elif value is True:
            out += b"T"
        elif value is False:
            out += b"F"
        elif value is NotImplemented:
            out += b"!"
        elif value is Ellipsis:
            out += b"."
        elif issubclass(kind, int):
            number = int.__index__(value)
            self._sized(b"i", int.to_bytes(number, int.bit_length(number) // 8 + 1, "little", signed=True), out)
        elif issubclass(kind, float):
            out += b"d" + _FLOAT.pack(float.__float__(value))
        elif issubclass(kind, complex):
            plain = complex.__add__(value, 0)
            out += b"c" + _COMPLEX.pack(plain.real, plain.imag)
        elif issubclass(kind, str):
            self._sized(b"s", str.encode(value, "utf-8", "surrogatepass"), out)
        elif issubclass(kind, bytes):
            self._sized(b"b", bytes.__getitem__(value, slice(None)), out)
        elif issubclass(kind, bytearray):
            self._sized(b"B", bytes(bytearray.__getitem__(value, slice(None))), out)
        elif issubclass(kind, list):
            self._items(b"l", list.__getitem__(value, slice(None)), out, depth)
        elif issubclass(kind, tuple):
            self._items(b"t", tuple.__getitem__(value, slice(None)), out, depth)
        elif issubclass(kind, set):
            self._items(b"e", list(set.__iter__(value)), out, depth)
        elif issubclass(kind, frozenset):
            self._items(b"z", list(frozenset.__iter__(value)), out, depth)
        elif issubclass(kind, dict):
            flat = []
            for pair in dict.items(value):
                flat += pair
            self._items(b"m", flat, out, depth)
        elif kind is range:
            self._items(b"r", [value.start, value.stop, value.step], out, depth)
        elif kind is slice:
            self._items(b"/", [value.start, value.stop, value.step], out, depth)
        else:
            self._special(value, out, depth)

    def _special(self, value, out, depth):
        for tag, name, parts in _parts(value):
            self._items(tag, [name, *parts], out, depth)
            return
        crossing = self._opaque(value)
        if type(crossing) is Ref:
            self._items(b"R", [crossing.number, crossing.kind, crossing.name], out, depth)
        elif type(crossing) is Callback:
            self._items(b"C", [crossing.number], out, depth)
        else:
            self._value(crossing, out, depth + 1)

    def _sized(self, tag, data, out):
        if len(data) > MAX_FRAME:
            raise WireError("value is over the limit of %d bytes" % MAX_FRAME)
        out += tag + _LENGTH.pack(len(data)) + data

    def _items(self, tag, items, out, depth):
        out += tag + _LENGTH.pack(len(items))
        for item in items:
            self._value(item, out, depth + 1)


def _parts(value):
    """Standard library values that cross by value: a name that the other side knows, and plain parts."""
    kind = type(value)
    module = kind.__module__
    if module == "collections" and kind.__name__ == "deque":
        yield b"x", "deque", [list(value)]
    elif module == "decimal" and kind.__name__ == "Decimal":
        yield b"x", "Decimal", [str(value)]
    elif module == "fractions" and kind.__name__ == "Fraction":
        yield b"x", "Fraction", [value.numerator, value.denominator]
    elif module == "datetime":
        if kind.__name__ == "date":
            yield b"x", "date", [value.year, value.month, value.day]
        elif kind.__name__ == "timedelta":
            yield b"x", "timedelta", [value.days, value.seconds, value.microseconds]
        elif kind.__name__ == "datetime" and value.tzinfo is None:
            fields = [value.year, value.month, value.day, value.hour, value.minute, value.second]
            yield b"x", "datetime", [*fields, value.microsecond, value.fold]
        elif kind.__name__ == "time" and value.tzinfo is None:
            yield b"x", "time", [value.hour, value.minute, value.second, value.microsecond, value.fold]


class Decoder:
    """Bytes to values. Containers are exact builtins; refs and callbacks become what the caller makes of them."""

    def __init__(self, ref, callback):
        self._ref = ref
        self._callback = callback
        self._data = b""
        self._at = 0

    def decode(self, data):
        self._data, self._at = data, 0
        if self._take(1) != bytes((VERSION,)):
            raise WireError("frame of another protocol version")
        try:
            value = self._value(0)
        except WireError:
            raise
        except Exception as error:
            raise WireError("frame does not decode: %s" % type(error).__name__) from None
        if self._at != len(data):
            raise WireError("%d bytes after the value" % (len(data) - self._at))
        return value

    def _take(self, count):
        end = self._at + count
        if end > len(self._data):
            raise WireError("frame ends inside a value")
        part = self._data[self._at : end]
        self._at = end
        return part

    def _length(self):
        (length,) = _LENGTH.unpack(self._take(4))
        # Each item takes at least one byte: more cannot be in this frame.
        if length > len(self._data) - self._at:
            raise WireError("length runs past the frame")
        return length

    def _list(self, depth):
        return [self._value(depth + 1) for _ in range(self._length())]

    def _value(self, depth):
        if depth > MAX_DEPTH:
            raise WireError("value is nested deeper than %d" % MAX_DEPTH)
        tag = self._take(1)
        if tag in _SINGLETONS:
            return _SINGLETONS[tag]
        if tag == b"i":
            return int.from_bytes(self._take(self._length()), "little", signed=True)
        if tag == b"d":
            return _FLOAT.unpack(self._take(8))[0]
        if tag == b"c":
            return complex(*_COMPLEX.unpack(self._take(16)))
        if tag == b"s":
            return self._take(self._length()).decode("utf-8", "surrogatepass")
        if tag == b"b":
            return bytes(self._take(self._length()))
        if tag == b"B":
            return bytearray(self._take(self._length()))
        items = self._list(depth)
        if tag == b"l":
            return items
        if tag in _FROM_LIST:
            return _FROM_LIST[tag](items)
        if tag == b"m":
            return dict(zip(items[::2], items[1::2], strict=True))
        if tag == b"r":
            return range(*items)
        if tag == b"/":
            return slice(*items)
        if tag == b"x":
            return _rebuild(*items)
        if tag == b"R":
            number, kind, name = items
            if type(number) is not int or type(kind) is not str or type(name) is not str:
                raise WireError("malformed reference")
            return self._ref(number, kind, name)
        if tag == b"C":
            (number,) = items
            if type(number) is not int:
                raise WireError("malformed callback")
            return self._callback(number)
        raise WireError("unknown tag %r" % tag)


_SINGLETONS = {b"N": None, b"T": True, b"F": False, b"!": NotImplemented, b".": Ellipsis}
_FROM_LIST = {b"t": tuple, b"e": set, b"z": frozenset}


def _rebuild(name, *parts):
    if name == "deque":
        import collections

        return collections.deque(*parts)
    if name == "Decimal":
        import decimal

        return decimal.Decimal(*parts)
    if name == "Fraction":
        import fractions

        return fractions.Fraction(*parts)
    if name in ("date", "datetime", "time", "timedelta"):
        import datetime

        if name == "datetime":
            return datetime.datetime(*parts[:7], fold=parts[7])
        if name == "time":
            return datetime.time(*parts[:4], fold=parts[4])
        return getattr(datetime, name)(*parts)
    raise WireError("unknown value type")


def send_frame(write, data):
    """Writes one frame: magic, length, body."""
    view = memoryview(_HEADER.pack(MAGIC, len(data)) + data)
    while view:
        try:
            count = write(view)
        except (BrokenPipeError, ConnectionResetError):
            raise Closed("the other side closed the channel") from None
        view = view[count:]


def receive_frame(read):
    """Reads one frame's body."""
    magic, length = _HEADER.unpack(_exactly(read, _HEADER.size))
    # Bytes that somebody slipped in between two frames are found at once, not at the deadline.
    if magic != MAGIC:
        raise WireError("bytes that are no frame")
    if length > MAX_FRAME:
        raise WireError("frame of %d bytes is over the limit of %d" % (length, MAX_FRAME))
    return _exactly(read, length)


def _exactly(read, count):
    parts = bytearray()
    while len(parts) < count:
        try:
            part = read(min(count - len(parts), 1 << 20))
        except ConnectionResetError:
            part = b""
        if not part:
            raise Closed("the other side closed the channel")
        parts += part
    return bytes(parts)
