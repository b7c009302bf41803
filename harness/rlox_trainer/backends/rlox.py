"""Treatment: every program of a step goes to the sandbox service in one call.

The service answers with a reward that the program cannot write itself, or with none where the
service failed. Both arrive here as data; nothing of the program runs in this process.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlox_trainer.backends import Submission
from rlox_trainer.service import VerifyClient


class RloxBackend:
    """Turns submissions into requests and answers into rewards."""

    def __init__(self, client: VerifyClient, timeout_secs: float, memory_mb: int) -> None:
        self._client = client
        self._timeout_secs = timeout_secs
        self._memory_mb = memory_mb

    def check(self) -> None:
        self._client.check()

    def rewards(self, submissions: Sequence[Submission]) -> list[float | None]:
        requests = [
            {
                "code": submission.code,
                "tests": list(submission.tests),
                "timeout_secs": self._timeout_secs,
                "memory_mb": self._memory_mb,
            }
            for submission in submissions
        ]
        return self._client.verify(requests, self._timeout_secs)
