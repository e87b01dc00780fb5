"""The CTranslate2 engine: integer arithmetic on a CPU, one worker with one thread for each core; torch is not imported.

A model is converted on first use, and kept in its folder under a hash of its weights. Hypotheses are ranked by our own
formula: CTranslate2 divides by lengthᵅ, which is undone. Where the search is to go on until nothing can win any more,
it goes on until PATIENCE · width hypotheses have ended instead: it cannot look at those that are still open.
"""

import hashlib
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isnan, nan
from pathlib import Path
from typing import Any, Literal, NamedTuple

from regard.config import Config
from regard.decoding.engines.engine import Task, limits
from regard.decoding.settings import Hypothesis, SearchOptions
from regard.errors import ModelError, UnwritableModelError
from regard.models.contents import CONFIG, TARGET_TOKENIZER, TOKENIZER, WEIGHTS
from regard.models.files import parse_json

Precision = Literal["int8", "float32"]
log = logging.getLogger(__name__)
FOLDER = "ctranslate2"  # in the model folder
PATIENCE = 1.75
TOGETHER = 32  # sentences in a batch …
HYPOTHESES = 64  # … and hypotheses of them that are followed at the same time


class CTranslate2Engine:
    """Searches with CTranslate2."""

    name = "ctranslate2"

    def __init__(self, folder: Path, config: Config, precision: Precision = "int8") -> None:
        self.config = config
        self._folder = folder
        self._precision = precision

    @cached_property
    def _loaded(self) -> "Loaded":
        return loaded("Translator", self._folder, self._precision)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """The target's ids by token."""
        return {token: number for number, token in enumerate(self._loaded.target)}

    def search(self, task: Task) -> list[list[Hypothesis]]:
        """Sentences of about equal length go side by side, many batches at the same time."""
        longest = limits(task, self.config)
        found: list[list[Hypothesis]] = [[] for _ in task.sources]
        # in a batch, CTranslate2 4.8 mixes up what the first tokens of beams looked at; one at a time, it cannot
        width = task.search.width
        together = 1 if task.watched and width > 1 else min(TOGETHER, max(1, HYPOTHESES // width))
        groups = list(_groups(task.sources, together))
        while groups:
            begun = [(group, self._begin(task, group, longest)) for group in groups]
            for group, results in begun:
                for n, result in zip(group, results, strict=True):
                    found[n] = self._hypotheses(result.result(), task.search, longest[n])
            groups = [[n] for group in groups if len(group) > 1 for n in group if not found[n]]
        return self._scored(task, found) if task.scored else found

    def _begin(self, task: Task, group: Sequence[int], longest: Sequence[int]) -> list[Any]:
        search, bounds = task.search, task.search.bounds
        width, pieces, names = search.width, self._loaded.source, self._loaded.target
        patience = max(search.patience or PATIENCE, 1.001 / width)  # it wants room for at least one that has ended
        results: list[Any] = self._loaded.runner.translate_batch(
            [[pieces[number] for number in task.sources[n]] for n in group],
            beam_size=width,
            patience=patience,
            num_hypotheses=max(1, round(width * patience)) if width > 1 else 1,
            length_penalty=_exponent(search),
            return_scores=task.scored or width > 1,
            return_end_token=True,  # so that no hypothesis is empty, and the division can be undone
            return_attention=task.watched,
            max_decoding_length=max(longest[n] for n in group),
            min_decoding_length=min(bounds.shortest, max(longest[n] for n in group)),
            max_input_length=0,
            suppress_sequences=[[names[number] for number in ids] for ids in bounds.forbidden] or None,
            asynchronous=True,
        )
        return results

    def _hypotheses(self, result: Any, search: SearchOptions, longest: int) -> list[Hypothesis]:
        """What CTranslate2 found, ranked by our formula; those that did not end only where none did.

        A batch has room for its longest sentence. For the others, what goes past their own limit does not count; where
        nothing is left, it was the limit that would have ended the search, and a search with that limit tells more.
        """
        end = self._loaded.target[self.config.tokens.end]
        scores = result.scores or [0.0] * len(result.hypotheses)
        exponent = _exponent(search)
        found = [
            _Found(tokens, score * len(tokens) ** exponent, n)
            for n, (tokens, score) in enumerate(zip(result.hypotheses, scores, strict=True))
        ]
        if search.width == 1:  # greedy search writes the same, whatever its limit
            unknown = nan if result.scores else 0.0
            found = [_cut(one, longest, unknown) for one in found]
        found = [one for one in found if len(one.tokens) <= longest]
        found = [one for one in found if one.tokens[-1] == end] or found
        found.sort(key=lambda one: -search.worth(one.total, len(one.tokens)))
        return [self._hypothesis(one, result, search, end) for one in found[: search.hypotheses + search.spare]]

    def _hypothesis(self, found: "_Found", result: Any, search: SearchOptions, end: str) -> Hypothesis:
        ended = found.tokens[-1] == end
        return Hypothesis(
            [self._numbers[token] for token in (found.tokens[:-1] if ended else found.tokens)],
            search.worth(found.total, len(found.tokens)),
            found.total,
            ended,
            attention=result.attention[found.place][: len(found.tokens)] if result.attention else None,
        )

    def _scored(self, task: Task, found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """The same with the log-probability of each token."""
        pieces, names = self._loaded.source, self._loaded.target
        places = [(n, k) for n, several in enumerate(found) for k in range(len(several))]
        scores = self._loaded.runner.score_batch(
            [[pieces[number] for number in task.sources[n]] for n, _ in places],
            [[names[number] for number in found[n][k].ids] for n, k in places],
            max_batch_size=TOGETHER,
            max_input_length=0,
        )
        for (n, k), result in zip(places, scores, strict=True):
            one = found[n][k]
            values = list(result.log_probs)[: len(one.ids) + one.ended]
            if task.search.bounds.shortest and len(values) > 1 and not isnan(one.log_probability):
                values[0] = one.log_probability - sum(values[1:])  # it was found where no end could come
            total = sum(values)
            worth = task.search.worth(total, len(values))
            found[n][k] = replace(one, token_scores=values, log_probability=total, score=worth)
        return found


def _exponent(search: SearchOptions) -> float:
    """The power of the length that CTranslate2 divides by, which must not be 0: with 0, it would stop at the first end.

    It only decides which hypotheses are given out where too many end at once, so that about our own penalty will do:
    the logarithm of ((5 + n) / 6)^α grows with that of n as α · n / (5 + n), which is ⅔ α at ten tokens.
    """
    return max(search.length_penalty * 2 / 3, 1e-6)


class _Found(NamedTuple):
    """One of CTranslate2's hypotheses: its tokens, the sum of their log-probabilities, and its place in the result."""

    tokens: list[str]
    total: float
    place: int


def _cut(found: _Found, longest: int, unknown: float) -> _Found:
    """A hypothesis of at most so many tokens; what is left of a longer one has an unknown probability."""
    return found if len(found.tokens) <= longest else _Found(found.tokens[:longest], unknown, found.place)


def _groups(sources: Sequence[Sequence[int]], most: int) -> Iterator[list[int]]:
    """Sentences of about equal length, the longest first, so that no core is left with a long one at the end."""
    order = sorted(range(len(sources)), key=lambda n: -len(sources[n]))
    together = min(most, max(1, -(-len(order) // cores())))
    yield from (order[start : start + together] for start in range(0, len(order), together))


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def converted(folder: Path, precision: Precision) -> Path:
    """The folder with the converted model, which is made if it is not there; others of this precision are removed.

    Where the model folder cannot be written, or its disk is full, it is kept in the user's cache.
    """
    name = f"{precision}-{fingerprint(folder)}"
    for home in (folder / FOLDER, _cache()):
        if (home / name / "model.bin").is_file():
            return home / name
    if os.access(folder, os.W_OK):
        try:
            _convert(folder, folder / FOLDER / name, precision)
        except UnwritableModelError as error:
            log.info("%s The cache is tried.", error)
        else:
            for old in (folder / FOLDER).glob(f"{precision}-*"):
                if old.name != name:
                    shutil.rmtree(old, ignore_errors=True)
            return folder / FOLDER / name
    _convert(folder, _cache() / name, precision)
    return _cache() / name


def _convert(folder: Path, out: Path, precision: Precision) -> None:
    from regard.interop.ctranslate2 import to_ctranslate2  # only now is torch needed

    shutil.rmtree(out, ignore_errors=True)  # what is left of a damaged one
    try:
        to_ctranslate2(folder, out, precision)
    except ModelError:
        if not (out / "model.bin").is_file():  # else someone else has converted it in the meantime
            raise


def loaded(kind: Literal["Translator", "Generator"], folder: Path, precision: Precision) -> "Loaded":
    """CTranslate2 with a model: one worker for each core, with one thread each. A damaged conversion is made again."""
    place = converted(folder, precision)
    try:
        return _load(kind, place, precision)
    except (RuntimeError, ValueError, ModelError):
        shutil.rmtree(place, ignore_errors=True)
    return _load(kind, converted(folder, precision), precision)


@dataclass(frozen=True)
class Loaded:
    """A model that is ready to run, and the tokens of its vocabularies by their ids."""

    runner: Any
    source: list[str]
    target: list[str]


def _load(kind: str, place: Path, precision: Precision) -> Loaded:
    import ctranslate2

    runner = getattr(ctranslate2, kind)(str(place), inter_threads=cores(), intra_threads=1, compute_type=precision)
    if kind == "Generator" or (place / "shared_vocabulary.json").exists():
        names = _names(place / ("vocabulary.json" if kind == "Generator" else "shared_vocabulary.json"))
        return Loaded(runner, names, names)
    return Loaded(runner, *(_names(place / f"{side}_vocabulary.json") for side in ("source", "target")))


def _names(path: Path) -> list[str]:
    names = parse_json(path)
    if not isinstance(names, list):
        raise ModelError(f"{path}: should hold a list.")
    return names


def fingerprint(folder: Path) -> str:
    """A hash of everything in a model folder that a converted model follows from."""
    digest = hashlib.sha256()
    for name in (CONFIG, TOKENIZER, TARGET_TOKENIZER, WEIGHTS):
        if (folder / name).is_file():
            with (folder / name).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "regard" / FOLDER
