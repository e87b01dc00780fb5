"""Rules that logits must follow before a token is chosen: what is never written, not yet, or not again.

Each changes the logits (R, V) in place, given what every row has written so far (R, n), and which sentence it belongs
to (R,). What is ruled out gets −∞, so that the rest shares its probability.

R rows · n tokens written · V vocabulary
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from regard.config import SpecialTokensConfig
from regard.decoding.options import OutputConstraints


class LogitsProcessor(Protocol):
    """One rule."""

    def __call__(self, logits: Tensor, written: Tensor, sentences: Tensor) -> None:
        """Change the logits."""
        ...


@dataclass(frozen=True)
class SuppressTokens:
    """These tokens are not text."""

    ids: tuple[int, ...]

    def __call__(self, logits: Tensor, written: Tensor, sentences: Tensor) -> None:
        logits[:, list(self.ids)] = -math.inf


@dataclass(frozen=True)
class MinLength:
    """The end comes after so many tokens at the earliest."""

    end: int
    shortest: int

    def __call__(self, logits: Tensor, written: Tensor, sentences: Tensor) -> None:
        if written.size(1) < self.shortest:
            logits[:, self.end] = -math.inf


@dataclass(frozen=True)
class SuppressSequences:
    """None of these sequences is ever written: once all of one but its last token stands there, that one may not."""

    sequences: tuple[tuple[int, ...], ...]

    def __call__(self, logits: Tensor, written: Tensor, sentences: Tensor) -> None:
        for *first, last in self.sequences:
            if len(first) > written.size(1):
                continue
            tail = written[:, written.size(1) - len(first) :]
            logits[(tail == tail.new_tensor(first)).all(1), last] = -math.inf


@dataclass(frozen=True)
class NoRepeatNgram:
    """No sequence of so many tokens comes twice."""

    size: int

    def __call__(self, logits: Tensor, written: Tensor, sentences: Tensor) -> None:
        if written.size(1) < self.size:
            return
        windows = written.unfold(1, self.size, 1)  # (R, n - size + 1, size)
        tail = written[:, written.size(1) - self.size + 1 :]
        again = (windows[:, :, :-1] == tail[:, None]).all(-1)  # where what stands at the end has stood before
        rows, places = again.nonzero(as_tuple=True)
        logits[rows, windows[rows, places, -1]] = -math.inf


@dataclass(frozen=True)
class RepetitionPenalty:
    """What was written already gets a logit divided by the penalty, or multiplied where it is negative."""

    penalty: float

    def __call__(self, logits: Tensor, written: Tensor, sentences: Tensor) -> None:
        if written.size(1) == 0:
            return
        seen = logits.gather(1, written)
        logits.scatter_(1, written, torch.where(seen > 0, seen / self.penalty, seen * self.penalty))


class ForcedPrefix:
    """Each sentence begins as it must. What is forced has probability one, and costs nothing."""

    def __init__(self, prefixes: Sequence[Sequence[int]]) -> None:
        self.longest = max(map(len, prefixes), default=0)
        self._table = torch.tensor([[*prefix, *[-1] * (self.longest - len(prefix))] for prefix in prefixes])

    def __call__(self, logits: Tensor, written: Tensor, sentences: Tensor) -> None:
        if written.size(1) >= self.longest:
            return
        wanted = self._table[:, written.size(1)].to(logits.device)[sentences]
        rows = (wanted >= 0).nonzero().squeeze(1)
        logits[rows] = -math.inf
        logits[rows, wanted[rows]] = 0.0


def suppress_special_tokens(tokens: SpecialTokensConfig) -> SuppressTokens:
    """Pads and starts are never written; a network may have one token for these and the end, though."""
    return SuppressTokens(tuple({tokens.pad, tokens.start} - {tokens.end}))


def constraint_processors(bounds: OutputConstraints, tokens: SpecialTokensConfig) -> list[LogitsProcessor]:
    """The rules of every decoding: no pads or starts, and what the bounds ask for."""
    rules: list[LogitsProcessor] = [suppress_special_tokens(tokens)]
    if bounds.shortest:
        rules.append(MinLength(tokens.end, bounds.shortest))
    if bounds.forbidden:
        rules.append(SuppressSequences(bounds.forbidden))
    return rules


def apply_processors(rules: Sequence[LogitsProcessor], logits: Tensor, written: Tensor, sentences: Tensor) -> Tensor:
    """The logits after every rule."""
    for rule in rules:
        rule(logits, written, sentences)
    return logits


WORD_WINDOW = 24  # tokens at the end of a text that are looked at


class SuppressWords:
    """A rule: none of these words comes in the text. `spelling` is the text of each token, spaces included."""

    def __init__(self, words: Sequence[str], spelling: Sequence[str], end: int) -> None:
        self._spelling = spelling
        self._plans = [_WordTable(word, spelling, end) for word in words if word]

    def __call__(self, logits: Tensor, written: Tensor, sentences: Tensor) -> None:
        """Rule out what would complete a word."""
        for row, ids in enumerate(written[:, -WORD_WINDOW:].tolist()):
            text = "".join(self._spelling[number] for number in ids)
            for plan in self._plans:
                for tokens in plan.ruled_out(text, whole=written.size(1) <= WORD_WINDOW):
                    logits[row, tokens.to(logits.device)] = -math.inf


class _WordTable:
    """Which tokens complete one word, by how much of it stands at the end of the text already."""

    def __init__(self, word: str, spelling: Sequence[str], end: int) -> None:
        self._word = word
        self._inside = _ids(n for n, text in enumerate(spelling) if _contains_word(word, text))
        self._completing = []
        for size in range(len(word) + 1):
            rest = word[size:]
            found = [
                n for n, text in enumerate(spelling) if text.startswith(rest) and _surely_ends(word, text, len(rest))
            ]
            self._completing.append(_ids([*found, end] if not rest else found))

    def ruled_out(self, text: str, *, whole: bool) -> list[Tensor]:
        """The tokens that may not follow a text, or the end of one if it is not whole."""
        found = [self._inside]
        for size, tokens in enumerate(self._completing):
            before = len(text) - size
            if before >= 0 and text.endswith(self._word[:size]):
                at_start = before == 0 and whole
                if at_start or (before > 0 and _can_start(self._word, text, before)):
                    found.append(tokens)
        return [tokens for tokens in found if len(tokens)]


def _ids(numbers: Iterable[int]) -> Tensor:
    return torch.tensor(list(numbers), dtype=torch.long)


def _can_start(word: str, text: str, place: int) -> bool:
    """Whether a word can start at a place of a text that is not its first; one that is no letter starts anywhere."""
    return not (word[0].isalnum() and text[place - 1].isalnum())


def _surely_ends(word: str, text: str, place: int) -> bool:
    """Whether a word ends for certain at a place of a token; one whose last is no letter ends where it ends."""
    if not word[-1].isalnum():
        return place > 0
    return place < len(text) and not text[place].isalnum()


def _contains_word(word: str, text: str) -> bool:
    """Whether a token holds a whole word after its first character, whatever comes before or after the token."""
    place = text.find(word, 1)
    while place > 0:
        if _can_start(word, text, place) and _surely_ends(word, text, place + len(word)):
            return True
        place = text.find(word, place + 1)
    return False
