"""The application: routes, the guard before them, and the page."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from regard.serving.access import AccessMiddleware
from regard.serving.errors import ApiError
from regard.serving.routes import ROUTERS
from regard.serving.service import Service
from regard.serving.shortcut import Shortcut
from regard.version import __version__

PAGE = Path(__file__).parent / "web"  # files for browsers, where there are any


def build_app(service: Service, page: Path = PAGE) -> FastAPI:
    """The ASGI application for a service."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await service.close()

    app = FastAPI(
        title="regard",
        version=__version__,
        description="Models of your own: they translate, go on with texts, label them, and give vectors.",
        docs_url=None,  # they load scripts from elsewhere; `routes/docs.py` does not
        redoc_url=None,
        lifespan=lifespan,
    )
    routers = [router(service) for router in ROUTERS]
    for one in routers:
        app.include_router(one)
    app.add_middleware(Shortcut, routes=[route for one in routers for route in one.routes])
    app.add_middleware(AccessMiddleware, access=service.access, metrics=service.metrics)
    app.add_exception_handler(HTTPException, _refused)
    if (page / "index.html").is_file():
        _show(app, page)
    else:
        app.add_api_route("/", lambda: RedirectResponse("/docs"), include_in_schema=False)
    return app


def _show(app: FastAPI, page: Path) -> None:
    """A route for each file of the page, and no more: a mount at the root would answer for every other path too."""
    files = StaticFiles(directory=page)

    def answer(name: str) -> Callable[[Request], Awaitable[Response]]:
        async def route(request: Request) -> Response:
            return await files.get_response(name, request.scope)

        return route

    for name in sorted(path.relative_to(page).as_posix() for path in page.rglob("*") if path.is_file()):
        app.add_route(f"/{name}", answer(name), include_in_schema=False)
    app.add_route("/", answer("index.html"), include_in_schema=False)


async def _refused(request: Request, error: Exception) -> Response:
    """What the router refuses by itself: paths and methods that are not there."""
    assert isinstance(error, HTTPException)
    path, method = request.url.path[:100], request.method
    sentence = {
        404: f"There is nothing at {path}; see /docs.",
        405: f"{method} is not for {path}; see /docs.",
    }.get(error.status_code, f"{error.detail}.")
    content = ApiError(error.status_code, sentence).body(path)
    return Response(content, error.status_code, dict(error.headers or {}), "application/json")
