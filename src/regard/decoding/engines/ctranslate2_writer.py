"""Going on with texts by CTranslate2: its generator draws on its own threads, and hands over each token as it comes."""

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from regard.config import Config
from regard.decoding.engines.ctranslate2 import Precision, loaded
from regard.decoding.generator import GenerationSession, SampledToken, StartSession
from regard.decoding.settings import SamplingOptions

LEAST_SHARE = 1e-6  # of probability; less than that, in its short floats, is none, which it refuses
WAIT = 0.5  # seconds without a token after which to see whether something failed


def begin(folder: Path, config: Config, precision: Precision) -> StartSession:
    """What begins to write with the model in a folder, which is loaded once."""
    import ctranslate2

    ctranslate2.set_random_seed(secrets.randbelow(2**31))  # read once by each thread that draws
    # one thread for a text: in small networks, threads that wait for each other make it four times slower
    ready = loaded("Generator", folder, precision)

    def start(prompts: list[list[int]], streams: list[int], sampling: SamplingOptions) -> GenerationSession:
        return CTranslate2Writer(ready.runner, ready.target, prompts, config, sampling)

    return start


class CTranslate2Writer:
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
