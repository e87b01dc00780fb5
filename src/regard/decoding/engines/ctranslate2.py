"""The CTranslate2 engine: integer arithmetic on a CPU, one worker with one thread for each core; torch is not imported.

A model is converted on first use, and kept in its folder under a hash of its weights. Hypotheses are ranked by our own
formula: CTranslate2 divides by lengthᵅ, which is undone. Where the search is to go on until nothing can win any more,
it goes on until PATIENCE · width hypotheses have ended instead: it cannot look at those that are still open.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from regard.config import Config
from regard.decoding.engines.engine import Task, limits
from regard.decoding.settings import Hypothesis, Search
from regard.models.contents import CONFIG, TARGET_TOKENIZER, TOKENIZER, WEIGHTS
from regard.models.files import parse_json

Precision = Literal["int8", "float32"]
FOLDER = "ctranslate2"  # in the model folder
PATIENCE = 2.0
TOGETHER = 32  # sentences in a batch


class CTranslate2Engine:
    """Searches with CTranslate2."""

    name = "ctranslate2"

    def __init__(self, folder: Path, config: Config, precision: Precision = "int8") -> None:
        self.config = config
        self._folder = converted(folder, precision)
        self._precision = precision

    @cached_property
    def _translator(self) -> Any:
        import ctranslate2

        return ctranslate2.Translator(
            str(self._folder), inter_threads=cores(), intra_threads=1, compute_type=self._precision
        )

    @cached_property
    def _vocabularies(self) -> tuple[list[str], dict[str, int]]:
        """The source's tokens by id, and the target's ids by token."""
        shared = self._folder / "shared_vocabulary.json"
        source = parse_json(shared if shared.exists() else self._folder / "source_vocabulary.json")
        target = source if shared.exists() else parse_json(self._folder / "target_vocabulary.json")
        return source, {token: number for number, token in enumerate(target)}

    def search(self, task: Task) -> list[list[Hypothesis]]:
        """Sentences of about equal length go side by side, many batches at the same time."""
        longest = limits(task, self.config)
        found: list[list[Hypothesis]] = [[] for _ in task.sources]
        # in a batch, CTranslate2 4.8 mixes up what the first tokens of beams looked at; one at a time, it cannot
        together = 1 if task.watched and task.search.width > 1 else TOGETHER
        begun = [(group, self._begin(task, group, longest)) for group in _groups(task.sources, together)]
        for group, results in begun:
            for n, result in zip(group, results, strict=True):
                found[n] = self._hypotheses(result.result(), task.search)
                if any(len(one.ids) + one.ended > longest[n] for one in found[n]):  # the batch had room for more
                    (again,) = self._begin(task, [n], longest)
                    found[n] = self._hypotheses(again.result(), task.search)
        return self._scored(task, found) if task.scored else found

    def _begin(self, task: Task, group: Sequence[int], longest: Sequence[int]) -> list[Any]:
        pieces, numbers = self._vocabularies
        search, bounds = task.search, task.search.bounds
        names = list(numbers)
        width = search.width
        results: list[Any] = self._translator.translate_batch(
            [[pieces[number] for number in task.sources[n]] for n in group],
            beam_size=width,
            patience=search.patience or PATIENCE,
            num_hypotheses=width if width > 1 else 1,
            length_penalty=1.0,  # anything but 0, with which it would stop at the first end
            return_scores=True,
            return_end_token=True,  # so that no hypothesis is empty, and the division can be undone
            return_attention=task.watched,
            max_decoding_length=max(longest[n] for n in group),
            min_decoding_length=min(bounds.shortest, max(longest[n] for n in group)),
            max_input_length=0,
            suppress_sequences=[[names[number] for number in ids] for ids in bounds.forbidden] or None,
            asynchronous=True,
        )
        return results

    def _hypotheses(self, result: Any, search: Search) -> list[Hypothesis]:
        """What CTranslate2 found, ranked by our formula; those that did not end only where none did."""
        _, numbers = self._vocabularies
        end = self.config.tokens.end
        attentions = result.attention or [None] * len(result.hypotheses)
        found = []
        for tokens, score, attention in zip(result.hypotheses, result.scores, attentions, strict=True):
            ids = [numbers[token] for token in tokens]
            ended, total = ids[-1:] == [end], score * len(ids)
            found.append(
                Hypothesis(ids[:-1] if ended else ids, search.worth(total, len(ids)), total, ended, attention=attention)
            )
        complete = [one for one in found if one.ended]
        return sorted(complete or found, key=lambda one: -one.score)[: search.hypotheses]

    def _scored(self, task: Task, found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """The same with the log-probability of each token."""
        pieces, numbers = self._vocabularies
        names = list(numbers)
        places = [(n, k) for n, several in enumerate(found) for k in range(len(several))]
        scores = self._translator.score_batch(
            [[pieces[number] for number in task.sources[n]] for n, _ in places],
            [[names[number] for number in found[n][k].ids] for n, k in places],
            max_batch_size=TOGETHER,
            max_input_length=0,
        )
        for (n, k), result in zip(places, scores, strict=True):
            one = found[n][k]
            values = list(result.log_probs)
            found[n][k] = replace(one, token_scores=values if one.ended else values[:-1])
        return found


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

    Where the model folder cannot be written, it is kept in the user's cache.
    """
    name = f"{precision}-{fingerprint(folder)}"
    for home in (folder / FOLDER, _cache()):
        if (home / name / "model.bin").is_file():
            return home / name
    home = folder / FOLDER if os.access(folder, os.W_OK) else _cache()
    from regard.interop.ctranslate2 import to_ctranslate2  # only now is torch needed

    to_ctranslate2(folder, home / name, precision)
    for old in home.glob(f"{precision}-*") if home == folder / FOLDER else ():
        if old.name != name:
            shutil.rmtree(old, ignore_errors=True)
    return home / name


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
