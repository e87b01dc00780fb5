"""The CTranslate2 engine: int8 or float32 inference, on CPUs with one single-threaded worker per thread. Torch-free.

Hypotheses are ranked by the score of `SearchOptions`: CTranslate2's own normalization by length^α is undone.
CTranslate2 cannot compare open hypotheses with finished ones, so that a search without a patience ends when
DEFAULT_PATIENCE · beam hypotheses are finished.
"""

import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from math import isnan, nan
from operator import itemgetter
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from regard.config import Config
from regard.decoding.engines import SearchRequest, limited_lengths
from regard.decoding.engines.conversion import LoadedCTranslate2, load_ctranslate2, usable_precision, worker_count
from regard.decoding.generator import GenerationSession, StartSession
from regard.decoding.options import SamplingOptions, SearchOptions
from regard.decoding.results import Hypothesis, SampledToken
from regard.registry import Precision

DEFAULT_PATIENCE = 1.75
MAX_BATCH_SENTENCES = 32
MAX_BATCH_HYPOTHESES = 64
MIN_TOP_P = 1e-6  # less rounds to zero in CTranslate2's floats, which it rejects
RELEASE_SECONDS = 1.0  # most time that workers take to delete a callback
POLL_SECONDS = 0.5  # time without a token after which errors of the workers are checked

T = TypeVar("T")
TokenCallback = Callable[[Any], bool]
_score_of = itemgetter(0)


class CTranslate2Engine:
    """Searches with CTranslate2."""

    name = "ctranslate2"

    def __init__(
        self,
        folder: Path,
        config: Config,
        precision: Precision = "int8",
        threads: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.config = config
        self.device = device
        self.threads = worker_count(threads, device)
        self._folder = folder
        self._precision = precision
        self._extra_tokens, self._positions = config.decoding.extra_tokens, config.model.max_length
        self._arguments: tuple[SearchOptions, tuple[bool, bool], dict[str, Any]] | None = None

    @cached_property
    def _model(self) -> LoadedCTranslate2:
        return load_ctranslate2("Translator", self._folder, self._precision, self.threads, self.device)

    @property
    def _scored_tokens(self) -> int | None:
        """Most tokens of a hypothesis that can be scored: the start token has a position too."""
        return None if self._positions is None else self._positions - 1

    @cached_property
    def _target_ids(self) -> dict[str, int]:
        return {token: token_id for token_id, token in enumerate(self._model.target_tokens)}

    @cached_property
    def _end(self) -> str:
        return self._model.target_tokens[self.config.tokens.end]

    def search(self, request: SearchRequest) -> list[list[Hypothesis]]:
        """Search in batches of sentences of similar length, all of them at the same time."""
        results = self._convert(request, self._hypotheses)
        return self._with_token_scores(request, results) if request.token_scores else results

    def best_ids(self, request: SearchRequest) -> list[list[int]]:
        """Return the ids of the best hypothesis of each sentence, without objects for the others."""
        return self._convert(request, self._best_ids)

    def _convert(self, request: SearchRequest, convert: Callable[[Any, SearchOptions, int], T | None]) -> list[T]:
        """Search, and convert the result of each sentence; None asks for a search with the sentence's own limit."""
        search, limits = request.search, limited_lengths(request, self._extra_tokens, self._positions)
        if len(limits) == 1:
            (result,) = self._start(request, [0], limits, asynchronous=False)
            converted = convert(result, search, limits[0])
            return [] if converted is None else [converted]
        results: dict[int, T] = {}
        # CTranslate2 4.8 mixes up the attention of the first tokens of beams in a batch: use batches of one
        batch_size = min(MAX_BATCH_SENTENCES, max(1, MAX_BATCH_HYPOTHESES // search.beam))
        max_size = 1 if request.attention and search.beam > 1 else batch_size
        groups = list(_group_by_length(request.sources, max_size, self.threads))
        while groups:
            started = [(group, self._start(request, group, limits)) for group in groups]
            for group, futures in started:
                for n, future in zip(group, futures, strict=True):
                    converted = convert(future.result(), search, limits[n])
                    if converted is not None:
                        results[n] = converted
            groups = [[n] for group in groups if len(group) > 1 for n in group if n not in results]
        return [results[n] for n in range(len(limits))]

    def _start(
        self, request: SearchRequest, group: Sequence[int], limits: Sequence[int], *, asynchronous: bool = True
    ) -> list[Any]:
        max_tokens, prefixes = max([limits[n] for n in group]), None
        token_of = self._model.source_tokens.__getitem__
        if request.prefixes is not None:
            prefixes = _token_sequences([request.prefixes[n] for n in group], self._model.target_tokens)
        started: list[Any] = self._model.runner.translate_batch(
            [list(map(token_of, request.sources[n])) for n in group],
            target_prefix=prefixes,
            max_decoding_length=max_tokens,
            min_decoding_length=min(request.search.constraints.min_tokens, max_tokens),
            asynchronous=asynchronous,
            **self._search_arguments(request),
        )
        return started

    def _search_arguments(self, request: SearchRequest) -> dict[str, Any]:
        """Return the arguments of `translate_batch` that all batches share; those of the last call are kept."""
        search, flags = request.search, (request.token_scores, request.attention)
        if self._arguments is not None and self._arguments[0] is search and self._arguments[1] == flags:
            return self._arguments[2]
        beam = search.beam
        patience = max(search.patience or DEFAULT_PATIENCE, 1.001 / beam)  # at least one finished hypothesis
        arguments = {
            "beam_size": beam,
            "patience": patience,
            "num_hypotheses": max(1, round(beam * patience)) if beam > 1 else 1,
            "length_penalty": _length_exponent(search),
            "return_scores": request.token_scores or beam > 1,
            "return_end_token": True,  # so that no hypothesis is empty, and the normalization can be undone
            "return_attention": request.attention,
            "max_input_length": 0,
            "suppress_sequences": _token_sequences(search.constraints.suppressed_sequences, self._model.target_tokens),
        }
        self._arguments = (search, flags, arguments)
        return arguments

    def _hypotheses(self, result: Any, search: SearchOptions, max_tokens: int) -> list[Hypothesis] | None:
        """Rank CTranslate2's hypotheses by our score; unfinished ones are used only if none is finished."""
        tokens, scores = result.hypotheses, result.scores  # each access converts all of them
        attention = result.attention or None
        if search.beam == 1:  # greedy search generates the same tokens whatever the limit
            length = len(tokens[0])
            total = scores[0] * length ** _length_exponent(search) if scores else 0.0
            if length > max_tokens:
                return [
                    self._hypothesis(tokens[0][:max_tokens], nan if scores else 0.0, search, attention and attention[0])
                ]
            return [self._hypothesis(tokens[0], total, search, attention and attention[0])]
        ranked = self._ranked(tokens, scores, search, max_tokens)[: search.n_best + search.extra_hypotheses]
        return [
            self._hypothesis(tokens[rank], total, search, attention and attention[rank]) for _, total, rank in ranked
        ] or None

    def _best_ids(self, result: Any, search: SearchOptions, max_tokens: int) -> list[int] | None:
        """Return the ids of the first of `_hypotheses`."""
        tokens, best = result.hypotheses, 0
        if search.beam > 1:
            ranked = self._ranked(tokens, result.scores, search, max_tokens)
            if not ranked:
                return None
            _, _, best = ranked[0]
        return self._ids(tokens[best][:max_tokens])

    def _ranked(
        self, tokens: list[list[str]], scores: list[float], search: SearchOptions, max_tokens: int
    ) -> list[tuple[float, float, int]]:
        """Return our score, the log-probability and the rank of hypotheses, best first.

        The maximum length of a batch is that of its longest sentence. Hypotheses beyond the sentence's own limit are
        dropped; if none is left, the sentence is searched again with its own limit.
        """
        exponent, end = _length_exponent(search), self._end
        outputs = []
        for rank, (row, score) in enumerate(zip(tokens, scores, strict=True)):
            length = len(row)
            if length <= max_tokens:
                total = score * length**exponent
                outputs.append((search.score(total, length), total, rank))
        outputs = [output for output in outputs if tokens[output[2]][-1] == end] or outputs
        outputs.sort(key=_score_of, reverse=True)
        return outputs

    def _ids(self, tokens: list[str]) -> list[int]:
        """Return the ids of tokens, without the end token."""
        if tokens[-1] == self._end:
            tokens = tokens[:-1]
        return list(map(self._target_ids.__getitem__, tokens))

    def _hypothesis(self, tokens: list[str], total: float, search: SearchOptions, attention: Any) -> Hypothesis:
        return Hypothesis(
            self._ids(tokens),
            search.score(total, len(tokens)),
            total,
            tokens[-1] == self._end,
            attention=attention[: len(tokens)] if attention else None,
        )

    def _with_token_scores(self, request: SearchRequest, results: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """Add the log-probability of each token, by scoring the hypotheses."""
        source_tokens, target_tokens = self._model.source_tokens, self._model.target_tokens
        indices = [(n, k) for n, hypotheses in enumerate(results) for k in range(len(hypotheses))]
        scores = self._model.runner.score_batch(
            [[source_tokens[token] for token in request.sources[n]] for n, _ in indices],
            [[target_tokens[token] for token in results[n][k].ids[: self._scored_tokens]] for n, k in indices],
            max_batch_size=MAX_BATCH_SENTENCES,
            max_input_length=0,
        )
        for (n, k), result in zip(indices, scores, strict=True):
            hypothesis = results[n][k]
            values = list(result.log_probs)[: len(hypothesis.ids) + hypothesis.ended]
            forced = 0 if request.prefixes is None else min(len(request.prefixes[n]), len(values))
            values[:forced] = [0.0] * forced
            if self._scored_tokens is not None and len(hypothesis.ids) > self._scored_tokens:
                values[-1] = hypothesis.log_probability - sum(values[:-1])  # of the last token, instead of the end
            elif (
                request.search.constraints.min_tokens
                and len(values) > forced + 1
                and not isnan(hypothesis.log_probability)
            ):  # the search excluded the end token after the forced ones
                values[forced] = hypothesis.log_probability - sum(values[forced + 1 :])
            total = sum(values)
            score = request.search.score(total, len(values))
            results[n][k] = replace(hypothesis, token_scores=values, log_probability=total, score=score)
        return results


def _length_exponent(search: SearchOptions) -> float:
    """Return the exponent of CTranslate2's length normalization; 0 would make it stop at the first end token.

    It only decides which hypotheses are returned if too many finish at once, so that an approximation of our penalty
    is enough: the logarithm of ((5 + n) / 6)^α grows with that of n as α · n / (5 + n), which is ⅔ α at ten tokens.
    """
    return max(search.length_penalty * 2 / 3, 1e-6)


def _group_by_length(sources: Sequence[Sequence[int]], max_size: int, threads: int) -> Iterator[list[int]]:
    """Yield groups of sentences of similar length, the longest first, so that all threads finish together."""
    order = sorted(range(len(sources)), key=lambda n: -len(sources[n]))
    size = min(max_size, max(1, -(-len(order) // threads)))
    yield from (order[start : start + size] for start in range(0, len(order), size))


def _token_sequences(sequences: Sequence[Sequence[int]], tokens: Sequence[str]) -> list[list[str]] | None:
    return [[tokens[token] for token in sequence] for sequence in sequences] or None


def ctranslate2_sessions(
    folder: Path, config: Config, precision: Precision, threads: int | None = None, device: str = "cpu"
) -> StartSession:
    """Load the language model in a folder, and return the function that starts generation sessions with it."""
    # one thread per text: in small networks, threads that wait for each other make generation four times slower
    precision = usable_precision(folder, config, precision)
    model = load_ctranslate2("Generator", folder, precision, threads, device)

    def start(prompts: list[list[int]], streams: list[int], sampling: SamplingOptions) -> GenerationSession:
        return CTranslate2Session(model.runner, model.target_tokens, prompts, config, sampling)

    return start


class CTranslate2Session:
    """Continues prompts on CTranslate2's worker threads, which put each token into a queue."""

    def __init__(
        self,
        generator: Any,
        tokens: list[str],
        prompts: Sequence[Sequence[int]],
        config: Config,
        sampling: SamplingOptions,
    ) -> None:
        self.active = list(range(len(prompts)))
        self.truncated: set[int] = set()
        self.cached_tokens = 0
        self._closed: set[int] = set()
        self._queue: SimpleQueue[tuple[SampledToken, bool]] = SimpleQueue()
        self._generator: Any = generator
        self._futures: list[Any] = []
        self._callbacks: list[weakref.ref[TokenCallback]] = []
        for rows in _rows_of_equal_length(prompts):  # for unequal prompts it returns parts of the longer ones as output
            callback = _queue_tokens(rows, self._queue, self._closed)
            self._callbacks.append(weakref.ref(callback))
            self._futures += generator.generate_batch(
                [[tokens[token] for token in prompts[row]] for row in rows],
                callback=callback,
                **_generation_arguments(tokens, config, sampling),
            )

    def step(self) -> list[SampledToken]:
        """Return the next token, of any row."""
        sampled, is_last = self._next()
        if sampled.row in self._closed:
            return []
        if is_last:
            self.active.remove(sampled.row)
        self._release()
        return [sampled]

    def _next(self) -> tuple[SampledToken, bool]:
        while True:
            try:
                return self._queue.get(timeout=POLL_SECONDS)
            except Empty:
                for future in self._futures:
                    if future.done():
                        future.result()  # raises the error of the worker

    def close(self, rows: Iterable[int]) -> None:
        """Stop these rows."""
        self._closed.update(rows)
        self.active = [row for row in self.active if row not in self._closed]
        self._release()

    def _release(self) -> None:
        """Wait for the workers when no row is active: the generator must not be deleted by one of its threads.

        A worker deletes the callback after it has set the result. It needs the interpreter for that, and if this ends
        before, the process is aborted.
        """
        if not self.active and self._generator is not None:
            for future in self._futures:
                future.result()
            self._generator = None
            deadline = time.monotonic() + RELEASE_SECONDS
            while any(callback() is not None for callback in self._callbacks) and time.monotonic() < deadline:
                time.sleep(1e-4)


def _rows_of_equal_length(prompts: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield the rows whose prompts have the same length."""
    order = sorted(range(len(prompts)), key=lambda row: len(prompts[row]))
    yield from (list(rows) for _, rows in groupby(order, key=lambda row: len(prompts[row])))


def _generation_arguments(tokens: list[str], config: Config, sampling: SamplingOptions) -> dict[str, Any]:
    """Return the arguments of `generate_batch`."""
    constraints, greedy = sampling.constraints, sampling.greedy
    return {
        "max_length": constraints.max_tokens,
        "min_length": constraints.min_tokens,
        "sampling_topk": 1 if greedy else min(sampling.top_k or 0, len(tokens)),  # more than the vocabulary fails
        "sampling_topp": max(sampling.top_p or 1.0, MIN_TOP_P),
        "sampling_temperature": 1.0 if greedy else sampling.temperature,
        "repetition_penalty": sampling.repetition_penalty,
        "no_repeat_ngram_size": sampling.no_repeat_ngram or 0,
        "suppress_sequences": _token_sequences(constraints.suppressed_sequences, tokens),
        "end_token": [tokens[end] for end in config.tokens.ends],
        "include_prompt_in_result": False,
        "return_scores": True,
        "asynchronous": True,
    }


def _queue_tokens(rows: list[int], queue: "SimpleQueue[tuple[SampledToken, bool]]", closed: set[int]) -> TokenCallback:
    """Return the callback that CTranslate2's threads call with each token; it returns whether to stop the row."""

    def callback(step: Any) -> bool:
        row = rows[step.batch_id]
        stop = row in closed
        queue.put((SampledToken(row, step.token_id, step.log_prob or 0.0), step.is_last or stop))
        return stop

    return callback
