"""The numbers at one address, the difference that a change makes, and the pull on each part, in the terminal."""

import math
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from rich.console import RenderableType
from rich.text import Text

from regard.interpret.difference import Difference
from regard.interpret.gradients import Gradients
from regard.interpret.numbers import Numbers
from regard.interpret.render.matrix import bar, matrix, table

WIDE = 12  # columns that are shown of units and vocabulary


def shown(numbers: Numbers) -> Iterator[RenderableType]:
    """A tensor as matrices, one for each place on its axes before the last two."""
    sizes = " × ".join(
        f"{size} {axis.replace('_', ' ')}" for size, axis in zip(numbers.shape, numbers.axes, strict=True)
    )
    yield Text.assemble((numbers.address, "bold"), f"  {numbers.what}  ", (f"({sizes})", "dim"))
    values = numbers.values.reshape(1, -1) if numbers.values.ndim == 1 else numbers.values
    labels = (None, numbers.labels[0]) if numbers.values.ndim == 1 else numbers.labels
    rows = _labels(labels[-2], values.shape[-2], "" if numbers.values.ndim == 1 else None)
    cut = values.shape[-1] if labels[-1] is not None and values.shape[-1] <= WIDE else min(WIDE, values.shape[-1])
    columns = _labels(labels[-1], values.shape[-1], None)[:cut]
    for place in product(*(range(size) for size in values.shape[:-2])):
        if place:
            yield Text(", ".join(f"{axis} {n}" for axis, n in zip(numbers.axes, place, strict=False)), style="italic")
        yield matrix(rows, columns, values[place][:, :cut].tolist())
    if cut < values.shape[-1]:
        yield Text(f"the first {cut} of {values.shape[-1]} columns; --json gives all", style="dim")


class Words(NamedTuple):
    """How a difference is told: if there is none, if there is one, what was priced, and what each row is about."""

    same: str
    differ: str
    priced: str
    columns: tuple[str, ...]


WORDS = {
    "output": Words(
        "The output stays the same", "The outputs differ from step {step} on", "the original output's log p", ("token",)
    ),
    "classes": Words("The label stays the same", "The label is another one", "log p of {}", ("label",)),
    "tags": Words("The tags stay the same", "The tags differ, from {at} on", "their log p", ("token", "tag")),
    "tokens": Words(
        "The guesses stay the same", "The guesses differ, from {at} on", "log p of the tokens", ("at", "token")
    ),
}


def difference(found: Difference) -> Iterator[RenderableType]:
    """Both outputs, and the original one token by token."""
    yield Text.assemble(("Changed: ", "dim"), ", ".join(found.changes))
    yield Text.assemble(("before  ", "dim"), found.before)
    yield Text.assemble(("after   ", "dim"), (found.after, "bold" if not found.same else ""))
    words = WORDS[found.kind]
    first = None if found.first is None else found.steps[min(found.first, len(found.steps) - 1)].at
    told = words.same if found.same else words.differ.format(step=found.first, at=first)
    yield Text(f"{told}; {words.priced.format(found.steps[0].token)} falls by {found.cost:.3f}.")
    made = table(*words.columns, "p before", "p after", "", "divergence", left=len(words.columns))
    for step in found.steps:
        named = [Text(one) for one in (step.at, step.token) if one is not None]
        before, after = math.exp(step.before), math.exp(step.after)
        made.add_row(*named, f"{before:.3f}", f"{after:.3f}", bar(after, 12), f"{step.divergence:.3f}")
    yield made


def pulls(found: Gradients) -> Iterator[RenderableType]:
    """How strongly each part is pulled, in the order of the network."""
    yield Text("How strongly training on this output would pull each part: the norm of the gradient of its mean loss.")
    largest = max(part.norm for part in found.parts) or 1.0
    made = table("part", "norm", "", "over its weights'", "parameters")
    for part in found.parts:
        shown = bar(part.norm / largest)
        made.add_row(Text(part.part), f"{part.norm:.3f}", shown, f"{part.relative:.4f}", f"{part.parameters:,}")
    yield made
    yield Text(f"loss {found.loss:.3f}, norm {found.norm:.3f} of all parts together", style="dim")


def _labels(labels: list[str] | None, count: int, empty: str | None) -> list[str]:
    return labels if labels is not None else [str(n) if empty is None else empty for n in range(count)]
