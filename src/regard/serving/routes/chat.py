"""`/v1/chat/render`: a conversation as the text that a model continues; answers are in OpenAI's protocol."""

import asyncio
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from regard.errors import ModelError
from regard.serving.errors import ApiError
from regard.serving.limits import check_limits
from regard.serving.loaded_models import LoadedModel
from regard.serving.schemas import JsonRoute, RequestModel
from regard.serving.service import ServiceDependency

router = APIRouter(tags=["chat"], route_class=JsonRoute)


class RenderRequest(RequestModel):
    """Conversation for a chat template."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-ability": "generate",
            "examples": [{"messages": [{"role": "user", "content": "Hello."}]}],
        }
    )

    messages: list[dict[str, Any]] = Field(min_length=1)
    """Messages with `role` and `content`."""
    model: str | None = None
    """Name of the model; by default the first language model."""
    add_generation_prompt: bool = True
    """End with the beginning of the assistant's turn."""


class RenderResponse(BaseModel):
    """A conversation as text."""

    model: str
    text: str
    """With the names of special tokens."""
    tokens: int


@router.post("/v1/chat/render", summary="Render a conversation with the chat template")
async def render(body: RenderRequest, service: ServiceDependency) -> RenderResponse:
    """Return a conversation as the text that the model continues."""
    model = service.model(body.model, "generate")
    check_limits(("characters", sum(len(str(message)) for message in body.messages), service.limits.max_characters))
    return await asyncio.to_thread(_render, model, body)  # a template may take seconds


def _render(model: LoadedModel, body: RenderRequest) -> RenderResponse:
    template = model.model.chat_template
    try:
        rendered = template.render(body.messages, add_generation_prompt=body.add_generation_prompt)
        ids = template.encode(body.messages, add_generation_prompt=body.add_generation_prompt)
    except ModelError as error:  # without its path
        raise ApiError(500, f"The chat template of {model.name} {str(error).partition(': ')[2]}") from None
    return RenderResponse(model=model.name, text=rendered.text, tokens=len(ids))
