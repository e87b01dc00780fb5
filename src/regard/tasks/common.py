"""Helpers that several tasks share: data checks, evaluation on text, and the choice of outputs for the report."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.config import Config, CorpusConfig
from regard.data.lines import InvalidLines
from regard.data.preparation import PreparedData
from regard.data.prepare_documents import prepare_document_split
from regard.data.tokenizer import unknown_note
from regard.errors import ConfigError, DataError
from regard.evaluation.likelihood import ProgressCallback
from regard.training.task import Evaluation, EvaluationOptions, NetworkTask, OutputRow, TrainedModel

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from regard.data.batching import DataPosition
    from regard.data.tokenizer import Tokenizer
    from regard.models.network import Network

DEFAULT_CONTEXT_LENGTH = 256
OUTPUTS_PER_LIST = 5


def check_text_data(config: Config, model: str) -> None:
    """Raise a ConfigError for aligned files and parses, which only translation reads."""
    uses = (("--", "trained"), ("--valid-", "validated"), ("--test-", "tested"))
    for split, (prefix, use) in zip(config.data.splits, uses, strict=True):
        option = "--data" if prefix == "--" else prefix.removesuffix("-")
        if split.source or split.target:
            raise ConfigError(f"{model} is {use} on {option}; {prefix}source and {prefix}target are for translation.")
        if split.parses:
            raise ConfigError(f"{prefix}parses: is for translation, where the source has parses; drop it.")


def check_text_corpus(model: TrainedModel, corpus: CorpusConfig, noun: str) -> None:
    """Raise a ConfigError for aligned files, when a model that reads texts is evaluated."""
    if corpus.source:
        raise ConfigError(f"{model.folder} is a {noun}, which reads --data, not --source and --target.")


def check_context(model: TrainedModel, length: int | None) -> int | None:
    """The context length that the user set, unless it is more than the network has positions for."""
    positions = model.config.model.max_length
    if positions is not None and length is not None and length > positions:
        raise ConfigError(f"--context-length {length}: this network has {positions:,} positions; lower it.")
    return length


@dataclass(frozen=True)
class TextScores:
    """Scores of predicted tokens, and the number of tokens of the text."""

    scores: dict[str, float]
    tokens: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"scores": self.scores, "tokens": self.tokens}


def evaluate_text(
    task: NetworkTask,
    model: TrainedModel,
    corpus: CorpusConfig,
    options: EvaluationOptions,
    invalid: InvalidLines,
    count: ProgressCallback,
    *,
    spaced: bool = False,
) -> Evaluation:
    """Measure an encoder on new text exactly as its task validates it."""
    check_text_corpus(model, corpus, task.noun)
    context = check_context(model, options.context_length)
    data = model.config.data.model_copy(update={"context_length": context, "train": corpus})
    validation = model.config.validation.model_copy(update={"samples": 0})
    config = model.config.model_copy(update={"data": data, "validation": validation})
    task.check(config)
    tokenizer = model.tokenizer
    with TemporaryDirectory(prefix="regard-") as folder:
        split = prepare_document_split(
            Path(folder) / "text",
            corpus,
            tokenizer,
            invalid,
            lambda done: count("reading", done, None),
            single_spaces=spaced,
        )
        if len(split.store) == 0:
            raise DataError(f"{', '.join(corpus.files)}: has no text to evaluate a model on; provide some.")
        if unknown := split.unknown_tokens(tokenizer):
            invalid.note(unknown_note(unknown, len(split.store.columns[0].ids)))
        bound = task.bind(config, PreparedData(tokenizer, split, split, None), model.network.eval())
        scores = TextScores(bound.validate(lambda: None).scores, len(split.store.columns[0].ids))
    return Evaluation({"context_length": context_length(config)}, scores)


def context_length(config: Config) -> int:
    """Number of tokens that a network sees at once in training."""
    return config.data.context_length or config.model.max_length or DEFAULT_CONTEXT_LENGTH


def device_of(network: "Network") -> "torch.device":
    """The device of a network's parameters."""
    return next(network.parameters()).device


def describe_rows(ids: "Tensor", position: "DataPosition", tokenizer: "Tokenizer") -> str:
    """The size of a batch of texts (B, T), and the start of its first row."""
    start = tokenizer.decode(ids[0, :20].tolist())
    rows, length = ids.shape
    return f"epoch {position.epoch + 1}, batch {position.batch}: {rows} rows of {length} tokens, the first {start!r}…"


def rank_outputs(rows: Sequence[OutputRow], ratings: Sequence[float], length_of: str) -> dict[str, list[OutputRow]]:
    """The best, the worst and random rows, for the report; among equal ratings, longer texts `length_of` come first.

    >>> rows = [{"source": "a"}, {"source": "bb"}, {"source": "c"}]
    >>> [row["source"] for row in rank_outputs(rows, [0.5, 0.5, 0.9], "source")["best"]]
    ['c', 'bb', 'a']
    """
    order = sorted(range(len(rows)), key=lambda n: (-ratings[n], -len(str(rows[n][length_of]))))
    random = np.random.default_rng([0]).permutation(len(rows)).tolist()
    chosen = {"best": order, "worst": order[::-1], "random": random}
    return {name: [rows[n] for n in indices[:OUTPUTS_PER_LIST]] for name, indices in chosen.items()}
