"""Files a trial leaves: whole or absent, and honest about what is missing."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlox_trainer.args import TrialConfig, parse
from rlox_trainer.metrics import (
    MetricsLog,
    ProcessSample,
    contagion_events,
    finite,
    sample_process,
    write_atomically,
    write_json,
)
from rlox_trainer.recorder import Recorder, StepFacts


def config(directory: Path, *more: str) -> TrialConfig:
    return parse(["--backend", "in_loop", "--output-dir", str(directory), *more])


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path):
    path = tmp_path / "file"
    write_atomically(path, lambda file: file.write(b"old") and None)

    def break_off(file: object) -> None:
        file.write(b"half")  # type: ignore[attr-defined]
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, break_off)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_json_with_nan_is_refused_whole(tmp_path: Path):
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "x.json", {"a": math.nan})
    assert os.listdir(tmp_path) == []


def test_a_line_is_in_the_file_before_the_process_could_end(tmp_path: Path):
    log = MetricsLog(tmp_path)
    log.append({"step": 1})
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1}\n'
    log.append({"step": 2})
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2
    log.close()


def test_finite():
    assert [finite(v) for v in (1, 0.5, math.nan, math.inf, None, "1")] == [1.0, 0.5, *[None] * 4]


def test_a_process_sample_sees_a_descriptor_and_a_child():
    before = sample_process()
    with open(os.devnull):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        try:
            after = sample_process()
        finally:
            child.communicate()
    # The null device, and the pipe to the child.
    assert after.open_fds == before.open_fds + 2
    assert after.children == before.children + 1
    assert after.threads == before.threads
    assert after.vm_rss_bytes > 1_000_000


def test_contagion_is_counted_from_the_first_step():
    calm = ProcessSample(vm_rss_bytes=100, open_fds=6, threads=2, children=0)
    assert contagion_events([]) == 0
    assert contagion_events([calm] * 30) == 0
    swollen = ProcessSample(vm_rss_bytes=151, open_fds=6, threads=2, children=0)
    assert contagion_events([*[calm] * 5, swollen, swollen]) == 1
    leaking = [ProcessSample(100, 6, 2, n) for n in (0, 1, 1, 2)]
    assert contagion_events(leaking) == 2


def test_a_step_line_separates_masked_injected_and_forged(tmp_path: Path):
    recorder = Recorder(config(tmp_path), time.monotonic())
    facts = StepFacts(
        rewards=[1.0, 0.0, math.nan, 1.0, 0.0],
        injected={3: "forger", 4: "harmless", 2: "lost"},
        verify_secs=0.5,
    )
    log = {"loss": 0.1, "grad_norm": math.nan, "entropy": 0.2, "kl": 0.3}
    line = recorder.step(1, facts, log, step_time_secs=1.0, gpu_util=None)
    assert (line["reward"], line["reward_clean"]) == (0.5, 0.5)
    assert (line["completions"], line["injected"], line["masked"], line["forged"]) == (5, 3, 1, 1)
    assert line["injected_ids"] == ["lost", "forger", "harmless"]
    assert line["kl"] is None and line["grad_norm"] is None and line["gpu_util"] is None
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == line


def test_a_step_with_every_sample_masked_has_no_reward(tmp_path: Path):
    recorder = Recorder(config(tmp_path, "--max-steps", "1"), time.monotonic())
    facts = StepFacts(rewards=[math.nan] * 4)
    line = recorder.step(1, facts, {"loss": 0.0}, step_time_secs=1.0, gpu_util=None)
    assert line["reward"] is None and line["masked"] == 4
    summary = recorder.finish()
    assert summary["final_reward"] is None and summary["masked_samples"] == 4


def test_a_trial_that_broke_off_did_not_survive(tmp_path: Path):
    recorder = Recorder(config(tmp_path), time.monotonic())
    recorder.finish(error="RuntimeError: no")
    summary = json.loads((tmp_path / "run_summary.json").read_text())
    assert summary["survived"] is False
    assert summary["exit_status"] == "Clean(1)" and summary["steps_completed"] == 0


def test_files_of_an_earlier_trial_are_removed(tmp_path: Path):
    for name in ("run_summary.json", "checkpoint_final.pt", "metrics.jsonl"):
        (tmp_path / name).write_text("old")
    Recorder(config(tmp_path), time.monotonic())
    assert os.listdir(tmp_path) == ["metrics.jsonl"]
    assert (tmp_path / "metrics.jsonl").read_text() == ""
