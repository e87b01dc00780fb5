"""An asynchronous stream of parts whose first can be looked at before the rest is wanted, and that can be closed."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from regard.serving.waiting import too_late

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
                raise too_late(deadline - began) from None
            yield part

    async def close(self) -> None:
        """Want no more; whoever makes the parts is told."""
        closing = getattr(self._parts, "aclose", None)
        if closing is not None:
            await closing()
