"""The FastAPI application: routes, middleware, error handlers, the OpenAPI document and the files of the page."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from regard.errors import ConfigError, InputError
from regard.serving.access import AccessMiddleware
from regard.serving.errors import ERROR_RESPONSES, handle_http_error, handle_input_error, handle_validation_error
from regard.serving.limits import BodyLimitMiddleware
from regard.serving.page_files import INDEX, page_handlers
from regard.serving.routes import add_routes, direct_routes
from regard.serving.schemas import GZIP_MIN_BYTES, DirectRouteMiddleware
from regard.serving.service import Service
from regard.version import __version__

WEB = Path(__file__).parent / "web"  # files for browsers
REQUEST_ID_HEADER = {"description": "Id of the request in the server's log.", "schema": {"type": "string"}}
GZIP_LEVEL = 4  # responses are local or small; higher levels cost more time than they save


class CompressionMiddleware(GZipMiddleware):
    """Starlette's gzip, which requests that it would not change pass by: posts of clients without compression."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app, GZIP_MIN_BYTES, GZIP_LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process one request."""
        if scope["type"] == "http" and scope["method"] == "POST" and not _accepts_gzip(scope):
            await self.app(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def _accepts_gzip(scope: Scope) -> bool:
    return any(name == b"accept-encoding" and b"gzip" in value for name, value in scope["headers"])


def build_app(service: Service, web: Path = WEB) -> FastAPI:
    """Return the ASGI application of a service."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await service.close()

    app = FastAPI(
        title="regard",
        version=__version__,
        description="Translate, generate, classify, tag, fill masks and embed with your own models.",
        docs_url=None,  # FastAPI's pages load scripts from other servers; see `routes/operations.py`
        redoc_url=None,
        lifespan=lifespan,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # FastAPI looks for OpenTelemetry per request
        responses=ERROR_RESPONSES,
    )
    app.state.service = service
    add_routes(app)
    app.add_middleware(BodyLimitMiddleware, limits=service.limits)
    app.add_middleware(CompressionMiddleware)
    app.state.direct_routes = direct_routes()
    app.add_middleware(
        DirectRouteMiddleware,
        routes=app.state.direct_routes,
        limits=service.limits,
        compress=CompressionMiddleware,
    )
    app.add_middleware(AccessMiddleware, policy=service.access, metrics=service.metrics)
    app.add_exception_handler(HTTPException, handle_http_error)
    app.add_exception_handler(RequestValidationError, handle_validation_error)
    for error in (ConfigError, InputError):
        app.add_exception_handler(error, handle_input_error)
    if (web / INDEX).is_file():
        for path, respond in page_handlers(web).items():  # a mount at the root would match every other path, too
            app.add_route(path, respond, include_in_schema=False)
    else:
        app.add_api_route("/", lambda: RedirectResponse("/docs"), include_in_schema=False)
    _describe_choices(app, service)
    return app


def _describe_choices(app: FastAPI, service: Service) -> None:
    """Complete the generated OpenAPI document: names of models and languages, the id's header, no status 422.

    Request models name the ability that their `model` field needs as `x-ability`. Invalid requests get 400.
    """
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        is_new = app.openapi_schema is None
        document = generate()
        if is_new:
            for operations in document["paths"].values():
                for operation in operations.values():
                    operation["responses"].pop("422", None)
                    for response in operation["responses"].values():
                        response.setdefault("headers", {})["X-Request-ID"] = REQUEST_ID_HEADER
                    for content in operation.get("requestBody", {}).get("content", {}).values():
                        _add_choices(content["schema"], service)
            for schema in document["components"]["schemas"].values():
                _add_choices(schema, service)
            for name in ("HTTPValidationError", "ValidationError"):
                document["components"]["schemas"].pop(name, None)
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way to extend the document


def _add_choices(schema: dict[str, Any], service: Service) -> None:
    """Add the choices of `model`, `source` and `target` to the schema of a request."""
    ability = schema.pop("x-ability", None)
    if ability is None:
        return
    if "model" in schema["properties"]:
        choices = {"model": service.names(None if ability == "any" else ability)}
    else:
        languages = service.languages
        choices = {"source": ["auto", *languages] if languages else [], "target": languages}
    for name, values in choices.items():
        field = schema["properties"][name]
        text = next(choice for choice in field.get("anyOf", [field]) if choice["type"] == "string")
        if values:
            text["enum"] = values
