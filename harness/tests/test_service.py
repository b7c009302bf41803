"""The service client against a small server that misbehaves on demand, over TCP and unix socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_service import FakeService, ok, serve

from rlox_trainer.backends import Submission
from rlox_trainer.backends.rlox import RloxBackend
from rlox_trainer.service import ServiceUnusableError, VerifyClient


@pytest.fixture(params=["tcp", "unix"])
def fake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FakeService]:
    with serve(None if request.param == "tcp" else tmp_path / "s.sock") as service:
        yield service


class Pauses(list):
    """Stands in for sleep and remembers how long it should have been."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def requests(*codes: str) -> list[dict[str, Any]]:
    return [{"code": code, "tests": []} for code in codes]


def test_one_call_carries_a_whole_step(fake: FakeService):
    backend = RloxBackend(VerifyClient(fake.url), timeout_secs=1.5, memory_mb=128)
    backend.check()
    submissions = [Submission("good", ("assert f() == 1",)), Submission("bad \ud800", ())]
    assert backend.rewards(submissions) == [1.0, 0.0]
    (body,) = fake.seen
    assert body["requests"][0] == {
        "code": "good",
        "tests": ["assert f() == 1"],
        "timeout_secs": 1.5,
        "memory_mb": 128,
    }


def test_no_submissions_no_call(fake: FakeService):
    assert VerifyClient(fake.url).verify([], 1.0) == [] and fake.seen == []


@pytest.mark.parametrize("status", [429, 503, 504])
def test_a_busy_service_is_asked_again(fake: FakeService, status: int):
    fake.script = [(status, {}, b"{}"), (status, {}, b"{}")]
    pauses = Pauses()
    assert VerifyClient(fake.url, sleep=pauses).verify(requests("good"), 1.0) == [1.0]
    assert len(fake.seen) == 3
    assert 0.15 <= pauses[0] <= 0.25 and 0.3 <= pauses[1] <= 0.5


def test_retry_after_is_honoured_within_bounds(fake: FakeService):
    fake.script = [(429, {"Retry-After": "2"}, b""), (429, {"Retry-After": "9999"}, b"")]
    pauses = Pauses()
    assert VerifyClient(fake.url, sleep=pauses).verify(requests("good"), 1.0) == [1.0]
    assert 1.5 <= pauses[0] <= 2.5 and pauses[1] <= 6.25


def test_retries_end_and_the_samples_are_masked(fake: FakeService, capsys: pytest.CaptureFixture):
    fake.default = lambda _body: (503, {}, b'{"title":"overloaded"}')
    client = VerifyClient(fake.url, attempts=3, sleep=Pauses())
    assert client.verify(requests("good", "bad"), 1.0) == [None, None]
    assert len(fake.seen) == 3
    assert "2 samples are masked" in capsys.readouterr().err


def test_another_status_is_not_asked_again(fake: FakeService):
    fake.default = lambda _body: (500, {}, b"")
    assert VerifyClient(fake.url, sleep=Pauses()).verify(requests("good"), 1.0) == [None]
    assert len(fake.seen) == 1


@pytest.mark.parametrize(
    "body",
    [b"", b"garbage", b"\xff\xfe", b"[]", b"{}", b'{"results": {}}', b'{"results": []}'],
)
def test_garbage_is_masked_and_never_a_zero(fake: FakeService, body: bytes):
    fake.script = [(200, {}, body)]
    assert VerifyClient(fake.url, sleep=Pauses()).verify(requests("good"), 1.0) == [None]


def test_results_without_a_usable_reward_are_masked_one_by_one(fake: FakeService):
    results = [
        {"reward": 1.0},
        {"error": {"status": 503}, "reward": None},
        {"verdict": "passed"},
        {"reward": True},
        {"reward": "1.0"},
        {"reward": 7},
        None,
        {"reward": 0},
    ]
    fake.script = [ok(results), (200, {}, b'{"results": [{"reward": NaN}]}')]
    client = VerifyClient(fake.url)
    assert client.verify(requests(*"abcdefgh"), 1.0) == [1.0, *[None] * 6, 0.0]
    assert client.verify(requests("a"), 1.0) == [None]


@pytest.mark.parametrize("status", [400, 413, 422])
def test_one_refused_program_masks_itself_only(fake: FakeService, status: int):
    usual = fake.default
    fake.default = lambda body: (
        (status, {}, b"") if any("poison" in r["code"] for r in body["requests"]) else usual(body)
    )
    codes = ["good", "good", "poison", "bad", "good"]
    rewards = VerifyClient(fake.url, sleep=Pauses()).verify(requests(*codes), 1.0)
    assert rewards == [1.0, 1.0, None, 0.0, 1.0]


@pytest.mark.parametrize("scheme", ["tcp", "unix"])
def test_nobody_listens(scheme: str, tmp_path: Path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    url = f"http://127.0.0.1:{port}" if scheme == "tcp" else f"unix:{tmp_path}/absent.sock"
    pauses = Pauses()
    client = VerifyClient(url, attempts=4, sleep=pauses)
    assert client.verify(requests("good", "good"), 1.0) == [None, None]
    assert len(pauses) == 3
    with pytest.raises(ServiceUnusableError, match="no sandbox service at"):
        client.check()


def test_an_unhealthy_service_is_refused_before_the_trial(fake: FakeService):
    fake.health = (503, {}, b'{"isolation":{"missing":["cgroup"]}}')
    with pytest.raises(ServiceUnusableError, match=r"not healthy: HTTP 503.*cgroup"):
        VerifyClient(fake.url).check()


def test_an_address_that_is_none():
    with pytest.raises(ServiceUnusableError, match="neither"):
        VerifyClient("ftp://example")
