"""Addresses of activations in a trace, as text that fits into a URL or a shell command.

decoder.1.cross_attention.weights          a point: stack, layer, part, point
decoder.1.cross_attention.weights[2]       one head of it
decoder.1.cross_attention.weights[2]@3     its value at decoding step 3
"""

import re
from dataclasses import dataclass

from regard.errors import InputError

_PATTERN = re.compile(r"(?P<point>[a-z_0-9.]+?)(?:\[(?P<head>\d{1,6})\])?(?:@(?P<step>\d{1,6}))?")


@dataclass(frozen=True)
class Address:
    """A point by name, with an optional head and an optional decoding step, both counted from 0."""

    point: str
    head: int | None = None
    step: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Parse the text form of an address.

        >>> Address.parse("decoder.1.cross_attention.weights[2]@3")
        Address(point='decoder.1.cross_attention.weights', head=2, step=3)
        """
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise InputError(
                f"{text!r} is not an address; an address looks like decoder.1.cross_attention.weights[2]@3: "
                "a point, then optionally a head in brackets, then optionally a step after @."
            )
        head, step = (None if match[name] is None else int(match[name]) for name in ("head", "step"))
        return cls(match["point"], head, step)

    def __str__(self) -> str:
        head = "" if self.head is None else f"[{self.head}]"
        step = "" if self.step is None else f"@{self.step}"
        return f"{self.point}{head}{step}"
