"""How probable a model finds texts that are given: each token by itself, and all of them in the field's measures."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


def perplexity(loss: float) -> float:
    """e^loss: among so many equally probable tokens the model might as well have chosen.

    >>> round(perplexity(math.log(50)))
    50
    """
    return math.exp(min(loss, 700))  # e^710 is past the largest float


@dataclass(frozen=True)
class Scored:
    """The tokens of a text, its end last, and the log-probability of each."""

    tokens: list[str]
    scores: list[float]

    @property
    def total(self) -> float:
        """The log-probability of the whole text.

        >>> Scored(["▁Ciao", "[EOS]"], [-1.5, -0.5]).total
        -2.0
        """
        return sum(self.scores)

    @property
    def mean(self) -> float:
        """The log-probability per token."""
        return self.total / len(self.scores)


@dataclass(frozen=True)
class Likelihood:
    """What many texts have in common: their tokens, the log-probability of all, and where it matters, their bytes."""

    tokens: int
    total: float
    bytes: int = 0

    @property
    def loss(self) -> float:
        """The mean negative log-probability of a token, ends included.

        >>> Likelihood(tokens=4, total=-8.0).loss
        2.0
        """
        return -self.total / self.tokens

    @property
    def perplexity(self) -> float:
        """e^loss: among so many equally probable tokens the model might as well have chosen.

        >>> round(Likelihood(tokens=2, total=2 * math.log(1 / 50)).perplexity)
        50
        """
        return perplexity(self.loss)

    @property
    def bits_per_byte(self) -> float:
        """The length of the text in bits, if the model compressed it, per byte of UTF-8: the same for any tokenizer.

        >>> Likelihood(tokens=3, total=10 * math.log(1 / 4), bytes=10).bits_per_byte
        2.0
        """
        return -self.total / math.log(2) / self.bytes

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        measured = {"loss": self.loss, "perplexity": self.perplexity, "bits_per_byte": self.bits_per_byte}
        return {"scores": measured, "tokens": self.tokens, "bytes": self.bytes}


def together(scored: Iterable[Scored], bytes: int = 0) -> Likelihood:
    """The likelihood of many texts."""
    tokens, total = 0, 0.0
    for one in scored:
        tokens += len(one.scores)
        total += one.total
    return Likelihood(tokens, total, bytes)
