"""The real service for tests: started on a port of its own, stopped with the test."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("RLOX_CONTROLLER", ROOT / "target/release/rlox-controller"))
# Exit code of `rlox-runtime` for a host that lacks a layer.
UNSUPPORTED = 69


def need(present: bool, capability: str) -> None:
    """Says aloud that a test is skipped; fails it where skips are forbidden."""
    if present:
        return
    if os.environ.get("RLOX_FORBID_SKIPS") == "1":
        pytest.fail(f"needs {capability}")
    pytest.skip(f"needs {capability}")


def need_containers() -> None:
    """This host can contain a program at all; anything but its own word for that is a failure."""
    runtime = BINARY.with_name("rlox-runtime")
    command = [str(runtime), "run", str(ROOT / "bundles/snippet"), "--", "/usr/bin/true"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode in (0, UNSUPPORTED), f"{command}: {done.returncode}: {done.stderr}"
    need(done.returncode == 0, f"a host that can contain programs ({done.stderr.strip()})")


@contextmanager
def serve(*arguments: str) -> Iterator[str]:
    """The URL of a running service."""
    command = [str(BINARY), "serve", "--port", "0", "--until-stdin-ends", *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        log: list[str] = []
        try:
            url = None
            for line in process.stderr:
                log.append(line)
                found = re.search(r"listening on (http://127\.0\.0\.1:\d+)", line)
                if found:
                    url = found.group(1)
                    break
            assert url is not None, "the service did not start: " + "".join(log)
            reader = threading.Thread(target=lambda: log.extend(process.stderr))
            reader.start()
            yield url
        finally:
            # The end of its standard input ends it, in order.
            process.stdin.close()
            process.wait(timeout=60)
        reader.join(timeout=10)
        assert process.returncode == 0, "".join(log)
