"""A trace: everything between a sentence and its translation, from the very network that translates.

The text is decoded once, as always. The trace then has the network read source and output again in one pass, as in
training, which gives the same numbers as decoding token by token, and is the cheaper of the two; it does so layer by
layer, when a number is asked for. Numbers have addresses (`interpret.address`), and are given in pieces of bounded
size.

    trace = model.look("I love you very much.")
    trace.steps[0].candidates
    trace.tensor("decoder.1.cross_attention.weights[2]").values
"""

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.config import EncoderConfig
from regard.config.errors import did_you_mean
from regard.data.parses import Parse
from regard.decoding.options import GenerationOptions, TranslationOptions
from regard.errors import InputError
from regard.interpret.address import Address
from regard.interpret.excerpts import numbers_at, weights_at
from regard.interpret.merges import Building, merges
from regard.interpret.numbers import MOST, Numbers, Span
from regard.interpret.outline import notes, outline
from regard.interpret.points import Point
from regard.interpret.predicted import Predicted, predicted
from regard.interpret.readings import Readings, readings
from regard.interpret.recording import Recording
from regard.interpret.steps import Step, steps
from regard.interpret.subject import Subject
from regard.interpret.tree import Tree
from regard.interpret.units import all_units_on
from regard.interpret.words import Line, line
from regard.interpret.written import Written, write

if TYPE_CHECKING:
    from regard.interpret.ablation import Change
    from regard.interpret.alignment import Alignment
    from regard.interpret.difference import Difference
    from regard.interpret.gradients import Gradients
    from regard.interpret.heads import Head
    from regard.interpret.products import Product


def look(
    subject: Subject,
    text: str,
    wish: TranslationOptions | GenerationOptions | None = None,
    target: str | None = None,
    parse: Parse | None = None,
) -> "Trace":
    """Decode a text, or force a target, and keep the way to every number; `parse` is for networks that read one."""
    model = subject.config.model
    if not getattr(model, "causal_mask", True):
        raise InputError(
            f"{subject.name}: has no look-ahead mask, so that reading a whole target is not what it computes token by "
            "token, and there is no trace of it; train it with model.causal_mask = true."
        )
    return Trace(subject, text, wish, write(subject, text, wish, target, parse), target, parse)


class Trace:
    """One decode, opened up. Made by `look`."""

    def __init__(
        self,
        subject: Subject,
        text: str,
        wish: TranslationOptions | GenerationOptions | None,
        written: Written,
        target: str | None = None,
        parse: Parse | None = None,
    ) -> None:
        self.subject = subject
        self.text = text
        self.wish = wish
        self.written = written
        self.forced = target
        self.parse = parse
        self.recording = Recording(subject.network, written.source, written.read, written.facts)

    @property
    def kind(self) -> str:
        """`translation`, `continuation` or `encoding`."""
        model = self.subject.config.model
        return "translation" if model.translates else "continuation" if model.generates else "encoding"

    @cached_property
    def source(self) -> Line | None:
        """What the encoder reads."""
        ids = self.written.source
        return None if ids is None else line(ids, self.subject.source, self.subject.config.tokens)

    @cached_property
    def target(self) -> Line | None:
        """What was written, its end included; of a language model, all that follows the first token."""
        if self.written.read is None:
            return None
        return line(self.written.follows, self.subject.target, self.subject.config.tokens)

    @cached_property
    def read(self) -> list[str]:
        """The tokens that the decoder reads: the target, shifted right."""
        return self.subject.target.ids_to_tokens(self.written.read or [])

    @property
    def output(self) -> str:
        """The text that was written."""
        return self.subject.target.decode(self.written.follows[self.prompted :])

    @cached_property
    def merges(self) -> list[Building]:
        """How the pieces of the text's words were put together."""
        return merges(self.text.strip(), self.subject.source)

    @cached_property
    def steps(self) -> list[Step]:
        """Every prediction."""
        written = self.written
        if written.read is None:
            return []
        return steps(self.recording.logits(), written.read, written.follows, written.given, self.subject.target)

    @cached_property
    def readings(self) -> Readings | None:
        """What an encoder's head tells: labels, tags, or guesses at tokens; None where there is none."""
        return readings(self)

    @cached_property
    def mixing(self) -> dict[str, float] | None:
        """What each layer adds to a token's vector, where layers are mixed (ELMo); None where they are not."""
        if "encoder.mixing.shares" not in self.points:
            return None
        return dict(zip(self.labels("layer") or [], self.whole("encoder.mixing.shares").tolist(), strict=True))

    @cached_property
    def predicted(self) -> Predicted | None:
        """Every prediction that this trace is about, of an encoder's head too; None where nothing is predicted."""
        return predicted(self)

    @property
    def tree(self) -> Tree | None:
        """The tree of the search; None where nothing was searched."""
        return self.written.tree

    @property
    def log_probability(self) -> float:
        """Of all that was written or forced, or told by an encoder's head, the network's own."""
        about = self.predicted
        return 0.0 if about is None else float(about.log_probabilities(self.recording.logits()).sum())

    @property
    def points(self) -> dict[str, Point]:
        """Where numbers can be read, by name."""
        return self.recording.points

    def whole(self, point: str) -> Tensor:
        """All numbers of a point, whatever their count: for those who compute with them."""
        return self.recording(self.point(point))

    def tensor(
        self,
        address: str | Address,
        *,
        rows: Span | None = None,
        columns: Span | None = None,
        most: int = MOST,
    ) -> Numbers:
        """The numbers at an address, or a part of them: rows of the last axis but one, columns of the last.

        At a step, rows are that step's, and keys and values are those that it could look at.
        """
        at = Address.parse(address) if isinstance(address, str) else address
        return numbers_at(self, at, rows, columns, most)

    def weight(
        self,
        name: str,
        *,
        head: int | None = None,
        rows: Span | None = None,
        columns: Span | None = None,
        most: int = MOST,
    ) -> Numbers:
        """A learned matrix, or a part of it, laid so that x · W reads as it is written: `encoder.0.attention.W_q`."""
        return weights_at(self, Address(name, head), rows, columns, most)

    def product(self, address: str | Address, row: int, column: int) -> "Product":
        """One cell of a matrix product as its multiply-add list."""
        from regard.interpret.products import product

        return product(self, Address.parse(address) if isinstance(address, str) else address, row, column)

    def alignment(self) -> "Alignment":
        """Which words of the source go with which of the target, by cross-attention, and by leaving words out."""
        from regard.interpret.alignment import align

        return align(self)

    def changed(self, *changes: "Change") -> "Difference":
        """Decode or read again with heads or layers off, or with attention that was told where to look."""
        from regard.interpret.difference import compare

        return compare(self, changes)

    def heads(self) -> "list[Head]":
        """Every head: how spread its attention is, and what it costs the output to switch it off."""
        from regard.interpret.heads import heads

        return heads(self)

    def gradients(self) -> "Gradients":
        """How strongly each part of the network would be pulled to make this output, or label, more probable."""
        from regard.interpret.gradients import gradients

        return gradients(self)

    @property
    def asked(self) -> str | None:
        """What an encoder's head was asked about: a label, tags, or what fills holes; None: nothing was given."""
        return self.forced if self.kind == "encoding" else None

    def outline(self) -> dict[str, Any]:
        """Everything but the tensors, for JSON: what was read and written, each step, and what can be asked for."""
        return outline(self)

    @property
    def notes(self) -> list[str]:
        """What a reader should know who compares this with other output."""
        return notes(self)

    def as_json(self, *, indent: int | None = None) -> str:
        """As `as_dict`."""
        return json.dumps(self.as_dict(), ensure_ascii=False, indent=indent, allow_nan=False)

    def as_dict(self) -> dict[str, Any]:
        """The outline, the tree, and the hidden units that are on."""
        return {
            **self.outline(),
            "tree": None if self.tree is None else self.tree.as_dict(self.subject.target),
            "units": [one.as_dict() for one in all_units_on(self)],
        }

    def as_html(self) -> str:
        """One page that needs no network."""
        from regard.interpret.render.html import page

        return page(self)

    def _repr_html_(self) -> str:
        """A notebook shows a trace as its page."""
        from regard.interpret.render.html import notebook

        return notebook(self)

    def labels(self, axis: str) -> list[str] | None:
        """What the places of an axis are called; None: they are only numbered."""
        if axis.startswith("source"):
            return None if self.source is None else self.source.tokens
        if axis == "layer":
            return ["embedding", *(f"layer {n}" for n in range(self.subject.config.model.layers))]
        if axis == "label":
            model = self.subject.config.model
            return list(getattr(model.head, "labels", ())) if isinstance(model, EncoderConfig) else None
        return self.read if axis.startswith("target") else None

    def __repr__(self) -> str:
        return f"<Trace of {self.text!r} → {self.output!r}: {len(self.steps)} steps, {len(self.points)} points>"

    @property
    def prompted(self) -> int:
        """How many of the tokens that followed are a prompt's."""
        return self.written.given if self.kind == "continuation" and self.forced is None else 0

    def point(self, name: str) -> Point:
        """Where numbers can be read, by a name that the outline has."""
        if name not in self.points:
            close = did_you_mean(name, self.points)
            raise InputError(f"There is no point {name!r} in this network{close}; the outline lists all of them.")
        return self.points[name]
