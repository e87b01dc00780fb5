"""The CTranslate2 engine: integer arithmetic on a CPU, one worker with one thread for each core; torch is not imported.

A model is converted on first use, and kept in its folder under a hash of its weights. Hypotheses are ranked by our own
formula: CTranslate2 divides by lengthᵅ, which is undone. Where the search is to go on until nothing can win any more,
it goes on until PATIENCE · width hypotheses have ended instead: it cannot look at those that are still open.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from math import isnan, nan
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from regard.config import Config
from regard.decoding.engines.ctranslate2_models import LoadedCTranslate2, available_cores, load_ctranslate2
from regard.decoding.engines.engine import Precision, SearchRequest, max_target_lengths
from regard.decoding.generator import GenerationSession, StartSession
from regard.decoding.options import SamplingOptions, SearchOptions
from regard.decoding.results import Hypothesis, SampledToken

DEFAULT_PATIENCE = 1.75
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
    def _loaded(self) -> "LoadedCTranslate2":
        return load_ctranslate2("Translator", self._folder, self._precision)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """The target's ids by token."""
        return {token: number for number, token in enumerate(self._loaded.target)}

    def search(self, task: SearchRequest) -> list[list[Hypothesis]]:
        """Sentences of about equal length go side by side, many batches at the same time."""
        longest = max_target_lengths(task, self.config)
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

    def _begin(self, task: SearchRequest, group: Sequence[int], longest: Sequence[int]) -> list[Any]:
        search, bounds = task.search, task.search.bounds
        width, pieces, names = search.width, self._loaded.source, self._loaded.target
        patience = max(
            search.patience or DEFAULT_PATIENCE, 1.001 / width
        )  # it wants room for at least one that has ended
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

    def _scored(self, task: SearchRequest, found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
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
    together = min(most, max(1, -(-len(order) // available_cores())))
    yield from (order[start : start + together] for start in range(0, len(order), together))


LEAST_SHARE = 1e-6  # of probability; less than that, in its short floats, is none, which it refuses
WAIT = 0.5  # seconds without a token after which to see whether something failed


def ctranslate2_sessions(folder: Path, config: Config, precision: Precision) -> StartSession:
    """What begins to write with the model in a folder, which is loaded once."""
    import ctranslate2

    ctranslate2.set_random_seed(secrets.randbelow(2**31))  # read once by each thread that draws
    # one thread for a text: in small networks, threads that wait for each other make it four times slower
    ready = load_ctranslate2("Generator", folder, precision)

    def start(prompts: list[list[int]], streams: list[int], sampling: SamplingOptions) -> GenerationSession:
        return CTranslate2Session(ready.runner, ready.target, prompts, config, sampling)

    return start


class CTranslate2Session:
    """Goes on with prompts until each ends or is told to stop."""

    def __init__(
        self,
        generator: Any,
        names: list[str],
        prompts: Sequence[Sequence[int]],
        config: Config,
        sampling: SamplingOptions,
    ) -> None:
        self.open = list(range(len(prompts)))
        self.slid: set[int] = set()
        self._closed: set[int] = set()
        self._drawn: SimpleQueue[tuple[SampledToken, bool]] = SimpleQueue()
        self._generator: Any = generator
        self._results: list[Any] = []
        for rows in _of_equal_length(prompts):  # of unequal ones, it would give out parts of the longer as new text
            self._results += generator.generate_batch(
                [[names[number] for number in prompts[row]] for row in rows],
                callback=_keeper(rows, self._drawn, self._closed),
                **_options(names, config, sampling),
            )

    def step(self) -> list[SampledToken]:
        """The next token, of whichever row has one."""
        drawn, last = self._next()
        if drawn.row in self._closed:
            return []
        if last:
            self.open.remove(drawn.row)
        self._leave()
        return [drawn]

    def _next(self) -> tuple[SampledToken, bool]:
        while True:
            try:
                return self._drawn.get(timeout=WAIT)
            except Empty:
                for result in self._results:
                    if result.done():
                        result.result()  # raises what went wrong there

    def close(self, rows: Iterable[int]) -> None:
        """Stop going on with these rows."""
        self._closed.update(rows)
        self.open = [row for row in self.open if row not in self._closed]
        self._leave()

    def _leave(self) -> None:
        """Once nothing is open, wait for the threads to end: they must not be the last to hold their generator."""
        if not self.open and self._generator is not None:
            for result in self._results:
                result.result()
            self._generator = None


def _of_equal_length(prompts: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Rows whose prompts have the same length."""
    order = sorted(range(len(prompts)), key=lambda row: len(prompts[row]))
    yield from (list(rows) for _, rows in groupby(order, key=lambda row: len(prompts[row])))


def _options(names: list[str], config: Config, sampling: SamplingOptions) -> dict[str, Any]:
    """How to draw, in CTranslate2's terms."""
    bounds, greedy = sampling.bounds, sampling.greedy
    return {
        "max_length": bounds.longest,
        "min_length": bounds.shortest,
        "sampling_topk": 1 if greedy else min(sampling.top_k or 0, len(names)),  # it fails where asked for more
        "sampling_topp": max(sampling.top_p or 1.0, LEAST_SHARE),
        "sampling_temperature": 1.0 if greedy else sampling.temperature,
        "repetition_penalty": sampling.repetition_penalty,
        "no_repeat_ngram_size": sampling.no_repeat or 0,
        "suppress_sequences": [[names[number] for number in ids] for ids in bounds.forbidden] or None,
        "end_token": [names[config.tokens.end]],
        "include_prompt_in_result": False,
        "return_scores": True,
        "asynchronous": True,
    }


def _keeper(
    rows: list[int], drawn: "SimpleQueue[tuple[SampledToken, bool]]", closed: set[int]
) -> Callable[[Any], bool]:
    """What CTranslate2's threads call for each token; it says whether the row is to stop."""

    def keep(step: Any) -> bool:
        row = rows[step.batch_id]
        stop = row in closed
        drawn.put((SampledToken(row, step.token_id, step.log_prob or 0.0), step.is_last or stop))
        return stop

    return keep
