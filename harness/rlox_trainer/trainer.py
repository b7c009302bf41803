"""TRL's GRPO trainer with the four hooks that a trial needs.

TRL is pinned and its trainer is subclassed at private methods, because only they see what is
needed:

* `_generate_single_turn`: replaces the token ids of injected completions right after sampling, so
  that the policy's update sees the injected tokens as if it had produced them;
* the reward function: runs the programs on the backend; where a snippet was injected, the *whole*
  of it, although its tokens are cut to the completion's length, under the corpus's own tests;
* `_calculate_rewards`: keeps the rewards, NaN where masked;
* `_generate_and_score_completions`: puts the advantages of `rlox-rl-ops` in the place of TRL's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import GRPOTrainer

from rlox_trainer.advantages import GroupAdvantages
from rlox_trainer.backends import Backend, Submission
from rlox_trainer.gpu import GpuSampler
from rlox_trainer.injection import Injector, Snippet
from rlox_trainer.recorder import Recorder, StepFacts
from rlox_trainer.tasks import completion_code


class TrialTrainer(GRPOTrainer):
    """GRPO with injection, a chosen backend and the crate's advantages; one process only."""

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 (passed on to TRL)
        backend: Backend,
        injector: Injector,
        advantages: GroupAdvantages,
        **kwargs: Any,  # noqa: ANN401 (passed on to TRL)
    ) -> None:
        self._backend = backend
        self._injector = injector
        self._advantages = advantages
        self._snippets: dict[int, Snippet] = {}
        self._stashed_rewards: torch.Tensor | None = None
        self.facts = StepFacts()
        super().__init__(*args, reward_funcs=self.reward_code, **kwargs)
        if self.accelerator.num_processes != 1:
            raise RuntimeError(
                f"{self.accelerator.num_processes} trainer processes, but injections and metrics "
                "are those of one; start it without `accelerate launch`"
            )

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> tuple[list, list | None]:  # noqa: ANN401
        completion_ids, logprobs = super()._generate_single_turn(*args, **kwargs)
        self._snippets = {}
        if self.model.training:
            step = self.state.global_step + 1
            self._snippets = self._injector.draw(step, range(len(completion_ids)))
        for index, snippet in self._snippets.items():
            completion_ids[index] = self._snippet_ids(snippet)
            if logprobs is not None:
                # vLLM never sampled these tokens. None is TRL's word for a log-probability that is
                # not known, and takes the token out of the importance correction.
                logprobs[index] = [None] * len(completion_ids[index])
        return completion_ids, logprobs

    def _snippet_ids(self, snippet: Snippet) -> list[int]:
        tokenizer = self.processing_class
        ids = tokenizer(snippet.code, add_special_tokens=False)["input_ids"]
        return [*ids, tokenizer.eos_token_id][: self.args.max_completion_length]

    def reward_code(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        tests: Sequence[Sequence[str]],
        **_kwargs: Any,  # noqa: ANN401 (TRL passes more than is needed)
    ) -> list[float | None]:
        """Reward function: run every completion against its tests."""
        submissions = []
        for index, (completion, statements) in enumerate(zip(completions, tests, strict=True)):
            snippet = self._snippets.get(index)
            if snippet is not None:
                submissions.append(Submission(snippet.code, snippet.tests))
            else:
                submissions.append(Submission(completion_code(completion), tuple(statements)))
        started = time.perf_counter()
        rewards = self._backend.rewards(submissions)
        self.facts.verify_secs = time.perf_counter() - started
        return rewards

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> torch.Tensor:  # noqa: ANN401
        self._stashed_rewards = super()._calculate_rewards(*args, **kwargs)
        return self._stashed_rewards

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self.facts = StepFacts()
        batch = super()._generate_and_score_completions(inputs)
        assert self._stashed_rewards is not None
        rewards = self._stashed_rewards[:, 0].tolist()
        self.facts.rewards = rewards
        self.facts.injected = {index: snippet.id for index, snippet in self._snippets.items()}
        group = self.num_generations if self.model.training else self.num_generations_eval
        theirs = batch["advantages"]
        ours = self._advantages.compute(rewards, group)
        batch["advantages"] = torch.tensor(ours, dtype=theirs.dtype, device=theirs.device)
        return batch


class StepReporter(TrainerCallback):
    """Writes a line per ended step to metrics.jsonl and prints one to standard output."""

    def __init__(self, recorder: Recorder, gpu: GpuSampler) -> None:
        self._recorder = recorder
        self._gpu = gpu
        self._began = time.perf_counter()
        self.trainer: TrialTrainer | None = None

    def on_step_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,  # noqa: ANN401 (the callback's interface)
    ) -> None:
        self._began = time.perf_counter()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,  # noqa: ANN401 (the callback's interface)
    ) -> None:
        # Training ends with one more log, of totals; it has no loss of a step.
        if logs is None or "loss" not in logs or self.trainer is None:
            return
        line = self._recorder.step(
            step=state.global_step,
            facts=self.trainer.facts,
            trainer_log=logs,
            step_time_secs=time.perf_counter() - self._began,
            gpu_util=self._gpu.take(),
        )
        reward = "none" if line["reward"] is None else f"{line['reward']:.3f}"
        print(
            f"step {line['step']}/{state.max_steps} reward {reward} "
            f"injected {line['injected']} masked {line['masked']} "
            f"time {line['step_time_secs']:.2f} s verify {line['verify_secs']:.2f} s",
            flush=True,
        )
