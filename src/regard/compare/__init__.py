"""Compare models: train or load each, and measure them; `table` makes one table and one plot of the results.

Scores can be compared only if they are of the same data, and losses per token only if the tokenizers are equal too.
So each row has a `ScoreBasis`: hashes of the data and of the tokenizer.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median

from regard.api import Model
from regard.config import Config, ConfigSource, load_sources, preset_names, validate_sources
from regard.config.errors import did_you_mean
from regard.data.data_key import files_fingerprint
from regard.errors import ConfigError, DataError, RegardError
from regard.models.folder_files import CONFIG_FILE, TOKENIZER_FILE, resolve_model_folder
from regard.registry import EngineName
from regard.training.checkpoint import newest_state
from regard.training.display import ProgressDisplay
from regard.training.report.curves import StepValue
from regard.training.report.run_log import as_record, finite_number, read_run_log
from regard.training.run_folder import RunFolder
from regard.training.runner import run_training
from regard.training.setup import TrainRequest, config_of, prepared_folder, run_source, with_run_files

COMPARED_SCORES = ("loss", "bleu", "bits_per_byte", "accuracy", "macro_f1")
PER_TOKEN_SCORES = ("loss",)
PER_SENTENCE_SCORES = ("bleu",)
SETTINGS_WITHOUT_EFFECT = ("checkpoint_minutes", "log_every", "threads")
SPEED_ROUNDS = 3
GENERATED_TOKENS, GENERATED_TEXTS = 100, 8  # of a language model whose speed is measured

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
class ScoreBasis:
    """Hashes of what scores were measured with; None if the data are no longer there."""

    tokenizer: str | None
    scores: str | None  # the data of the scores: the test data, or the validation data without any
    curve: str | None  # the validation data
    sentences: float | None = None  # translated for BLEU

    def difference(self, other: "ScoreBasis", score: str) -> str | None:
        """Why a score cannot be compared with that of another basis; None if it can."""
        if self.scores is None or other.scores is None:
            return "measured on data that cannot be compared with those of"
        if self.scores != other.scores:
            return "measured on other data than"
        if score in PER_TOKEN_SCORES and self.tokenizer != other.tokenizer:
            return "measured with another tokenizer than"
        if score in PER_SENTENCE_SCORES and self.sentences != other.sentences:
            return "measured on another number of sentences than"
        return None


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
    basis: ScoreBasis | None = None
    seed: int | None = None
    group: str | None = None  # equal for runs that differ in nothing but the seed
    changed_files: Sequence[str] = ()  # of the run folder, since its last checkpoint
    unfinished_best: int | None = None  # the step that the scores are of, if the run has not finished


def measure(models: Sequence[ComparedModel], sentences: Sequence[str], engine: EngineName) -> list[ComparisonRow]:
    """Return a row per model; decoding speed is measured now on `sentences`."""
    loaded = {compared.name: Model(compared.folder) for compared in models}
    speeds = decoding_speeds(loaded, sentences, engine)
    return [_row(compared, loaded[compared.name], speeds.get(compared.name)) for compared in models]


def _row(compared: ComparedModel, model: Model, decode_speed: float | None) -> ComparisonRow:
    network, parameters = model.config.model.family, sum(weight.numel() for weight in model.network.parameters())
    if compared.run is None:
        return ComparisonRow(compared.name, network, parameters, decode_tokens_per_second=decode_speed)
    run, folder = read_run_log(compared.run), RunFolder(compared.run)
    state = newest_state(folder.checkpoints)
    results = as_record(run.info.get("results"))
    scores = as_record(results.get("test")) or as_record(results.get("best"))
    best = None
    if not scores and state is not None and state.best_scores is not None:
        scores, best = state.best_scores, state.best_step
    speeds = [speed for line in run.training if (speed := finite_number(line.get("tokens_per_second"))) is not None]
    losses = [(line["step"], finite_number(as_record(line["valid"]).get("loss"))) for line in run.validation]
    config = config_of(folder)
    basis = _basis(folder, config, tested=bool(as_record(results.get("test"))), scores=scores)
    return ComparisonRow(
        compared.name,
        network,
        parameters,
        median(speeds) if speeds else None,
        max(run.last_step, 0 if state is None else state.step),
        {name: value for name in COMPARED_SCORES if (value := finite_number(scores.get(name))) is not None},
        decode_speed,
        [(step, loss) for step, loss in losses if loss is not None],
        basis,
        config.training.seed,
        _group(config, basis),
        [] if state is None else folder.appended.changed(state.file_sizes, state.file_checksums),
        best,
    )


def _basis(run: RunFolder, config: Config, *, tested: bool, scores: Mapping[str, object]) -> ScoreBasis:
    tokenizer = run.folder / TOKENIZER_FILE
    valid = _data_digest(run, config, "valid")
    return ScoreBasis(
        _digest(tokenizer.read_bytes()) if tokenizer.is_file() else None,
        _data_digest(run, config, "test") if tested else valid,
        valid,
        finite_number(scores.get("sentences")),
    )


def _data_digest(run: RunFolder, config: Config, split: str) -> str | None:
    """A hash of the texts of a split; of language models, which keep no texts, of the files they are from."""
    try:
        texts = prepared_folder(run, config, str(run.read_info()["key"])) / f"{split}.jsonl"
        if texts.is_file():
            with open(texts, "rb") as stream:
                return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
        data = with_run_files(run, config, read=False).data
        corpus = data.test if split == "test" else data.valid
        if corpus.has_files:
            return files_fingerprint(corpus.file_names, corpus.columns)
        held_out = {"held_out": data.validation_fraction, **data.train.columns}
        return files_fingerprint(data.train.file_names, held_out)
    except (RegardError, OSError, KeyError):
        return None


def _group(config: Config, basis: ScoreBasis) -> str:
    """A hash of all settings that change results, but the seed, and of the data."""
    settings = config.model_dump(mode="json")
    for name in ("seed", *SETTINGS_WITHOUT_EFFECT):
        del settings["training"][name]
    return _digest(json.dumps([settings, basis.tokenizer, basis.scores, basis.curve], sort_keys=True).encode())


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def sample_sentences(models: Sequence[ComparedModel], count: int) -> list[str]:
    """Return the first validation sentences of the first run that translates."""
    for run in (RunFolder(compared.run) for compared in models if compared.run is not None):
        config = config_of(run)
        examples = prepared_folder(run, config, str(run.read_info()["key"])) / "valid.jsonl"
        if config.model.translates and examples.is_file():  # runs of classifiers have this file too
            try:
                with open(examples, encoding="utf-8") as lines:
                    return [str(json.loads(line)["source"]) for line in islice(lines, count)]
            except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
                raise DataError(
                    f"{examples}: is damaged ({error}); remove the folder {examples.parent}, and resume the run."
                ) from None
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
