"""A real `transduce serve` under load: how fast, how fair, and is every answer right?

    python benchmarks/serving.py BUNDLE test.en --clients 64 --seconds 300

Clients keep their connections and send requests of mixed lengths, one after the other: 1 to 60 lines each (--mix).
Every answer is compared with the offline translation. Load and `transduce translate` of the same sentences take turns,
in --blocks; the ratio is the median over the blocks. Then the same with one client, and with requests of one line.
Then: ten times as many clients with a small queue; a model that is replaced under load; clients that leave; hostile
bodies; SIGTERM under load. Prints a table and, last, one line of JSON. Clients and server share the machine.
"""

import argparse
import asyncio
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from serving_client import Answers, Connection, Server, ask

from transduce.text import rebuild_document, split_document
from transduce.translation import Translator

MIX = (1, 1, 1, 1, 3, 7, 20, 60)
"""Lines of a request, each as often as any other."""


class Text:
    """Lines, their sentences, and what they are translated to."""

    def __init__(self, bundle: Path, source: Path) -> None:
        lines = [line for line in source.read_text(encoding="utf-8").splitlines() if line.strip()]
        translator = Translator.load(bundle, device="cpu", precision="float32")
        documents = [split_document(line, translator.source_language) for line in lines]
        self.sentences = [sentence for document in documents for sentence in document.sentences]
        rest = iter(translator.translate(self.sentences))
        translations = [rebuild_document(document, [next(rest) for _ in document.sentences]) for document in documents]
        self._lines = list(zip(lines, translations, [len(one.sentences) for one in documents], strict=True))

    def request(self, chance: random.Random, count: int) -> tuple[list[str], list[str], int]:
        """Lines, their translations, and the number of their sentences."""
        lines, translations, numbers = zip(*chance.choices(self._lines, k=count), strict=True)
        return list(lines), list(translations), sum(numbers)


async def load(server: Server, text: Text, clients: int, seconds: float, mix: tuple[int, ...], got: Answers) -> float:
    """So many clients for so long; sentences per second."""
    started = time.monotonic()

    async def client(number: int) -> None:
        chance = random.Random(number)  # noqa: S311 - nothing here is secret
        async with Connection(server.port) as connection:
            while time.monotonic() - started < seconds:
                if not await ask(connection, *text.request(chance, chance.choice(mix)), got):
                    return

    before = got.sentences
    await asyncio.gather(*map(client, range(clients)))
    return (got.sentences - before) / (time.monotonic() - started)


def offline(bundle: Path, text: Text, precision: str) -> float:
    """Sentences per second of `transduce translate`, by its own clock, which starts when the model is loaded."""
    command = [sys.executable, "-m", "transduce", "translate", str(bundle), "--precision", precision]
    given = "\n".join(text.sentences * (1 + 4000 // len(text.sentences))) + "\n"
    found = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    count, seconds = re.search(r"([\d,]+) lines in ([\d.]+) s", found.stderr).groups()
    return int(count.replace(",", "")) / float(seconds)


async def measure_speed(arguments: argparse.Namespace, text: Text) -> dict:
    """Load beside offline translation in turns, then one client, then single lines."""
    server = Server(arguments.bundle)
    got, rates, bases, memory = Answers(), [], [], []
    seconds = arguments.seconds / arguments.blocks
    await load(server, text, arguments.clients, min(seconds, 10), arguments.mix, Answers())
    for _ in range(arguments.blocks):
        bases.append(await asyncio.to_thread(offline, arguments.bundle, text, "float32"))
        rates.append(await load(server, text, arguments.clients, seconds, arguments.mix, got))
        memory.append(server.megabytes)
    automatic = await asyncio.to_thread(offline, arguments.bundle, text, "auto")
    alone, lines, line = Answers(), Answers(), Answers()
    short = max(seconds / 2, 10)
    one_client = await load(server, text, 1, short, arguments.mix, alone)
    single_lines = await load(server, text, arguments.clients, short, (1,), lines)
    single_line = await load(server, text, 1, short, (1,), line)
    everything = (got, alone, lines, line)
    return {
        "sentences/s": round(statistics.median(rates), 1),
        "offline float32, sentences/s": round(statistics.median(bases), 1),
        "offline auto, sentences/s": round(automatic, 1),
        "of offline": round(statistics.median(map(float.__truediv__, rates, bases)), 3),
        "requests": sum(got.statuses.values()),
        "failed": sum(sum(one.statuses.values()) - one.statuses[200] + len(one.lost) for one in everything),
        "wrong": sum(one.wrong for one in everything),
        "p50, s": round(got.percentile(0.5), 3),
        "p99, s": round(got.percentile(0.99), 3),
        "one client, sentences/s": round(one_client, 1),
        "times one client": round(statistics.median(rates) / one_client, 2),
        "single lines, sentences/s": round(single_lines, 1),
        "single lines, p50, s": round(lines.percentile(0.5), 3),
        "single lines, p99, s": round(lines.percentile(0.99), 3),
        "one client, single lines, sentences/s": round(single_line, 1),
        "one client, single lines, p50, s": round(line.percentile(0.5), 3),
        "single lines, times one client": round(single_lines / single_line, 2),
        "memory after each block, MB": memory,
        "sentences of a batch": round(server.metric("batch_sentences_sum") / server.metric("batch_sentences_count"), 1),
        "exit code": server.end(),
    }


async def measure_overload(arguments: argparse.Namespace, text: Text) -> dict:
    """Ten times as many clients as the queue is made for."""
    server = Server(arguments.bundle, "--max-queue-tokens", "10000")
    got, after = Answers(), Answers()
    rate = await load(server, text, 10 * arguments.clients, arguments.short_seconds, arguments.mix, got)
    await load(server, text, 1, 2, (1,), after)
    server.end()
    return {
        "statuses": dict(got.statuses),
        "without Retry-After": got.without_retry,
        "lost": len(got.lost),
        "wrong": got.wrong,
        "sentences/s": round(rate, 1),
        "p99, s": round(got.percentile(0.99), 3),
        "afterwards": dict(after.statuses),
    }


async def measure_reload(arguments: argparse.Namespace, text: Text) -> dict:
    """A bundle that is replaced under load, and SIGTERM under load."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shutil.copytree(arguments.bundle, folder / "model")
        server = Server(folder / "model")
        got, last = Answers(), Answers()

        async def replace() -> None:
            for number in range(3):
                await asyncio.sleep(arguments.short_seconds / 4)
                shutil.copytree(arguments.bundle, folder / "new")
                (folder / "model").rename(folder / f"old-{number}")
                (folder / "new").rename(folder / "model")

        await asyncio.gather(
            load(server, text, arguments.clients, arguments.short_seconds, arguments.mix, got), replace()
        )
        reloads = server.metric("reloads_total", '{outcome="loaded"}')
        ending = asyncio.create_task(load(server, text, arguments.clients, 60, arguments.mix, last))
        await asyncio.sleep(3)
        told = time.monotonic()
        exit_code = await asyncio.to_thread(server.end)
        await ending
    return {
        "reloads": reloads,
        "statuses": dict(got.statuses),
        "lost": len(got.lost),
        "wrong": got.wrong,
        "SIGTERM: exit code": exit_code,
        "SIGTERM: statuses": dict(last.statuses),
        "SIGTERM: lost of those sent before": sum(sent < told for sent in last.lost),
        "SIGTERM: unanswered of those sent after": sum(sent >= told for sent in last.lost),
        "SIGTERM: wrong": last.wrong,
    }


async def measure_leavers(arguments: argparse.Namespace, text: Text) -> dict:
    """Clients that send a long request and leave."""
    server = Server(arguments.bundle)
    chance = random.Random(1)  # noqa: S311 - nothing here is secret
    asked = 0

    async def leave() -> None:
        nonlocal asked
        async with Connection(server.port) as connection:
            lines, _, count = text.request(chance, 500)
            asked += count
            await connection.send(json.dumps({"q": lines, "source": "en", "target": "de"}).encode())
            await asyncio.sleep(0.5)

    await asyncio.gather(*(leave() for _ in range(20)))
    started = time.monotonic()
    while server.metric("queue_sentences"):
        time.sleep(0.05)  # noqa: ASYNC251 - nothing else is under way
    emptied = time.monotonic() - started
    after = Answers()
    await load(server, text, 1, 2, (1,), after)
    computed = server.metric("batch_sentences_sum")
    server.end()
    return {
        "sentences asked": asked,
        "computed": int(computed),
        "queue empty after, s": round(emptied, 2),
        "afterwards": dict(after.statuses),
    }


async def measure_hostile(arguments: argparse.Namespace, text: Text) -> dict:
    """Bodies that are anything."""
    server = Server(arguments.bundle)
    chance = random.Random(1)  # noqa: S311 - nothing here is secret
    got, after = Answers(), Answers()
    paths = ("/translate", "/detect", "/v2/translate", "/v1/translate", "/v1/score", "/v1/inspect", "/languages")
    kinds = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain")

    async def client() -> None:
        async with Connection(server.port) as connection:
            for _ in range(arguments.hostile // 16):
                await connection.send(hostile_body(chance), chance.choice(paths), chance.choice(kinds))
                try:
                    status, _, _ = await connection.receive()
                except ConnectionError:
                    got.lost.append(time.monotonic())
                else:
                    got.statuses[status] += 1

    await asyncio.gather(*(client() for _ in range(16)))
    await load(server, text, 1, 2, (1,), after)
    server.end()
    return {"statuses": dict(sorted(got.statuses.items())), "lost": len(got.lost), "afterwards": dict(after.statuses)}


def hostile_body(chance: random.Random) -> bytes:
    """Something that no client should send, and some do."""
    values = (None, -1, 1e308, 10**30, "", "\ud800", "\x00", "a" * 20_000, [], {}, [[]] * 50, {"q": {}}, True)
    names = ("q", "text", "source", "target", "format", "alternatives", "pairs", "beam", "glossary", "target_lang", "x")
    match chance.randrange(6):
        case 0:
            return chance.randbytes(chance.randrange(3000))
        case 1:
            return b"[" * chance.randrange(1, 100_000)
        case 2:
            return json.dumps(chance.choice(values)).encode()
        case 3:
            whole = json.dumps({"q": "A man.", "text": ["A man."], "source": "en", "target": "de", "target_lang": "DE"})
            return whole.encode()[: chance.randrange(len(whole))]
        case 4:
            return b'{"q": "\xff\xfe", "source": "en", "target": "de"}'
        case _:
            return json.dumps({name: chance.choice(values) for name in chance.sample(names, 5)}).encode()


MEASURES = {
    "speed": measure_speed,
    "overload": measure_overload,
    "reload": measure_reload,
    "leavers": measure_leavers,
    "hostile": measure_hostile,
}


def main() -> None:
    """Parse, measure, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, help="en-de")
    parser.add_argument("source", type=Path, help="one line of text a line")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=300, help="of load, all blocks together")
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--short-seconds", type=float, default=20, help="of overload, and of load with reloads")
    parser.add_argument("--hostile", type=int, default=10_000, help="bodies")
    parser.add_argument("--mix", type=lambda text: tuple(map(int, text.split(","))), default=MIX)
    parser.add_argument("--only", choices=MEASURES, action="append")
    arguments = parser.parse_args()
    text = Text(arguments.bundle, arguments.source)
    found = {}
    for name in arguments.only or MEASURES:
        found[name] = asyncio.run(MEASURES[name](arguments, text))
        print(f"{name} ({os.getloadavg()[0]:.1f} processes waiting for 2 cores)")
        for key, value in found[name].items():
            print(f"    {key:40} {value}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
