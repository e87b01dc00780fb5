"""A completion that a client of OpenAI's protocol asks for: what is read and written for it, and how it is told."""

import secrets
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from regard.data.tokenizer import Tokenizer
from regard.decoding.generator import DETOKENIZER_CONTEXT, REPLACEMENT_CHARACTER, IncrementalDetokenizer, prompt_ids
from regard.decoding.options import MIN_REPETITION_PENALTY, GenerationOptions, OutputConstraints, SamplingOptions
from regard.decoding.results import Generation, ScoredToken, TextChunk
from regard.serving.asked import check_limits
from regard.serving.errors import ApiError
from regard.serving.limits import Limits
from regard.serving.loaded_models import LoadedModel

MOST = 5  # candidates that may be asked for, as at OpenAI
LEAST = -9999.0  # stands for −∞, which JSON lacks
DIGITS = 6


class Logprobs:
    """The tokens of one text in their order, given out as far as the text has come."""

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = (), offset: int = 0) -> None:
        self._tokenizer = tokenizer
        self._before = deque(before, DETOKENIZER_CONTEXT)
        self._spelling = IncrementalDetokenizer(tokenizer, before, ())
        self._offset = offset
        self._waiting: deque[tuple[int, str, ScoredToken, dict[str, float] | None]] = deque()
        self._added = 0

    def add(self, scored: Sequence[ScoredToken]) -> None:
        """Take in those of a text's tokens that are new."""
        for one in scored[self._added :]:
            name = self._name(one.token)
            self._waiting.append((self._offset, name, one, self._candidates(name, one)))
            self._offset += len(self._spelling.add(one.token))
            self._before.append(one.token)
            self._added += 1

    def until(self, end: int | None = None) -> dict[str, list[Any]]:
        """Those that begin before this place in the text; without one, all that are left."""
        found: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        while self._waiting and (end is None or self._waiting[0][0] < end):
            offset, name, one, candidates = self._waiting.popleft()
            for key, value in zip(found, (name, _finite(one.log_probability), candidates, offset), strict=True):
                found[key].append(value)
        return found

    def _candidates(self, name: str, one: ScoredToken) -> dict[str, float] | None:
        """The most probable by their text, and the token that stands there, wherever it ranks."""
        if one.log_probability is None:
            return None
        named: dict[str, Any] = {}
        for token, log_probability in one.candidates:
            named.setdefault(self._name(token), _finite(log_probability))
        return {name: _finite(one.log_probability)} | named

    def _name(self, token: int) -> str:
        """A token as text after what came before; a part of a character, as the vocabulary spells it."""
        before, now = (self._tokenizer.decode(ids) for ids in (list(self._before), [*self._before, token]))
        text = now[len(before) :]
        whole = bool(text) and now.startswith(before) and REPLACEMENT_CHARACTER not in text
        return text if whole else self._tokenizer.ids_to_tokens([token])[0]


def joined(parts: Iterable[dict[str, list[Any]]]) -> dict[str, list[Any]]:
    """Several stretches of a text as one."""
    first, *rest = parts
    return {key: sum((part[key] for part in rest), first[key]) for key in first}


def _finite(value: float | None) -> float | None:
    return None if value is None else round(max(value, LEAST), DIGITS)


LENGTH = 16  # tokens where a request does not say, as at OpenAI
UNSUPPORTED = ("suffix", "logit_bias", "presence_penalty", "frequency_penalty")
SEEDS = 2**63


class Asked(BaseModel):
    """What is asked, as OpenAI names it, with `top_k`, `min_p` and `repetition_penalty` besides."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False, use_attribute_docstrings=True)

    model: str
    prompt: str | list[str] = ""
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    """Without it, 16; with 0, nothing is written."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    best_of: Annotated[int, Field(ge=1)] | None = None
    """So many are written for each prompt, and the `n` most probable of them told."""
    stop: str | Annotated[list[str], Field(max_length=16)] | None = None
    seed: Annotated[int, Field(ge=-SEEDS, lt=SEEDS)] | None = None
    logprobs: Annotated[int, Field(ge=0, le=MOST, strict=True)] | None = None
    """How many of the most probable tokens are told for each place, with their log-probabilities."""
    echo: bool | None = None
    """Whether the prompt is told too."""
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    """With `include_usage`, the last event but one counts tokens."""
    top_k: Annotated[int, Field(ge=1, le=10**6)] | None = None
    min_p: Annotated[float, Field(gt=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(ge=MIN_REPETITION_PENALTY, le=100)] | None = None
    suffix: Any = None
    logit_bias: Any = None
    presence_penalty: Any = None
    frequency_penalty: Any = None


class Completion:
    """A request that is carried out."""

    def __init__(self, asked: Asked, model: LoadedModel, limits: Limits) -> None:
        self.asked = asked
        self.prompts = asked.prompt if isinstance(asked.prompt, list) else [asked.prompt]
        self.samples = asked.best_of or asked.n or 1
        self.found: list[Generation] = []
        self._read: list[list[ScoredToken]] = []  # the tokens of each prompt, where they are told
        self._model = model
        self._id, self._created = f"cmpl-{secrets.token_hex(12)}", int(time.time())
        self._check(limits)
        self._length = LENGTH if asked.max_tokens is None else asked.max_tokens
        sampling = SamplingOptions(
            1.0 if asked.temperature is None else asked.temperature,
            asked.top_k,
            asked.top_p,
            asked.min_p,
            1.0 if asked.repetition_penalty is None else asked.repetition_penalty,
            seed=secrets.randbelow(2**31) if asked.seed is None else asked.seed % 2**31,
            bounds=OutputConstraints(longest=max(1, self._length)),
            candidates=asked.logprobs,
        )
        stop = [asked.stop] if isinstance(asked.stop, str) else asked.stop or []
        self._wish = GenerationOptions(sampling, self.samples, tuple(text for text in stop if text))

    def _check(self, limits: Limits) -> None:
        asked, n = self.asked, self.asked.n or 1
        for name in UNSUPPORTED:
            if getattr(asked, name):
                raise ApiError(400, f"{name} is not supported here; leave it out.")
        if self.samples < n:
            raise ApiError(400, f"best_of: of {self.samples}, no {n} can be told; raise it, or lower n.")
        if self.samples > n and asked.stream:
            raise ApiError(400, "best_of: which are the best is known only at the end; leave out best_of, or stream.")
        check_limits(
            (f"prompts times {'best_of' if self.samples > n else 'n'}", len(self.prompts) * self.samples, limits.texts),
            ("characters of the prompt", sum(map(len, self.prompts)), limits.characters),
            ("max_tokens", asked.max_tokens or 0, limits.tokens),
        )

    def write(self) -> Iterator[TextChunk]:
        """In a thread: read and write what is asked for."""
        if self.asked.echo and self.asked.logprobs is not None:
            self._read = self._model.score_prompts(self.prompts, self.asked.logprobs)
        if self._length:
            seeded = self.asked.seed is not None
            yield from self._model.write(self.prompts, self._wish, self.found, seeded)
        else:
            self.found += [Generation(prompt, n) for prompt in self.prompts for n in range(self.samples)]

    def head(self) -> dict[str, Any]:
        """What every part of the answer begins with."""
        return {"id": self._id, "object": "text_completion", "created": self._created, "model": self._model.name}

    def events(self) -> "list[Telling]":
        """Every text, to be told as it is written; once something is."""
        return [Telling(self, row) for row in range(len(self.found))]

    def whole(self) -> dict[str, Any]:
        """The answer at once."""
        choices: list[dict[str, Any]] = []
        for row in self._best():
            telling, found = Telling(self, row), self.found[row]
            told = [telling.prompt()] if self.asked.echo else []
            told += [telling.more(found.text), telling.end()]
            choices.append(_as_one(told, len(choices)))
        return {**self.head(), "choices": choices, "usage": self.usage()}

    def usage(self) -> dict[str, int]:
        """Tokens that were read and written."""
        read = sum(len(ids) for ids in self._model.model.tokenizer.encode_batch(self.prompts))
        wrote = sum(len(found.tokens) for found in self.found)
        return {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}

    def _best(self) -> Iterator[int]:
        """The rows that are told: of each prompt's samples the most probable, by the mean over their tokens."""
        n = self.asked.n or 1
        for first in range(0, len(self.found), self.samples):
            rows = list(range(first, first + self.samples))
            yield from rows if self.samples == n else sorted(rows, key=lambda row: -_mean(self.found[row]))[:n]

    def prompt_scores(self, row: int) -> Logprobs:
        """What is known of the tokens of a row's prompt."""
        scores = Logprobs(self._model.model.tokenizer)
        scores.add(self._read[row // self.samples])
        return scores

    def scores(self, row: int, offset: int) -> Logprobs:
        """What becomes known of a row's own tokens, the first of which stands at this place."""
        config, tokenizer = self._model.model.config, self._model.model.tokenizer
        return Logprobs(tokenizer, prompt_ids(self.found[row].prompt, config, tokenizer), offset)


class Telling:
    """One text of a completion, told piece by piece."""

    def __init__(self, work: Completion, row: int) -> None:
        self._work = work
        self._row = row
        self._found = work.found[row]
        self._end = len(self._found.prompt) if work.asked.echo else 0  # of what was told
        self._scores = work.scores(row, self._end) if work.asked.logprobs is not None else None

    def prompt(self) -> dict[str, Any]:
        """What it goes on from."""
        told = None if self._scores is None else self._work.prompt_scores(self._row).until()
        return self._choice(self._found.prompt, told)

    def more(self, text: str) -> dict[str, Any]:
        """Some more of it."""
        self._end += len(text)
        return self._choice(text, self._told(self._end))

    def end(self) -> dict[str, Any]:
        """How it ended. Of a text that was stopped, what comes behind its end is not told."""
        stopped = self._found.ended and bool(self._work.asked.stop)
        return self._choice("", self._told(self._end if stopped else None), "stop" if self._found.ended else "length")

    def _told(self, end: int | None) -> dict[str, list[Any]] | None:
        if self._scores is None:
            return None
        self._scores.add(self._found.scored)
        return self._scores.until(end)

    def _choice(self, text: str, logprobs: dict[str, list[Any]] | None, reason: str | None = None) -> dict[str, Any]:
        return {"text": text, "index": self._row, "logprobs": logprobs, "finish_reason": reason}


def _as_one(told: list[dict[str, Any]], index: int) -> dict[str, Any]:
    """The pieces of a text in one."""
    logprobs = [piece["logprobs"] for piece in told]
    return {
        "text": "".join(piece["text"] for piece in told),
        "index": index,
        "logprobs": None if logprobs[0] is None else joined(logprobs),
        "finish_reason": told[-1]["finish_reason"],
    }


def _mean(found: Generation) -> float:
    """The log-probability of a token, its end included, on average."""
    return found.log_probability / max(1, len(found.tokens) + found.ended)
