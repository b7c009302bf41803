"""What a trial leaves behind: files that are whole or absent, and one line per ended step.

A trial may end at any instruction, by a signal or by `os._exit` from code that it executes. So each
line of metrics.jsonl is on disk before the next step starts, and every other file is written beside
its place and renamed into it: a reader never meets half a summary.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

METRICS = "metrics.jsonl"
SUMMARY = "run_summary.json"
CHECKPOINT = "checkpoint_final.pt"
BEGAN = ".began"


def write_atomically(path: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Write a file so that it appears complete under its name, or not at all."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes it private; what a trial leaves is for others to read.
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """A JSON object as a file; NaN is refused, since no JSON reader has to accept it."""
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()) and None)


def finite(value: object) -> float | None:
    """A number for JSON: None for what is missing, NaN or infinite."""
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return None


def mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


class MetricsLog:
    """metrics.jsonl, appended to and synced line by line."""

    def __init__(self, directory: Path) -> None:
        self._file = (directory / METRICS).open("w", encoding="utf-8")

    def append(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, allow_nan=False) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True)
class ProcessSample:
    """What a leak or a foothold of executed code would show in."""

    vm_rss_bytes: int
    open_fds: int
    threads: int
    children: int


def sample_process() -> ProcessSample:
    """This process, as the kernel sees it."""
    fields = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        fields[name] = value.split()
    # Listing the directory opens it, and that descriptor is in the list.
    open_fds = len(os.listdir("/proc/self/fd")) - 1
    return ProcessSample(
        vm_rss_bytes=int(fields["VmRSS"][0]) * 1024,
        open_fds=open_fds,
        threads=int(fields["Threads"][0]),
        children=count_children(os.getpid()),
    )


def count_children(parent: int) -> int:
    """Processes whose parent this is; zombies count, for they are what a leak leaves."""
    count = 0
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        try:
            stat = Path("/proc", entry, "stat").read_text(errors="replace")
        except OSError:
            # It ended between the listing and the look.
            continue
        # The name in parentheses may hold anything; the fields after the last one are state, ppid.
        count += int(stat.rpartition(")")[2].split()[1]) == parent
    return count


def contagion_events(samples: list[ProcessSample]) -> int:
    """How often the process came to look worse than a healthy trial's, seen from inside.

    Resident memory above 1.5 times its median over the first five steps is one event, however long
    it stays there; descriptors, threads or children beyond the first step's are one event each time
    they reach a new height.
    """
    if not samples:
        return 0
    early = sorted(sample.vm_rss_bytes for sample in samples[:5])
    events = int(any(s.vm_rss_bytes > 1.5 * early[len(early) // 2] for s in samples))
    for name in ("open_fds", "threads", "children"):
        highest = getattr(samples[0], name)
        for sample in samples[1:]:
            if getattr(sample, name) > highest:
                highest = getattr(sample, name)
                events += 1
    return events


def process_fields(sample: ProcessSample) -> dict[str, int]:
    return asdict(sample)
