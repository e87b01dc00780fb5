"""Scores by the length of the source: long sentences are where translators differ."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from regard.evaluation.scores import References, score

BOUNDS = ((1, 5), (6, 10), (11, 20), (21, 30), (31, 50), (51, None))  # words of the source, as spaces separate them


@dataclass(frozen=True)
class Bucket:
    """The sentences whose sources have from `shortest` to `longest` words, and how well they were translated."""

    shortest: int
    longest: int | None
    sentences: int
    bleu: float
    chrf: float

    @property
    def words(self) -> str:
        """The lengths in it, for a person.

        >>> Bucket(6, 10, 1, 0.0, 0.0).words, Bucket(51, None, 1, 0.0, 0.0).words
        ('6–10', '51+')
        """
        return f"{self.shortest}+" if self.longest is None else f"{self.shortest}–{self.longest}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def by_length(
    sources: Sequence[str], outputs: Sequence[str], references: Sequence[References], tokenize: str = "13a"
) -> list[Bucket]:
    """The buckets that are not empty, the shortest sources first.

    >>> [bucket.words for bucket in by_length(["a b", "a " * 60], ["x", "y"], [["x"], ["z"]])]
    ['1–5', '51+']
    """
    lengths = [len(source.split()) for source in sources]
    found = []
    for shortest, longest in BOUNDS:
        inside = [n for n, words in enumerate(lengths) if shortest <= words and (longest is None or words <= longest)]
        if inside:
            counted = score([outputs[n] for n in inside], [references[n] for n in inside], tokenize=tokenize).values
            found.append(Bucket(shortest, longest, len(inside), counted["bleu"], counted["chrf"]))
    return found
