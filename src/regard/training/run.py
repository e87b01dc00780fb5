"""`Run`: a finished or interrupted training run, as `regard.train` returns it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import RegardError, RunFolderError
from regard.training.formatting import score_name, scores_line

if TYPE_CHECKING:
    import pandas

MetricsLine = dict[str, float | dict[str, float]]
RESULT_TITLES = {"best": "Validation", "average": "Average of the last checkpoints", "test": "Test"}


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
            text = path.read_text("utf-8")
            return [json.loads(line) for line in text.split("\n")[:-1]]  # without a last line that a kill truncated
        except OSError as error:
            raise RunFolderError(f"{path}: cannot be read ({error.strerror}); check the run folder.") from None
        except ValueError as error:
            raise RunFolderError(f"{path}: is damaged ({error}); check the run folder.") from None

    @property
    def results(self) -> dict[str, dict[str, float]]:
        """Scores of the finished run: `best` and `average` on the validation data, `test` on the test data."""
        path = self.folder / "run.json"
        try:
            results: dict[str, dict[str, float]] = json.loads(path.read_text("utf-8")).get("results", {})
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
    folder: Path, results: Mapping[str, Mapping[str, float]], signatures: Mapping[str, str]
) -> list[str]:
    """The results of a run, the signatures of their metrics, and where the model and the report are."""
    lines = []
    for name, title in RESULT_TITLES.items():
        if name in results:
            scores = dict(results[name])
            step = f" (step {scores.pop('step'):,})" if "step" in scores else ""
            lines.append(f"{title}{step}: {scores_line(scores)}")
    lines += [f"{score_name(name)} signature: {signature}" for name, signature in signatures.items()]
    return [*lines, f"Model:  {folder / 'best'}", f"Report: {folder / 'report.html'}"]
