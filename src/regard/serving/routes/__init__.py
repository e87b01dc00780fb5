"""Routes of the API, one module per protocol or ability.

A module of this package defines `router`, whose routes need the API key where the server has one, or `public_router`,
whose routes do not, or both. An `OpenAIRouter` answers errors in OpenAI's shape. Frequent requests may also have a
`DirectRoute` in `direct_routes`. All modules are found by themselves: a new route is a new file. The paths of a module
that needs torch begin with `/v1/` and its name; without torch, they answer 501.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

from fastapi import Depends, FastAPI

from regard.errors import MissingPackageError, explain_missing_packages
from regard.serving.access import require_api_key
from regard.serving.errors import ApiError
from regard.serving.schemas import DirectRoute


def add_routes(app: FastAPI) -> None:
    """Add the routes of all modules of this package."""
    for module in _modules():
        if isinstance(module, UnavailableModule):
            _add_unavailable_route(app, module)
            continue
        if hasattr(module, "router"):
            app.include_router(module.router, dependencies=[Depends(require_api_key)])
        if hasattr(module, "public_router"):
            app.include_router(module.public_router)


def direct_routes() -> dict[str, DirectRoute]:
    """Return the direct routes of all modules, by path."""
    return {route.path: route for module in _modules() for route in getattr(module, "direct_routes", [])}


@dataclass(frozen=True)
class UnavailableModule:
    """A module that needs a package which is not installed: the paths of its routes begin with `path`."""

    path: str
    message: str


def _modules() -> Iterator[ModuleType | UnavailableModule]:
    for info in pkgutil.iter_modules(__path__):
        path = f"/v1/{info.name}"
        try:
            with explain_missing_packages(path):
                module = importlib.import_module(f"{__name__}.{info.name}")
        except MissingPackageError as error:
            yield UnavailableModule(path, str(error))
        else:
            yield module


def _add_unavailable_route(app: FastAPI, module: UnavailableModule) -> None:
    """Answer requests to a path and those below it with the reason why they are not available."""

    async def answer() -> None:
        raise ApiError(501, module.message)

    for pattern in (module.path, f"{module.path}/{{rest:path}}"):
        app.add_api_route(pattern, answer, methods=["POST"], include_in_schema=False)
