"""How long a fork of the grader may live, with a clock of the test's own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

BUNDLES = Path(__file__).parents[2] / "bundles"


@pytest.fixture
def overtime(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BUNDLES / "grader"))
    import overtime

    return overtime


class Life:
    """A fork whose clock, waits and program the test decides."""

    def __init__(self, overtime: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.waited = 50.0
        self.gone = False
        self.killed: list[int] = []
        monkeypatch.setattr(overtime.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(overtime, "waited", lambda pid: self.waited)
        monkeypatch.setattr(overtime, "is_closed", lambda descriptor: self.gone)
        monkeypatch.setattr(overtime.os, "kill", lambda pid, number: self.killed.append(number))
        self.fork = overtime.Fork(7, (6.0, 21.0), 8, 9, b"key")

    def at(self, seconds: float) -> bool:
        """Whether it is killed by this time, looked at whenever it wants to be."""
        while self.fork.next <= 100.0 + seconds and not self.killed:
            self.now = self.fork.next
            self.fork.look()
        self.now = 100.0 + seconds
        return bool(self.killed)


@pytest.fixture
def life(overtime: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Life:
    return Life(overtime, monkeypatch)


def test_as_long_as_the_program_lives_only_the_last_bound_ends_a_fork(life: Life) -> None:
    assert not life.at(20.9)
    assert life.at(21.3)
    assert life.killed == [signal.SIGKILL]
    assert life.fork.overdue


def test_without_its_program_it_has_a_second(life: Life) -> None:
    life.gone = True
    assert not life.at(6.9)
    assert life.at(7.3)


def test_what_it_waits_for_a_cpu_is_no_time_of_its_own_up_to_a_bound(life: Life) -> None:
    life.gone = True
    assert not life.at(6.0)
    life.waited += 1.5
    assert not life.at(8.4)
    life.waited += 100
    assert not life.at(9.9)
    assert life.at(10.3)


def test_a_program_that_ends_late_leaves_its_fork_the_same_second(life: Life) -> None:
    assert not life.at(15.0)
    life.gone = True
    assert not life.at(16.0)
    assert life.at(16.6)


def test_a_closed_channel_is_seen(overtime: ModuleType) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.sendall(b"x")
        assert not overtime.is_closed(ours.fileno())
        theirs.close()
        assert overtime.is_closed(ours.fileno())


def test_waits_are_read_and_nothing_is_invented(overtime: ModuleType) -> None:
    assert overtime.waited(os.getpid()) >= 0.0
    assert overtime.waited(2**30) == 0.0


def test_a_fork_that_computes_for_ever_is_ended_by_the_kernel() -> None:
    code = "import overtime\novertime.limit_cpu(0.3)\nwhile True: pass"
    ended = subprocess.run([sys.executable, "-c", code], cwd=BUNDLES / "grader", check=False)
    assert ended.returncode == -signal.SIGXCPU
