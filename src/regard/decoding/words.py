"""Words that must not be written, however a tokenizer would cut them.

A word stands in a text where a boundary is before it and after it: the text's own start or end, or a character that is
no letter or digit. So a token is ruled out if it would complete the word and bring the boundary after it; and where the
word stands complete at the end of the text, all that could follow as a boundary are ruled out, and so is the end.

R rows · n tokens written · V vocabulary
"""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

TAIL = 24  # tokens at the end of a text that are looked at


class NoWords:
    """A rule: none of these words comes in the text. `spelling` is the text of each token, spaces included."""

    def __init__(self, words: Sequence[str], spelling: Sequence[str], end: int) -> None:
        self._spelling = spelling
        self._plans = [_Plan(word, spelling, end) for word in words if word]

    def __call__(self, logits: Tensor, written: Tensor, sentences: Tensor) -> None:
        """Rule out what would complete a word."""
        for row, ids in enumerate(written[:, -TAIL:].tolist()):
            text = "".join(self._spelling[number] for number in ids)
            for plan in self._plans:
                for tokens in plan.ruled_out(text, whole=written.size(1) <= TAIL):
                    logits[row, tokens.to(logits.device)] = -math.inf


class _Plan:
    """Which tokens complete one word, by how much of it stands at the end of the text already."""

    def __init__(self, word: str, spelling: Sequence[str], end: int) -> None:
        self._word = word
        self._inside = _ids(n for n, text in enumerate(spelling) if _stands_in(word, text))
        self._completing = []
        for size in range(len(word) + 1):
            rest = word[size:]
            found = [n for n, text in enumerate(spelling) if text.startswith(rest) and _ends(word, text, len(rest))]
            self._completing.append(_ids([*found, end] if not rest else found))

    def ruled_out(self, text: str, *, whole: bool) -> list[Tensor]:
        """The tokens that may not follow a text, or the end of one if it is not whole."""
        found = [self._inside]
        for size, tokens in enumerate(self._completing):
            before = len(text) - size
            if before >= 0 and text.endswith(self._word[:size]):
                at_start = before == 0 and whole
                if at_start or (before > 0 and _starts(self._word, text, before)):
                    found.append(tokens)
        return [tokens for tokens in found if len(tokens)]


def _ids(numbers: Iterable[int]) -> Tensor:
    return torch.tensor(list(numbers), dtype=torch.long)


def _starts(word: str, text: str, place: int) -> bool:
    """Whether a word can start at a place of a text that is not its first; one that is no letter starts anywhere."""
    return not (word[0].isalnum() and text[place - 1].isalnum())


def _ends(word: str, text: str, place: int) -> bool:
    """Whether a word ends for certain at a place of a token; one whose last is no letter ends where it ends."""
    if not word[-1].isalnum():
        return place > 0
    return place < len(text) and not text[place].isalnum()


def _stands_in(word: str, text: str) -> bool:
    """Whether a token holds a whole word after its first character, whatever comes before or after the token."""
    place = text.find(word, 1)
    while place > 0:
        if _starts(word, text, place) and _ends(word, text, place + len(word)):
            return True
        place = text.find(word, place + 1)
    return False
