"""The tutorial's scripts hand their arguments to rlox-controller unchanged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlox_trainer.args import HARNESS


def call(script: str, *arguments: str, controller: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(HARNESS / script), *arguments],
        env={**os.environ, "RLOX_CONTROLLER": str(controller)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def controller(tmp_path: Path) -> Path:
    """Prints its arguments and ends with a code of its own."""
    path = tmp_path / "rlox-controller"
    path.write_text('#!/bin/sh\nfor a in "$@"; do printf "[%s]" "$a"; done\nexit 7\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("script", "arguments", "expected"),
    [
        ("run_sweep_p3.py", [], "[sweep][run]"),
        ("aggregate_sweep.py", ["--sweep-dir", "a b"], "[sweep][aggregate][--sweep-dir][a b]"),
        ("plot_sweep.py", ["--out-dir", "figures"], "[sweep][plot][--out-dir][figures]"),
        ("run_benchmark.py", ["--dry-run", "--seeds", "0"], "[sweep][plan][--seeds][0]"),
        ("run_benchmark.py", [], "[sweep][run]"),
    ],
)
def test_arguments_and_exit_code_pass_through(
    controller: Path, script: str, arguments: list[str], expected: str
):
    done = call(script, *arguments, controller=controller)
    assert (done.stdout, done.returncode) == (expected, 7)


def test_help_teaches_first_and_then_asks_the_controller(controller: Path):
    done = call("plot_sweep.py", "--help", controller=controller)
    assert done.stdout.startswith("Draw the figures of a sweep")
    assert done.stdout.endswith("[sweep][plot][--help]")


def test_a_controller_that_is_not_there_is_named(tmp_path: Path):
    done = call("run_sweep_p3.py", controller=tmp_path / "absent")
    assert done.returncode == 1
    assert "RLOX_CONTROLLER=" in done.stderr and "cannot" not in done.stdout
