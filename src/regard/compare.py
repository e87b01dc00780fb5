"""Compare models: train or load each, measure them on the same sentences, and put them in one table and one plot."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from regard.api import Model
from regard.choices import EngineName
from regard.config import ConfigSource, load_sources, preset_names, validate_sources
from regard.config.errors import did_you_mean
from regard.errors import ConfigError
from regard.models.folder_files import CONFIG_FILE, resolve_model_folder
from regard.plotting import COLORS, DASHES, label_line_ends, minimal_axes, new_figure, plot_style, save_figure
from regard.training.display import ProgressDisplay, score_name, score_text
from regard.training.report.curves import StepValue
from regard.training.report.run_log import as_record, finite_number, read_run_log
from regard.training.run_folder import RunFolder
from regard.training.runner import run_training
from regard.training.setup import TrainRequest, config_of, prepared_folder, run_source

COMPARED_SCORES = ("loss", "bleu", "bits_per_byte", "accuracy", "macro_f1")
SPEED_ROUNDS = 3
GENERATED_TOKENS, GENERATED_TEXTS = 100, 8  # of a language model whose speed is measured
UNKNOWN = "–"

SpeedTest = Callable[[], int]  # decodes something and returns the number of tokens


# --- models -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ComparedModel:
    """A model of the comparison: its name in the table, its folder, and the run folder it comes from, if known."""

    name: str
    folder: Path
    run: Path | None = None


def load_or_train(
    items: Sequence[str], settings: Sequence[str], out: Path, display: ProgressDisplay
) -> list[ComparedModel]:
    """Return the models in the order of `items`, which are run folders, model folders, TOML files or presets.

    TOML files and presets are trained in folders of `out`, or resumed there. All items are checked before training.
    """
    names = _short_names(items)
    configs = {
        name: load_sources(_config_source(item), settings) for name, item in names.items() if not Path(item).is_dir()
    }
    models = []
    for name, item in names.items():
        if name in configs:
            folder = out / name
            if not _is_finished(RunFolder(folder), configs[name]):
                display.note(f"{name}:")
                run_training(
                    TrainRequest(configs[name], folder, resume=True, command=["regard", "compare", *items]), display
                )
            models.append(ComparedModel(name, resolve_model_folder(folder), folder))
        else:
            folder = Path(item)
            models.append(
                ComparedModel(name, resolve_model_folder(folder), None if (folder / CONFIG_FILE).exists() else folder)
            )
    return models


def _is_finished(run: RunFolder, sources: Sequence[ConfigSource]) -> bool:
    """Return whether a run is finished and was made with these settings."""
    if not run.exists or run.read_info().get("status") not in ("finished", "early stopped"):
        return False
    return validate_sources([run_source(run), *sources]) == config_of(run)


def _short_names(items: Sequence[str]) -> dict[str, str]:
    """Return the items by their names in the table."""
    names: dict[str, str] = {}
    for item in items:
        path = Path(item)
        name = path.stem if path.suffix == ".toml" else path.resolve().name if path.is_dir() else item
        if name in names:
            raise ConfigError(f"{names[name]} and {item}: both would be called {name!r} in the table; rename one.")
        names[name] = item
    return names


def _config_source(item: str) -> str | Path:
    if item in preset_names():
        return item
    if item.endswith(".toml") or Path(item).is_file():
        return Path(item)
    raise ConfigError(
        f"{item!r} cannot be compared{did_you_mean(item, preset_names())}; "
        "pass TOML files, presets, run or model folders."
    )


# --- measurements -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ComparisonRow:
    """Measurements of a model; unknown ones are None or missing."""

    name: str
    network: str
    parameters: int
    train_tokens_per_second: float | None = None
    steps: int | None = None
    scores: Mapping[str, float] = field(default_factory=dict)  # on test data, or validation data without any
    decode_tokens_per_second: float | None = None
    validation_curve: Sequence[StepValue] = ()  # (step, loss)


def measure(models: Sequence[ComparedModel], sentences: Sequence[str], engine: EngineName) -> list[ComparisonRow]:
    """Return a row per model; decoding speed is measured now on `sentences`."""
    loaded = {compared.name: Model(compared.folder) for compared in models}
    speeds = decoding_speeds(loaded, sentences, engine)
    return [_row(compared, loaded[compared.name], speeds.get(compared.name)) for compared in models]


def _row(compared: ComparedModel, model: Model, decode_speed: float | None) -> ComparisonRow:
    network, parameters = model.config.model.family, sum(weight.numel() for weight in model.network.parameters())
    if compared.run is None:
        return ComparisonRow(compared.name, network, parameters, decode_tokens_per_second=decode_speed)
    run = read_run_log(compared.run)
    results = as_record(run.info.get("results"))
    scores = as_record(results.get("test")) or as_record(results.get("best"))
    speeds = [speed for line in run.training if (speed := finite_number(line.get("tokens_per_second"))) is not None]
    losses = [(line["step"], finite_number(as_record(line["valid"]).get("loss"))) for line in run.validation]
    return ComparisonRow(
        compared.name,
        network,
        parameters,
        median(speeds) if speeds else None,
        run.last_step,
        {name: value for name in COMPARED_SCORES if (value := finite_number(scores.get(name))) is not None},
        decode_speed,
        [(step, loss) for step, loss in losses if loss is not None],
    )


def sample_sentences(models: Sequence[ComparedModel], count: int) -> list[str]:
    """Return the first validation sentences of the first run that translates."""
    for run in (RunFolder(compared.run) for compared in models if compared.run is not None):
        config = config_of(run)
        examples = prepared_folder(run, config, str(run.read_info()["key"])) / "valid.jsonl"
        if config.model.translates and examples.is_file():  # runs of classifiers have this file too
            with open(examples, encoding="utf-8") as lines:
                return [json.loads(line)["source"] for line in islice(lines, count)]
    return []


def decoding_speeds(models: Mapping[str, Model], sentences: Sequence[str], engine: EngineName) -> dict[str, float]:
    """Return the tokens per second of each model that translates or generates, the best of a few rounds.

    The models take turns, so that a slow phase of the machine affects all of them.
    """
    tests = {name: test for name, model in models.items() if (test := _speed_test(model, sentences, engine))}
    for test in tests.values():
        test()  # warm-up
    best: dict[str, float] = {}
    for _ in range(SPEED_ROUNDS):
        for name, test in tests.items():
            start = time.perf_counter()
            tokens = test()
            best[name] = max(best.get(name, 0.0), tokens / (time.perf_counter() - start))
    return best


def _speed_test(model: Model, sentences: Sequence[str], engine: EngineName) -> SpeedTest | None:
    config = model.config.model
    if config.translates and sentences and not config.needs_parses:  # the sentences have no parses

        def translate() -> int:
            outputs = model.translate(sentences, engine=engine)
            return sum(len(ids) + 1 for ids in model.target_tokenizer.encode_batch(outputs))  # with the end token

        return translate
    if config.generates:
        length = min(GENERATED_TOKENS, (config.max_length or GENERATED_TOKENS + 1) - 1)

        def generate() -> int:
            model.generate_detailed(
                "", samples=GENERATED_TEXTS, max_tokens=length, min_tokens=length, seed=1, engine=engine
            )
            return length * GENERATED_TEXTS

        return generate
    return None


# --- output -----------------------------------------------------------------------------------------------------------


def comparison_table(rows: Sequence[ComparisonRow]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the cells of the table, without columns that would be empty.

    >>> row = ComparisonRow("tiny", "encoder-decoder Transformer", 648, scores={"loss": 2.5})
    >>> comparison_table([row])
    (['model', 'network', 'parameters', 'loss'], [['tiny', 'encoder-decoder Transformer', '648', '2.500']])
    """
    score_names = list(dict.fromkeys(name for row in rows for name in row.scores))
    columns: list[tuple[str, Callable[[ComparisonRow], str]]] = [
        ("model", lambda row: row.name),
        ("network", lambda row: row.network),
        ("parameters", lambda row: f"{row.parameters:,}"),
        ("steps", lambda row: UNKNOWN if row.steps is None else f"{row.steps:,}"),
        ("training tokens/s", lambda row: _format_speed(row.train_tokens_per_second)),
        *((score_name(name), _score_formatter(name)) for name in score_names),
        ("decoding tokens/s", lambda row: _format_speed(row.decode_tokens_per_second)),
    ]
    cells = [[formatter(row) for row in rows] for _, formatter in columns]
    known = [n for n, column in enumerate(cells) if any(cell != UNKNOWN for cell in column)]
    return [columns[n][0] for n in known], [[cells[n][r] for n in known] for r in range(len(rows))]


def markdown_table(rows: Sequence[ComparisonRow]) -> str:
    """Return the table as Markdown."""
    header, cells = comparison_table(rows)
    lines = [header, ["---", "---", *["---:"] * (len(header) - 2)], *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def rows_as_dicts(rows: Sequence[ComparisonRow]) -> list[dict[str, Any]]:
    """Return the rows for JSON, with the validation curves."""
    return [asdict(row) for row in rows]


def plot_curves(rows: Sequence[ComparisonRow], path: Path) -> bool:
    """Plot the validation loss of each run against its steps; return False if no model has a curve."""
    drawn = [row for row in rows if row.validation_curve]
    if not drawn:
        return False
    colors = [COLORS[n % len(COLORS)] for n in range(len(drawn))]
    with plot_style():
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        figure = new_figure(9, 5.2)
        axes = figure.add_subplot()
        for n, row in enumerate(drawn):
            dashes = DASHES[n // len(COLORS) % len(DASHES)]  # other dashes once all colors are used
            axes.plot(*zip(*row.validation_curve, strict=True), color=colors[n], linestyle=dashes, linewidth=1.8)
        axes.set_yscale("log")
        for set_formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            set_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("step")
        axes.set_title("validation loss (nats per token, log scale)")
        axes.set_xlim(left=0)
        minimal_axes(axes)
        label_line_ends(axes, [row.validation_curve[-1] for row in drawn], [row.name for row in drawn], colors)
    save_figure(figure, path)
    return True


def _score_formatter(name: str) -> Callable[[ComparisonRow], str]:
    return lambda row: score_text(name, row.scores[name]) if name in row.scores else UNKNOWN


def _format_speed(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"
