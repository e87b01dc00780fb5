"""A translation as plain values: what `regard translate --json` prints and the server answers."""

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

from regard.decoding.translator import Alternative, Translation

DIGITS = 4


def described(translation: Translation) -> dict[str, Any]:
    """Everything that is known about a translation."""
    return {
        "source": translation.source,
        "translation": translation.text,
        "sentences": [
            {
                "source": sentence.source,
                "tokens": sentence.tokens,
                "alternatives": [_alternative(one) for one in sentence.alternatives],
            }
            for sentence in translation.sentences
        ],
    }


def _alternative(one: Alternative) -> dict[str, Any]:
    return {
        "text": one.text,
        "tokens": one.tokens,
        "score": _rounded(one.score),
        "log_probability": _rounded(one.log_probability),
        "token_scores": _all_rounded(one.token_scores or []),
        "ended": one.ended,
        "alignment": [_most(row) for row in (one.attention or [])[: len(one.tokens)]],
        "attention": [_all_rounded(row) for row in one.attention or []],
    }


def _rounded(number: float) -> float | None:
    """JSON has no NaN: what is not known is null."""
    return round(number, DIGITS) if isfinite(number) else None


def _all_rounded(numbers: Iterable[float]) -> list[float | None]:
    return [_rounded(number) for number in numbers]


def _most(row: Sequence[float]) -> int:
    """Which token of the source was looked at most."""
    return max(range(len(row)), key=row.__getitem__)
