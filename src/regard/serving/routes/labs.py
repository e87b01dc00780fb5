"""`/labs`: the book of the labs, as it came out of a full run; it comes with regard, and loads nothing."""

from fastapi import APIRouter
from starlette.responses import FileResponse, Response

from regard.labs import BOOK
from regard.serving.service import Service

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"  # figures have styles


def router(service: Service) -> APIRouter:
    """The book."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/labs")
    async def labs() -> Response:
        return FileResponse(BOOK, media_type="text/html", headers={"content-security-policy": POLICY})

    return routes
