"""HTTP as bytes on a connection, with a limit to what is not a body: httptools itself has none."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 65_536
"""Of a request's first line and headers, and of what divides its body into chunks beyond some bytes for each."""

_CHUNK_BYTES = 8
"""That may come for each byte of a body sent in chunks: the smallest chunk takes 6."""


class LimitedProtocol(HttpToolsProtocol):
    """Closes connections that send headers without end."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there."""
        super().connection_made(transport)
        self._num_bytes = self._num_body_bytes = 0

    def data_received(self, data: bytes) -> None:
        """Some bytes have come."""
        self._num_bytes += len(data)
        super().data_received(data)
        allowed = MAX_HEAD_BYTES + (1 + _CHUNK_BYTES) * self._num_body_bytes
        if self._num_bytes > allowed and not self.transport.is_closing():
            self.send_400_response("The headers of this request have more than 65,536 bytes.")

    def on_body(self, body: bytes) -> None:
        """Some of them were of a body."""
        self._num_body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is there as a whole."""
        self._num_bytes = self._num_body_bytes = 0
        super().on_message_complete()
