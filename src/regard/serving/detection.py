"""Which language a text is in, as far as translators can tell: whose tokenizer spells it with the fewest tokens.

A vocabulary was learned on its language. Were its V tokens equally probable, n of them would cost n · log V; of several
languages, each is as probable as that says. A text with tokens that a vocabulary lacks is doubted by their share.
"""

import math
from typing import NamedTuple

from regard.serving.served import Served


class Detected(NamedTuple):
    """A language, and how sure that is, in percent."""

    language: str
    confidence: float


def detect(text: str, models: list[Served]) -> list[Detected]:
    """The languages that the models translate from, the most probable first."""
    costs: dict[str, float] = {}
    known: dict[str, float] = {}
    for model in models:
        tokenizer, unknown = model.model.tokenizer, model.model.config.tokens.unknown
        ids = tokenizer.encode(text)
        cost = len(ids) * math.log(max(2, len(tokenizer)))
        if cost < costs.get(model.source, math.inf):
            costs[model.source] = cost
            known[model.source] = 1 - sum(number == unknown for number in ids) / len(ids) if ids else 0.0
    least = min(costs.values(), default=0.0)
    total = sum(math.exp(least - cost) for cost in costs.values())
    found = [
        Detected(language, round(100 * known[language] * math.exp(least - cost) / total, 1))
        for language, cost in costs.items()
    ]
    return sorted(found, key=lambda one: -one.confidence)
