"""Plain data between a snippet's container and the grader's, and nothing else.

Neither side trusts a class, a method or a name of the other: a value crosses as a tag and its storage, is
rebuilt from builtins, and whatever is not plain data crosses as a numbered handle. There is no pickle and no
eval here. Every size is bounded before memory is taken. docs/verify-protocol.md has the table.
"""

import struct

import shared
import values

VERSION = 2
MAX_FRAME = 16 << 20
MAX_DEPTH = 512

MAGIC = b"rlox"

# From this length on, lists of nothing but ints or floats cross as packed numbers.
PACKED_FROM = 16

_HEADER = struct.Struct("<4sI")
_LENGTH = struct.Struct("<I")
_FLOAT = struct.Struct("<d")
_COMPLEX = struct.Struct("<dd")


class WireError(Exception):
    """The bytes are not a frame of this protocol, or a value cannot cross."""


class Closed(WireError):
    """The other side is gone."""


class Handle:
    """Something that does not cross as a value; `parts` start with its number."""

    __slots__ = ("parts", "tag")

    def __init__(self, tag, *parts):
        self.tag = tag
        self.parts = parts


class ByValue:
    """A container that crosses as its content, whoever else holds it."""

    __slots__ = ("content",)

    def __init__(self, content):
        self.content = content


# An object of the program; an object of the tests; an instance of the program's subclass of a builtin type, with
# its number, its class and its storage.
PROGRAM, TESTS, STORED = b"R", b"C", b"V"
HANDLES = frozenset((PROGRAM, TESTS, STORED))
# A container that both sides hold: its number, and its content unless the other side has that. A container for the
# second time in one value: its place among those before.
SHARED, AGAIN = b"S", b"@"


def storage(value):
    """The builtin value inside an instance of a subclass, past every overridden method; None if there is none."""
    kind = type(value)
    for base, read in _STORAGE:
        if issubclass(kind, base):
            return read(value)
    return None


_STORAGE = (
    (int, int.__index__),
    (float, float.__float__),
    (str, str.__str__),
    (list, lambda value: list.__getitem__(value, slice(None))),
    (tuple, lambda value: tuple.__getitem__(value, slice(None))),
    (dict, lambda value: dict(dict.items(value))),
    (set, lambda value: set(set.__iter__(value))),
    (frozenset, lambda value: frozenset(frozenset.__iter__(value))),
    (bytes, lambda value: bytes.__getitem__(value, slice(None))),
    (bytearray, lambda value: bytearray.__getitem__(value, slice(None))),
    (complex, lambda value: complex.__add__(value, 0)),
)


class Encoder:
    """Values to bytes. `handle` says what a value that is not plain data becomes: a Handle, or plain data."""

    def __init__(self, handle, containers, undescribed=None):
        self._handle = handle
        self._containers = containers
        # Told of bytes with descriptions that are not sent after all.
        self._undescribed = undescribed or (lambda mark: mark)
        # Containers inside others, and inside handles, are part of their content.
        self._inside = 0
        self._seen = {}
        self._entered = []
        self._writers = {
            int: self._int,
            str: self._str,
            float: self._float,
            list: self._container,
            dict: self._container,
            set: self._container,
            bytearray: self._container,
            tuple: lambda value, out, depth: self._items(b"t", value, out, depth),
            frozenset: self._frozenset,
            bytes: lambda value, out, depth: self._sized(b"b", value, out),
            complex: lambda value, out, depth: out.extend(b"c" + _COMPLEX.pack(value.real, value.imag)),
            range: lambda value, out, depth: self._items(b"r", (value.start, value.stop, value.step), out, depth),
            slice: lambda value, out, depth: self._items(b"/", (value.start, value.stop, value.step), out, depth),
            Handle: self._parts,
            ByValue: self._by_value,
        }

    def encode(self, message):
        """A message with what happened to shared containers since the last one."""
        containers = self._containers
        dropped, updates = containers.changes(self.content_unless)
        out = bytearray((VERSION,))
        out += b"t" + _LENGTH.pack(3)
        self._seen = {}
        self._entered = []
        try:
            self._value(tuple(dropped), out, 1)
            out += b"t" + _LENGTH.pack(len(updates))
            for number, data in updates:
                self._shared(number, data, out)
            self._value(message, out, 1)
            if len(out) > MAX_FRAME:
                raise WireError("value of %d bytes is over the limit of %d" % (len(out), MAX_FRAME))
        except BaseException:
            # Nothing is sent: the other side knows nothing of these.
            containers.forget(self._entered)
            raise
        finally:
            self._seen = {}
        containers.sent(dropped, updates)
        return bytes(out)

    def _shared(self, number, data, out):
        out += SHARED + _LENGTH.pack(2)
        self._value(number, out, 2)
        out += data

    def content_unless(self, value, known):
        """The bytes of one container's content; None if they are known."""
        mark = self._undescribed(None)
        data = self.content(value)
        if data != known:
            return data
        self._undescribed(mark)
        return None

    def content(self, value):
        """The bytes of one container's content, the same for the same content in any message."""
        out = bytearray()
        seen, self._seen = self._seen, {}
        self._inside += 1
        try:
            self._write_container(value, out, 4)
        finally:
            self._seen = seen
            self._inside -= 1
        return bytes(out)

    def _value(self, value, out, depth):
        if depth > MAX_DEPTH:
            raise WireError("value is nested deeper than %d" % MAX_DEPTH)
        single = _TAGS.get(id(value))
        if single is not None:
            out += single
            return
        writer = self._writers.get(type(value))
        if writer is not None:
            writer(value, out, depth)
            return
        known = values.parts(value)
        if known is not None and not self._inside and shared.is_shared(type(value)):
            self._container(value, out, depth)
        elif known is not None:
            self._items_inside(b"x", known, out, depth)
        else:
            self._value(self._handle(value), out, depth + 1)

    def _int(self, value, out, depth):
        self._sized(b"i", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True), out)

    def _float(self, value, out, depth):
        out += b"d" + _FLOAT.pack(value)

    def _str(self, value, out, depth):
        self._sized(b"s", value.encode("utf-8", "surrogatepass"), out)

    def _container(self, value, out, depth):
        if self._inside:
            self._write_container(value, out, depth)
            return
        containers = self._containers
        number = containers.number(value)
        data = self.content(value)
        if number is not None and containers.is_known(number, data):
            self._items(SHARED, (number,), out, depth)
            return
        if number is None and len(data) <= shared.MAX_BYTES:
            number = containers.enter(value, data)
            self._entered.append(number)
        # Number 0: the content alone, and nothing to remember.
        self._shared(number or 0, data, out)

    def _write_container(self, value, out, depth):
        if type(value) not in shared.KINDS:
            self._items_inside(b"x", values.parts(value), out, depth)
            return
        again = self._seen.get(id(value))
        if again is not None:
            self._items(AGAIN, (again[0],), out, depth)
            return
        # Kept, so that its id means this one until the value is written.
        self._seen[id(value)] = (len(self._seen), value)
        kind = type(value)
        if kind is list:
            self._list(value, out, depth)
        elif kind is dict:
            flat = []
            for pair in value.items():
                flat += pair
            self._items(b"m", flat, out, depth)
        elif kind is set:
            self._items(b"e", list(value), out, depth)
        else:
            self._sized(b"B", value, out)

    def _list(self, value, out, depth):
        if len(value) >= PACKED_FROM:
            kinds = set(map(type, value))
            tag, letter = (b"I", "q") if kinds == {int} else (b"D", "d") if kinds == {float} else (None, None)
            if tag:
                try:
                    data = struct.pack("<%d%s" % (len(value), letter), *value)
                    out += tag + _LENGTH.pack(len(data)) + data
                    return
                except struct.error:
                    # Some int is larger than 64 bits.
                    pass
        self._items(b"l", value, out, depth)

    def _frozenset(self, value, out, depth):
        self._items_inside(b"z", list(value), out, depth)

    def _parts(self, handle, out, depth):
        self._items_inside(handle.tag, handle.parts, out, depth)

    def _by_value(self, value, out, depth):
        if type(value.content) in shared.KINDS:
            self._shared(0, self.content(value.content), out)
        else:
            self._value(value.content, out, depth)

    def _items_inside(self, tag, items, out, depth):
        self._inside += 1
        try:
            self._items(tag, items, out, depth)
        finally:
            self._inside -= 1

    def _sized(self, tag, data, out):
        if len(data) > MAX_FRAME:
            raise WireError("value is over the limit of %d bytes" % MAX_FRAME)
        out += tag + _LENGTH.pack(len(data)) + data

    def _items(self, tag, items, out, depth):
        if len(out) > MAX_FRAME:
            raise WireError("value is over the limit of %d bytes" % MAX_FRAME)
        out += tag + _LENGTH.pack(len(items))
        for item in items:
            self._value(item, out, depth + 1)


_SINGLETONS = {b"N": None, b"T": True, b"F": False, b"!": NotImplemented, b".": Ellipsis}
_TAGS = {id(value): tag for tag, value in _SINGLETONS.items()}


class Decoder:
    """Bytes to values. Containers are exact builtins; handles become what the caller makes of their parts."""

    def __init__(self, handles, containers):
        self._handles = handles
        self._containers = containers
        self._data = b""
        self._at = 0
        self._seen = []
        self._sharing = False
        self._readers = {
            b"i"[0]: lambda depth: int.from_bytes(self._sized(), "little", signed=True),
            b"s"[0]: lambda depth: str(self._sized(), "utf-8", "surrogatepass"),
            b"d"[0]: lambda depth: _FLOAT.unpack(self._take(8))[0],
            b"l"[0]: self._list,
            b"t"[0]: lambda depth: tuple(self._items(depth)),
            b"m"[0]: self._dict,
            b"I"[0]: lambda depth: self._packed("q"),
            b"D"[0]: lambda depth: self._packed("d"),
            b"b"[0]: lambda depth: bytes(self._sized()),
            b"B"[0]: lambda depth: self._noted(bytearray(self._sized())),
            b"c"[0]: lambda depth: complex(*_COMPLEX.unpack(self._take(16))),
            b"e"[0]: self._set,
            b"z"[0]: lambda depth: frozenset(self._items(depth)),
            b"r"[0]: lambda depth: range(*self._items(depth)),
            b"/"[0]: lambda depth: slice(*self._items(depth)),
            b"x"[0]: lambda depth: values.rebuild(*self._items(depth)),
            SHARED[0]: self._share,
            AGAIN[0]: self._again,
        }
        for tag, value in _SINGLETONS.items():
            self._readers[tag[0]] = lambda depth, value=value: value
        for tag in HANDLES:
            self._readers[tag[0]] = lambda depth, tag=tag: self._of_handle(tag, depth)

    def decode(self, data):
        """The message; what it says of shared containers is done. What a handle becomes may enter it again."""
        before = self._data, self._at, self._seen, self._sharing
        self._data, self._at, self._seen, self._sharing = data, 0, [], False
        try:
            if self._take(1) != bytes((VERSION,)):
                raise WireError("frame of another protocol version")
            if self._take(1) != b"t" or self._length() != 3:
                raise WireError("a message without its parts")
            # What follows may ask the other side something, which has forgotten these already.
            dropped = self._value(1)
            if type(dropped) is not tuple or any(type(number) is not int for number in dropped):
                raise WireError("malformed numbers of containers")
            self._containers.leave(dropped)
            self._value(1)
            self._containers.forget(dropped)
            message = self._value(1)
            if self._at != len(data):
                raise WireError("%d bytes after the value" % (len(data) - self._at))
        except WireError:
            raise
        except values.Malformed as error:
            raise WireError(str(error)) from None
        except Exception as error:
            raise WireError("frame does not decode: %s" % type(error).__name__) from None
        finally:
            self._data, self._at, self._seen, self._sharing = before
        return message

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

    def _sized(self):
        return self._take(self._length())

    def _noted(self, container):
        self._seen.append(container)
        return container

    def _packed(self, letter):
        data = self._sized()
        return self._noted(list(struct.unpack("<%d%s" % (len(data) // 8, letter), data)))

    def _items(self, depth):
        return [self._value(depth + 1) for _ in range(self._length())]

    def _list(self, depth):
        made = self._noted([])
        made += self._items(depth)
        return made

    def _dict(self, depth):
        made = self._noted({})
        items = self._items(depth)
        made.update(zip(items[::2], items[1::2], strict=True))
        return made

    def _set(self, depth):
        made = self._noted(set())
        made.update(self._items(depth))
        return made

    def _again(self, depth):
        (place,) = self._items(depth)
        if type(place) is not int or not 0 <= place < len(self._seen):
            raise WireError("a container that was not there before")
        return self._seen[place]

    def _share(self, depth):
        count = self._length()
        number = self._value(depth + 1)
        # What is inside a shared container is part of its content and has no number.
        if type(number) is not int or count not in (1, 2) or self._sharing:
            raise WireError("malformed container")
        known = self._containers.find(number)
        if count == 1:
            if known is None:
                raise WireError("a container that was never shared")
            held = self._containers.held
            return held[number][0] if held and number in held else known
        start = self._at
        seen, self._seen, self._sharing = self._seen, [], True
        content = self._value(depth + 1)
        self._seen, self._sharing = seen, False
        if not shared.is_shared(type(content)):
            raise WireError("a shared value that is no container")
        if number == 0 or (known is None and self._containers.own(number)):
            # Shared no more, or never.
            return content
        data = self._data[start : self._at]
        if known is None:
            if not self._containers.accept(content, data, number):
                raise WireError("a container of a number that cannot be")
            return content
        if type(content) is not type(known):
            raise WireError("a container of another kind than before")
        if self._containers.held is not None and self._containers.own(number):
            self._containers.held[number] = (content, data)
            return content
        shared.merge(known, content)
        if self._containers.find(number) is not None:
            self._containers.remember(number, data)
        return known

    def _value(self, depth):
        if depth > MAX_DEPTH:
            raise WireError("value is nested deeper than %d" % MAX_DEPTH)
        tag = self._take(1)
        reader = self._readers.get(tag[0])
        if reader is None:
            raise WireError("unknown tag %r" % tag)
        return reader(depth)

    def _of_handle(self, tag, depth):
        parts = self._items(depth)
        if tag not in self._handles:
            raise WireError("handle of the wrong side")
        return self._handles[tag](*parts)


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
