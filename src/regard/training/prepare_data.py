"""Prepare the data of later runs: the folder that training reads through `data.store`."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from regard.config import ConfigSource
from regard.data.preparation import PreparedData
from regard.errors import InterruptedRun
from regard.training.display import ProgressDisplay
from regard.training.run_folder import RunFolder
from regard.training.runner import prepare_run
from regard.training.setup import TrainRequest, config_of, prepared_folder, start_run
from regard.training.shutdown import stop_on_signal
from regard.training.task import task_of


@dataclass(frozen=True)
class PreparedFolder:
    """Data that were prepared ahead of training."""

    folder: Path  # inside `data.store`
    prepared: PreparedData

    def summary(self) -> Sequence[str]:
        """Return lines for the user: sizes, and where the data is."""
        lines = []
        for name, split in self.prepared.splits.items():
            tokens = sum(len(column.ids) for column in split.store.columns[: split.text_columns])
            lines.append(f"{name}: {len(split.store):,} examples, {tokens:,} tokens")
            lines += [f"{name}: {message}" for message in (*split.notes(self.prepared.tokenizer), *split.omissions())]
        lines.append(f"tokenizer: {len(self.prepared.tokenizer):,} tokens")
        return [*lines, f"folder: {self.folder}"]


def prepare_data(request: TrainRequest, display: ProgressDisplay | None = None) -> PreparedFolder:
    """Prepare the data of a training request in the folder `request.out`, exactly as training would.

    A run with the same data and settings and `data.store` set to that folder finds everything prepared.
    """
    display = display or ProgressDisplay()
    store = ConfigSource("--out", {"data": {"store": str(request.out)}})
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signal())
        stack.callback(display.close)
        temporary = Path(stack.enter_context(TemporaryDirectory(prefix="regard-")))
        run = RunFolder(temporary / "run")
        stack.enter_context(run.lock())
        try:
            start_run(run, replace(request, out=run.folder, sources=[*request.sources, store]), display, stop)
            config = config_of(run)
            key = run.read_info()["key"]
            prepared = prepare_run(run, task_of(config), config, key, display, stop)
        except InterruptedRun:
            raise InterruptedRun(
                f"{request.out}: stopped; finished shards are kept: run the command again to continue."
            ) from None
        return PreparedFolder(prepared_folder(run, config, key), prepared)
