"""Which jobs may share a process of the grader, and what they leave in it."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BUNDLES = Path(__file__).parents[2] / "bundles"
PROGRAM = """
def double(x):
    return 2 * x

class Box:
    def __init__(self, content):
        self.content = content
    def __eq__(self, other):
        return self.content == other.content
"""


@pytest.fixture
def grader(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    before = set(sys.modules)
    for place in ("grader", "snippet", "."):
        monkeypatch.syspath_prepend(str(BUNDLES / place))
    import grader

    yield grader
    for name in set(sys.modules) - before:
        del sys.modules[name]


def is_plain(*tests: str) -> bool:
    import plain

    return plain.is_plain(json.dumps({"tests": tests, "early_stop": False}).encode())


@pytest.mark.parametrize(
    "test",
    [
        "assert double(2) == 4",
        "assert sorted(f([3, 1], key=1)) == [1, 3], 'message'",
        "assert f({1: (2.5, None)}) in ({1}, -1) and not g('x') or len(f(x=[True])) >= 3",
        "assert isinstance(f(1), (int, str)) is True",
    ],
)
def test_comparisons_of_calls_are_plain(grader: ModuleType, test: str) -> None:
    assert is_plain(test, "assert f(1) == 2")


@pytest.mark.parametrize(
    "test",
    [
        "x = f(1)",
        "import math",
        "for n in f(1): assert n",
        "def check(candidate): assert candidate(1) == 2",
        "assert (lambda: f(1))() == 2",
        "assert [f(n) for n in (1, 2)] == [1, 2]",
        "assert (y := f(1)) == 2",
        "assert f(1).real == 1",
        "assert f(1)[0] == 1",
        "assert f(1)(2) == 3",
        "assert open('/tmp/x')",
        "assert eval('1')",
        "assert getattr(f, 'x')",
        "assert __builtins__",
        "assert print(f(1)) is None",
        "with f(1): pass",
        "try:\n    f(1)\nexcept ValueError: pass",
        "del f",
        "assert f'{f(1)}' == '1'",
        "await f(1)",
        "no python",
    ],
)
def test_whatever_may_leave_something_is_not(grader: ModuleType, test: str) -> None:
    assert is_plain("assert f(1) == 2")
    assert not is_plain("assert f(1) == 2", test)


def test_a_job_that_is_too_long_is_not(grader: ModuleType) -> None:
    import plain

    assert not is_plain("assert f(%r) == 1" % ("x" * plain.MOST_BYTES))


def graded(grader: ModuleType, program: str, tests: list[str]) -> tuple[dict, bool]:
    """One job here, with the program in a process of its own; and whether nothing is left."""
    import traces

    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            ours.close()
            import server

            namespace: dict = {}
            exec(program, namespace)
            server.Server(theirs.fileno()).serve(namespace)
        finally:
            os._exit(0)
    theirs.close()
    with ours, traces.Traces() as left:
        report = grader.grade({"tests": tests, "early_stop": False}, ours, plain_job=True)
    os.waitpid(child, 0)
    return report, left.gone


def test_one_process_grades_many_and_keeps_nothing(grader: ModuleType) -> None:
    import mirror

    modules, hooks = dict(sys.modules), list(sys.meta_path)
    right, wrong = ["assert double(2) == 4", "assert Box(1) == Box(1)"], ["assert double(2) == 5"]
    for _ in range(3):
        report, gone = graded(grader, PROGRAM, right)
        assert gone
        assert report["complete"]
        assert [passed for passed, _ in report["results"]] == [True, True]
        report, gone = graded(grader, PROGRAM, wrong)
        assert gone
        assert [passed for passed, _ in report["results"]] == [False]
    assert "_rlox_session" not in mirror.Mirror.__dict__
    assert sys.meta_path == hooks
    assert {name for name in sys.modules if name not in modules} <= {
        "traces",
        "server",
        "exports",
        "foreign",
    }


def test_a_program_that_does_more_than_answer_is_noticed(grader: ModuleType) -> None:
    leaving = PROGRAM + "def double(x):\n    import os\n    os._exit(0)\n"
    report, _ = graded(grader, leaving, ["assert double(2) == 4"])
    assert not report["complete"]
    assert report["tampering"]


def test_the_same_program_without_it_is_not(grader: ModuleType) -> None:
    report, gone = graded(grader, PROGRAM, ["assert double(2) == 4"])
    assert gone
    assert report["complete"]
    assert not report["tampering"]
