"""Coding tasks: from the JSON lines file to the order in which a trial meets them.

The order depends on the seed alone and is laid out before training, because the two conditions of a
pair are comparable only if they see the same prompts at the same step.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)
INSTRUCTION = (
    "Write a Python function called f that does what this comment says, and nothing else. "
    "Answer with the code only.\n"
)


class TaskFileError(Exception):
    """The task file cannot be used; the message names file, line and reason."""


@dataclass(frozen=True)
class Task:
    """A prompt, a solution known to be right, near-misses, and the tests that tell them apart."""

    id: str
    family: str
    prompt: str
    reference: str
    wrong: tuple[str, ...]
    tests: tuple[str, ...]


def load_tasks(path: Path) -> list[Task]:
    """Every task of the file, in its order."""
    tasks = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            raw = json.loads(line)
            tasks.append(
                Task(
                    id=raw["id"],
                    family=raw["family"],
                    prompt=raw["prompt"],
                    reference=raw["reference"],
                    wrong=tuple(raw["wrong"]),
                    tests=tuple(raw["tests"]),
                )
            )
        except (ValueError, KeyError, TypeError) as error:
            raise TaskFileError(f"{path}:{number}: not a task: {error!r}") from error
    if not tasks:
        raise TaskFileError(f"{path} holds no task; harness/make_tasks.py writes it")
    return tasks


def schedule(tasks: list[Task], prompts_per_step: int, steps: int, seed: int) -> list[Task]:
    """The task of every prompt of a trial, step after step.

    Families come round in a shuffled order, each once before any comes again: with as many prompts
    a step as there are families, every step covers all of them and its mean reward is comparable
    with the next one's.
    """
    rng = random.Random(f"rlox tasks/{seed}")
    families: dict[str, list[Task]] = {}
    for task in tasks:
        families.setdefault(task.family, []).append(task)
    queue: list[str] = []
    chosen = []
    for _ in range(prompts_per_step * steps):
        if not queue:
            queue = rng.sample(sorted(families), len(families))
        chosen.append(rng.choice(families[queue.pop()]))
    return chosen


def dataset_row(task: Task, conversational: bool) -> dict[str, Any]:
    """A row as TRL wants it; a model with a chat template is asked, any other one continues."""
    prompt: Any = task.prompt
    if conversational:
        prompt = [{"role": "user", "content": INSTRUCTION + task.prompt}]
    return {"prompt": prompt, "tests": list(task.tests)}


def completion_code(completion: Any) -> str:  # noqa: ANN401 (TRL passes text or messages)
    """The program in a completion: the first fenced block, or all of the text."""
    text = completion if isinstance(completion, str) else completion[0].get("content") or ""
    fenced = FENCE.search(text)
    return fenced.group(1) if fenced else text
