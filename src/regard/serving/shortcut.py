"""The short way to a route: one look into a table, where a router tries its routes one after the other.

For a small model, finding the route and what it depends on costs more than all else that is done for a request but the
translation. Routes here read their requests by themselves and depend on nothing, so they can be called at once.
"""

from collections.abc import Iterable
from inspect import iscoroutinefunction, signature

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send


class Shortcut:
    """ASGI middleware before the router, which gets the requests that the table does not know."""

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute]) -> None:
        self._app = app
        self._routes = {
            (method, route.path): route
            for route in routes
            if isinstance(route, APIRoute) and _is_plain(route)
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Carry out one request."""
        route = self._routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        response = await route.endpoint(Request(scope, receive, send))
        await response(scope, receive, send)


def _is_plain(route: APIRoute) -> bool:
    """Whether there is nothing for the router to do: no other parameters to find, and no thread to run it in."""
    return list(signature(route.endpoint).parameters) == ["request"] and iscoroutinefunction(route.endpoint)
