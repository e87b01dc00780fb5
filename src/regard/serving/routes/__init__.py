"""Routes of the API, one module per protocol or ability.

A module of this package defines `router`, whose routes need the API key where the server has one, or `public_router`,
whose routes do not, or both. An `OpenAIRouter` answers errors in OpenAI's shape. Frequent requests may also have a
plain Starlette route in `direct_routes`. All modules are found by themselves: a new route is a new file.
"""

import importlib
import pkgutil

from fastapi import Depends, FastAPI

from regard.serving.access import require_api_key


def add_routes(app: FastAPI) -> None:
    """Add the routes of all modules of this package, those of `direct_routes` first."""
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        app.router.routes[:0] = getattr(module, "direct_routes", [])
        if hasattr(module, "router"):
            app.include_router(module.router, dependencies=[Depends(require_api_key)])
        if hasattr(module, "public_router"):
            app.include_router(module.public_router)
