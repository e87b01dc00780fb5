"""Log-probabilities as OpenAI's completions tell them: tokens as text, where each begins, what else was probable."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from regard.data.tokenizer import Tokenizer
from regard.decoding.generator import BROKEN, CONTEXT, ScoredToken, Spelling

MOST = 5  # candidates that may be asked for, as at OpenAI
LEAST = -9999.0  # stands for −∞, which JSON lacks
DIGITS = 6


class Logprobs:
    """The tokens of one text in their order, given out as far as the text has come."""

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = (), offset: int = 0) -> None:
        self._tokenizer = tokenizer
        self._before = deque(before, CONTEXT)
        self._spelling = Spelling(tokenizer, before, ())
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
        whole = bool(text) and now.startswith(before) and BROKEN not in text
        return text if whole else self._tokenizer.pieces([token])[0]


def joined(parts: Iterable[dict[str, list[Any]]]) -> dict[str, list[Any]]:
    """Several stretches of a text as one."""
    first, *rest = parts
    return {key: sum((part[key] for part in rest), first[key]) for key in first}


def _finite(value: float | None) -> float | None:
    return None if value is None else round(max(value, LEAST), DIGITS)
