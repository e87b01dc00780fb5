"""Waiting for an answer while its client does, and no longer than its deadline."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import Request

from regard.serving.refusal import Refusal

Answer = TypeVar("Answer")


class ClientLeft(Exception):  # noqa: N818  # nothing went wrong here
    """Nobody waits for the answer any more."""


async def while_wanted(
    request: Request, answer: Awaitable[Answer], deadline: float, told: float | None = None
) -> Answer:
    """An answer, which is cancelled if the client leaves or the deadline passes. The request's body was read before.

    `told` is the deadline that the client is told of, where a part of it has passed already.
    """
    work = asyncio.ensure_future(answer)
    left = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((work, left), timeout=deadline, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        if left.done():
            raise ClientLeft
        raise too_late(deadline if told is None else told)
    finally:
        left.cancel()
        if not work.done():
            work.cancel()
            await asyncio.wait((work,))


def too_late(deadline: float) -> Refusal:
    """The answer to a request whose deadline has passed."""
    return Refusal(504, f"The answer was not ready within {deadline:g} s; ask for less, or try again later.")


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
