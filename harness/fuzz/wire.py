"""Bytes of the channel's protocol, written without its encoder: well-formed, lying, or broken.

The encoder cannot say most of what a hostile program can. Everything here is drawn from one
generator, so that a seed is a case.
"""

from __future__ import annotations

import math
import random
import struct

VERSION = 2
MAGIC = b"rlox"

SPECIALS = [
    f"__{name}__"
    for name in (
        "call len iter next reversed getitem setitem delitem missing contains bool eq ne lt le gt "
        "ge hash str repr "
        "format bytes int float complex index round abs neg add radd sub rsub mul rmul truediv "
        "floordiv mod pow and or "
        "xor iadd enter exit aenter aexit aiter anext await fspath class dict slots init new del "
        "getattribute reduce "
        "instancecheck mro_entries set_name init_subclass class_getitem subclasshook"
    ).split()
]
# Classes and functions that a description may claim to be: harmless, special to a test runner, or
# odd to lay out.
LIBRARY = [
    ("solution", "Thing"),
    ("solution", "a.b.C"),
    ("builtins", "int"),
    ("builtins", "str"),
    ("builtins", "list"),
    ("builtins", "dict"),
    ("builtins", "bool"),
    ("builtins", "type"),
    ("builtins", "object"),
    ("builtins", "NoneType"),
    ("builtins", "range"),
    ("builtins", "memoryview"),
    ("builtins", "mappingproxy"),
    ("builtins", "dict_keys"),
    ("builtins", "function"),
    ("builtins", "generator"),
    ("builtins", "super"),
    ("builtins", "property"),
    ("builtins", "ValueError"),
    ("builtins", "AssertionError"),
    ("builtins", "StopIteration"),
    ("builtins", "SystemExit"),
    ("builtins", "KeyboardInterrupt"),
    ("builtins", "GeneratorExit"),
    ("builtins", "BaseException"),
    ("builtins", "ExceptionGroup"),
    ("builtins", "UnicodeDecodeError"),
    ("builtins", "OSError"),
    ("builtins", "UserWarning"),
    ("builtins", "eval"),
    ("unittest.case", "SkipTest"),
    ("unittest.case", "TestCase"),
    ("unittest.case", "_ShouldStop"),
    ("unittest.mock", "_ANY"),
    ("unittest.mock", "Mock"),
    ("asyncio.exceptions", "CancelledError"),
    ("asyncio", "TimeoutError"),
    ("bdb", "BdbQuit"),
    ("abc", "ABCMeta"),
    ("enum", "EnumType"),
    ("enum", "Enum"),
    ("typing", "Any"),
    ("types", "ModuleType"),
    ("types", "FunctionType"),
    ("types", "CodeType"),
    ("types", "SimpleNamespace"),
    ("numbers", "Number"),
    ("numbers", "Rational"),
    ("collections", "deque"),
    ("collections", "x.deque"),
    ("collections", "Counter"),
    ("collections", "y.Counter"),
    ("collections", "OrderedDict"),
    ("collections.abc", "Mapping"),
    ("_collections_abc", "Sequence"),
    ("array", "x.array"),
    ("datetime", "datetime"),
    ("fractions", "Fraction"),
    ("decimal", "Decimal"),
    ("json.decoder", "JSONDecodeError"),
    ("urllib.error", "HTTPError"),
    ("operator", "eq"),
    ("operator", "methodcaller"),
    ("math", "sqrt"),
    ("copy", "deepcopy"),
    ("os", "system"),
    ("subprocess", "Popen"),
    ("rlox_canary", "Canary"),
    ("session", "SnippetGone"),
    ("mirror", "Refused"),
    ("", ""),
    ("..", "."),
    ("__main__", "T"),
]
MODULES = [
    "math",
    "json",
    "os",
    "sys",
    "builtins",
    "unittest",
    "unittest.mock",
    "unittest.__main__",
    "antigravity",
    "this",
    "gc",
    "rlox_canary",
    "session",
    "codec",
    "__main__",
    "encodings.idna",
    "xml.dom.minidom",
    "",
    ".",
    "a.b",
    "\0",
    "\ud800",
]
KNOWN = (
    "deque Counter OrderedDict defaultdict Decimal Fraction date datetime time timedelta timezone "
    "array UUID Path "
    "PurePath SimpleNamespace memoryview keys values items mappingproxy unknown"
).split()
KINDS = (
    "object object object function generator async_generator coroutine exception class module other"
).split()
OPERATIONS = (
    "call call call getattr getattr setattr await len iter next getitem setitem eq lt hash str "
    "repr format int bool "
    "enter exit contains __class__ exec unknown"
).split()
NAMES = (
    "x value args __class__ __globals__ __code__ __dict__ _private func_globals gi_frame f_back "
    "tb_frame side_effect "
    "return_value call_args assert_called_once_with append with_traceback mro __init__ "
    "__subclasses__"
).split()


def count(number: int) -> bytes:
    return struct.pack("<I", number)


def sized(tag: bytes, data: bytes) -> bytes:
    return tag + count(len(data)) + data


def items(tag: bytes, parts: list[bytes] | tuple[bytes, ...]) -> bytes:
    return tag + count(len(parts)) + b"".join(parts)


def integer(number: int) -> bytes:
    return sized(b"i", number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True))


def text(content: str) -> bytes:
    return sized(b"s", content.encode("utf-8", "surrogatepass"))


def atom(value: object) -> bytes:
    """Plain data of the kinds that requests consist of."""
    single = {None: b"N", True: b"T", False: b"F"}
    if value is None or isinstance(value, bool):
        return single[value]
    if isinstance(value, int):
        return integer(value)
    if isinstance(value, float):
        return b"d" + struct.pack("<d", value)
    if isinstance(value, str):
        return text(value)
    if isinstance(value, bytes):
        return sized(b"b", value)
    if isinstance(value, tuple):
        return items(b"t", [atom(each) for each in value])
    return b"N"


def frame(body: bytes) -> bytes:
    return MAGIC + count(len(body)) + body


def message(content: bytes, dropped: bytes = b"t\0\0\0\0", updates: bytes = b"t\0\0\0\0") -> bytes:
    return bytes((VERSION,)) + b"t" + count(3) + dropped + updates + content


class Values:
    """Values as a hostile program would write them; `seen` is what the grader's questions held."""

    def __init__(self, random: random.Random) -> None:
        self.random = random
        self.seen: list[bytes] = []
        self.shared = [1, 3, 5]
        self._classes = 0

    def number(self) -> int:
        """Of an object: few, so that numbers collide."""
        return self.random.choice((1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, -1, 1 << 70))

    def atom(self) -> bytes:
        r = self.random
        chosen = r.randrange(11)
        if chosen < 3 and self.seen:
            return r.choice(self.seen)
        if chosen < 5:
            return integer(r.choice((0, 1, -1, 2, 7, 255, 1 << 31, 1 << 63, -(1 << 64), 1 << 200)))
        if chosen < 7:
            return text(
                r.choice(("", "a", "x", "\0", "\ud800", "1e999999", "a" * 300, r.choice(NAMES)))
            )
        if chosen == 7:
            return b"d" + struct.pack(
                "<d", r.choice((0.0, 1.5, math.nan, math.inf, -math.inf, 1e308))
            )
        if chosen == 8:
            return sized(b"b", r.randbytes(r.randrange(6)))
        if chosen == 9:
            return b"c" + struct.pack("<dd", r.random(), math.nan)
        return r.choice((b"N", b"T", b"F", b"!", b"."))

    def several(self, depth: int, most: int = 4) -> list[bytes]:
        return [self.value(depth + 1) for _ in range(self.random.randrange(most + 1))]

    def value(self, depth: int = 0) -> bytes:
        r = self.random
        if depth > 4 or r.random() < 0.3:
            return self.atom()
        make = r.choice(
            (
                self._plain,
                self._plain,
                self._known,
                self._shared,
                self._shared,
                self.program,
                self.program,
                self.program,
                self.stored,
                self.tests,
                self._again,
                self._odd,
            )
        )
        return make(depth)

    def _plain(self, depth: int) -> bytes:
        tag = self.random.choice((b"l", b"t", b"m", b"e", b"z", b"r", b"/"))
        parts = self.several(depth)
        if tag == b"m" and len(parts) % 2 and self.random.random() < 0.9:
            parts.pop()
        return items(tag, parts)

    def _known(self, depth: int) -> bytes:
        r = self.random
        name = r.choice(KNOWN)
        number = integer(r.choice((1, 2, 12, 2000, -5, 1 << 40)))
        shapes = {
            "deque": [items(b"l", self.several(depth)), r.choice((b"N", number))],
            "Counter": [items(b"m", self.several(depth, 1) * 2)],
            "OrderedDict": [items(b"l", [items(b"t", [self.atom(), self.value(depth + 1)])])],
            "defaultdict": [text(r.choice(("int", "list", "eval"))), items(b"m", [])],
            "Decimal": [text(r.choice(("1.5", "NaN", "sNaN", "1e999999999999", "x")))],
            "Fraction": [number, r.choice((number, b"N"))],
            "date": [number] * 3,
            "UUID": [r.choice((number, self.value(depth + 1)))],
            "array": [text(r.choice("ibdu?")), items(b"l", [number])],
            "SimpleNamespace": [items(b"m", [text(r.choice(NAMES)), self.value(depth + 1)])],
            "memoryview": [r.choice((sized(b"b", b"abc"), integer(1 << r.randrange(34)))), b"T"],
            "mappingproxy": [r.choice((items(b"m", []), self.value(depth + 1)))],
        }
        parts = shapes.get(name) if r.random() < 0.7 else None
        parts = self.several(depth) if parts is None else list(parts)
        if parts and r.random() < 0.2:
            parts[r.randrange(len(parts))] = self.value(depth + 1)
        return items(b"x", [text(name), *parts])

    def _shared(self, depth: int) -> bytes:
        r = self.random
        number = r.choice(
            (*self.shared, *self.shared, 0, 2, 4, -1, -2, 1 << 65, r.randrange(1, 2000))
        )
        if r.random() < 0.3:
            return items(b"S", [integer(number)])
        self.shared = [*self.shared[-8:], number]
        content = items(r.choice((b"l", b"e", b"m")), self.several(depth, 2) * 2)
        if r.random() < 0.25:
            content = self.value(depth + 1)
        return items(b"S", [integer(number), content])

    def _again(self, depth: int) -> bytes:
        place = integer(self.random.choice((0, 0, 0, 1, 2, -1, 50)))
        again = items(b"@", [place])
        return items(b"l", [again, *self.several(depth)]) if self.random.random() < 0.7 else again

    def _odd(self, depth: int) -> bytes:
        r = self.random
        return r.choice(
            (
                lambda: b"l" + count(r.choice((1, 100, 1 << 20, (1 << 32) - 1))),
                lambda: (b"l" + count(1)) * r.choice((100, 505, 600)) + b"N",
                lambda: (b"t" + count(1)) * r.choice((100, 505, 600)) + b"N",
                lambda: sized(b"I", r.randbytes(r.choice((8, 16, 7)))),
                lambda: sized(b"D", r.randbytes(r.choice((8, 160, 9)))),
                lambda: sized(b"B", b"xyz"),
                lambda: sized(b"i", b""),
                lambda: sized(b"i", r.randbytes(40)),
                lambda: sized(b"s", b"\xff\xfe"),
                lambda: r.randbytes(r.randrange(1, 12)),
            )
        )()

    def tests(self, depth: int = 0) -> bytes:
        """A handle of the tests' objects."""
        number = integer(self.random.choice((0, 0, 0, 1, 1, 2, 3, -1, 99)))
        more = self.several(depth, 1) if self.random.random() < 0.1 else []
        return items(b"C", [number, *more])

    def described(self, depth: int = 0, kind: str | None = None) -> bytes:
        """A class: `kind` is `value`, `error` or `object`, or whatever comes."""
        r = self.random
        number = self.number()
        if kind is None and r.random() < 0.25:
            return items(b"R", [integer(number), text("class")])
        module, name = ("solution", "Thing") if kind and r.random() < 0.6 else r.choice(LIBRARY)
        bases: list[bytes] = []
        if kind is None and depth < 3:
            bases = [self.described(depth + 2) for _ in range(r.randrange(3))]
        if kind in ("value", "error"):
            base = r.choice(
                ("int", "str", "list", "dict", "set", "float", "bytearray", "frozenset")
            )
            if kind == "error":
                base = r.choice(
                    (
                        "ValueError",
                        "Exception",
                        "BaseException",
                        "OSError",
                        "ExceptionGroup",
                        "StopIteration",
                    )
                )
            bases = [
                self._class(
                    number + 100 + r.randrange(9), "builtins", base, [], [], items(b"m", [])
                )
            ]
        if r.random() < 0.05:
            bases.append(self.value(depth + 1))
        specials = [text(each) for each in r.sample(SPECIALS, r.choice((0, 2, 8, len(SPECIALS))))]
        flags: list[bytes] = []
        for flag in "unhashable fields meta instancecheck enum overrides abstract".split():
            if r.random() < 0.25:
                content = [
                    text(
                        r.choice(
                            (*NAMES, "__iter__", "__len__", "__getitem__", "Sequence", "Mapping")
                        )
                    )
                ] * 2
                listed = items(b"l", content)
                flags += [text(flag), r.choice((b"T", listed, listed, self.value(depth + 2)))]
        if r.random() < 0.05:
            name = r.choice(("a" * 5000, "\0", "\ud800", ".", "é.ü"))
        return self._class(number, module, name, bases, specials, items(b"m", flags))

    def _class(
        self,
        number: int,
        module: str,
        name: str,
        bases: list[bytes],
        specials: list[bytes],
        flags: bytes,
    ) -> bytes:
        doc = self.random.choice((b"N", text("doc"), self.atom()))
        parts = [integer(number), text("class"), text(module), text(name), doc]
        parts += [items(b"t", bases), items(b"t", specials), flags]
        if name != "Thing" and self.random.random() < 0.03:
            parts.pop(self.random.randrange(len(parts)))
        return items(b"R", parts)

    def agreeing(self, number: int) -> bytes:
        """A class whose every operator is its own, described as it should be."""
        specials = self.random.sample(SPECIALS, len(SPECIALS) - self.random.choice((0, 5, 20)))
        return self._class(
            number, "solution", "Thing", [], [text(each) for each in specials], items(b"m", [])
        )

    def ending(self) -> bytes:
        """StopIteration."""
        kind = self._class(53, "builtins", "StopIteration", [], [], items(b"m", []))
        parts = [integer(54), text("exception"), kind, items(b"t", []), text(""), items(b"m", [])]
        return items(b"R", [*parts, items(b"t", [b"N", b"N", b"F", b"N"])])

    def error(self, depth: int = 0) -> bytes:
        r = self.random
        error = [name for module, name in LIBRARY if module == "builtins" and name[0].isupper()]
        kind = self.described(depth + 1, "error")
        if r.random() < 0.5:
            kind = self._class(
                self.number() + 200, "builtins", r.choice(error), [], [], items(b"m", [])
            )
        state: list[bytes] = []
        if r.random() < 0.4:
            name = r.choice(
                (*NAMES, "code", "args", "errno", "exceptions", "__notes__", "_rlox_number")
            )
            state = [text(name), self.value(depth + 1)]
        chain = [b"N", b"N", r.choice((b"T", b"F")), b"N"]
        if r.random() < 0.3 and depth < 3:
            chain[r.randrange(2)] = self.error(depth + 2)
        if r.random() < 0.1:
            chain[r.randrange(4)] = self.value(depth + 1)
        args = items(b"t", self.several(depth + 1, 2))
        parts = [
            integer(self.number()),
            text("exception"),
            kind,
            args,
            text("said"),
            items(b"m", state),
        ]
        return items(b"R", [*parts, items(b"t", chain)])

    def program(self, depth: int = 0) -> bytes:
        """An object of the program."""
        r = self.random
        kind = r.choice(KINDS)
        number = integer(self.number())
        if kind == "class":
            return self.described(depth)
        if kind == "exception":
            return self.error(depth)
        if kind == "object":
            of = self.described(depth, "object") if r.random() < 0.8 else self.value(depth + 1)
            return items(b"R", [number, text("object"), of])
        if kind == "function":
            module, name = r.choice(LIBRARY) if r.random() < 0.2 else ("solution", "f")
            return items(b"R", [number, text("function"), text(module), text(name)])
        if kind == "module":
            return items(b"R", [integer(0), text("module"), text(r.choice(MODULES))])
        if kind == "other":
            return items(b"R", [number, *self.several(depth)])
        return items(b"R", [number, text(kind)])

    def stored(self, depth: int = 0) -> bytes:
        cls = (
            self.described(depth, "value") if self.random.random() < 0.8 else self.value(depth + 1)
        )
        return items(b"V", [integer(self.number()), cls, self.value(depth + 1)])

    def changes(self) -> bytes:
        r = self.random
        if r.random() < 0.7:
            return items(b"t", [])
        made = []
        for _ in range(r.randrange(3)):
            kind = r.choice(("stored", "stored", "printed", "warned", "logged", "file", "other"))
            key = (
                integer(self.number())
                if kind == "stored"
                else text(r.choice(("stdout", "stderr", "root")))
            )
            if kind == "warned":
                key = self.described(0)
            value = r.choice(
                (self.value(2), text("line\n"), items(b"t", [integer(30), text("said")]))
            )
            parts = [text(kind), key, value]
            made.append(items(b"t", parts if r.random() < 0.9 else self.several(2)))
        return items(b"t", made)

    def bookkeeping(self) -> tuple[bytes, bytes]:
        """What a message says of shared containers: those forgotten, and those with new content."""
        r = self.random
        if r.random() < 0.75:
            return items(b"t", []), items(b"t", [])
        numbers = [integer(r.choice((*self.shared, 2, 4, 6, -1))) for _ in range(r.randrange(3))]
        dropped = items(b"t", numbers) if r.random() < 0.8 else self.value(2)
        updates = items(b"t", [self._shared(1) for _ in range(r.randrange(3))])
        return dropped, updates if r.random() < 0.9 else self.value(2)

    def reply(self, result: bytes, address: int, word: str = "value") -> bytes:
        dropped, updates = self.bookkeeping()
        parts = [text(word), result, self.changes(), integer(address)]
        if self.random.random() < 0.02:
            parts[self.random.randrange(4)] = self.value(2)
        return message(items(b"t", parts), dropped, updates)

    def ask(self, address: int, call: tuple[bytes, bytes] | None = None) -> bytes:
        """A question about an object of the tests; `call` is one to call, and with what."""
        if call is not None:
            parts = [text("ask"), text("call"), items(b"t", call), items(b"t", []), integer(9)]
            return message(items(b"t", [*parts, integer(address)]))
        r = self.random
        args = [self.tests() if r.random() < 0.9 else self.value(1)]
        operation = r.choice(OPERATIONS)
        if operation in ("getattr", "setattr"):
            args.append(text(r.choice(NAMES)))
        if operation != "getattr":
            args += self.several(1, 2)
        named = (
            items(b"t", [])
            if r.random() < 0.8
            else items(b"t", [items(b"t", [text("x"), self.value(2)])])
        )
        number = integer(r.choice((1, 2, 3, 3, 4, 0, -1, 1 << 66)))
        on = r.choice(
            (
                b"N",
                integer(address),
                integer(address),
                integer(r.choice((1, 2, 5, -2))),
                self.value(3),
            )
        )
        parts = [text("ask"), text(operation), items(b"t", args), named, number, on]
        if r.random() < 0.05:
            parts[r.randrange(len(parts))] = self.value(2)
        return message(items(b"t", parts), *self.bookkeeping())

    def mutated(self, data: bytes) -> bytes:
        """A frame with one thing wrong."""
        r = self.random
        changed = bytearray(data)
        for _ in range(r.choice((1, 1, 1, 2, 5))):
            place = r.randrange(len(changed) + 1)
            how = r.randrange(6)
            if how == 0 and changed:
                changed[place % len(changed)] ^= 1 << r.randrange(8)
            elif how == 1:
                del changed[place:]
            elif how == 2:
                changed[place:place] = r.randbytes(r.randrange(1, 5))
            elif how == 3:
                end = r.randrange(len(changed) + 1)
                changed[place:place] = changed[end : end + r.randrange(1, 40)]
            elif how == 4:
                del changed[place : place + r.randrange(1, 9)]
            else:
                changed[place : place + 4] = count(r.choice((0, 1, 3, 255, 1 << 24, (1 << 32) - 1)))
        return bytes(changed)
