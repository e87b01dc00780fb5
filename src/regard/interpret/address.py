"""Addresses: the name of one number's home in a trace, as text that fits into a URL or a shell.

decoder.1.cross_attention.weights          a point: stack, layer, part, point
decoder.1.cross_attention.weights[2]       one head of it
decoder.1.cross_attention.weights[2]@3     as it was at decoding step 3
"""

import re
from dataclasses import dataclass

from regard.errors import InputError

_WRITTEN = re.compile(r"(?P<point>[a-z_0-9.]+?)(?:\[(?P<head>\d{1,6})\])?(?:@(?P<step>\d{1,6}))?")


@dataclass(frozen=True)
class Address:
    """Where to look: a point by its name, perhaps one head, perhaps one decoding step; all count from 0."""

    point: str
    head: int | None = None
    step: int | None = None

    @classmethod
    def parse(cls, written: str) -> "Address":
        """The address that is written so.

        >>> Address.parse("decoder.1.cross_attention.weights[2]@3")
        Address(point='decoder.1.cross_attention.weights', head=2, step=3)
        """
        match = _WRITTEN.fullmatch(written)
        if match is None:
            raise InputError(
                f"{written!r} is no address; one looks like decoder.1.cross_attention.weights[2]@3: "
                "a point, then perhaps a head in brackets, then perhaps a step after @."
            )
        head, step = (None if (found := match[name]) is None else int(found) for name in ("head", "step"))
        return cls(match["point"], head, step)

    def __str__(self) -> str:
        head = "" if self.head is None else f"[{self.head}]"
        step = "" if self.step is None else f"@{self.step}"
        return f"{self.point}{head}{step}"
