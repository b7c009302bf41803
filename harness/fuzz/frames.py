"""Fuzzes the channel's decoder: for any bytes, it returns a value or raises WireError.

A frame that decodes has to survive the way back as well: encoded and decoded again, it is the same
value.

`python frames.py SECONDS [SEED]` mutates the frames of `corpus/` and keeps those that reach new
lines, with nothing but the standard library, so that it runs wherever the tests run. `python
frames.py --atheris [ARGUMENT…]` gives the same target to libFuzzer, where atheris is installed; it
is faster by far and is for long runs. `python frames.py --seeds` writes the corpus anew.
"""

from __future__ import annotations

import contextlib
import math
import random
import sys
import time
from pathlib import Path
from types import FrameType

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
sys.path[:0] = [str(HERE.parent.parent / "bundles"), str(HERE)]

if "--atheris" in sys.argv:
    import atheris

    with atheris.instrument_imports():
        import codec
        import shared
        import values as library_values
else:
    import codec
    import shared
    import values as library_values

import wire

# The grader's: room to decode the deepest value that can cross.
RECURSION = 8000
MAX_PARTS = 20_000
TRACED = (codec.__file__, shared.__file__, library_values.__file__)


def handle(value: object) -> codec.Handle:
    raise TypeError(f"the decoder made a {type(value).__name__}")


def decoder(first: int) -> codec.Decoder:
    kinds = {tag: lambda *parts, tag=tag: codec.Handle(tag, *parts) for tag in codec.HANDLES}
    return codec.Decoder(kinds, shared.Shared(first))


def one_input(data: bytes) -> None:
    """Raises what is a finding."""
    try:
        message = decoder(2).decode(data)
    except codec.WireError:
        return
    try:
        again = codec.Encoder(handle, shared.Shared(1)).encode(message)
    except codec.WireError:
        # It is too deep with what the encoder puts around it.
        return
    back = decoder(2).decode(again)
    try:
        same = shape(message) == shape(back)
    except TooLarge:
        return
    if not same:
        raise AssertionError(f"{shape(message)!r:.500} came back as {shape(back)!r:.500}")


class TooLarge(Exception):
    """A value that refers to its parts so often that it cannot be written out."""


def shape(value: object) -> object:
    """What a value consists of, comparable also where the value is not: NaN, cycles, views."""
    left = MAX_PARTS

    def inner(value: object, around: tuple[int, ...]) -> object:
        nonlocal left
        left -= 1
        if left < 0:
            raise TooLarge
        if id(value) in around:
            return ("cycle", len(around) - around.index(id(value)))
        kind = type(value)
        within = (*around, id(value))
        parts = library_values.parts(value)
        if kind is codec.Handle:
            parts = (value.tag, *value.parts)
        elif kind is slice:
            parts = (value.start, value.stop, value.step)
        elif kind is dict:
            parts = [part for pair in value.items() for part in pair]
        elif kind in (list, tuple):
            parts = value
        elif kind in (set, frozenset):
            return (kind.__name__, sorted(repr(inner(each, within)) for each in value))
        if parts is None:
            return (kind.__name__, repr(value))
        return (kind.__name__, [inner(each, within) for each in parts])

    return inner(value, ())


class Lines:
    """The pairs of lines, one after the other, that an input reaches in the traced files."""

    def __init__(self) -> None:
        self.reached: set[tuple[object, int, int]] = set()
        self._last = 0

    def trace(self, frame: FrameType, event: str, _: object) -> object:
        if frame.f_code.co_filename not in TRACED:
            return None
        self.reached.add((frame.f_code, self._last, frame.f_lineno))
        self._last = frame.f_lineno
        return self.trace


def mutate(source: random.Random, queue: list[bytes]) -> bytes:
    values = wire.Values(source)
    chosen = source.choice(queue)
    how = source.randrange(8)
    if how == 0:
        return values.reply(values.value(), 0)
    if how == 1:
        other = source.choice(queue)
        return (
            chosen[: source.randrange(len(chosen) + 1)] + other[source.randrange(len(other) + 1) :]
        )
    if how == 2:
        # A whole value where another one's tag was.
        place = source.randrange(len(chosen) + 1)
        return chosen[:place] + values.value(2) + chosen[place + source.randrange(6) :]
    return values.mutated(chosen)


def fuzz(seconds: float, seed: int) -> int:
    source = random.Random(seed)
    queue = [path.read_bytes() for path in sorted(CORPUS.iterdir())]
    known: set[tuple[object, int, int]] = set()
    waiting = list(queue)
    deadline = time.monotonic() + seconds
    tried = 0
    while waiting or time.monotonic() < deadline:
        data = waiting.pop() if waiting else mutate(source, queue)
        lines = Lines()
        sys.settrace(lines.trace)
        try:
            one_input(data)
        except Exception as error:
            sys.settrace(None)
            print(f"seed {seed}, input {tried}: {error!r:.2000}\n{data.hex()}")
            return 1
        finally:
            sys.settrace(None)
        tried += 1
        if lines.reached - known:
            known |= lines.reached
            queue.append(data)
    print(f"seed {seed}: {tried} frames, {len(known)} pairs of lines, {len(queue)} frames kept")
    return 0


def write_seeds() -> None:
    """One frame of the encoder for each kind of value."""
    import array
    import collections
    import datetime
    import decimal
    import fractions
    import pathlib
    import types
    import uuid

    inner: list[object] = [1, "a"]
    cyclic: list[object] = [inner, inner]
    cyclic.append(cyclic)
    zone = datetime.timezone(datetime.timedelta(hours=2), "here")
    values = {
        "singletons": (None, True, False, NotImplemented, Ellipsis),
        "ints": (0, -1, 127, 1 << 64, -(1 << 200)),
        "floats": (0.0, math.nan, -math.inf, complex(1, -0.0)),
        "texts": ("", "é", "\ud800", b"", b"\0\xff"),
        "packed": ([1 << 40] * 20, [1.5] * 20, [1 << 70] * 20),
        "nested": ([1, [2, (3, {"k": {4, 5}})]], frozenset((1, (2,)))),
        "cyclic": cyclic,
        "dict": {1: [2], "x": {"y": None}},
        "bytearray": bytearray(b"abc"),
        "ranges": (range(1, 10, 2), slice(None, 3, -1)),
        "collections": (
            collections.deque([1], 3),
            collections.Counter("aab"),
            collections.OrderedDict(a=1),
            collections.defaultdict(int, b=2),
        ),
        "numbers": (decimal.Decimal("1.50"), decimal.Decimal("sNaN"), fractions.Fraction(1, 3)),
        "dates": (
            datetime.date(2000, 2, 29),
            datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC),
            datetime.time(1, 2, 3, 4, fold=1, tzinfo=zone),
            datetime.timedelta(-1, 2, 3),
            zone,
        ),
        "others": (
            array.array("d", [1.5]),
            uuid.UUID(int=5),
            pathlib.PosixPath("/a"),
            pathlib.PurePosixPath("b"),
            types.SimpleNamespace(a=[1]),
        ),
        "views": (
            {1: 2}.keys(),
            {1: 2}.values(),
            {1: 2}.items(),
            types.MappingProxyType({1: 2}),
            memoryview(b"ab"),
        ),
        "handles": (
            codec.Handle(
                codec.PROGRAM, 1, "class", "solution", "A", None, (), ("__eq__",), {"enum": True}
            ),
            codec.Handle(codec.STORED, 2, codec.Handle(codec.PROGRAM, 1, "class"), [1]),
            codec.Handle(codec.TESTS, 0),
        ),
        "request": ("call", codec.Handle(codec.PROGRAM, 1), (1, [2]), ()),
        "reply": ("value", [1], (("stored", 5, codec.ByValue([1])),), 0),
    }
    CORPUS.mkdir(exist_ok=True)
    for name, value in values.items():
        (CORPUS / name).write_bytes(codec.Encoder(handle, shared.Shared(1)).encode(value))
    # Two messages of one conversation: the second speaks of the first one's containers.
    encoder = codec.Encoder(handle, shared.Shared(1))
    kept = [1]
    encoder.encode((kept, [2]))
    kept.append(3)
    (CORPUS / "update").write_bytes(encoder.encode((kept,)))
    del kept
    (CORPUS / "dropped").write_bytes(encoder.encode(()))


def main() -> int:
    sys.setrecursionlimit(RECURSION)
    if "--seeds" in sys.argv:
        write_seeds()
        return 0
    if "--atheris" in sys.argv:
        sys.argv.remove("--atheris")
        atheris.Setup([*sys.argv, str(CORPUS)], one_input)
        atheris.Fuzz()
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().getrandbits(32)
    with contextlib.suppress(KeyboardInterrupt):
        return fuzz(float(sys.argv[1]), seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
