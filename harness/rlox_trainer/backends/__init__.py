"""Where generated code runs: three backends behind one small interface.

A backend turns programs with tests into rewards and does nothing else; generation, injection,
advantages and the update are the same whichever is chosen. A reward is 1.0 or 0.0, or None where
the backend failed: None is masked by the trainer, because a failure of ours says nothing about the
program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rlox_trainer.args import TrialConfig


@dataclass(frozen=True)
class Submission:
    """One program and the statements that test it."""

    code: str
    tests: tuple[str, ...]


class Backend(Protocol):
    """Runs programs; one call is one step of the trial."""

    def check(self) -> None:
        """Raise with a message for the user if the backend cannot work at all."""

    def rewards(self, submissions: Sequence[Submission]) -> list[float | None]:
        """One reward per submission, in order."""


def make_backend(config: TrialConfig) -> Backend:
    """The backend that the command line names. Imports are late: no trial needs all three."""
    if config.backend == "rlox":
        from rlox_trainer.backends.rlox import RloxBackend
        from rlox_trainer.service import VerifyClient

        client = VerifyClient(config.rlox_server_url)
        return RloxBackend(client, config.snippet_timeout_secs, config.snippet_memory_mb)
    if config.backend == "subprocess":
        from rlox_trainer.backends.subprocess_exit import SubprocessBackend

        return SubprocessBackend(config.snippet_timeout_secs)
    from rlox_trainer.backends.in_loop import InLoopBackend

    return InLoopBackend(config.snippet_timeout_secs)
