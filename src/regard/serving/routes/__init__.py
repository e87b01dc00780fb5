"""The routes, a file for each part of the API. A new part is a file with a `router`, and a line here."""

from collections.abc import Callable

from fastapi import APIRouter

from regard.serving.routes import (
    about,
    classify,
    docs,
    embeddings,
    fill,
    health,
    labs,
    libretranslate,
    look,
    openai,
    tag,
    translate,
)
from regard.serving.service import Service

ROUTERS: tuple[Callable[[Service], APIRouter], ...] = (
    translate.router,
    classify.router,
    tag.router,
    fill.router,
    look.router,
    about.router,
    libretranslate.router,
    openai.router,
    embeddings.router,
    health.router,
    docs.router,
    labs.router,
)
