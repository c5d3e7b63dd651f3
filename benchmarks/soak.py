"""A real `transduce serve` for a long time, under load that changes: is every answer right, and does anything grow?

    python benchmarks/soak.py --minutes 30

Rounds of --round-seconds follow each other, each with another number of clients, which use API keys and send texts in
the dialects of LibreTranslate and DeepL, and documents; some send a wrong key, some leave before the answer. In every
third round there are many more than the queue takes; in every second round the model's folder is replaced. Every
translation is compared with the offline one. Allowed are results, refusals of wrong keys, and 503 with Retry-After
from overload. After each round, when nobody asks, memory, threads and open files of the server are counted: those of
the last third of the rounds must not be above those of the first third after the very first round. Prints a table and,
last, one line of JSON.
"""

import argparse
import asyncio
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from urllib.request import urlopen

from fuzz_readers import WORDS, make_bundle
from serving_client import Connection, Server

from serving import Text
from transduce.documents.formats import read_formatted_document
from transduce.translation import TranslationOptions, Translator
from transduce.translation.documents import DocumentTranslator

KEY = "key-of-the-soak-test-of-no-other-use"


class Soak:
    """The server under test, and what its clients got.

    Args:
        server: the server.
        text: lines with their offline translations.
        documents: HTML documents with their offline translations.
    """

    def __init__(self, server: Server, text: Text, documents: list[tuple[bytes, bytes]]) -> None:
        self.server, self.text, self.documents = server, text, documents
        self.found: Counter[str] = Counter()
        """How often each outcome came."""
        self.problems: list[str] = []

    async def client(self, number: int, until: float) -> None:
        """Requests of all kinds, one after the other."""
        chance = random.Random(number)  # noqa: S311 - nothing here is secret
        async with Connection(self.server.port) as connection:
            while time.monotonic() < until:
                ask = chance.choices(
                    [self._libre, self._deepl, self._document, self._wrong_key, self._leave], [8, 4, 1, 1, 1]
                )
                try:
                    await ask[0](connection, chance)
                except (OSError, ValueError) as error:
                    self.problems.append(f"{ask[0].__name__}: {error!r}")
                    connection.close()

    async def _libre(self, connection: Connection, chance: random.Random) -> None:
        lines, expected, _ = self.text.request(chance, chance.choice((1, 1, 3, 20)))
        answer = await self._post(
            connection, {"q": lines, "source": "en", "target": "de", "api_key": KEY}, "/translate"
        )
        self._compare("texts", answer and answer["translatedText"], expected)

    async def _deepl(self, connection: Connection, chance: random.Random) -> None:
        lines, expected, _ = self.text.request(chance, chance.choice((1, 2, 8)))
        body = {"text": lines, "source_lang": "EN", "target_lang": "DE", "auth_key": KEY}
        answer = await self._post(connection, body, "/v2/translate")
        self._compare("texts", answer and [one["text"] for one in answer["translations"]], expected)

    async def _document(self, connection: Connection, chance: random.Random) -> None:
        content, expected = chance.choice(self.documents)
        fields = {"source": "en", "target": "de", "api_key": KEY}
        parts = [
            f'--BB\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
            for name, value in fields.items()
        ]
        head = '--BB\r\nContent-Disposition: form-data; name="file"; filename="a.html"\r\n\r\n'
        await connection.send(
            "".join(parts).encode() + head.encode() + content + b"\r\n--BB--\r\n",
            "/translate_file",
            "multipart/form-data; boundary=BB",
        )
        answer = await self._receive(connection)
        if answer is not None:
            url = f"http://127.0.0.1:{self.server.port}/download_file/{answer['translatedFileUrl'].rpartition('/')[2]}"
            with await asyncio.to_thread(urlopen, url) as file:
                self._compare("documents", file.read(), expected)

    async def _wrong_key(self, connection: Connection, _chance: random.Random) -> None:
        await connection.send(json.dumps({"q": "sun", "source": "en", "target": "de", "api_key": "x"}).encode())
        status, _, _ = await connection.receive()
        if status != 403:
            self.problems.append(f"a wrong key gets status {status}")
        self.found["refused keys"] += 1

    async def _leave(self, connection: Connection, chance: random.Random) -> None:
        lines, _, _ = self.text.request(chance, 60)
        await connection.send(json.dumps({"q": lines, "source": "en", "target": "de", "api_key": KEY}).encode())
        await asyncio.sleep(chance.uniform(0, 0.3))
        connection.close()
        self.found["left"] += 1

    async def _post(self, connection: Connection, body: dict, path: str) -> dict | None:
        await connection.send(json.dumps(body).encode(), path)
        return await self._receive(connection)

    async def _receive(self, connection: Connection) -> dict | None:
        """The body of a result; None if the server is overloaded."""
        status, headers, body = await connection.receive()
        if status == 200:
            return json.loads(body)
        self.found[f"status {status}"] += 1
        if status != 503 or "retry-after" not in headers:
            self.problems.append(f"status {status}: {body[:200]!r}")
        await asyncio.sleep(0.2)
        return None

    def _compare(self, kind: str, translation: object, expected: object) -> None:
        if translation is not None:
            self.found[kind] += 1
            if translation != expected:
                self.problems.append(f"a wrong translation: {translation!r:.200} instead of {expected!r:.200}")

    def count_resources(self) -> tuple[int, int, int]:
        """Memory in megabytes, threads and open files of the server."""
        place = Path(f"/proc/{self.server.process.pid}")
        return self.server.megabytes, len(list((place / "task").iterdir())), len(list((place / "fd").iterdir()))


async def run(given: argparse.Namespace, soak: Soak, model: Path) -> list[tuple[int, int, int]]:
    """All rounds; the resources after each."""
    end, counts = time.monotonic() + 60 * given.minutes, []
    number = 0
    while not counts or time.monotonic() < end:
        clients = given.clients * 10 if number % 3 == 2 else (given.clients, 1, 2 * given.clients)[number % 3]
        until = time.monotonic() + given.round_seconds
        asking = asyncio.gather(*(soak.client(1000 * number + one, until) for one in range(clients)))
        if number % 2:
            await asyncio.sleep(given.round_seconds / 3)
            shutil.copytree(model, model.with_name(f"new-{number}"))
            model.rename(model.with_name(f"old-{number}"))  # noqa: ASYNC240 - takes no time
            model.with_name(f"new-{number}").rename(model)
        await asking
        await asyncio.sleep(2)
        counts.append(soak.count_resources())
        print(
            f"{number:4} {clients:8} {counts[-1][0]:6} {counts[-1][1]:8} {counts[-1][2]:6}  {dict(soak.found)}",
            flush=True,
        )
        number += 1
    return counts


def find_growth(counts: list[tuple[int, int, int]]) -> list[str]:
    """What is higher in the last third of the rounds than in the first third, the very first round aside."""
    if len(counts) < 3:
        return ["too few rounds to see growth: give more --minutes"]
    third = max(1, (len(counts) - 1) // 3)
    problems = []
    for place, (kind, share, more) in enumerate((("MB", 1.1, 20), ("threads", 1.0, 2), ("open files", 1.0, 4))):
        first, last = (
            statistics.median(one[place] for one in part) for part in (counts[1 : 1 + third], counts[-third:])
        )
        if last > share * first + more:
            problems.append(f"{kind} grew from {first:g} to {last:g}")
    return problems


def main() -> None:
    """Start the server, load it, report; exit code 1 if there are problems."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--round-seconds", type=float, default=6)
    parser.add_argument("--clients", type=int, default=6, help="in a usual round")
    parser.add_argument("--bundle", type=Path, help="en-de; a small one with random weights by default")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="transduce-soak-") as temporary:
        folder = Path(temporary)
        model = folder / "model"
        if given.bundle:
            shutil.copytree(given.bundle, model)
        else:
            make_bundle(model)
        (folder / "keys").write_text(f"{KEY}\n", encoding="utf-8")
        chance = random.Random(1)  # noqa: S311 - nothing here is secret
        lines = [" ".join(chance.choices(WORDS, k=chance.randint(1, 8))).capitalize() + "." for _ in range(200)]
        (folder / "text").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        contents = [
            f"<html><p>{one}</p><p>A <b>{two}</b></p></html>".encode()
            for one, two in zip(lines[:9], lines[9:18], strict=True)
        ]
        offline = DocumentTranslator(Translator.load(model, device="cpu", precision="float32"), TranslationOptions())
        documents = [(one, offline.translate(read_formatted_document(one, ".html"))) for one in contents]
        text = Text(model, folder / "text")
        options = ["--api-key-file", str(folder / "keys"), "--max-queue-tokens", "3000", "--device", "cpu"]
        soak = Soak(Server(model, *options), text, documents)
        try:
            print("round  clients     MB  threads  files  outcomes so far")
            counts = asyncio.run(run(given, soak, model))
        finally:
            exit_code = soak.server.end()
    problems = [*soak.problems, *find_growth(counts)]
    if exit_code:
        problems.append(f"exit code {exit_code}")
    for problem in problems[:20]:
        print(problem)
    result = {"minutes": given.minutes, "rounds": len(counts), "outcomes": dict(soak.found), "problems": len(problems)}
    print(json.dumps(result | {"first": counts[0], "last": counts[-1]}))
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
