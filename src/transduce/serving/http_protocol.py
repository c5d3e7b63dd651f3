"""HTTP as bytes on a connection, with limits to what httptools and uvicorn let clients do."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 65_536
"""Of a request's first line and headers, and of what divides its body into chunks beyond some bytes for each."""

HEAD_SECONDS = 30.0
"""For a connection's first request to begin, and for the headers of each to arrive."""

WRITE_SECONDS = 60.0
"""For a client to take some more of its answers: one that reads 15 kB a second does, as systems send in portions."""

_CHUNK_BYTES = 8
"""That may come for each byte of a body sent in chunks: the smallest chunk takes 6."""


class LimitedProtocol(HttpToolsProtocol):
    """Closes connections whose headers have no end, whose requests do not arrive, or whose answers are not read."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there."""
        super().connection_made(transport)
        self._num_bytes = self._num_body_bytes = 0
        self._waiting: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        transport.set_write_buffer_limits(high=0)  # so that `pause_writing` tells of whatever cannot be sent
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._stop_waiting()
        self._stop_writing()
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
        self._stop_waiting()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """It is answered, perhaps before it was."""
        super().on_response_complete()
        if self.cycle.more_body and self._waiting is None and not self.transport.is_closing():
            self._wait_for_head()  # the rest of its body has as long

    def pause_writing(self) -> None:
        """The client does not read as fast as it is answered."""
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        """It has read."""
        super().resume_writing()
        self._stop_writing()

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

    def _wait_for_reader(self) -> None:
        num_unsent = self.transport.get_write_buffer_size()
        self._writing = asyncio.get_running_loop().call_later(WRITE_SECONDS, self._give_up_writing, num_unsent)

    def _stop_writing(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def _give_up_writing(self, num_unsent: int) -> None:
        if self.transport.get_write_buffer_size() < num_unsent:
            self._wait_for_reader()
        else:
            self.transport.abort()
