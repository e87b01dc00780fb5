"""Waiting for results while the client is connected, and streams that can be peeked at and closed."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from typing import Generic, TypeVar

from starlette.requests import Request

from regard.serving.errors import ApiError
from regard.serving.limits import ClientDisconnectedError

Result = TypeVar("Result")
Item = TypeVar("Item")


async def wait_for_result(
    request: Request, result: Awaitable[Result], timeout: float, total_timeout: float | None = None
) -> Result:
    """Await a result; cancel it when the client disconnects or the timeout passes.

    The request's body must have been read. `total_timeout` is the timeout in the error message, if a part of it has
    already passed.
    """
    work = asyncio.ensure_future(result)
    disconnect = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait((work, disconnect), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        if disconnect.done():
            raise ClientDisconnectedError
        raise timeout_error(timeout if total_timeout is None else total_timeout)
    finally:
        disconnect.cancel()
        if not work.done():
            work.cancel()
            await asyncio.wait((work,))


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def timeout_error(seconds: float) -> ApiError:
    """Return the error of a request that timed out."""
    return ApiError(504, f"The request timed out after {seconds:g} s; send less text, or retry later.")


class PeekableStream(Generic[Item]):
    """Asynchronous stream whose first item can be awaited before the response starts."""

    def __init__(self, items: AsyncIterator[Item]) -> None:
        self._items = items
        self._peeked: list[Item] = []

    async def peek(self) -> None:
        """Wait for the first item, which stays in the stream."""
        async for item in self._items:
            self._peeked.append(item)
            return

    async def drain(self) -> None:
        """Wait for the last item and discard all of them."""
        async for _ in self._items:
            pass

    async def until(self, deadline: float) -> AsyncIterator[Item]:
        """Iterate until a time of the monotonic clock; then raise the timeout error."""
        start = time.monotonic()
        while self._peeked:
            yield self._peeked.pop(0)
        while True:
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    item = await anext(self._items)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise timeout_error(deadline - start) from None
            yield item

    async def close(self) -> None:
        """Close the stream and its producer."""
        close = getattr(self._items, "aclose", None)
        if close is not None:
            await close()
