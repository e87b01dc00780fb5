"""`regard.train`: a training request of a Python program."""

from collections.abc import Sequence
from pathlib import Path

from regard.config import Config, ConfigSource, load_sources
from regard.data.datasets import Datasets, dataset_splits
from regard.errors import ConfigError
from regard.training.display import ProgressDisplay
from regard.training.run import Callback, Run
from regard.training.runner import run_training
from regard.training.setup import TrainRequest, dataset_path
from regard.training.task import TASKS, get_task


def train(
    task_or_config: Config | str | Path,
    *,
    data: str | Path | Sequence[str | Path] | Datasets | None = None,
    out: str | Path,
    minutes: float | None = None,
    size: str | None = None,
    resume: bool = False,
    device: str = "auto",
    callbacks: Sequence[Callback] = (),
    display: ProgressDisplay | None = None,
) -> Run:
    """Train a network, and write everything to the folder `out`.

    `task_or_config` is the name of a task of `regard train`, whose settings are chosen for the data, or a config, the
    name of a preset, or a TOML file; `data` are files to train on, which override its `data.train`, or a dataset such
    as those of Hugging Face `datasets`, which is saved in the run folder. Training may take `minutes`; for the task
    `gpt` the network is one that learns much in this time, or has the `size`, such as `small` or `10M`. With `resume`,
    a run in `out` is continued. `device` is "auto", "cpu", "cuda", "cuda:N" or "mps". `callbacks` are called as it
    trains.

    run = regard.train("gpt", data="notes/", minutes=30, out="runs/notes")
    model = regard.load(run.best)
    """
    task = task_or_config if isinstance(task_or_config, str) and task_or_config in TASKS else None
    if task is not None:
        sources = [ConfigSource(f"regard train {task}", get_task(task).default_settings())]
    elif isinstance(task_or_config, Config):
        values = task_or_config.model_dump(mode="json", exclude_unset=True)
        sources = [ConfigSource("regard.train", values)]
    else:
        sources = load_sources(task_or_config)
    if size is not None and (task is None or resume):
        raise ConfigError(f"size={size!r}: is for a new run of the task 'gpt'; set model.width and model.layers.")
    datasets = dataset_splits(data) or {}
    splits = {name: [str(dataset_path(Path(out), name))] for name in datasets}
    if data is not None and not datasets:
        splits = {"train": [str(data)] if isinstance(data, str | Path) else [str(file) for file in data]}
    if splits:
        values = {name: {"files": files, "source": [], "target": [], "parses": []} for name, files in splits.items()}
        sources.append(ConfigSource("regard.train", {"data": values}))
    if minutes is not None:
        sources.append(ConfigSource("regard.train", {"training": {"minutes": minutes}}))
    request = TrainRequest(
        sources, Path(out), resume, task, command=["regard.train"], device=device, datasets=datasets, size=size
    )
    return (run_training if task is None else get_task(task).train)(request, display, callbacks)
