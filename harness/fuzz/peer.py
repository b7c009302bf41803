"""Runs the grader against a peer that sends whatever it likes, and checks what has to hold.

For each case a fork of this process is the grader, as one verification's fork is, and this process
is the peer. The process is one of its own because the grader's guards change the process in which
they run.

`python peer.py SEED COUNT` prints one line of JSON for each violated promise, with the seed that
repeats it. `python peer.py honest` puts the real driver with an honest program at the other end,
and fails unless it passes.
"""

from __future__ import annotations

import builtins
import json
import os
import random
import resource
import select
import signal
import socket
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUNDLES = HERE.parent.parent / "bundles"
sys.path[:0] = [str(BUNDLES / "grader"), str(BUNDLES), str(HERE)]

import channel
import codec
import forwarding
import grader
import guards  # noqa: F401
import library
import mirror
import objects
import session
import shared
import statements_unforgeable
import surroundings
import values
import wire

# Waiting for what should take milliseconds, on a machine that is busy.
DEADLINE = 60.0
QUIET = 0.03
# How the audit hook of a grader's fork knows that something ran which no statement asks for.
FORBIDDEN = (
    "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.remove", "os.rename", "os.mkdir",
    "os.rmdir", "os.kill", "os.chmod", "os.putenv", "subprocess.", "socket.connect", "socket.bind",
    "ctypes.dlopen",
    "webbrowser.", "shutil.", "urllib.", "ftplib.", "smtplib.", "pty.",
)  # fmt: skip
TABLES = [(values, "_BUILDERS"), (values, "_KNOWN"), (codec, "_TAGS"), (codec, "_SINGLETONS")]
TABLES += [(library, "CLASSES"), (library, "TRUSTED"), (forwarding, "FORWARDS"), (os, "environ")]


class Watch:
    """What a fork of the grader must not change or do, whatever arrives."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._builtins = dict(builtins.__dict__)
        self._modules = dict(sys.modules)
        self._tables = [repr(getattr(owner, name)) for owner, name in TABLES]
        self._path = list(sys.path)
        decode = codec.Decoder.decode

        def checked(decoder: codec.Decoder, data: bytes) -> object:
            message = decode(decoder, data)
            for strange in not_plain(message):
                self.found.append(f"decoded a {strange.__module__}.{strange.__qualname__}")
            return message

        codec.Decoder.decode = checked
        for name in ("receive", "send"):
            setattr(channel.Channel, name, self._failing(getattr(channel.Channel, name)))
        sys.dont_write_bytecode = True
        sys.addaudithook(self._audit)

    def _failing(self, method: Callable) -> Callable:
        """The channel fails as one; what it trips over is no exception for tests to catch."""

        def failing(*args: object) -> object:
            try:
                return method(*args)
            except (codec.WireError, session.SnippetGone):
                raise
            except BaseException as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                if (
                    where.filename.startswith(str(BUNDLES))
                    and Path(where.filename).parent == BUNDLES
                ):
                    self.found.append(
                        f"the channel raised {error!r:.200} in {where.name}, line {where.lineno}"
                    )
                raise

        return failing

    def _audit(self, event: str, args: tuple) -> None:
        if event.startswith(FORBIDDEN):
            self.found.append(f"{event} {args!r:.200}")
        if (
            event == "open"
            and (args[2] or 0) & (os.O_WRONLY | os.O_RDWR)
            and args[0] != "/dev/null"
        ):
            self.found.append(f"open {args!r:.200}")

    def changes(self) -> list[str]:
        found = list(self.found)
        if any(
            builtins.__dict__.get(name) is not value
            for name, value in self._builtins.items()
            if name != "_"
        ):
            found.append("a builtin was replaced")
        if builtins.__dict__.keys() - self._builtins.keys() - {"_"}:
            found.append("a builtin was added")
        for name, module in self._modules.items():
            if sys.modules.get(name) is not module and name not in ("__main__", "solution"):
                found.append(f"module {name} was replaced")
        for name in sys.modules.keys() - self._modules.keys():
            if name.partition(".")[0] not in sys.stdlib_module_names | {"solution"}:
                found.append(f"module {name} was imported")
            if name.endswith("__main__") and name != "__main__":
                found.append(f"module {name} was run")
        for (owner, name), before in zip(TABLES, self._tables, strict=True):
            if repr(getattr(owner, name)) != before:
                found.append(f"{owner.__name__}.{name} changed")
        if sys.path != self._path:
            found.append("sys.path changed")
        return found


PLAIN = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    range,
    type(NotImplemented),
    type(Ellipsis),
    memoryview,
)
KNOWN = (
    "date datetime time timedelta timezone Decimal Fraction UUID PosixPath PurePosixPath array "
    "SimpleNamespace "
    "deque Counter OrderedDict defaultdict dict_keys dict_values dict_items mappingproxy"
).split()


def not_plain(message: object) -> Iterator[type]:
    """Types in a decoded message that are neither plain data nor a mirror nor the library's own."""
    waiting, seen = [message], set()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        kind = type(value)
        if (
            kind in PLAIN
            or issubclass(type(kind), mirror.MirrorType)
            or issubclass(kind, mirror.MirrorType)
        ):
            continue
        if kind in (list, tuple, set, frozenset, bytearray):
            waiting += value
        elif kind is dict:
            waiting += [*value.keys(), *value.values()]
        elif kind is slice:
            waiting += [value.start, value.stop, value.step]
        elif kind.__name__ in KNOWN and kind.__module__.partition(".")[
            0
        ] in sys.stdlib_module_names | {"builtins"}:
            if kind.__name__ == "UUID" and type(value.int) is not int:
                yield type(value.int)
            if kind.__name__ == "Fraction" and {
                type(value._numerator),
                type(value._denominator),
            } != {int}:
                yield type(value._numerator)
            if kind.__name__ == "mappingproxy":
                waiting += [*value.keys(), *value.values()]
        elif isinstance(value, type):
            if value.__module__.partition(".")[0] not in sys.stdlib_module_names:
                yield value
        elif not issubclass(
            kind, (BaseException, types.ModuleType, types.BuiltinFunctionType, types.CoroutineType)
        ):
            module = kind.__module__.partition(".")[0]
            own = kind is objects.UnavailableModule or module in (
                "__main__",
                "operator",
                "copy",
                "unittest",
            )
            if not own and kind not in (types.FunctionType, types.MethodType):
                yield kind


def run_grader(connection: socket.socket, tests: list[str], out: int) -> None:
    """In the fork: one verification, and what it did."""
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    sys.stdin = os.fdopen(0, closefd=False)
    resource.setrlimit(resource.RLIMIT_AS, (grader.FORK_BYTES, grader.FORK_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(grader.RECURSION)
    sys.argv = ["grader.py"]
    watch = Watch()
    try:
        outcome = grader.grade({"tests": tests, "early_stop": False}, connection)
    except BaseException as error:
        # Without its text, which may be the peer's to give.
        lines = traceback.format_list(traceback.extract_tb(error.__traceback__))
        outcome = {"raised": ("".join(lines) + type(error).__name__)[-3000:]}
    outcome["changes"] = watch.changes()
    os.write(out, json.dumps(outcome).encode()[: 1 << 16])


class Grader:
    """A fork that grades, and the peer's end of its channel."""

    def __init__(self, tests: list[str]) -> None:
        self.socket, theirs = socket.socketpair()
        self._out, out = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self.socket.close()
                os.close(self._out)
                run_grader(theirs, tests, out)
            finally:
                os._exit(0)
        theirs.close()
        os.close(out)

    def outcome(self) -> dict[str, object]:
        """What the fork reported, within the deadline."""
        text = b""
        deadline = time.monotonic() + DEADLINE
        while True:
            ready, _, _ = select.select([self._out], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                os.close(self._out)
                return {"problem": "it did not end"}
            part = os.read(self._out, 1 << 16)
            text += part
            if not part:
                break
        os.close(self._out)
        _, status = os.waitpid(self.pid, 0)
        if not text:
            return {"problem": f"it ended with status {status} and no report"}
        return json.loads(text)

    def ended(self) -> bool:
        return bool(select.select([self._out], [], [], 0)[0])


class Peer:
    """The program's side of one case, which understands questions well enough to lie."""

    def __init__(self, seed: int, grader: Grader, verbose: bool = False) -> None:
        self.random = random.Random(seed)
        self._grader = grader
        self._socket = grader.socket
        self._socket.settimeout(2.0)
        self._values = wire.Values(self.random)
        self._data = b""
        self._decoder = codec.Decoder(
            {tag: lambda *parts, tag=tag: codec.Handle(tag, *parts) for tag in codec.HANDLES},
            shared.Shared(1),
        )
        self._verbose = verbose
        # How often it follows the protocol: some cases should come far, others end at once.
        self.manners = self.random.choice((0.5, 0.8, 0.95, 0.98, 1.0))
        # A liar that keeps to the protocol: its one class has operators that agree to everything.
        self.coherent = self.random.random() < 0.5
        if self.coherent:
            self.manners = 1.0
        self._first: float | None = None
        self.steps = self.random.choice((1, 3, 10, 40, 150))
        self.broke = False
        self.pinged = False

    def run(self) -> None:
        try:
            self._loaded()
            for _ in range(self.steps):
                question = self._question()
                if question is None:
                    if self._grader.ended() or self.random.random() < 0.5:
                        break
                    self._send(self._values.ask(0))
                    continue
                self._answer(question)
            if self.random.random() < 0.1:
                half = wire.frame(self._values.reply(self._values.value(), 0))
                self._send_raw(half[: self.random.randrange(len(half))])
        except (OSError, EOFError):
            pass
        self._socket.close()

    def _loaded(self) -> None:
        r = self.random
        names = [*statements_unforgeable_names(), "__doc__", "len", "Counter", "math"]
        ready = wire.items(
            b"t", [wire.text("ready"), wire.items(b"t", [wire.text(each) for each in names])]
        )
        if r.random() > self.manners:
            ready = r.choice(
                (
                    self._values.value(),
                    wire.items(b"t", [wire.text("ready"), self._values.value()]),
                    wire.items(
                        b"t", [wire.text("failed"), self._values.value(), self._values.value()]
                    ),
                    wire.items(b"t", [wire.text("ready")]),
                )
            )
        self._send(wire.message(ready, *self._values.bookkeeping()))

    def _question(self) -> tuple[object, ...] | None:
        """The grader's next message, filled up to look like a question; None if none comes."""
        deadline = time.monotonic() + QUIET
        while True:
            if len(self._data) >= 8:
                length = int.from_bytes(self._data[4:8], "little")
                if len(self._data) >= 8 + length:
                    body, self._data = self._data[8 : 8 + length], self._data[8 + length :]
                    try:
                        message = self._decoder.decode(body)
                    except codec.WireError:
                        # Of containers that only its own lies spoke of.
                        return ("other", (), (), 0)
                    if self._verbose:
                        print("<", repr(message)[:300], file=sys.stderr)
                    self._notice(message)
                    return message if len(message) == 4 else ("other", (), (), 0)
            wait = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([self._socket], [], [], wait)
            if not ready:
                return None
            part = self._socket.recv(1 << 16)
            if not part:
                raise EOFError
            self._data += part

    def _notice(self, value: object, depth: int = 0) -> None:
        """Keeps what questions hold, to send it back where it would help."""
        if type(value) in (tuple, list, set, dict) and depth < 6:
            for each in value:
                self._notice(each, depth + 1)
        elif type(value) is codec.Handle:
            for each in value.parts:
                self._notice(each, depth + 1)
        elif type(value) in (int, float, str, bytes):
            self._values.seen = [*self._values.seen[-40:], wire.atom(value)]

    def _answer(self, question: tuple[object, ...]) -> None:
        r = self.random
        operation, arguments, _, address = question
        self.pinged = self.pinged or operation == "ping"
        if operation == "ping" and r.random() < 0.9:
            self._send(wire.message(wire.atom(("value", arguments[0], (), address))))
            return
        if self.coherent:
            self._agree(operation, arguments, address)
            return
        if r.random() > self.manners:
            self._misbehave(address)
        while r.random() < 0.15:
            self._send(self._values.ask(address))
            # Its answer is a question like any other for what follows.
            self._question()
        word = "raised" if r.random() < 0.12 else "value"
        result = self._values.error() if word == "raised" else self._plausible(operation, arguments)
        if r.random() < 0.1:
            result = self._values.value()
        self._send(self._values.reply(result, address, word))

    def _plausible(self, operation: object, arguments: tuple[object, ...]) -> bytes:
        values, r = self._values, self.random
        if operation == "get":
            name = str(arguments[0])
            if name[:1].isupper():
                return wire.items(
                    b"t",
                    [b"T", values.described(0, r.choice(("object", "object", "value", "error")))],
                )
            function = [
                wire.integer(values.number()),
                wire.text("function"),
                wire.text("solution"),
                wire.text("f"),
            ]
            return wire.items(b"t", [b"T", wire.items(b"R", function)])
        if operation == "compare":
            return wire.items(b"t", [b"T", values.value(2), values.value(2)])
        if operation == "drive":
            return wire.items(b"t", [r.choice((b"T", b"F")), values.value(1)])
        if operation in ("names", "members", "dir"):
            return wire.atom(tuple(wire.NAMES[:9]))
        if operation == "subclass":
            return values.described(0, "object")
        if operation in ("stage", "threads", "set"):
            return b"N"
        if operation == "special" and arguments[0] in ("bool", "eq", "lt", "contains", "exit"):
            return b"T"
        if operation == "special" and arguments[0] in ("len", "hash", "index", "int"):
            return wire.integer(r.choice((0, 1, 2, 3)))
        return values.value()

    def _agree(self, operation: object, arguments: tuple[object, ...], address: int) -> None:
        """Says what would satisfy a test, as far as the question tells."""
        r, values = self.random, self._values
        name = arguments[0] if operation == "special" else None
        thing = wire.items(b"R", [wire.integer(50), wire.text("object"), values.agreeing(51)])
        echoed = r.choice(values.seen) if values.seen else b"N"
        plain = r.choice((thing, thing, thing, echoed, b"N"))
        if operation == "call":
            for handle in [each for each in arguments[1] if type(each) is codec.Handle]:
                if handle.tag == codec.TESTS and r.random() < 0.9:
                    called = wire.items(b"C", [wire.integer(handle.parts[0])])
                    self._send(values.ask(address, (called, plain)))
                    self._question()
        word = "value"
        if operation in ("get", "compare", "drive", "names", "members", "subclass", "stage"):
            plain = self._plausible(operation, arguments)
        elif name in ("eq", "ne", "lt", "le", "gt", "ge", "contains", "bool", "exit", "aexit"):
            plain = b"T"
        elif name in ("len", "hash", "index", "int"):
            plain = r.choice((wire.integer(2), echoed))
        elif name in ("str", "repr", "format"):
            plain = r.choice((wire.text("x"), echoed))
        elif name == "iter":
            plain = wire.items(b"R", [wire.integer(52), wire.text("generator")])
        elif name == "next" and r.random() < 0.4:
            word, plain = "raised", values.ending()
        elif name is not None and type(arguments[-1]) in (int, float):
            # The distance to what the first question expected: none, and not always the same.
            self._first = arguments[-1] if self._first is None else self._first
            plain = wire.atom(arguments[-1] - self._first)
        parts = [wire.text(word), plain, wire.items(b"t", []), wire.integer(address)]
        self._send(wire.message(wire.items(b"t", parts)))

    def _misbehave(self, address: object) -> None:
        r, values = self.random, self._values
        address = address if type(address) is int else 0
        reply = values.reply(values.value(), address)
        how = r.randrange(8)
        if how == 0:
            self.broke = True
            self._send_raw(r.randbytes(r.randrange(8, 40)).replace(b"rlox", b""))
        elif how < 3:
            self._send(values.mutated(reply))
        elif how == 3:
            self._send_raw(values.mutated(wire.frame(reply)))
        elif how == 4:
            self._send(reply)
        elif how == 5:
            self._send(
                values.reply(values.value(), r.choice((-1, -2, -3, 0, 1, 2, 5, address + 1)))
            )
        elif how == 6:
            self._send(wire.message(values.value()))
        else:
            self._send_raw(wire.MAGIC + wire.count(r.choice((0, 5, 1 << 24, (1 << 32) - 1))))

    def _send(self, body: bytes) -> None:
        if self._verbose:
            print(">", body[:600], file=sys.stderr)
        self._socket.sendall(wire.frame(body))

    def _send_raw(self, data: bytes) -> None:
        if self._verbose:
            print("> raw", data[:300], file=sys.stderr)
        self._socket.sendall(data)


def statements_unforgeable_names() -> list[str]:
    lines = statements_unforgeable.PROGRAM.splitlines()
    heads = [line.replace("async def", "def") for line in lines]
    return [
        head.split()[1].partition("(")[0].rstrip(":")
        for head in heads
        if head.startswith(("def ", "class "))
    ]


def case(seed: int, verbose: bool = False) -> list[str]:
    """One conversation; what was wrong with it."""
    source = random.Random(~seed)
    chosen = source.sample(statements_unforgeable.STATEMENTS, source.choice((1, 1, 2, 4)))
    tests = [statements_unforgeable.filled(each, source) for each in chosen]
    if surroundings.Surroundings("\n".join(tests)).files:
        raise AssertionError("a statement that touches files needs a /tmp of its own")
    if verbose:
        print("\n".join(tests), file=sys.stderr)
    fork = Grader(tests)
    peer = Peer(seed, fork, verbose)
    peer.run()
    outcome = fork.outcome()
    if verbose:
        print(json.dumps(outcome, indent=1), file=sys.stderr)
    return violations(outcome, tests, peer)


def violations(outcome: dict[str, object], tests: list[str], peer: Peer) -> list[str]:
    if "problem" in outcome:
        return [str(outcome["problem"])]
    found = list(outcome["changes"])
    if "raised" in outcome:
        return [*found, f"the grader raised {outcome['raised']}"]
    results = outcome["results"]
    if len(results) != len(tests):
        found.append(f"{len(results)} results of {len(tests)} statements")
    found += [
        f"passed: {test}" for (passed, _), test in zip(results, tests, strict=False) if passed
    ]
    complete = outcome["complete"]
    if complete and (peer.broke or not peer.pinged):
        found.append("complete although the program did not keep to the protocol")
    if complete and outcome["ended"] is not None:
        found.append("complete although the program is gone")
    if not complete and outcome["loaded"] and outcome["ended"] is None and not peer.pinged:
        found.append("not complete, and nothing says why")
    return found


def honest() -> list[str]:
    """The real driver and an honest program in the peer's place: every statement passes."""
    source = random.Random(1)
    secrets = [source.getrandbits(100) | 1 << 99 for _ in range(3)]

    def fill(text: str) -> str:
        for name, secret in zip(("SECRET_A", "SECRET_B", "SECRET_C"), secrets, strict=True):
            text = text.replace(name, str(secret))
        return text

    found = []
    statements = statements_unforgeable.STATEMENTS
    for start in range(0, len(statements), 12):
        tests = [fill(each) for each in statements[start : start + 12]]
        fork = Grader(tests)
        pid = serve(fill(statements_unforgeable.PROGRAM), fork.socket)
        fork.socket.close()
        outcome = fork.outcome()
        os.waitpid(pid, 0)
        if "results" not in outcome:
            found.append(json.dumps(outcome))
            continue
        for (passed, message), test in zip(outcome["results"], tests, strict=True):
            if not passed:
                found.append(f"{message}: {test}")
        if not outcome["complete"] or outcome["changes"] or outcome["tampering"]:
            found.append(json.dumps(outcome))
    return found


def serve(program: str, channel: socket.socket) -> int:
    """Starts the driver as the container does: descriptor 3 is the program, 4 the channel."""
    source = os.memfd_create("program")
    os.write(source, program.encode())
    os.lseek(source, 0, os.SEEK_SET)
    pid = os.fork()
    if pid == 0:
        os.dup2(os.dup(source), 13)
        os.dup2(channel.fileno(), 14)
        os.dup2(13, 3)
        os.dup2(14, 4)
        environment = {
            "PYTHONPATH": str(BUNDLES),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PATH": os.defpath,
        }
        driver = str(BUNDLES / "snippet" / "driver.py")
        os.execve(sys.executable, [sys.executable, driver, "serve"], environment)
    os.close(source)
    return pid


def main() -> int:
    if sys.argv[1] == "honest":
        found = honest()
        print("\n".join(found))
        return bool(found)
    sys.setrecursionlimit(grader.RECURSION)
    first, count = int(sys.argv[1]), int(sys.argv[2])
    failed = False
    for seed in range(first, first + count):
        found = case(seed, verbose="-v" in sys.argv)
        if found:
            failed = True
            print(json.dumps({"seed": seed, "found": found}), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
