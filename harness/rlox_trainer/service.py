"""Client of the sandbox service, on the standard library alone.

It speaks `POST /verify/batch` over TCP or a unix socket (the trainer's container has no network,
only a socket) and has one promise: whatever the service does, every request gets a reward or None.
None means that the service failed. It is never turned into 0, which would teach the policy that its
code was wrong, and never into an exception, which would let one bad snippet end the trial.
"""

from __future__ import annotations

import http.client
import json
import math
import random
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

# Worth another try: busy, failing for now, or too slow this time.
RETRIED_STATUSES = frozenset({429, 503, 504})
# The service objects to the request itself, so asking again changes nothing; but one bad entry
# should not cost its neighbours their rewards, so the batch is halved until the entry is alone.
DIVIDED_STATUSES = frozenset({400, 413, 422})
ATTEMPTS = 5
FIRST_PAUSE_SECS = 0.2
LONGEST_PAUSE_SECS = 5.0
HEALTH_TIMEOUT_SECS = 10.0
# Beyond what its snippets may take one after the other, a batch may wait this long in a queue.
SLACK_SECS = 30.0
# The service lets the wall clock of a snippet stand still while others have the CPUs, up to four
# times its limit, and then tries it once more.
STRETCH = 8.0


class ServiceUnusableError(Exception):
    """The service cannot be reached or refuses to work; the message says what to check."""


class ServiceFailure(Exception):
    """One call got no usable answer. Stays inside this module."""


class BatchRefused(Exception):
    """The service objected to the batch's content. Stays inside this module."""


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class VerifyClient:
    """Posts batches and maps answers to rewards."""

    def __init__(
        self,
        url: str,
        *,
        attempts: int = ATTEMPTS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = url
        self._attempts = attempts
        self._sleep = sleep
        # Jitter must not move the generators that training draws from.
        self._jitter = random.Random()
        if url.startswith("unix:"):
            self._unix_path: str | None = url.removeprefix("unix:")
            self._base = ""
        else:
            parts = urlsplit(url)
            if parts.scheme != "http" or not parts.hostname:
                raise ServiceUnusableError(f"{url}: neither http://host:port nor unix:/path")
            self._unix_path = None
            self._host, self._port = parts.hostname, parts.port or 80
            self._base = parts.path.rstrip("/")

    def check(self) -> None:
        """Raise unless the service answers and says that it can contain snippets."""
        try:
            status, body, _ = self._once("GET", "/health", None, HEALTH_TIMEOUT_SECS)
        except (OSError, http.client.HTTPException) as error:
            raise ServiceUnusableError(
                f"no sandbox service at {self.url}: {error!r}. "
                "Start it (rlox-verify-server --port 8231) or correct --rlox-server-url"
            ) from error
        if status != 200:
            raise ServiceUnusableError(
                f"the sandbox service at {self.url} is not healthy: HTTP {status}, "
                f"{body[:500].decode(errors='replace')}"
            )

    def verify(self, requests: Sequence[dict[str, Any]], timeout_secs: float) -> list[float | None]:
        """One reward or None per request, in order."""
        if not requests:
            return []
        try:
            return self._batch(requests, timeout_secs)
        except BatchRefused as refusal:
            if len(requests) == 1:
                self._report(f"one sample is masked: {refusal}")
                return [None]
            middle = len(requests) // 2
            return [
                *self.verify(requests[:middle], timeout_secs),
                *self.verify(requests[middle:], timeout_secs),
            ]
        except ServiceFailure as failure:
            self._report(f"{len(requests)} samples are masked: {failure}")
            return [None] * len(requests)

    def _batch(self, requests: Sequence[dict[str, Any]], timeout: float) -> list[float | None]:
        # ASCII escapes carry any string, lone surrogates included; the service may refuse those.
        body = json.dumps({"requests": list(requests)}).encode("ascii")
        limit = SLACK_SECS + STRETCH * timeout * len(requests)
        problem = "not tried"
        for attempt in range(1, self._attempts + 1):
            retry_after = None
            try:
                status, answer, retry_after = self._once("POST", "/verify/batch", body, limit)
            except (OSError, http.client.HTTPException) as error:
                problem = repr(error)
            else:
                if status == 200:
                    return rewards_of(answer, len(requests))
                problem = f"HTTP {status}, {answer[:300].decode(errors='replace')}"
                if status in DIVIDED_STATUSES:
                    raise BatchRefused(problem)
                if status not in RETRIED_STATUSES:
                    break
            if attempt < self._attempts:
                self._sleep(self._pause(attempt, retry_after))
        raise ServiceFailure(f"{self.url} gave no answer to POST /verify/batch: {problem}")

    def _pause(self, attempt: int, retry_after: str | None) -> float:
        """How long to wait: what the service asks for, or doubling; with jitter, and bounded."""
        pause = FIRST_PAUSE_SECS * 2 ** (attempt - 1)
        if retry_after is not None and retry_after.isdecimal():
            pause = max(pause, float(retry_after))
        return min(pause, LONGEST_PAUSE_SECS) * self._jitter.uniform(0.75, 1.25)

    def _once(
        self, method: str, path: str, body: bytes | None, timeout: float
    ) -> tuple[int, bytes, str | None]:
        """Status, body and Retry-After of one exchange on a connection of its own."""
        connection = (
            UnixConnection(self._unix_path, timeout)
            if self._unix_path is not None
            else http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        )
        try:
            headers = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, self._base + path, body=body, headers=headers)
            response = connection.getresponse()
            return response.status, response.read(), response.getheader("Retry-After")
        finally:
            connection.close()

    @staticmethod
    def _report(message: str) -> None:
        print(f"rlox service: {message}", file=sys.stderr, flush=True)


def rewards_of(answer: bytes, expected: int) -> list[float | None]:
    """The rewards in a 200 answer; anything that is not a number in [0, 1] is None."""
    try:
        results = json.loads(answer)["results"]
    except (ValueError, KeyError, TypeError) as error:
        raise ServiceFailure(f"an answer that is not understood: {error!r}") from error
    if not isinstance(results, list) or len(results) != expected:
        raise ServiceFailure(f"an answer without the {expected} results that were asked for")
    return [reward_of(result) for result in results]


def reward_of(result: object) -> float | None:
    """The reward of one result."""
    reward = result.get("reward") if isinstance(result, dict) else None
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        return None
    return float(reward) if math.isfinite(reward) and 0.0 <= reward <= 1.0 else None
