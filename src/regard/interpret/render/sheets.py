"""What an encoder's head tells, and how layers are mixed, as plain tables that the terminal and the page both draw."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from regard.interpret.readings import Reading, Readings
from regard.interpret.render.matrix import number
from regard.interpret.trace import Trace

Cell = str | float | None
OTHERS = 3  # candidates that are shown beside the best


@dataclass(frozen=True)
class Sheet:
    """A table: text, and shares of one, which are drawn as bars; None: there is nothing to show."""

    title: str
    note: str
    columns: dict[str, type[str] | type[float]]
    rows: list[list[Cell]]


def sheets(trace: Trace) -> Iterator[Sheet]:
    """The tables of this network, if it has any."""
    if trace.mixing is not None:
        note = "what each layer adds to a token's vector, before the scale"
        yield Sheet("Mixing", note, {"layer": str, "share": float}, [[*one] for one in trace.mixing.items()])
    if trace.readings is not None:
        yield _told(trace.readings)


def _told(told: Readings) -> Sheet:
    if told.kind == "classes":
        (text,) = told.found
        rows: list[list[Cell]] = [[one.token, one.probability] for one in text.candidates]
        return Sheet("Label", "what the text is taken for", {"label": str, "p": float}, rows)
    if told.kind == "tags":
        note = "each token's; the tag of a word is that of its first token"
        rows = [[one.token, one.best.token, one.best.probability, _others(one)] for one in told.found]
        return Sheet("Tags", note, {"token": str, "tag": str, "p": float, "others": str}, rows)
    if any(one.direction for one in told.found):
        return _both_ways(told)
    note = "what could stand at each token, which is seen unless it is [MASK]; and how probable what stands there is"
    columns = {"token": str, "p": float, "guess": str, "p of the guess": float, "others": str}
    rows = [[one.token, one.probability, one.best.token, one.best.probability, _others(one)] for one in told.found]
    return Sheet("Guesses", note, columns, rows)


def _both_ways(told: Readings) -> Sheet:
    note = "how probable each token is after all that is before it, and before all that is after it; and the best guess"
    rows = []
    for _, several in groupby(told.found, key=lambda one: one.place):
        both = {one.direction: one for one in several}
        ahead, back = both.get("forwards"), both.get("backwards")
        token = next(iter(both.values())).token
        rows.append([token, *_guess(ahead), *_guess(back)])
    columns = {"token": str, "p forwards": float, "guess forwards": str, "p backwards": float, "guess backwards": str}
    return Sheet("Both ways", note, columns, rows)


def _guess(one: Reading | None) -> list[Cell]:
    return [None, None] if one is None else [one.probability, f"{one.best.token} {one.best.probability:.3f}"]


def _others(one: Reading) -> str:
    return "  ".join(f"{other.token} {number(other.probability, 3)}" for other in one.candidates[1 : 1 + OTHERS])
