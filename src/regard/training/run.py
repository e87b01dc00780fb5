"""A training run as user code sees it: callbacks while it trains, and the `Run` that `regard.train` returns."""

import json
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from regard.errors import RegardError, RunFolderError
from regard.files import check_regular_file, read_regular_file
from regard.training.display import score_name, scores_line
from regard.training.run_folder import MAX_INFO_BYTES

if TYPE_CHECKING:
    import pandas

MetricsLine = dict[str, float | dict[str, float]]
RESULT_TITLES = {
    "best": "Validation",
    "average": "Average of the last checkpoints",
    "test": "Test",
    "majority": "Majority baseline (the most frequent label for every example)",
    "base_before": "Validation data of the base model, before",
    "base_after": "Validation data of the base model, after",
}


@dataclass(frozen=True)
class Run:
    """A training run.

    Example:
        ```
        run = regard.train("tiny", data="pairs.tsv", out="runs/mine")
        run.results["best"]["bleu"]
        model = regard.load(run.best)
        ```
    """

    folder: Path
    """The run folder."""
    summary: Sequence[str] = ()
    """Lines that `regard train` prints at the end."""

    @property
    def best(self) -> Path:
        """The model folder with the best weights by `validation.metric`."""
        return self.folder / "best"

    @property
    def metrics(self) -> list[MetricsLine]:
        """The lines of metrics.jsonl, in order: one for every `training.log_every` steps and one per validation.

        Validation lines have their scores under `valid`. The reference page on metrics lists all fields.
        """
        path = self.folder / "metrics.jsonl"
        try:
            check_regular_file(path)
            text = path.read_text("utf-8")
            return [json.loads(line) for line in text.split("\n")[:-1]]  # without a last line that a kill truncated
        except OSError as error:
            raise RunFolderError(f"{path}: cannot be read ({error.strerror}); check the run folder.") from None
        except ValueError as error:
            raise RunFolderError(f"{path}: is damaged ({error}); check the run folder.") from None

    @property
    def results(self) -> dict[str, dict[str, float]]:
        """Scores of the finished run: `best` and `average` on the validation data, `test` on the test data.

        Classifiers and taggers also have `majority`: the scores of predicting the most frequent label everywhere, on
        the test data, or on the validation data without any. A fine-tuned model also has `base_before` and
        `base_after`, on the validation data of the model it started from.
        """
        path = self.folder / "run.json"
        try:
            results: dict[str, dict[str, float]] = json.loads(
                read_regular_file(path, MAX_INFO_BYTES).decode("utf-8")
            ).get("results", {})
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{path}: cannot be read ({error}); check the run folder.") from None
        return results

    def to_pandas(self) -> "pandas.DataFrame":
        """The metrics as a DataFrame with one row per line; validation scores are columns such as `valid_loss`."""
        try:
            import pandas
        except ImportError:
            raise RegardError("Run.to_pandas needs pandas; install it with: pip install pandas.") from None
        return pandas.DataFrame([_flat(line) for line in self.metrics])


def _flat(line: MetricsLine) -> dict[str, float]:
    flat: dict[str, float] = {}
    for name, value in line.items():
        if isinstance(value, dict):
            flat |= {f"{name}_{score}": number for score, number in value.items()}
        else:
            flat[name] = value
    return flat


def results_summary(
    folder: Path,
    results: Mapping[str, Mapping[str, float]],
    signatures: Mapping[str, str],
    searches: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """The results of a run, with the search if texts were decoded, the signatures, and where model and report are."""
    lines = []
    for name, title in RESULT_TITLES.items():
        if name in results:
            scores = dict(results[name])
            step = [f"step {scores.pop('step'):,}"] if "step" in scores else []
            details = ", ".join([*step, *filter(None, [searches.get(name)])])
            lines.append(f"{title}{f' ({details})' if details else ''}: {scores_line(scores)}")
    lines += [f"{score_name(name)} signature: {signature}" for name, signature in signatures.items()]
    return [*lines, f"Model:  {folder / 'best'}", f"Report: {folder / 'report.html'}"]


class Callback:
    """Base class of callbacks; override the methods you need. Only the first of several processes calls them.

    class PrintLoss(regard.Callback):
        def on_step(self, step, metrics):
            print(step, metrics["loss"])

    regard.train("tiny", data="pairs.tsv", out="runs/mine", callbacks=[PrintLoss()])
    """

    def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Called every `training.log_every` steps with the fields of that line of metrics.jsonl."""

    def on_validation(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Called after each validation; `best`: the scores are the best so far, by `validation.metric`."""

    def on_checkpoint(self, step: int, path: Path) -> None:
        """Called when a checkpoint has been written."""


class TensorBoardCallback(Callback):
    """Writes metrics and validation scores to event files for TensorBoard, which must be installed.

    Every call is on disk when it returns. The file is closed when the callback is garbage-collected.
    """

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder))
        weakref.finalize(self, self._writer.close)

    def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one scalar per field."""
        self._write(step, {name: value for name, value in metrics.items() if name != "step"})

    def on_validation(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Write one scalar per score, under `valid/`."""
        self._write(step, {f"valid/{name}": value for name, value in scores.items()})

    def _write(self, step: int, scalars: Mapping[str, float]) -> None:
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()  # the writer would keep two minutes of scalars in memory, and a kill would lose them


def tensorboard_callbacks(folder: Path) -> list[Callback]:
    """The TensorBoard callback, or nothing if TensorBoard is not installed."""
    try:
        return [TensorBoardCallback(folder)]
    except ImportError:
        return []
