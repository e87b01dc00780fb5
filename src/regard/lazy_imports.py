"""Public names of a package that are imported on first use, so that a command pays only for what it needs."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package; `modules` has the module that defines each of its names.

    >>> get, names = lazy_exports("example", {"sqrt": "math"})
    >>> get("sqrt")(9.0), names()
    (3.0, ['sqrt'])
    """

    def get(name: str) -> Any:
        if name in modules:
            return getattr(import_module(modules[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted(modules)
