"""Text for terminals and reports: names and values of scores, durations, and user text made safe to print."""

import math
import unicodedata
from collections.abc import Mapping

SCORE_NAMES = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "ter": "TER",
    "bits_per_byte": "bits per byte",
    "exact": "exact match",
    "macro_f1": "macro-F1",
    "span_f1": "span F1",
}
COUNT_SCORES = ("sentences", "tokens", "bytes", "truncated")

# Characters that change the writing direction; without an end they would affect the rest of the screen.
_DIRECTIONS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def score_name(key: str) -> str:
    """The name of a score.

    >>> score_name("chrf"), score_name("bits_per_byte"), score_name("loss")
    ('chrF', 'bits per byte', 'loss')
    """
    return SCORE_NAMES.get(key, key.replace("_", " "))


def score_text(key: str, value: float) -> str:
    """A score with the usual number of digits: BLEU and chrF one, a loss three.

    >>> score_text("bleu", 40.123), score_text("loss", 1.2), score_text("perplexity", 22.197), score_text("exact", 0.61)
    ('40.1', '1.200', '22.20', '61%')
    """
    if not math.isfinite(value):
        return str(value)
    if key in ("bleu", "chrf", "ter"):
        return f"{value:.1f}"
    if key == "exact":
        return f"{value:.0%}"
    if key in ("accuracy", "macro_f1", "span_f1"):
        return f"{value:.1%}"
    if key in COUNT_SCORES:
        return f"{value:,.0f}"
    if key.endswith("perplexity"):
        return f"{value:,.2f}" if value < 1000 else f"{value:,.0f}"
    return f"{value:,.3f}"


def scores_line(scores: Mapping[str, float]) -> str:
    """Scores on one line.

    >>> scores_line({"loss": 3.1, "bleu": 12.1})
    'loss 3.100  BLEU 12.1'
    """
    return "  ".join(f"{score_name(key)} {score_text(key, value)}" for key, value in scores.items())


def duration(seconds: float) -> str:
    """A duration in its two largest units.

    >>> [duration(seconds) for seconds in (0.4, 42, 720, 12_060, 180_000)]
    ['0 s', '42 s', '12 min', '3 h 21 min', '2 d 2 h']
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(round(seconds / 3600), 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def printable(text: str, max_length: int = 300) -> str:
    """Text on one line without control characters and invalid Unicode, truncated to `max_length`.

    >>> printable("a\\x1b[31mred\\nline")
    'a␛[31mred line'
    >>> printable("abcdef", max_length=4)
    'abc…'
    """
    if len(text) > max_length:
        text = text[: max_length - 1] + "…"
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    if character in "\t\n\r\x85\u2028\u2029":
        return " "
    if character < " ":
        return chr(0x2400 + ord(character))  # symbols of control characters: ␛ for escape
    if character in _DIRECTIONS or unicodedata.category(character) in ("Cc", "Cs"):
        return "\N{REPLACEMENT CHARACTER}"
    return character
