"""Real training: TRL, the built-in policy and the crate's advantages, for two steps.

The service is a stand-in inside this process: it runs the policy's own programs, which come from a
model trained on arithmetic one-liners, and harmless fake snippets. No hostile code is executed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_service import Answer, ok, serve

from rlox_trainer.advantages import GroupAdvantages
from rlox_trainer.args import BUILT_IN_MODEL, TrialConfig, parse
from rlox_trainer.backends import Submission
from rlox_trainer.backends.in_loop import InLoopBackend
from rlox_trainer.backends.subprocess_exit import SubprocessBackend
from rlox_trainer.trial import run


class WatchedBackend:
    """An honest in-process service that remembers what it was asked, and may fail at places."""

    def __init__(self, fails_at: frozenset[int] = frozenset()) -> None:
        self.steps: list[list[Submission]] = []
        self._fails_at = fails_at
        self._runner = InLoopBackend(5.0)

    def check(self) -> None:
        pass

    def rewards(self, submissions: Sequence[Submission]) -> list[float | None]:
        self.steps.append(list(submissions))
        rewards = self._runner.rewards(submissions)
        return [None if i in self._fails_at else r for i, r in enumerate(rewards)]


def trial(directory: Path, *more: str) -> TrialConfig:
    arguments = ["--backend", "rlox", "--max-steps", "2", "--output-dir", str(directory)]
    return parse([*arguments, *more])


def lines(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, WatchedBackend]:
    directory = tmp_path_factory.mktemp("clean")
    backend = WatchedBackend()
    assert run(trial(directory), backend) == 0
    return directory, backend


def test_two_steps_leave_everything_a_trial_must_leave(clean: tuple[Path, WatchedBackend]):
    directory, backend = clean
    first, second = lines(directory)
    assert (first["step"], second["step"]) == (1, 2)
    assert [len(step) for step in backend.steps] == [96, 96]
    for line in (first, second):
        assert line["completions"] == 96 and line["injected"] == line["masked"] == 0
        assert line["reward"] == line["reward_clean"]
        assert 0.3 < line["reward"] < 0.9, "the policy starts about half right"
        assert line["entropy"] > 0 and line["grad_norm"] > 0 and line["kl"] is None
        assert line["step_time_secs"] > line["verify_secs"] > 0
    summary = json.loads((directory / "run_summary.json").read_text())
    assert summary["survived"] is True and summary["exit_status"] == "Clean(0)"
    assert summary["steps_completed"] == summary["max_steps"] == 2
    assert summary["first_reward"] == first["reward"]
    assert summary["final_reward"] == pytest.approx((first["reward"] + second["reward"]) / 2)
    assert summary["contagion_events"] == 0
    assert sorted(os.listdir(directory)) == [
        ".began",
        "checkpoint_final.pt",
        "metrics.jsonl",
        "run_summary.json",
    ]


def test_the_checkpoint_holds_a_policy_that_moved(clean: tuple[Path, WatchedBackend]):
    import torch
    from transformers import Qwen2ForCausalLM

    state = torch.load(clean[0] / "checkpoint_final.pt", weights_only=True)
    start = Qwen2ForCausalLM.from_pretrained(BUILT_IN_MODEL, dtype=torch.float32).state_dict()
    assert state.keys() == start.keys()
    assert all(torch.isfinite(tensor).all() for tensor in state.values())
    assert any(not torch.equal(state[name], start[name]) for name in start)


def test_the_same_seed_learns_the_same(clean: tuple[Path, WatchedBackend], tmp_path: Path):
    backend = WatchedBackend()
    assert run(trial(tmp_path), backend) == 0
    assert backend.steps == clean[1].steps
    for ours, theirs in zip(lines(tmp_path), lines(clean[0]), strict=True):
        assert [ours[k] for k in ("reward", "loss", "entropy", "grad_norm")] == [
            theirs[k] for k in ("reward", "loss", "entropy", "grad_norm")
        ]


def test_the_rlox_condition_learns_what_the_baseline_learns(
    clean: tuple[Path, WatchedBackend], tmp_path: Path
):
    """The whole path, over a socket: with equal rewards the pair cannot be told apart."""

    def judge(body: dict[str, Any]) -> Answer:
        submissions = [Submission(r["code"], tuple(r["tests"])) for r in body["requests"]]
        # A server thread has no timer signal, so the policy's own programs run in children.
        return ok([{"reward": r} for r in SubprocessBackend(10.0).rewards(submissions)])

    with serve(tmp_path / "s.sock") as service:
        service.default = judge
        assert run(trial(tmp_path / "out", "--rlox-server-url", service.url)) == 0
    assert len(service.seen) == 2
    for ours, theirs in zip(lines(tmp_path / "out"), lines(clean[0]), strict=True):
        assert [ours[k] for k in ("reward", "loss", "grad_norm")] == [
            theirs[k] for k in ("reward", "loss", "grad_norm")
        ]


def test_injected_snippets_run_in_full_and_failures_are_masked(
    tmp_path: Path, harmless_corpus: Path, monkeypatch: pytest.MonkeyPatch
):
    seen: list[tuple[list[float], list[float]]] = []
    compute = GroupAdvantages.compute

    def watched(self: GroupAdvantages, rewards: Sequence[float], group_size: int) -> list[float]:
        advantages = compute(self, rewards, group_size)
        seen.append((list(rewards), advantages))
        return advantages

    monkeypatch.setattr(GroupAdvantages, "compute", watched)
    backend = WatchedBackend(fails_at=frozenset({0, 5}))
    more = ["--adversarial-fraction", "0.3", "--corpus", str(harmless_corpus)]
    assert run(trial(tmp_path, *more), backend) == 0
    for line, submissions, (rewards, advantages) in zip(
        lines(tmp_path), backend.steps, seen, strict=True
    ):
        assert 10 < line["injected"] < 50 and line["masked"] == 2
        assert len(line["injected_ids"]) == line["injected"]
        # Far longer than a completion may be, and still run in full.
        whole = [s for s in submissions if s.code == "x = 1\n" * 100]
        assert len(whole) == line["injected_ids"].count("long") > 0
        assert {s.tests for s in whole} == {("assert f(2, 3) == 5",)}
        assert line["reward"] < line["reward_clean"] and line["forged"] == 0
        assert [i for i, reward in enumerate(rewards) if reward != reward] == [0, 5]
        assert advantages[0] == advantages[5] == 0.0
        assert abs(sum(advantages[:8])) < 1e-9
    summary = json.loads((tmp_path / "run_summary.json").read_text())
    assert summary["masked_samples"] == 4


def test_a_service_that_always_fails_teaches_nothing(tmp_path: Path):
    backend = WatchedBackend(fails_at=frozenset(range(96)))
    assert run(trial(tmp_path), backend) == 0
    for line in lines(tmp_path):
        assert line["reward"] is None and line["masked"] == 96 and line["grad_norm"] == 0.0


def test_a_trial_without_its_service_is_not_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert run(trial(tmp_path / "out", "--rlox-server-url", f"unix:{tmp_path}/no.sock")) == 1
    assert "no sandbox service at unix:" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_kl_term_and_split_steps(tmp_path: Path):
    backend = WatchedBackend()
    more = ["--beta", "0.05", "--gradient-accumulation-steps", "4"]
    assert run(trial(tmp_path, *more), backend) == 0
    # One generation and one line a step, however many passes the update takes.
    assert [len(step) for step in backend.steps] == [96, 96]
    assert [line["completions"] for line in lines(tmp_path)] == [96, 96]
    assert all(isinstance(line["kl"], float) for line in lines(tmp_path))


def test_another_model_with_a_chat_template_is_asked(tmp_path: Path):
    """The path of a hub model, as far as it goes without one: Auto classes and messages."""
    model = tmp_path / "model"
    shutil.copytree(BUILT_IN_MODEL, model)
    settings = json.loads((model / "tokenizer_config.json").read_text())
    settings["chat_template"] = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    backend = WatchedBackend()
    more = ["--model", str(model), "--max-completion-length", "16", "--prompts-per-step", "2"]
    assert run(trial(tmp_path / "out", *more), backend) == 0
    assert [len(step) for step in backend.steps] == [16, 16]
    assert all(isinstance(s.code, str) for step in backend.steps for s in step)
    summary = json.loads((tmp_path / "out" / "run_summary.json").read_text())
    assert summary["model"] == str(model) and summary["steps_completed"] == 2


def test_vllm_is_a_server_where_the_environment_names_one(tmp_path: Path):
    from rlox_trainer.trial import training_arguments

    flags = ["--backend", "rlox", "--output-dir", str(tmp_path), "--use-vllm"]
    url = "http://gpu:8000"
    server = training_arguments(parse(flags, {"VLLM_URL": url}))
    assert (server.vllm_mode, server.vllm_server_base_url) == ("server", url)
    assert training_arguments(parse(flags, {})).vllm_mode == "colocate"
    assert not training_arguments(parse(flags[:-1], {"VLLM_URL": url})).use_vllm
