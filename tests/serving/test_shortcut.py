"""The short way leads to the same routes as the long one, and to no others."""

import asyncio

import httpx
import pytest
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from regard.serving.shortcut import Shortcut
from servers import Running

routes = APIRouter()


@routes.post("/told")
async def told(request: Request) -> Response:
    return PlainTextResponse(f"{request.scope['route'].path} {(await request.body()).decode()}")


@routes.post("/told/{name}")
async def one(request: Request, name: str) -> Response:
    return PlainTextResponse(name)


@routes.get("/plain")
async def plain() -> Response:
    return PlainTextResponse("plain")


async def router(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("the router's")(scope, receive, send)


@pytest.mark.parametrize(
    ("method", "path", "answer"),
    [
        ("POST", "/told", "/told by us"),
        ("POST", "/told?key=value", "/told by us"),
        ("GET", "/told", "the router's"),
        ("POST", "/told/", "the router's"),
        ("POST", "/told/{name}", "the router's"),
        ("POST", "/told/one", "the router's"),
        ("GET", "/plain", "the router's"),
        ("POST", "/other", "the router's"),
    ],
)
def test_only_a_route_that_reads_its_request_is_called_at_once(method: str, path: str, answer: str) -> None:
    async def scene() -> str:
        transport = httpx.ASGITransport(Shortcut(router, routes.routes))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return (await client.request(method, path, content=b"by us")).text

    assert asyncio.run(scene()) == answer


def test_requests_are_counted_by_their_route_on_either_way(server: Running) -> None:
    server.post("/v1/translate", {"text": []})
    server.get("/v1/models/writer")
    counted = server.get("/metrics").text
    for route in ("/v1/translate", "/v1/models/{name}"):
        assert f'regard_requests_total{{route="{route}",status="200"}}' in counted
