"""From the events of a trial to metrics.jsonl and run_summary.json.

The trainer reports what it saw: rewards, injections, times. This module decides what those facts
are called and how they are summed up, and writes them. It knows nothing of torch or TRL.

The summary is the trial's own view. In a sweep the controller, which watches from outside,
replaces it with facts that code running in here could not have made up.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rlox_trainer.args import TrialConfig
from rlox_trainer.metrics import (
    BEGAN,
    CHECKPOINT,
    METRICS,
    SUMMARY,
    MetricsLog,
    contagion_events,
    finite,
    mean,
    process_fields,
    sample_process,
    write_json,
)

FINAL_STEPS = 5


@dataclass
class StepFacts:
    """What happened between generation and update; NaN is the reward of a masked sample."""

    rewards: list[float] = field(default_factory=list)
    injected: dict[int, str] = field(default_factory=dict)
    verify_secs: float = 0.0


class Recorder:
    """Collects the steps of one trial."""

    def __init__(self, config: TrialConfig, started: float) -> None:
        self._config = config
        self._started = started
        self._lines: list[dict[str, Any]] = []
        self._samples: list[Any] = []
        config.output_dir.mkdir(parents=True, exist_ok=True)
        for name in (METRICS, SUMMARY, CHECKPOINT, BEGAN):
            # Left by an earlier trial they would pass for this one's.
            (config.output_dir / name).unlink(missing_ok=True)
        self._log = MetricsLog(config.output_dir)

    def step(
        self,
        step: int,
        facts: StepFacts,
        trainer_log: dict[str, Any],
        step_time_secs: float,
        gpu_util: float | None,
    ) -> dict[str, Any]:
        """Record one ended step and return its line."""
        scored = {i: r for i, r in enumerate(facts.rewards) if not math.isnan(r)}
        clean = [reward for i, reward in scored.items() if i not in facts.injected]
        sample = sample_process()
        line = {
            "step": step,
            "reward": mean(list(scored.values())),
            "reward_clean": mean(clean),
            "entropy": finite(trainer_log.get("entropy")),
            "kl": finite(trainer_log.get("kl")) if self._config.beta else None,
            "gpu_util": gpu_util,
            "step_time_secs": step_time_secs,
            "verify_secs": facts.verify_secs,
            **process_fields(sample),
            "loss": finite(trainer_log.get("loss")),
            "grad_norm": finite(trainer_log.get("grad_norm")),
            "completions": len(facts.rewards),
            "injected": len(facts.injected),
            "injected_ids": [facts.injected[i] for i in sorted(facts.injected)],
            "masked": len(facts.rewards) - len(scored),
            "forged": sum(scored.get(i, 0.0) > 0.0 for i in facts.injected),
            "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }
        self._log.append(line)
        self._lines.append(line)
        self._samples.append(sample)
        return line

    def finish(self, error: str | None = None) -> dict[str, Any]:
        """Write run_summary.json. With an error the trial did not survive, and says so."""
        config = self._config
        last = self._lines[-FINAL_STEPS:]
        summary: dict[str, Any] = {
            "condition": config.backend,
            "seed": config.seed,
            "adversarial_fraction": config.adversarial_fraction,
            "survived": error is None and len(self._lines) == config.max_steps,
            "exit_status": "Clean(0)" if error is None else "Clean(1)",
            "final_reward": mean_of(last, "reward"),
            "final_reward_clean": mean_of(last, "reward_clean"),
            "first_reward": self._lines[0]["reward"] if self._lines else None,
            "wall_secs": time.monotonic() - self._started,
            "steps_completed": len(self._lines),
            "max_steps": config.max_steps,
            "contagion_events": contagion_events(self._samples),
            "masked_samples": self._total("masked"),
            "forged_rewards": self._total("forged"),
            "injected_samples": self._total("injected"),
            "model": "built-in" if config.built_in_model else config.model,
            "error": error,
        }
        write_json(config.output_dir / SUMMARY, summary)
        self._log.close()
        return summary

    def _total(self, name: str) -> int:
        return sum(line[name] for line in self._lines)


def mean_of(lines: list[dict[str, Any]], name: str) -> float | None:
    """The mean over steps, of those that have a value."""
    return mean([line[name] for line in lines if line[name] is not None])
