"""Baseline: run generated code inside the trainer, as careful but unprotected trainers do.

The care is real: a fresh namespace for every program, every exception caught (SystemExit too), a
timer that interrupts plain loops. What it cannot do is the point of the benchmark. Code that
catches the timer's exception, loops in C, ends the process, exhausts memory, leaves threads or
children, or patches what later programs rely on is not contained by any of this.

Run it with hostile snippets only inside a container.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from types import FrameType
from typing import Any

from rlox_trainer.backends import Submission


class SnippetTimeout(BaseException):
    """Raised by the timer inside the running program; no `except Exception` there swallows it."""


def raise_timeout(_signal: int, _frame: FrameType | None) -> None:
    raise SnippetTimeout


class InLoopBackend:
    """`exec` in this process and thread; it has to be the main one, as timers signal there."""

    def __init__(self, timeout_secs: float) -> None:
        self._timeout_secs = timeout_secs

    def check(self) -> None:
        """Nothing has to be there."""

    def rewards(self, submissions: Sequence[Submission]) -> list[float | None]:
        return [self._reward(submission) for submission in submissions]

    def _reward(self, submission: Submission) -> float:
        namespace: dict[str, Any] = {"__name__": "__main__"}
        previous = signal.signal(signal.SIGALRM, raise_timeout)
        try:
            signal.setitimer(signal.ITIMER_REAL, self._timeout_secs)
            try:
                exec(submission.code, namespace)
                for test in submission.tests:
                    exec(test, namespace)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except BaseException:
            return 0.0
        finally:
            signal.signal(signal.SIGALRM, previous)
        return 1.0
