"""The trial's settings: raw command line in, one checked and immutable value out.

Everything that depends on whether the small built-in policy or a model of the user's is trained is
decided here, so that the modules behind it read plain values.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HARNESS = Path(__file__).resolve().parent.parent
REPOSITORY = HARNESS.parent
BUILT_IN_MODEL = HARNESS / "policy" / "checkpoint"
DEFAULT_TASKS = REPOSITORY / "corpus" / "tasks_v1.jsonl"
DEFAULT_CORPUS = REPOSITORY / "corpus" / "adversarial_corpus_v1.json"
DEFAULT_VLLM_URL = "http://localhost:8000"
BACKENDS = ("in_loop", "rlox", "subprocess")

DESCRIPTION = """\
Run one trial: train a policy by GRPO on small coding tasks and execute the code it writes.

--backend says where that code runs, and nothing else changes with it:
  in_loop     exec() in the trainer's own process, with a timer: the unprotected baseline
  subprocess  a child interpreter, judged by its exit code: what many trainers do
  rlox        the sandbox service, one POST /verify/batch a step

With --adversarial-fraction F each completion is replaced with probability F by a hostile snippet.
Which ones are replaced, and by what, depends on seed, step and index only: both conditions of a
pair meet the same snippets. NEVER run in_loop or subprocess with F above 0 outside a container:
the snippets do what they say.
"""

EPILOG = """\
examples:
  trl_grpo_run.py --backend in_loop --seed 0 --output-dir /tmp/baseline
  trl_grpo_run.py --backend rlox --adversarial-fraction 0.05 --seed 0 \\
      --rlox-server-url http://localhost:8231 --output-dir /tmp/treatment
  trl_grpo_run.py --backend rlox --rlox-server-url unix:/run/rlox.sock --output-dir /tmp/out
  VLLM_URL=http://gpu:8000 trl_grpo_run.py --model Qwen/Qwen2.5-Coder-1.5B-Instruct --use-vllm \\
      --backend rlox --output-dir /tmp/gpu

The output directory gets metrics.jsonl (a line a step), checkpoint_final.pt and run_summary.json;
files of an earlier trial there are removed first. A trial that ends without run_summary.json did
not finish, whatever its exit code says.

environment:
  VLLM_URL         address of a vLLM server; with --use-vllm, generate there instead of in process
  RLOX_RL_OPS_LIB  librlox_rl_ops_ffi.so, where it is not in target/release of the repository
"""


@dataclass(frozen=True)
class TrialConfig:
    """A trial's settings, checked."""

    backend: str
    adversarial_fraction: float
    seed: int
    max_steps: int
    rlox_server_url: str
    output_dir: Path
    model: str
    built_in_model: bool
    tasks: Path
    corpus: Path
    snippet_timeout_secs: float
    snippet_memory_mb: int
    prompts_per_step: int
    num_generations: int
    learning_rate: float
    beta: float
    temperature: float
    max_completion_length: int
    gradient_accumulation_steps: int
    use_vllm: bool
    vllm_url: str | None

    @property
    def completions_per_step(self) -> int:
        return self.prompts_per_step * self.num_generations


def fraction(text: str) -> float:
    value = float(text)
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1 (5 percent is 0.05)")
    return value


def positive_int(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def positive_float(text: str) -> float:
    value = float(text)
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trl_grpo_run.py",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    trial = parser.add_argument_group("the trial")
    trial.add_argument("--backend", choices=BACKENDS, required=True, help="where code runs")
    trial.add_argument(
        "--adversarial-fraction",
        type=fraction,
        default=0.0,
        metavar="F",
        help="share of completions replaced by hostile snippets, 0 to 1 (default 0)",
    )
    trial.add_argument("--seed", type=int, default=0, help="of everything random (default 0)")
    trial.add_argument("--max-steps", type=positive_int, default=30, help="default 30")
    trial.add_argument("--output-dir", type=Path, required=True, help="made if missing")

    running = parser.add_argument_group("running code")
    running.add_argument(
        "--rlox-server-url",
        default="http://localhost:8231",
        metavar="URL",
        help="http://host:port or unix:/path/to.sock (default %(default)s)",
    )
    running.add_argument(
        "--snippet-timeout-secs",
        type=positive_float,
        default=1.0,
        metavar="S",
        help="time for one snippet with all its tests, on every backend (default 1)",
    )
    running.add_argument(
        "--snippet-memory-mb",
        type=positive_int,
        default=256,
        metavar="MB",
        help="asked of the sandbox; the other backends cannot enforce it (default 256)",
    )
    running.add_argument(
        "--tasks", type=Path, default=DEFAULT_TASKS, help="coding tasks, JSON lines"
    )
    running.add_argument(
        "--corpus", type=Path, default=DEFAULT_CORPUS, help="hostile snippets, read if F is above 0"
    )

    learning = parser.add_argument_group("learning")
    learning.add_argument(
        "--model",
        default=str(BUILT_IN_MODEL),
        help="directory or hub name (default: the built-in policy of 476k parameters)",
    )
    learning.add_argument("--prompts-per-step", type=positive_int, default=12, help="default 12")
    learning.add_argument(
        "--num-generations", type=positive_int, default=8, help="per prompt (default 8)"
    )
    learning.add_argument(
        "--learning-rate",
        type=positive_float,
        help="constant (default 4e-4 for the built-in policy, 1e-6 for another model)",
    )
    learning.add_argument(
        "--beta", type=float, default=0.0, help="weight of the KL term; kl is null at 0 (default 0)"
    )
    learning.add_argument("--temperature", type=positive_float, default=1.0, help="default 1")
    learning.add_argument(
        "--max-completion-length",
        type=positive_int,
        metavar="TOKENS",
        help="default 40 for the built-in policy, 256 for another model",
    )
    learning.add_argument(
        "--gradient-accumulation-steps",
        type=positive_int,
        default=1,
        help="split a step's completions into this many passes to save memory (default 1)",
    )
    learning.add_argument(
        "--use-vllm",
        action="store_true",
        help="generate with vLLM: the server at VLLM_URL if set, else in this process",
    )
    return parser


def parse(argv: Sequence[str], environment: Mapping[str, str] = os.environ) -> TrialConfig:
    """The checked settings; exits with a usage message where they make no sense."""
    parser = build_parser()
    raw = parser.parse_args(argv)
    model = str(raw.model)
    built_in = Path(model).exists() and Path(model).resolve() == BUILT_IN_MODEL.resolve()
    total = raw.prompts_per_step * raw.num_generations
    micro_batch = total // raw.gradient_accumulation_steps
    if raw.num_generations < 2:
        parser.error("--num-generations must be at least 2: an advantage is relative to a group")
    if total % raw.gradient_accumulation_steps or micro_batch % raw.num_generations:
        parser.error(
            "--gradient-accumulation-steps must divide --prompts-per-step into whole groups"
        )
    if raw.beta < 0:
        parser.error("--beta must not be negative")
    if not raw.tasks.is_file():
        parser.error(f"--tasks {raw.tasks}: no such file; harness/make_tasks.py writes it")
    if raw.adversarial_fraction > 0 and not raw.corpus.is_file():
        parser.error(f"--corpus {raw.corpus}: no such file; it is needed for a fraction above 0")
    if not raw.rlox_server_url.startswith(("http://", "unix:/")):
        parser.error("--rlox-server-url must be http://host:port or unix:/absolute/path")
    # A server named in the environment is a choice of generator only where vLLM was asked for.
    vllm_url = environment.get("VLLM_URL") if raw.use_vllm else None
    return TrialConfig(
        backend=raw.backend,
        adversarial_fraction=raw.adversarial_fraction,
        seed=raw.seed,
        max_steps=raw.max_steps,
        rlox_server_url=raw.rlox_server_url,
        output_dir=raw.output_dir,
        model=model,
        built_in_model=built_in,
        tasks=raw.tasks,
        corpus=raw.corpus,
        snippet_timeout_secs=raw.snippet_timeout_secs,
        snippet_memory_mb=raw.snippet_memory_mb,
        prompts_per_step=raw.prompts_per_step,
        num_generations=raw.num_generations,
        learning_rate=raw.learning_rate or (4e-4 if built_in else 1e-6),
        beta=raw.beta,
        temperature=raw.temperature,
        max_completion_length=raw.max_completion_length or (40 if built_in else 256),
        gradient_accumulation_steps=raw.gradient_accumulation_steps,
        use_vllm=raw.use_vllm,
        vllm_url=vllm_url,
    )
