"""Put a trial together and run it: model, data, backend, trainer, record.

The modules with torch and TRL in them are imported inside functions, after everything that can be
refused cheaply has been checked: a wrong URL should not cost five seconds of imports to find out.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlox_trainer.advantages import AdvantageError, GroupAdvantages
from rlox_trainer.args import DEFAULT_VLLM_URL, TrialConfig
from rlox_trainer.backends import Backend, make_backend
from rlox_trainer.gpu import GpuSampler
from rlox_trainer.injection import CorpusError, Injector, load_injectable
from rlox_trainer.metrics import BEGAN, CHECKPOINT, write_atomically
from rlox_trainer.recorder import Recorder
from rlox_trainer.service import ServiceUnusableError
from rlox_trainer.tasks import Task, TaskFileError, dataset_row, load_tasks, schedule

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from trl import GRPOConfig

REFUSALS = (AdvantageError, CorpusError, ServiceUnusableError, TaskFileError, OSError)


def prepare_environment(config: TrialConfig) -> None:
    """Variables that libraries read when they are imported."""
    # A trial reports to nobody; TRL would send usage statistics otherwise.
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if Path(config.model).is_dir():
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if config.built_in_model:
        # The policy is too small to share out: more threads make a step slower, and its sums
        # depend on how many there are.
        os.environ["OMP_NUM_THREADS"] = "1"


def load_model(config: TrialConfig) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    import torch
    from transformers import AutoTokenizer

    if config.built_in_model:
        torch.set_num_threads(1)
        # Naming the classes saves the search that the Auto classes do.
        from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

        tokenizer = PreTrainedTokenizerFast.from_pretrained(config.model)
        return Qwen2ForCausalLM.from_pretrained(config.model, dtype=torch.float32), tokenizer
    from transformers import AutoModelForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(config.model, padding_side="left")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return AutoModelForCausalLM.from_pretrained(config.model, dtype=torch.float32), tokenizer


def training_arguments(config: TrialConfig) -> GRPOConfig:
    import torch
    from trl import GRPOConfig

    gpu = torch.cuda.is_available()
    vllm: dict[str, Any] = {}
    if config.use_vllm:
        vllm = {"use_vllm": True, "vllm_mode": "colocate"}
        if config.vllm_url is not None:
            url = config.vllm_url or DEFAULT_VLLM_URL
            vllm = {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": url}
    return GRPOConfig(
        output_dir=str(config.output_dir),
        seed=config.seed,
        data_seed=config.seed,
        max_steps=config.max_steps,
        per_device_train_batch_size=config.completions_per_step
        // config.gradient_accumulation_steps,
        gradient_accumulation_steps=config.gradient_accumulation_steps,
        num_generations=config.num_generations,
        max_completion_length=config.max_completion_length,
        temperature=config.temperature,
        top_k=0,
        top_p=1.0,
        learning_rate=config.learning_rate,
        lr_scheduler_type="constant",
        adam_beta2=0.99,
        max_grad_norm=1.0,
        beta=config.beta,
        loss_type="dapo",
        # The schedule is laid out by tasks.py; shuffling would undo it.
        shuffle_dataset=False,
        remove_unused_columns=False,
        dataloader_num_workers=0,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=not gpu,
        bf16=gpu,
        activation_checkpointing=gpu and not config.built_in_model,
        **vllm,
    )


def execute(
    config: TrialConfig, tasks: list[Task], backend: Backend, injector: Injector, recorder: Recorder
) -> None:
    """Train, and leave the checkpoint."""
    import torch
    from datasets import Dataset
    from transformers import PrinterCallback
    from transformers.utils import logging

    logging.disable_progress_bar()
    # The pinned TRL uses names that the pinned transformers deprecates; nobody here can act on it.
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")

    from rlox_trainer.trainer import StepReporter, TrialTrainer

    model, tokenizer = load_model(config)
    conversational = getattr(tokenizer, "chat_template", None) is not None
    order = schedule(tasks, config.prompts_per_step, config.max_steps, config.seed)
    gpu = GpuSampler()
    reporter = StepReporter(recorder, gpu)
    trainer = TrialTrainer(
        model=model,
        args=training_arguments(config),
        train_dataset=Dataset.from_list([dataset_row(task, conversational) for task in order]),
        processing_class=tokenizer,
        callbacks=[reporter],
        backend=backend,
        injector=injector,
        advantages=GroupAdvantages(),
    )
    trainer.remove_callback(PrinterCallback)
    reporter.trainer = trainer
    # Tells whoever watches from outside a set-up that failed from a training that was ended.
    (config.output_dir / BEGAN).touch()
    print(f"training starts: {config.completions_per_step} completions a step", flush=True)
    trainer.train()
    gpu.close()
    state = trainer.accelerator.unwrap_model(trainer.model).state_dict()
    write_atomically(config.output_dir / CHECKPOINT, lambda file: torch.save(state, file))


def run(config: TrialConfig, backend: Backend | None = None) -> int:
    """Run the trial and return the exit code. A caller may bring its own backend."""
    started = time.monotonic()
    prepare_environment(config)
    try:
        tasks = load_tasks(config.tasks)
        snippets = load_injectable(config.corpus) if config.adversarial_fraction > 0 else []
        injector = Injector(snippets, config.adversarial_fraction, config.seed)
        GroupAdvantages()
        backend = backend or make_backend(config)
        backend.check()
        recorder = Recorder(config, started)
    except REFUSALS as error:
        print(f"trl_grpo_run: the trial was not started: {error}", file=sys.stderr)
        return 1
    print(
        f"trial: backend {config.backend}, seed {config.seed}, adversarial fraction "
        f"{config.adversarial_fraction}, {config.max_steps} steps, output {config.output_dir}",
        flush=True,
    )
    try:
        execute(config, tasks, backend, injector, recorder)
    except Exception as error:
        recorder.finish(error=f"{type(error).__name__}: {error}")
        raise
    summary = recorder.finish()
    print(
        f"trial ended: {summary['steps_completed']} steps, final reward "
        f"{summary['final_reward']}, {summary['wall_secs']:.1f} s",
        flush=True,
    )
    return 0
