"""The speed of training on this machine, and the settings that follow from it: a network and a number of steps."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from regard.config import Config, ConfigSource, validate_sources
from regard.data.corpus_scan import CorpusStats
from regard.models import build
from regard.training.automatic_settings import UserSettings, as_source, user_settings
from regard.training.batches import TokenBatch
from regard.training.checkpoint import seed_step
from regard.training.display import ProgressDisplay
from regard.training.distributed import SINGLE_PROCESS, ProcessGroup
from regard.training.environment import configure_layers, matmul_peak, small_for_bfloat16, synchronize
from regard.training.losses import CausalLMObjective, training_objective
from regard.training.optimizers import LossScaler, build_optimizer, update
from regard.training.task import NetworkTask

MEASURED_LENGTH = 256  # tokens of a sequence, for networks without a maximum
WARMUP_STEPS, MIN_STEPS = 2, 3
SECONDS, MAX_SECONDS = 1.0, 10.0  # of measurement; from the second on, two steps of a large network are enough
Clock = Callable[[], float]


def sized_settings(
    task: NetworkTask,
    sources: Sequence[ConfigSource],
    stats: CorpusStats,
    size: str | None,
    display: ProgressDisplay,
    process_group: ProcessGroup = SINGLE_PROCESS,
) -> UserSettings:
    """The settings of the user with what follows from `--size` and from the time that training may take."""

    def measure(user: UserSettings) -> float:
        chosen = as_source(task.automatic_settings(stats, user))
        config = validate_sources([sources[0], chosen, *sources[1:]])
        length = config.data.context_length or config.model.max_length or MEASURED_LENGTH
        seconds = seconds_per_token(config, length, process_group)
        shape = f"width {config.model.width}, {config.model.layers} layers"
        display.note(f"Measured {1 / seconds:,.0f} tokens per second ({shape}).")
        return seconds

    return task.sized(stats, user_settings(sources), size, measure)


def seconds_per_token(
    config: Config, length: int, process_group: ProcessGroup = SINGLE_PROCESS, clock: Clock = time.perf_counter
) -> float:
    """Seconds that training takes for each token of a batch, the least of a few steps.

    Other programs can only make a step longer, and a run is fitted to the time while it trains. With several processes
    each has its part of a batch, and this one measures its own.

    Args:
        config: settings of a language model and of its training.
        length: tokens of each sequence.
        process_group: the device, and the number of processes.
        clock: tells the time in seconds.
    """
    training, alone = config.training, replace(SINGLE_PROCESS, device=process_group.device)
    previous = torch.get_num_threads()
    torch.set_num_threads(training.threads or previous)
    try:
        seed_step(training.seed, 0)
        network = build(config.model).to(alone.device).train()
        configure_layers(network, training)
        objective = training_objective(CausalLMObjective(network, training.label_smoothing), training)
        dtype = matmul_peak(training.precision, {}, alone, small_for_bfloat16(config)).matmul_dtype
        optimizer = build_optimizer(network, training.optimizer, training.parameter_groups, training.layer_decay, dtype)
        scaler = LossScaler(alone.device.type) if dtype == torch.float16 else None
        rows = max(1, training.batch_tokens // length // process_group.world_size)
        ids = torch.randint(config.model.vocab_size, (rows, length + 1))
        batches = [TokenBatch(ids[:, :-1], ids[:, 1:])] * training.gradient_accumulation
        times: list[float] = []
        while len(times) < 2 or (
            sum(times) < MAX_SECONDS and (len(times) < WARMUP_STEPS + MIN_STEPS or sum(times) < SECONDS)
        ):
            started = clock()
            update(
                objective,
                optimizer,
                batches,
                1e-5,
                max_grad_norm=training.max_grad_norm,
                matmul_dtype=dtype,
                scaler=scaler,
                process_group=alone,
            )
            synchronize(alone.device)
            times.append(clock() - started)
    finally:
        torch.set_num_threads(previous)
    tokens = rows * length * process_group.world_size * training.gradient_accumulation
    return min(times[min(WARMUP_STEPS, len(times) - 1) :]) / tokens
