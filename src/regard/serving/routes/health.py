"""Whether the server lives, whether it can take more, and what it has counted."""

from fastapi import APIRouter
from starlette.responses import Response

from regard.serving import metrics
from regard.serving.answer import as_json
from regard.serving.errors import ApiError
from regard.serving.schema import ERROR, TEXT, Schema, answers, obj
from regard.serving.service import Service

STATUS = answers(obj("status", status=TEXT))


def router(service: Service) -> APIRouter:
    """The routes that machines ask."""
    routes = APIRouter(tags=["operation"])
    full: dict[int | str, Schema] = {
        503: {"description": "A queue is full.", "content": {"application/json": {"schema": ERROR}}}
    }

    @routes.get("/healthz", summary="Whether the server lives", responses=STATUS)
    async def healthz() -> Response:
        return as_json({"status": "ok"})

    @routes.get("/readyz", summary="Whether the server can take more", responses=STATUS | full)
    async def readyz() -> Response:
        busy = [name for name, worker in service.workers.items() if worker.full]
        if busy:
            raise ApiError(503, f"The queue of {', '.join(busy)} is full.", headers={"retry-after": "1"})
        return as_json({"status": "ready"})

    @routes.get("/metrics", summary="Counts and times, for Prometheus", responses=answers(TEXT, kind="text/plain"))
    async def counted() -> Response:
        return Response(service.metrics.text(), media_type=metrics.TYPE)

    return routes
