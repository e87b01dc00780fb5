"""The tasks of batch inference: which columns they read and add, and how they process a batch of rows. Torch-free.

A task is called with a batch of columns, as Ray Data, Dask and Spark pass it, and returns the batch with the columns
that it adds. It is pickled as its options; each process loads the model once, on first use.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, Unpack

from regard.errors import ConfigError, InputError
from regard.models.folder_files import resolve_model_folder

if TYPE_CHECKING:
    from regard.api import Model
    from regard.api.generation import GenerateKeywords
    from regard.api.translation import TranslateKeywords
    from regard.registry import Pooling

Batch = TypeVar("Batch")  # a dict of columns (lists or arrays), or a data frame of pandas
ColumnType = Literal["text", "vector", "probabilities"]
MAX_LOADED_MODELS = 2  # per process
NOT_TEXT, NO_TEXT, INVALID_UNICODE, UNPROCESSABLE = "not a text", "no text", "invalid Unicode", "cannot be processed"


@dataclass(frozen=True)
class RowError:
    """Why a row has no result."""

    reason: str
    """Short name that rows are counted by."""
    message: str


@dataclass(frozen=True)
class BatchResults:
    """What a task adds to rows."""

    columns: dict[str, list[Any]]
    """The new columns; None in rows with an error."""
    errors: dict[int, RowError]
    """Rows without a result, by index."""
    truncated: int = 0
    """Texts that were longer than the model's maximum length."""


@lru_cache(maxsize=MAX_LOADED_MODELS)
def _loaded_model(folder: str, device: str, threads: int | None) -> "Model":
    from regard.api import load

    return load(folder, device=device, threads=threads)


class BatchTask(ABC):
    """A task that adds columns to batches of rows; called with a batch, it returns the batch with its columns.

    Args:
        folder: A model folder, or a run folder for its best model. Every worker needs it under the same path.
        source_column: The column of the texts.
        target_column: The column to add.
        threads: Threads per process; None: one per core.
        device: "cpu", "cuda", "cuda:N" or "auto".
        skip_invalid: Return None for rows without a valid text, instead of raising an error.
        options: Options of the model's method.
    """

    name: ClassVar[str]
    rows_at_once: ClassVar[int]
    """Rows that are processed together."""
    results_are_lines: ClassVar[bool]
    """Whether the results of text files are text files; otherwise they are JSON Lines."""

    def __init__(
        self,
        folder: str | Path,
        source_column: str,
        target_column: str,
        *,
        threads: int | None,
        device: str,
        skip_invalid: bool,
        second_column: str | None = None,
        options: Mapping[str, object],
    ) -> None:
        self.folder = str(resolve_model_folder(folder).absolute())
        self.source_columns = (source_column,) if second_column is None else (source_column, second_column)
        self.target_column = target_column
        self.threads = threads
        self.device = device
        self.skip_invalid = skip_invalid
        self.options = dict(options)
        taken = next((column for column in self.columns if column in self.source_columns), None)
        if taken is not None:
            raise ConfigError(f"{taken}: is a column of the input and of the output; choose another target column.")

    @property
    def columns(self) -> dict[str, ColumnType]:
        """The columns that the task adds, with their types."""
        return {self.target_column: "text"}

    @abstractmethod
    def process(self, model: "Model", texts: "list[str | tuple[str, str]]") -> tuple[dict[str, list[Any]], int]:
        """Return the new columns of rows, and the number of truncated texts."""

    def check(self) -> None:
        """Raise ConfigError or ModelError if the model cannot run the task with these options."""
        from regard.api import load

        self.process(load(self.folder), [])

    def process_columns(self, columns: Mapping[str, Sequence[object]]) -> BatchResults:
        """Return the results of rows whose texts are in the source columns; one invalid row does not affect others."""
        rows = list(zip(*(columns[name] for name in self.source_columns), strict=True))
        errors = {n: error for n, row in enumerate(rows) if (error := self._row_error(row)) is not None}
        valid = [n for n in range(len(rows)) if n not in errors]
        texts: list[Any] = [rows[n] if len(self.source_columns) > 1 else rows[n][0] for n in valid]
        model = _loaded_model(self.folder, self.device, self.threads)
        results: dict[str, list[Any]] = {name: [None] * len(rows) for name in self.columns}
        truncated = 0

        def store(first: int, last: int) -> None:
            """Process a range of texts; if one of them cannot be processed, find it by halving the range."""
            nonlocal truncated
            try:
                added, truncated_texts = self.process(model, texts[first:last])
            except InputError as error:
                if last - first == 1:
                    errors[valid[first]] = RowError(UNPROCESSABLE, str(error).removesuffix("."))
                    return
                middle = (first + last) // 2
                store(first, middle)
                store(middle, last)
                return
            truncated += truncated_texts
            for name, values in added.items():
                for n, value in zip(valid[first:last], values, strict=True):
                    results[name][n] = value

        for first in range(0, len(texts), self.rows_at_once):
            store(first, min(first + self.rows_at_once, len(texts)))
        return BatchResults(results, errors, truncated)

    def _row_error(self, row: tuple[object, ...]) -> RowError | None:
        for name, text in zip(self.source_columns, row, strict=True):
            if text is None or text != text:  # pandas has NaN for missing values
                return RowError(NO_TEXT, f"no text in the column {name!r}; fill it in")
            if not isinstance(text, str):
                kind = type(text).__name__
                return RowError(NOT_TEXT, f"the column {name!r} has a value of type {kind}, not a text; convert it")
            if not _is_unicode(text):
                return RowError(INVALID_UNICODE, f"the column {name!r} has half of a surrogate pair; remove it")
        return None

    def __call__(self, batch: Batch) -> Batch:
        """Return a batch with the added columns: a dict of lists or arrays, or a data frame of pandas."""
        missing = next((name for name in self.source_columns if name not in batch), None)  # type: ignore[operator]
        if missing is not None:
            listed = ", ".join(map(str, batch))  # type: ignore[call-overload]
            raise ConfigError(f"the batch has no column {missing!r}; its columns are {listed}.")
        columns = {name: _as_list(batch[name]) for name in self.source_columns}  # type: ignore[index]
        results = self.process_columns(columns)
        if results.errors and not self.skip_invalid:
            row = min(results.errors)
            raise InputError(f"row {row + 1:,} of the batch: {results.errors[row].message}, or pass skip_invalid=True.")
        if isinstance(batch, dict):
            as_arrays = any(hasattr(batch[name], "dtype") for name in self.source_columns)
            added = {name: _as_array(values) if as_arrays else values for name, values in results.columns.items()}
            return {**batch, **added}  # type: ignore[return-value]
        return batch.assign(**results.columns)  # type: ignore[attr-defined, no-any-return]


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _as_list(column: Any) -> list[object]:
    return column.tolist() if hasattr(column, "tolist") else list(column)


def _as_array(values: list[Any]) -> Any:
    """Return vectors as a matrix (N, C), and other values as an array of objects."""
    import numpy as np

    if values and all(isinstance(value, np.ndarray) for value in values):
        return np.stack(values)
    array = np.empty(len(values), object)
    array[:] = values
    return array


class Translate(BatchTask):
    """Translates texts.

    Args:
        folder: The model folder of a translator; every worker needs it under the same path.
        source_column: The column of the texts.
        target_column: The column of their translations, which is added.
        threads: Threads per process; None: one per core.
        device: "cpu", "cuda", "cuda:N" or "auto".
        skip_invalid: Return None for rows without a valid text, instead of raising an error.
        options: Keyword arguments of `Model.translate`.

    Example:
        dataset.map_batches(regard.batch.Translate, fn_constructor_args=("runs/en-it", "en", "it"), concurrency=4)
    """

    name = "translate"
    rows_at_once = 2048
    results_are_lines = True

    def __init__(
        self,
        folder: str | Path,
        source_column: str = "text",
        target_column: str = "translation",
        *,
        threads: int | None = 1,
        device: str = "cpu",
        skip_invalid: bool = False,
        **options: "Unpack[TranslateKeywords]",
    ) -> None:
        super().__init__(
            folder,
            source_column,
            target_column,
            threads=threads,
            device=device,
            skip_invalid=skip_invalid,
            options=dict(options),
        )

    def process(self, model: "Model", texts: list[Any]) -> tuple[dict[str, list[Any]], int]:
        """Translate texts."""
        return {self.target_column: model.translate(texts, **self.options)}, 0  # type: ignore[call-overload]


class Generate(BatchTask):
    """Continues prompts with a language model; the arguments are those of `Translate`.

    The options are keyword arguments of `Model.generate`. Without a seed, repeating a job gives other texts.

    Example:
        dataset.map_batches(regard.batch.Generate("runs/gpt", "prompt", max_tokens=50), concurrency=4)
    """

    name = "generate"
    rows_at_once = 32
    results_are_lines = False  # texts have line breaks

    def __init__(
        self,
        folder: str | Path,
        source_column: str = "text",
        target_column: str = "continuation",
        *,
        threads: int | None = 1,
        device: str = "cpu",
        skip_invalid: bool = False,
        **options: "Unpack[GenerateKeywords]",
    ) -> None:
        super().__init__(
            folder,
            source_column,
            target_column,
            threads=threads,
            device=device,
            skip_invalid=skip_invalid,
            options=dict(options),
        )

    def process(self, model: "Model", texts: list[Any]) -> tuple[dict[str, list[Any]], int]:
        """Continue prompts."""
        return {self.target_column: model.generate(texts, **self.options)}, 0  # type: ignore[call-overload]


class Classify(BatchTask):
    """Labels texts, or pairs of texts; the label of a blank text is None.

    Args:
        folder: The model folder of a classifier.
        source_column: The column of the texts.
        target_column: The column of their labels, which is added.
        second_column: The column of the second texts of pairs.
        probabilities: Also add a column `probabilities`: the probability of each label, by name.

    The other arguments are those of `Translate`.
    """

    name = "classify"
    rows_at_once = 512
    results_are_lines = True

    def __init__(
        self,
        folder: str | Path,
        source_column: str = "text",
        target_column: str = "label",
        *,
        second_column: str | None = None,
        probabilities: bool = False,
        threads: int | None = 1,
        device: str = "cpu",
        skip_invalid: bool = False,
    ) -> None:
        self.probabilities = probabilities
        super().__init__(
            folder,
            source_column,
            target_column,
            second_column=second_column,
            threads=threads,
            device=device,
            skip_invalid=skip_invalid,
            options={"probabilities": probabilities},
        )

    @property
    def columns(self) -> dict[str, ColumnType]:
        """The label and, if requested, the probabilities."""
        labels: dict[str, ColumnType] = {self.target_column: "text"}
        return {**labels, "probabilities": "probabilities"} if self.probabilities else labels

    def process(self, model: "Model", texts: list[Any]) -> tuple[dict[str, list[Any]], int]:
        """Label texts."""
        full = [text for text in texts if not _is_blank(text)]
        classified = model.classify_detailed(full)
        results = iter(classified)
        rows = [None if _is_blank(text) else next(results) for text in texts]
        columns: dict[str, list[Any]] = {self.target_column: [row.label if row else None for row in rows]}
        if self.probabilities:
            columns["probabilities"] = [row.probabilities if row else None for row in rows]
        return columns, sum(result.truncated for result in classified)


def _is_blank(text: str | tuple[str, str]) -> bool:
    return not (text if isinstance(text, str) else "".join(text)).strip()


class Embed(BatchTask):
    """Adds vectors of texts, or of pairs of texts: float32 arrays.

    Args:
        folder: The model folder of an encoder.
        source_column: The column of the texts.
        target_column: The column of their vectors, which is added.
        second_column: The column of the second texts of pairs.
        pooling: "mean", "first" or "first-dense"; None: as the model was trained.
        normalize: Scale vectors to length 1.

    The other arguments are those of `Translate`.
    """

    name = "embed"
    rows_at_once = 512
    results_are_lines = False

    def __init__(
        self,
        folder: str | Path,
        source_column: str = "text",
        target_column: str = "vector",
        *,
        second_column: str | None = None,
        pooling: "Pooling | None" = None,
        normalize: bool = False,
        threads: int | None = 1,
        device: str = "cpu",
        skip_invalid: bool = False,
    ) -> None:
        super().__init__(
            folder,
            source_column,
            target_column,
            second_column=second_column,
            threads=threads,
            device=device,
            skip_invalid=skip_invalid,
            options={"pooling": pooling, "normalize": normalize},
        )

    @property
    def columns(self) -> dict[str, ColumnType]:
        """The vector."""
        return {self.target_column: "vector"}

    def process(self, model: "Model", texts: list[Any]) -> tuple[dict[str, list[Any]], int]:
        """Embed texts."""
        embeddings = model.embed_detailed(texts, **self.options)  # type: ignore[arg-type]
        return {self.target_column: list(embeddings.vectors)}, embeddings.truncated


TASKS: dict[str, Callable[..., BatchTask]] = {task.name: task for task in (Translate, Generate, Classify, Embed)}
"""The tasks by the name of their command."""
