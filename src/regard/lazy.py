"""Packages whose names are imported when they are first used, so that a command pays only for what it needs."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package that offers names from the modules `homes` says.

    >>> find, names = lazily("example", {"sqrt": "math"})
    >>> find("sqrt")(9.0), names()
    (3.0, ['sqrt'])
    """

    def find(name: str) -> Any:
        if name in homes:
            return getattr(import_module(homes[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find, lambda: sorted(homes)
