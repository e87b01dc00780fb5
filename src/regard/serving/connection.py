"""A client's connection: uvicorn's, with an end to how long and how large a request's head may be.

Bodies have their limits in `reading.py`; a head that never ends would hold its connection, and its memory, for ever.
"""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

SECONDS = 20.0  # until the head of a request has come
BYTES = 65_536  # of it


class Connection(HttpToolsProtocol):
    """Closed if a request's head does not come to its end."""

    _waits: asyncio.TimerHandle | None = None
    _read = 0  # bytes since the head began

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Someone has come, and should say something."""
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Some bytes have come."""
        self._read += len(data)
        super().data_received(data)
        if self._waits is not None and self._read > BYTES and not self.transport.is_closing():
            self._forget_head()
            self.send_400_response(f"The head of a request has at most {BYTES:,} bytes.")

    def on_message_begin(self) -> None:
        """A head begins, perhaps behind another request in the same bytes."""
        super().on_message_begin()
        self._read = 0
        self._expect_head()

    def on_headers_complete(self) -> None:
        """It has come to its end."""
        self._forget_head()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._forget_head()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._forget_head()
        self._waits = self.loop.call_later(SECONDS, self._give_up)

    def _forget_head(self) -> None:
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None

    def _give_up(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:  # the request before it comes first
            self._expect_head()
        else:
            self.transport.close()
