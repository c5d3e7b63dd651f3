"""HTTP as bytes on a connection, with a limit to what is not a body: httptools itself has none."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 65_536
"""Of a request's first line and headers, and of what divides its body into chunks beyond some bytes for each."""

HEAD_SECONDS = 30.0
"""For a connection's first request to begin, and for the headers of each to arrive."""

_CHUNK_BYTES = 8
"""That may come for each byte of a body sent in chunks: the smallest chunk takes 6."""


class LimitedProtocol(HttpToolsProtocol):
    """Closes connections that send headers without end, or do not get to their end."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there."""
        super().connection_made(transport)
        self._num_bytes = self._num_body_bytes = 0
        self._waiting: asyncio.TimerHandle | None = None
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Some bytes have come."""
        self._num_bytes += len(data)
        super().data_received(data)
        allowed = MAX_HEAD_BYTES + (1 + _CHUNK_BYTES) * self._num_body_bytes
        if self._num_bytes > allowed and not self.transport.is_closing():
            self.send_400_response("The headers of this request have more than 65,536 bytes.")

    def on_message_begin(self) -> None:
        """The first byte of a request is there."""
        super().on_message_begin()
        if self._waiting is None:
            self._wait_for_head()

    def on_headers_complete(self) -> None:
        """Its headers are."""
        self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Some of them were of a body."""
        self._num_body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is there as a whole."""
        self._num_bytes = self._num_body_bytes = 0
        super().on_message_complete()

    def _wait_for_head(self) -> None:
        self._waiting = asyncio.get_running_loop().call_later(HEAD_SECONDS, self._give_up_waiting)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up_waiting(self) -> None:
        if not getattr(self.cycle, "response_complete", True):  # there may have been none
            self._wait_for_head()  # nothing is read until the request before it is answered
        else:
            self.transport.abort()
