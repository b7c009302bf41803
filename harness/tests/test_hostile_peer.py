"""The grader against a peer that keeps to nothing; fuzz/peer.py says what has to hold.

`RLOX_FUZZ_CASES` makes it longer, `RLOX_FUZZ_SEED` another run. A failure prints the seed of its
conversation, which `python fuzz/peer.py SEED 1 -v` repeats.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

HARNESS = Path(__file__).resolve().parent.parent
FUZZ = HARNESS / "fuzz"
BUNDLES = HARNESS.parent / "bundles"
CASES = int(os.environ.get("RLOX_FUZZ_CASES", "300"))
SEED = int(os.environ.get("RLOX_FUZZ_SEED", "0"))

sys.path[:0] = [str(BUNDLES / "grader"), str(BUNDLES)]

import channel
import codec
import library
import shared
import values


def fuzz(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """In a process of its own, which the grader's guards and limits may change."""
    command = [sys.executable, str(FUZZ / script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600 + CASES)


def test_no_hostile_peer_gets_a_statement_passed():
    done = fuzz("peer.py", SEED, CASES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_real_driver_with_an_honest_program_passes_every_statement():
    done = fuzz("peer.py", "honest")
    assert done.returncode == 0, done.stdout + done.stderr


def test_frames_decode_or_are_wire_errors():
    done = fuzz("frames.py", max(10, CASES / 40), SEED)
    assert done.returncode == 0, done.stdout + done.stderr


def scenario(name: str) -> dict[str, object]:
    done = fuzz("scenarios.py", name)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_honest_script_passes():
    outcome = scenario("honest")
    assert outcome["results"] == [[True, None], [True, None]]
    assert outcome["complete"]


def test_a_module_that_runs_tests_is_not_imported_for_the_program():
    outcome = scenario("imports_a_runner")
    assert outcome["results"] == [[False, "AssertionError"]]
    assert outcome["changes"] == []


def test_an_exit_is_the_program_s_however_many_exceptions_follow():
    outcome = scenario("exits_unnoticed")
    assert outcome["results"] == [[False, "SystemExit"]]
    assert outcome["tampering"] == [["exit_in_call", "SystemExit"]]


@pytest.mark.parametrize("name", ["exits_by_an_attribute", "suppresses_everything"])
def test_the_program_swallows_no_failed_check(name: str):
    ((passed, _),) = scenario(name)["results"]
    assert not passed


def test_an_end_that_a_statement_swallows_fails_it():
    outcome = scenario("ends_inside_a_broad_except")
    assert outcome["results"] == [[False, "the program ended: its process ended"]]
    assert not outcome["complete"]


@pytest.mark.parametrize(
    ("name", "ended"),
    [
        ("two_errors_of_one_number", "two exceptions of one number"),
        ("addressed_to_an_object", "an answer without its question"),
        ("answers_elsewhere", "an answer without its question"),
        ("refuses_threads", "malformed answer"),
        ("wrong_sign_of_life", "no answer after the last statement"),
        ("passes_for_an_exception", "raised something that is no exception"),
    ],
)
def test_lies_end_the_conversation(name: str, ended: str):
    outcome = scenario(name)
    assert outcome["ended"] == f"protocol: {ended}"
    assert not outcome["complete"]


# Frames, without a grader around the decoder.


def decode(content: object, *containers: tuple[int, object]) -> object:
    """What the grader's decoder makes of a message after these containers."""
    kept = shared.Shared(2)
    decoder = codec.Decoder({}, kept)
    for message in (*containers, content):
        if isinstance(message, tuple):
            number, value = message
            message = b"S" + (2).to_bytes(4, "little") + integer(number) + value
        decoded = decoder.decode(b"\x02t\x03\0\0\0t\0\0\0\0t\0\0\0\0" + message)
    return decoded


def integer(number: int) -> bytes:
    return b"i\1\0\0\0" + bytes((number,))


def text(content: str) -> bytes:
    return b"s" + len(content).to_bytes(4, "little") + content.encode()


def known(name: str, *parts: bytes) -> bytes:
    return b"x" + (1 + len(parts)).to_bytes(4, "little") + text(name) + b"".join(parts)


EMPTY_LIST, EMPTY_DICT = b"l\0\0\0\0", b"m\0\0\0\0"


def test_a_shared_container_keeps_its_kind():
    assert decode((1, EMPTY_LIST), (1, EMPTY_LIST)) == []
    with pytest.raises(codec.WireError, match="of another kind"):
        decode((1, EMPTY_DICT), (1, EMPTY_LIST))


def test_no_shared_container_is_inside_another():
    inside = b"S\2\0\0\0" + integer(1) + EMPTY_LIST
    assert decode(b"t\1\0\0\0" + inside) == ([],)
    with pytest.raises(codec.WireError, match="malformed container"):
        decode((1, b"l\1\0\0\0" + inside))


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (
            known("memoryview", b"b\1\0\0\0a", b"T"),
            known("memoryview", b"i\4\0\0\0\0\0\0\x40", b"T"),
        ),
        (known("UUID", integer(5)), known("UUID", text("5"))),
        (known("mappingproxy", EMPTY_DICT), known("mappingproxy", text("abc"))),
        (known("Fraction", integer(1), integer(2)), known("Fraction", text("1"), b"N")),
    ],
)
def test_values_of_the_library_are_made_of_plain_parts(good: bytes, bad: bytes):
    decode(good)
    with pytest.raises(codec.WireError, match="malformed"):
        decode(bad)


def test_numbers_of_forgotten_containers_are_numbers():
    frame = b"\x02t\x03\0\0\0%st\0\0\0\0N"
    decoder = codec.Decoder({}, shared.Shared(2))
    assert decoder.decode(frame % (b"t\1\0\0\0" + integer(1))) is None
    with pytest.raises(codec.WireError, match="malformed numbers"):
        decoder.decode(frame % (b"t\1\0\0\0" + text("x")))


def test_a_name_alone_makes_no_container_of_the_library():
    import collections

    assert shared.is_shared(collections.deque)
    assert not shared.is_shared(type("deque", (), {"__module__": "collections"}))
    assert values.parts({}.keys()) == ["keys", []]
    assert values.parts(type("mappingproxy", (), {"__module__": "builtins"})()) is None


def test_a_container_inside_itself_is_merged():
    mine: list[object] = [1]
    mine.append(mine)
    theirs: list[object] = [2]
    theirs.append(theirs)
    shared.merge(mine, theirs)
    assert mine[0] == 2
    assert mine[1] is mine


def test_nothing_of_the_program_passes_for_a_class_or_an_exception():
    assert library.library_module("unittest.mock") is not None
    assert library.library_module("unittest.__main__") is None
    assert library.library_type("numbers", "Number") is not None
    assert library.library_type("abc", "ABCMeta") is None
    assert library.library_type("asyncio.exceptions", "CancelledError") is None


def test_every_thread_hears_of_the_end():
    """Also two that wait for messages to one address, and also where a message is for nobody."""
    reader, writer = os.pipe()

    def address(message: object) -> int:
        raise RuntimeError("for nobody")

    encoder = codec.Encoder(lambda value: None, shared.Shared(1))
    talk = channel.Channel(
        lambda count: os.read(reader, count),
        lambda view: len(view),
        encoder,
        codec.Decoder({}, shared.Shared(2)),
        address,
    )
    ended: list[str] = []

    def receive() -> None:
        try:
            talk.receive(5)
        except (codec.Closed, RuntimeError) as error:
            ended.append(type(error).__name__)

    threads = [threading.Thread(target=receive, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    codec.send_frame(lambda view: os.write(writer, view), encoder.encode((1,)))
    os.close(writer)
    for thread in threads:
        thread.join(30)
    os.close(reader)
    assert sorted(ended) == ["Closed", "Closed", "Closed", "RuntimeError"]
