"""Make harness/policy/checkpoint: the tiny policy that every CPU trial starts from.

Why it exists: reinforcement learning needs a policy that is sometimes right, and a model from a hub
is neither small nor reachable from an offline machine. So the repository carries its own: a Qwen2
of half a million parameters and a byte-level tokenizer of 384 entries, taught by supervised
learning to answer each task with a right or a wrong program, about half and half. GRPO then has
something to gain. The checkpoint is committed; this script is how it was made.

One thread and fixed seeds make a run repeatable on one machine; other processors may round
differently, which changes the last digits of the weights and nothing that matters.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

HERE = Path(__file__).resolve().parent
DEFAULT_TASKS = HERE.parent.parent / "corpus" / "tasks_v1.jsonl"
DEFAULT_OUTPUT = HERE / "checkpoint"

VOCABULARY = 384
HIDDEN = 128
LAYERS = 2
HEADS = 4
CONTEXT = 128


def load_tasks(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def build_tokenizer(tasks: list[dict[str, Any]]) -> PreTrainedTokenizerFast:
    """Byte-level BPE: any text at all can be encoded, so injected snippets can be too."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<pad>", "<eos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [text for task in tasks for text in (task["prompt"], task["reference"], *task["wrong"])]
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def build_model(tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=HIDDEN,
            intermediate_size=3 * HIDDEN,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=HEADS,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    )


def draw(families: list[list[dict[str, Any]]], rng: random.Random, right: float) -> tuple[str, str]:
    """A prompt and a program for it; families weigh the same however many constants they have."""
    task = rng.choice(rng.choice(families))
    good = rng.random() < right
    return task["prompt"], task["reference"] if good else rng.choice(task["wrong"])


def train(arguments: argparse.Namespace) -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerFast]:
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    rng = random.Random(arguments.seed)
    tasks = load_tasks(arguments.tasks)
    names = sorted({task["family"] for task in tasks})
    families = [[task for task in tasks if task["family"] == name] for name in names]
    tokenizer = build_tokenizer(tasks)
    model = build_model(tokenizer)
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {len(tokenizer)} tokens")
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, arguments.learning_rate, total_steps=arguments.steps, pct_start=0.1
    )
    started = time.process_time()
    model.train()
    for step in range(1, arguments.steps + 1):
        pairs = [draw(families, rng, arguments.right) for _ in range(arguments.batch_size)]
        prompts = [tokenizer(prompt)["input_ids"] for prompt, _ in pairs]
        answers = [tokenizer(text)["input_ids"] + [tokenizer.eos_token_id] for _, text in pairs]
        width = max(len(p) + len(a) for p, a in zip(prompts, answers, strict=True))
        ids, labels, mask = [], [], []
        for prompt, answer in zip(prompts, answers, strict=True):
            padding = width - len(prompt) - len(answer)
            ids.append(prompt + answer + [tokenizer.pad_token_id] * padding)
            # Only the answer is learned; -100 is what the loss ignores.
            labels.append([-100] * len(prompt) + answer + [-100] * padding)
            mask.append([1] * (width - padding) + [0] * padding)
        loss = model(
            input_ids=torch.tensor(ids),
            labels=torch.tensor(labels),
            attention_mask=torch.tensor(mask),
        ).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step == 1 or step % 100 == 0:
            cpu = time.process_time() - started
            print(f"step {step} loss {loss.item():.3f} cpu {cpu:.1f} s", flush=True)
    return model, tokenizer


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Train the tiny starting policy by supervised learning on half-right programs.",
        epilog="About a minute on one CPU core. Writes config, tokenizer and float16 weights.",
    )
    parser.add_argument("--tasks", type=Path, default=DEFAULT_TASKS, help="default: %(default)s")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--right", type=float, default=0.5, help="share of right programs")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    model, tokenizer = train(arguments)
    import torch

    # Half precision halves the committed size; trials load it back as float32.
    model.to(torch.float16).save_pretrained(arguments.output)
    tokenizer.save_pretrained(arguments.output)
    for path in arguments.output.iterdir():
        # A trial's container reads it as another user.
        path.chmod(0o644)
    size = sum(path.stat().st_size for path in arguments.output.iterdir())
    print(f"checkpoint of {size} bytes written to {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
