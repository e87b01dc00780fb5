"""Routes of the API, one module per protocol or ability.

A module of this package defines `router`, whose routes need the API key where the server has one, or `public_router`,
whose routes do not, or both. All modules are found by themselves: a new route is a new file.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from typing import NamedTuple

from fastapi import APIRouter


class CollectedRouter(NamedTuple):
    """Router of a module, and whether its routes work without the API key."""

    router: APIRouter
    is_public: bool


def collect_routers() -> Iterator[CollectedRouter]:
    """Yield the routers of all modules of this package."""
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for name, is_public in (("router", False), ("public_router", True)):
            router = getattr(module, name, None)
            if router is not None:
                yield CollectedRouter(router, is_public)
