"""Shared by the tests: a harmless corpus, and the binding that computes advantages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlox_trainer.advantages import BUILD_COMMAND, AdvantageError, GroupAdvantages


@pytest.fixture(scope="session")
def group_advantages() -> GroupAdvantages:
    """The real binding. Its absence is a failure and no skip: a trial cannot run without it."""
    try:
        return GroupAdvantages()
    except AdvantageError as error:
        pytest.fail(f"{error}\n(run `{BUILD_COMMAND}` first)")


@pytest.fixture
def harmless_corpus(tmp_path: Path) -> Path:
    """Shaped like the adversarial corpus, but each snippet is safe to run anywhere."""
    path = tmp_path / "corpus.json"
    snippets = [
        {"id": "wrong-answer", "family": "harmless", "code": "def f(*a):\n    return None\n"},
        {"id": "raises", "family": "harmless", "code": "raise ValueError('on purpose')\n"},
        {"id": "long", "family": "harmless", "code": "x = 1\n" * 100},
        {"id": "own-tests", "family": "harmless", "code": "y = 2\n", "in_loop": False},
    ]
    path.write_text(
        json.dumps({"version": 1, "tests": ["assert f(2, 3) == 5"], "snippets": snippets})
    )
    return path
