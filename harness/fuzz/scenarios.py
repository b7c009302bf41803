"""Conversations with the grader that once went wrong, each scripted to the byte.

Every one is a function that plays the program. `python scenarios.py NAME` prints what the grader
made of it.
"""

from __future__ import annotations

import contextlib
import json
import sys

import peer
import wire

RUNNER = (
    "import unittest\nclass First(unittest.TestCase):\n    def test_it(self):\n        pass\n"
    "unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(First))\n"
    "assert f(2) == 12345"
)
CALLBACK = (
    "called = []\ndef callback(x):\n    called.append(x)\n    assert x == 12345\n"
    "f(callback)\nassert called"
)
NO_CHANGES = wire.atom(())


class Program(peer.Peer):
    """A peer that follows a script."""

    def __init__(self, tests: list[str]) -> None:
        self.grader = peer.Grader(tests)
        super().__init__(0, self.grader)

    def next(self) -> tuple[object, ...] | None:
        """The next question; a long wait, since a script goes on only once it is there."""
        for _ in range(200):
            question = self._question()
            if question is not None or self.grader.ended():
                return question
        return None

    def ready(self, *names: str) -> None:
        self._send(wire.message(wire.atom(("ready", names))))

    def give(
        self, value: bytes, changes: bytes = NO_CHANGES, word: str = "value", to: int = 0
    ) -> None:
        parts = [wire.text(word), value, changes, wire.integer(to)]
        self._send(wire.message(wire.items(b"t", parts)))

    def give_function(self) -> None:
        """Answers the question for the name `f`."""
        self.next()
        function = (1, "function", "solution", "f")
        self.give(
            wire.items(b"t", [b"T", wire.items(b"R", [wire.atom(part) for part in function])])
        )

    def ask(self, operation: str, args: list[bytes], number: int, on: bytes) -> None:
        parts = [wire.text("ask"), wire.text(operation), wire.items(b"t", args), NO_CHANGES]
        self._send(wire.message(wire.items(b"t", [*parts, wire.integer(number), on])))

    def live(self) -> None:
        """Answers everything else as a program does that is still there."""
        while (question := self.next()) is not None:
            operation, arguments, _, address = question
            self.give(wire.atom(arguments[0]) if operation == "ping" else b"N", to=address)

    def end(self) -> dict[str, object]:
        with contextlib.suppress(OSError, EOFError):
            self.live()
        self._socket.close()
        return self.grader.outcome()


def described(number: int, module: str, name: str, *specials: str) -> bytes:
    head = [wire.integer(number), wire.text("class"), wire.text(module), wire.text(name), b"N"]
    return wire.items(b"R", [*head, wire.atom(()), wire.atom(specials), wire.items(b"m", [])])


def error(number: int, kind: bytes, *args: bytes) -> bytes:
    head = [
        wire.integer(number),
        wire.text("exception"),
        kind,
        wire.items(b"t", args),
        wire.text(""),
    ]
    return wire.items(b"R", [*head, wire.items(b"m", []), wire.atom((None, None, False, None))])


def instance(number: int, kind: bytes) -> bytes:
    return wire.items(b"R", [wire.integer(number), wire.text("object"), kind])


def imports_a_runner() -> dict[str, object]:
    """Names a module whose import runs tests and exits with success."""
    program = Program([RUNNER])
    program.ready("f")
    program.give_function()
    program.next()
    program.give(
        wire.items(b"R", [wire.integer(0), wire.text("module"), wire.text("unittest.__main__")])
    )
    return program.end()


def exits_unnoticed() -> dict[str, object]:
    """Raises SystemExit, and so many exceptions with it that the grader forgets whose it was."""
    program = Program([RUNNER])
    program.ready("f")
    program.give_function()
    program.next()
    kind = described(900, "builtins", "ValueError")
    others = wire.items(b"l", [error(1000 + each, kind) for each in range(600)])
    changes = wire.items(b"t", [wire.items(b"t", [wire.text("stored"), wire.integer(5), others])])
    program.give(error(999, described(901, "builtins", "SystemExit")), changes, "raised")
    return program.end()


def two_errors_of_one_number() -> dict[str, object]:
    """Gives an exception the number of the one that is being made, which would lose it."""
    program = Program(["assert f(2) == 12345"])
    program.ready("f")
    program.give_function()
    program.next()
    # While this exception is made, its constructor asks; the answer has one of the same number.
    decode_error = described(900, "json.decoder", "JSONDecodeError")
    plain = described(901, "builtins", "AssertionError")
    text = described(902, "solution", "Text")
    program.give(error(1000, decode_error, wire.text("m"), instance(903, text), wire.integer(1)))
    program.next()
    program.give(error(1000, plain))
    return program.end()


def addressed_to_an_object() -> dict[str, object]:
    """Answers to an object whose hash the grader would have to ask for."""
    program = Program(["assert f(2) == 12345"])
    program.ready("f")
    program.give_function()
    program.next()
    address = instance(5, described(6, "solution", "Thing", "__hash__"))
    program._send(wire.message(wire.items(b"t", [wire.text("value"), b"N", NO_CHANGES, address])))
    return program.end()


def ends_inside_a_broad_except() -> dict[str, object]:
    """Closes where the statement swallows whatever happens."""
    program = Program(["try:\n    f(2)\nexcept BaseException:\n    pass"])
    program.ready("f")
    program.give_function()
    program.next()
    program._socket.close()
    return program.grader.outcome()


def exits_by_an_attribute() -> dict[str, object]:
    """Has no `__exit__`, but an attribute of that name where `ExitStack` looks."""
    test = (
        "import contextlib\nwith contextlib.ExitStack() as stack:\n"
        "    assert stack.enter_context(f(2)) == 12345"
    )
    program = Program([test])
    program.ready("f")
    program.give_function()
    program.next()
    program.give(instance(5, described(6, "solution", "Thing", "__enter__", "__call__")))
    for _ in range(4):
        # `__exit__`, and what it says.
        question = program.next()
        if question is None or question[0] == "ping":
            program.give(wire.atom(question[1][0]) if question else b"N")
            break
        program.give(b"T" if question[0] == "call" else instance(5, described(6, "", "")))
    return program.end()


def suppresses_everything() -> dict[str, object]:
    """Says of its exception that every other one is of its kind."""
    program = Program(
        ["import contextlib\nwith contextlib.suppress(Own):\n    assert f(2) == 12345"]
    )
    program.ready("f", "Own")
    flags = wire.items(b"m", [wire.text("instancecheck"), b"T"])
    base = described(7, "builtins", "Exception")
    head = [wire.integer(6), wire.text("class"), wire.text("solution"), wire.text("Own"), b"N"]
    own = wire.items(b"R", [*head, wire.items(b"t", [base]), wire.atom(()), flags])
    program.next()
    program.give(wire.items(b"t", [b"T", own]))
    program.give_function()
    program.next()
    program.give(b"N")
    question = program.next()
    if question is not None and question[0] == "issubclass":
        program.give(b"T")
    elif question is not None:
        program.give(wire.atom(question[1][0]))
    return program.end()


def refuses_threads() -> dict[str, object]:
    """Raises where it is told that tests have threads."""
    program = Program(
        [
            "import threading\nthread = threading.Thread(target=f)\nthread.start()\nthread.join()\n"
            "assert f(2) == 12345"
        ]
    )
    program.ready("f")
    program.next()
    program.give(error(5, described(6, "builtins", "ValueError")), word="raised")
    return program.end()


def answers_elsewhere() -> dict[str, object]:
    """Sends answers to a place where nobody asks."""
    program = Program(["try:\n    f(2)\nfinally:\n    pass"])
    program.ready("f")
    program.give_function()
    program.next()
    program.give(b"N", to=44)
    program.give(b"N")
    return program.end()


def wrong_sign_of_life() -> dict[str, object]:
    program = Program(["f(2)"])
    program.ready("f")
    program.give_function()
    program.next()
    program.give(b"N")
    program.next()
    program.give(wire.integer(1))
    return program.end()


def passes_for_an_exception() -> dict[str, object]:
    """Raises an object whose class claims to be an exception that may not cross."""
    program = Program(["try:\n    f(2)\nexcept TypeError:\n    pass"])
    program.ready("f")
    program.give_function()
    program.next()
    program.give(instance(5, described(6, "asyncio.exceptions", "CancelledError")), word="raised")
    return program.end()


def honest() -> dict[str, object]:
    """The same kind of script, and nothing wrong with it."""
    program = Program(["assert f(2) == 5", CALLBACK])
    program.ready("f")
    program.give_function()
    program.next()
    program.give(wire.integer(5))
    program.next()
    program.ask(
        "call", [wire.items(b"C", [wire.integer(0)]), wire.integer(12345)], 8, wire.integer(0)
    )
    program.next()
    program.give(b"N")
    return program.end()


if __name__ == "__main__":
    sys.setrecursionlimit(8000)
    json.dump(globals()[sys.argv[1]](), sys.stdout)
