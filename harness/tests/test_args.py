"""The command line refuses what makes no sense, and says what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rlox_trainer.args import HARNESS, TrialConfig, parse


def parsed(*more: str) -> TrialConfig:
    return parse(["--backend", "rlox", "--output-dir", "out", *more], {})


def test_the_defaults_are_the_measured_recipe():
    config = parsed()
    assert config.built_in_model and config.completions_per_step == 96
    assert (config.learning_rate, config.beta, config.max_completion_length) == (4e-4, 0.0, 40)
    assert (config.snippet_timeout_secs, config.snippet_memory_mb) == (1.0, 256)


def test_another_model_gets_other_defaults(tmp_path: Path):
    config = parsed("--model", str(tmp_path))
    assert not config.built_in_model
    assert (config.learning_rate, config.max_completion_length) == (1e-6, 256)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--adversarial-fraction", "5"], "5 percent is 0.05"),
        (["--backend", "docker"], "invalid choice"),
        (["--num-generations", "1"], "relative to a group"),
        (["--gradient-accumulation-steps", "5"], "must divide"),
        (["--max-steps", "0"], "not a positive number"),
        (["--snippet-timeout-secs", "nan"], "not a positive number"),
        (["--beta", "-1"], "must not be negative"),
        (["--tasks", "absent.jsonl"], "make_tasks.py writes it"),
        (["--adversarial-fraction", "0.1", "--corpus", "absent.json"], "no such file"),
        (["--rlox-server-url", "localhost:8231"], "http://host:port or unix:/absolute/path"),
    ],
)
def test_refusals(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        parsed(*arguments)
    assert message in capsys.readouterr().err


def test_help_comes_without_importing_torch():
    program = (
        "import sys; sys.argv[1:] = ['--help']\n"
        "import runpy\n"
        "try:\n    runpy.run_path('trl_grpo_run.py', run_name='__main__')\n"
        "finally:\n    assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=HARNESS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "in_loop" in done.stdout and "examples:" in done.stdout
