"""An asynchronous stream of parts whose first can be looked at before the rest is wanted, and that can be closed."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from typing import Generic, TypeVar

from starlette.requests import Request

from regard.serving.errors import ApiError

Item = TypeVar("Item")


class Stream(Generic[Item]):
    """Parts as they come."""

    def __init__(self, parts: AsyncIterator[Item]) -> None:
        self._parts = parts
        self._peeked: list[Item] = []

    async def peek(self) -> None:
        """Wait for the first part; it stays in the stream."""
        async for part in self._parts:
            self._peeked.append(part)
            return

    async def exhaust(self) -> None:
        """Wait for the last part."""
        async for _ in self._parts:
            pass

    async def until(self, deadline: float) -> AsyncIterator[Item]:
        """The parts, up to a moment of the monotonic clock."""
        began = time.monotonic()
        while self._peeked:
            yield self._peeked.pop(0)
        while True:
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    part = await anext(self._parts)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise timeout_error(deadline - began) from None
            yield part

    async def close(self) -> None:
        """Want no more; whoever makes the parts is told."""
        closing = getattr(self._parts, "aclose", None)
        if closing is not None:
            await closing()


Answer = TypeVar("Answer")


class ClientDisconnectedError(Exception):  # nothing went wrong here
    """Nobody waits for the answer any more."""


async def wait_for_answer(
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
            raise ClientDisconnectedError
        raise timeout_error(deadline if told is None else told)
    finally:
        left.cancel()
        if not work.done():
            work.cancel()
            await asyncio.wait((work,))


def timeout_error(deadline: float) -> ApiError:
    """The answer to a request whose deadline has passed."""
    return ApiError(504, f"The answer was not ready within {deadline:g} s; ask for less, or try again later.")


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
