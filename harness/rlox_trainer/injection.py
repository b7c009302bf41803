"""Which completions are replaced by hostile snippets, and by which.

Every decision is drawn from a generator seeded with (seed, step, index) and nothing else. So the
in_loop trial and the rlox trial of a pair meet the same snippets at the same places even when their
policies have drifted apart, and a resumed or reordered run does too.

Nothing in here executes a snippet; it is text until a backend runs it.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path


class CorpusError(Exception):
    """The corpus file cannot be used; the message names the file and what is wrong with it."""


@dataclass(frozen=True)
class Snippet:
    """One hostile program."""

    id: str
    family: str
    code: str
    tests: tuple[str, ...]


def load_injectable(path: Path) -> list[Snippet]:
    """The snippets that may stand in for a completion, in the file's order.

    An entry with `"in_loop": false` needs the sandbox's own streams or channel and would be
    meaningless elsewhere; such entries are never injected, under either condition.

    A snippet brings the statements that the corpus tests it with. Many attacks act only when their
    `f(a, b)` is called, and under the tests of a task with another signature they would die of a
    TypeError before they did anything.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        version = document["version"]
        default_tests = document["tests"]
        snippets = [
            Snippet(
                id=entry["id"],
                family=entry["family"],
                code=entry["code"],
                tests=tuple(entry.get("tests", default_tests)),
            )
            for entry in document["snippets"]
            if entry.get("in_loop", True)
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorpusError(f"{path}: not an adversarial corpus: {error!r}") from error
    if version != 1:
        raise CorpusError(f"{path}: version {version!r}, but this harness reads version 1")
    if not snippets:
        raise CorpusError(f"{path}: no snippet in it may be injected")
    return snippets


class Injector:
    """Draws the injections of a trial."""

    def __init__(self, snippets: list[Snippet], fraction: float, seed: int) -> None:
        if fraction > 0 and not snippets:
            raise CorpusError("a fraction above 0 needs snippets to inject")
        self._snippets = snippets
        self._fraction = fraction
        self._seed = seed

    def draw(self, step: int, indices: range) -> dict[int, Snippet]:
        """What replaces the completions `indices` of a step, keyed by index; the rest stay."""
        drawn = {}
        for index in indices:
            rng = random.Random(f"rlox injection/{self._seed}/{step}/{index}")
            if rng.random() < self._fraction:
                drawn[index] = rng.choice(self._snippets)
        return drawn
