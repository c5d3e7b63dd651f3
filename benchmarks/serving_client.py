"""What serving.py needs: a real `transduce serve`, and clients that keep their connections."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen


class Server:
    """A process of `transduce serve` with a port of its own."""

    def __init__(self, bundle: Path, *options: str) -> None:
        command = [sys.executable, "-m", "transduce", "serve", str(bundle), "--port", "0", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found[1])
                break
        else:
            raise SystemExit("the server did not start")
        # The log: the pipe must not fill.
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def metric(self, name: str, labels: str = "") -> float:
        """What /metrics says; 0 if it says nothing."""
        with urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            found = re.search(rf"^transduce_{name}{re.escape(labels)} (\S+)$", answer.read().decode(), re.MULTILINE)
        return float(found[1]) if found else 0.0

    @property
    def megabytes(self) -> int:
        """Resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) // 1024

    def end(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


@dataclass
class Answers:
    """What clients got.

    Args:
        statuses: how often each.
        seconds: of each request that was answered with 200.
        sentences: that were translated.
        wrong: answers that are not the offline translation.
        lost: when each request was sent whose connection ended without an answer, by `time.monotonic`.
        without_retry: refusals that do not say when to ask again.
    """

    statuses: Counter = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    sentences: int = 0
    wrong: int = 0
    lost: list[float] = field(default_factory=list)
    without_retry: int = 0

    def percentile(self, share: float) -> float:
        """Seconds within which so many were answered."""
        return sorted(self.seconds)[min(len(self.seconds) - 1, int(share * len(self.seconds)))] if self.seconds else 0.0


class Connection:
    """HTTP/1.1 to the server, kept as long as it may be."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> "Connection":  # noqa: PYI034 - as everywhere here
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave, whatever is under way."""
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    async def send(self, body: bytes, path: str = "/translate", kind: str = "application/json") -> None:
        """A POST request.

        Raises:
            ConnectionError: nobody listens.
        """
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        await self._writer.drain()

    async def receive(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers in lower case, and body.

        Raises:
            ConnectionError: the connection ended before.
        """
        try:
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:-2])}
            body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        except asyncio.IncompleteReadError as error:
            self.close()
            raise ConnectionResetError from error
        if headers.get("connection") == "close":
            self.close()
        return int(head[0].split()[1]), headers, body


async def ask(connection: Connection, texts: list[str], expected: list[str], num_sentences: int, got: Answers) -> bool:
    """One request and what came of it; False if nobody listens any more."""
    body = json.dumps({"q": texts, "source": "en", "target": "de"}).encode()
    started = time.monotonic()
    try:
        await connection.send(body)
    except ConnectionError:
        connection.close()
        return False
    try:
        status, headers, answer = await connection.receive()
    except ConnectionError:
        got.lost.append(started)
        return True
    got.statuses[status] += 1
    if status == 200:
        got.seconds.append(time.monotonic() - started)
        got.sentences += num_sentences
        got.wrong += json.loads(answer)["translatedText"] != expected
    elif "retry-after" not in headers:
        got.without_retry += 1
    return True
