"""The routes, a file for each part of the API. A new part is a file with a `router`, and a line here."""

from collections.abc import Callable

from fastapi import APIRouter

from regard.serving.routes import about, docs, health, libretranslate, look, openai, translate
from regard.serving.service import Service

ROUTERS: tuple[Callable[[Service], APIRouter], ...] = (
    translate.router,
    look.router,
    about.router,
    libretranslate.router,
    openai.router,
    health.router,
    docs.router,
)
