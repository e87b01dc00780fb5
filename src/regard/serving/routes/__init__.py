"""Routes of the API, one module per protocol or ability.

A module of this package defines `router`, whose routes need the API key where the server has one, or `public_router`,
whose routes do not, or both. An `OpenAIRouter` answers errors in OpenAI's shape. Frequent requests may also have a
`DirectRoute` in `direct_routes`. All modules are found by themselves: a new route is a new file.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

from fastapi import Depends, FastAPI

from regard.serving.access import require_api_key
from regard.serving.schemas import DirectRoute


def add_routes(app: FastAPI) -> None:
    """Add the routes of all modules of this package."""
    for module in _modules():
        if hasattr(module, "router"):
            app.include_router(module.router, dependencies=[Depends(require_api_key)])
        if hasattr(module, "public_router"):
            app.include_router(module.public_router)


def direct_routes() -> dict[str, DirectRoute]:
    """Return the direct routes of all modules, by path."""
    return {route.path: route for module in _modules() for route in getattr(module, "direct_routes", [])}


def _modules() -> Iterator[ModuleType]:
    for info in pkgutil.iter_modules(__path__):
        yield importlib.import_module(f"{__name__}.{info.name}")
