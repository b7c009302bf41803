"""The task file: references pass, near-misses fail, and a seed fixes the order."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from rlox_trainer.args import DEFAULT_TASKS, HARNESS
from rlox_trainer.backends import Submission
from rlox_trainer.backends.in_loop import InLoopBackend
from rlox_trainer.backends.subprocess_exit import SubprocessBackend
from rlox_trainer.tasks import (
    Task,
    TaskFileError,
    completion_code,
    dataset_row,
    load_tasks,
    schedule,
)

TASKS = load_tasks(DEFAULT_TASKS)


def test_the_file_is_what_the_generator_writes():
    command = [sys.executable, str(HARNESS / "make_tasks.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0


def test_twelve_families_with_unique_ids():
    assert len({task.family for task in TASKS}) == 12
    assert len({task.id for task in TASKS}) == len(TASKS)
    assert all(len(task.tests) == 4 for task in TASKS)


# These programs come from the repository's own generator and are safe to run here.
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_the_reference_passes_and_every_wrong_twin_fails(task: Task):
    programs = [task.reference, *task.wrong]
    submissions = [Submission(program, task.tests) for program in programs]
    assert InLoopBackend(5.0).rewards(submissions) == [1.0] + [0.0] * len(task.wrong)


def test_the_subprocess_backend_agrees():
    task = TASKS[0]
    submissions = [Submission(program, task.tests) for program in (task.reference, task.wrong[0])]
    assert SubprocessBackend(10.0).rewards(submissions) == [1.0, 0.0]


@pytest.mark.parametrize("backend", [InLoopBackend(0.2), SubprocessBackend(0.5)])
def test_a_program_that_takes_too_long_earns_nothing(backend: InLoopBackend | SubprocessBackend):
    slow = Submission("import time\ntime.sleep(5)\n", ("assert True",))
    assert backend.rewards([slow]) == [0.0]


def test_a_seed_fixes_the_order_and_every_step_covers_all_families():
    first = schedule(TASKS, 12, 30, seed=0)
    assert first == schedule(TASKS, 12, 30, seed=0)
    assert first != schedule(TASKS, 12, 30, seed=1)
    for start in range(0, len(first), 12):
        assert set(Counter(t.family for t in first[start : start + 12]).values()) == {1}


def test_a_chat_model_is_asked_and_another_continues():
    assert dataset_row(TASKS[0], conversational=False)["prompt"] == TASKS[0].prompt
    (message,) = dataset_row(TASKS[0], conversational=True)["prompt"]
    assert message["role"] == "user" and message["content"].endswith(TASKS[0].prompt)


@pytest.mark.parametrize(
    ("completion", "code"),
    [
        ("def f(a):\n    return a\n", "def f(a):\n    return a\n"),
        ("Sure!\n```python\nx = 1\n```\nDone.", "x = 1\n"),
        ("```\nx = 1\n", "x = 1\n"),
        ([{"role": "assistant", "content": "```py\nx = 2\n```"}], "x = 2\n"),
        ([{"role": "assistant", "content": None}], ""),
    ],
)
def test_the_program_is_found_in_a_completion(completion: str | list, code: str):
    assert completion_code(completion) == code


def test_a_bad_line_is_named(tmp_path: Path):
    path = tmp_path / "tasks.jsonl"
    path.write_text(DEFAULT_TASKS.read_text().splitlines()[0] + '\n{"id": "x"}\n')
    with pytest.raises(TaskFileError, match=r"tasks\.jsonl:2: not a task: KeyError"):
        load_tasks(path)
    path.write_text("")
    with pytest.raises(TaskFileError, match="holds no task"):
        load_tasks(path)
