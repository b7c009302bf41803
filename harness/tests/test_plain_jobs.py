"""Which jobs may share a process of the grader, and what they leave in it."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
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

    grader.load()
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


def started(grader: ModuleType) -> tuple[int, socket.socket]:
    """The grader's loop in a process of its own; its jobs go into the socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = os.fork()
    if child == 0:
        try:
            ours.close()
            os.dup2(theirs.fileno(), grader.JOBS)
            grader.Jobs().serve()
        finally:
            os._exit(0)
    theirs.close()
    return child, ours


def submitted(jobs: socket.socket, program: str, tests: list[str]) -> bytes:
    """All that comes on the report's descriptor until its end."""
    channel, far = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            channel.close()
            import server

            namespace: dict = {}
            exec(program, namespace)
            server.Server(far.fileno()).serve(namespace)
        finally:
            os._exit(0)
    far.close()
    report, writing = socket.socketpair()
    job = os.memfd_create("job")
    os.write(job, json.dumps({"tests": tests, "early_stop": False}).encode())
    os.lseek(job, 0, os.SEEK_SET)
    descriptors = [channel.fileno(), writing.fileno(), job]
    socket.send_fds(jobs, [b"5000 20000 " + b"00" * 32], descriptors)
    channel.close()
    writing.close()
    os.close(job)
    report.settimeout(30)
    text = b""
    with report:
        while part := report.recv(65536):
            text += part
    os.waitpid(child, 0)
    return text


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


RIGHT, WRONG = ["assert double(2) == 4"], ["assert double(2) == 5"]
LEAVING = PROGRAM + "def double(x):\n    import os\n    os._exit(0)\n"


def results(report: bytes) -> list[bool]:
    return [passed for passed, _ in json.loads(json.loads(report)["report"])["results"]]


def test_reports_end_although_the_process_that_wrote_them_stays(grader: ModuleType) -> None:
    child, jobs = started(grader)
    with jobs:
        workers = set()
        for _ in range(5):
            assert results(submitted(jobs, PROGRAM, RIGHT)) == [True]
            assert results(submitted(jobs, PROGRAM, WRONG)) == [False]
            workers.update(children(child))
        # A job that comes while one cleans up gets another.
        assert workers
        assert len(workers) < 10
        # Anything else has a process of its own.
        assert results(submitted(jobs, PROGRAM, ["x = double(2)\nassert x == 4"])) == [True]
    os.waitpid(child, 0)


def test_processes_that_leave_disturb_no_other_job(grader: ModuleType) -> None:
    child, jobs = started(grader)
    with jobs:
        for _ in range(10):
            assert results(submitted(jobs, LEAVING, RIGHT)) == [False]
            assert results(submitted(jobs, PROGRAM, RIGHT)) == [True]
            assert results(submitted(jobs, "no python at all", RIGHT)) == [False]
    os.waitpid(child, 0)


def test_what_a_program_sends_is_gone_before_the_next(grader: ModuleType) -> None:
    large = (
        PROGRAM
        + "class L(list): pass\ndef double(x):\n    return L([set() for _ in range(100_000)])\n"
    )
    for program, small in ((large, False), (PROGRAM, True)):
        child = os.fork()
        if child == 0:
            import traces

            ours, theirs = socket.socketpair()
            if os.fork() == 0:
                ours.close()
                import server

                namespace: dict = {}
                exec(program, namespace)
                server.Server(theirs.fileno()).serve(namespace)
                os._exit(0)
            theirs.close()
            with traces.Traces() as left:
                grader.grade({"tests": WRONG, "early_stop": False}, ours, plain_job=True)
            os._exit(0 if left.gone and left.is_small() is small else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_a_process_with_nothing_to_do_goes(
    grader: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grader, "IDLE", 0.2)
    child, jobs = started(grader)
    with jobs:
        for _ in range(2):
            assert results(submitted(jobs, PROGRAM, RIGHT)) == [True]
            deadline = time.monotonic() + 30
            while children(child) and time.monotonic() < deadline:
                time.sleep(0.02)
            assert not children(child)
    os.waitpid(child, 0)
