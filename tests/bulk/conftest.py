"""A bundle with random weights, text, and the translation of text by `transduce translate` on one process."""

import io
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import torch

from transduce.bulk import BlockTranslatorSettings, BulkProgress, BulkTask, ProcessPool, translate_files
from transduce.bundle import BundleDescription, Languages, save_bundle
from transduce.config import SearchConfig, TransformerConfig
from transduce.model import Transformer
from transduce.text import Tokenizer, read_stream
from transduce.translation import TranslationOptions, Translator

SOURCE = Path(__file__).parents[2] / "src"
WORDS = ("sun", "moon", "river", "stone", "bird", "tree", "wind", "salt", "road", "lamp", "fish", "door")
BLOCK_LINES = 10


def make_lines(count: int, seed: int = 0) -> list[str]:
    chance = random.Random(seed)  # noqa: S311 - nothing here is secret
    return [" ".join(chance.choices(WORDS, k=chance.randint(1, 5))) for _ in range(count)]


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "bundle"
    tokenizer = Tokenizer.train(make_lines(300, seed=1), 310, "bpe")
    torch.manual_seed(1)
    config = TransformerConfig(
        vocabulary=tokenizer.vocabulary, num_encoder_layers=1, num_decoder_layers=1, d_model=32, d_ff=48, num_heads=4
    )
    description = BundleDescription(
        model=config,
        search=SearchConfig(beam=2, max_pieces=24, max_extra_length=4),
        languages=Languages(source="en", target="de"),
        data={},
        scores=[],
        training={},
    )
    save_bundle(folder, Transformer(config).eval(), tokenizer, description)
    return folder


@pytest.fixture
def start() -> Callable[..., subprocess.Popen[bytes]]:
    """Begin `transduce` in a process of its own, on one core."""

    def begin(*arguments: object, **options: Any) -> Any:
        return subprocess.Popen(
            [sys.executable, "-m", "transduce", *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"},
            **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        )

    return begin


@pytest.fixture(scope="session")
def translator(bundle: Path) -> Translator:
    return Translator.load(bundle)


@pytest.fixture
def translate_alone(translator: Translator) -> Callable[[bytes], bytes]:
    """Text translated at once by this process."""

    def translate(content: bytes) -> bytes:
        lines = list(read_stream(io.BytesIO(content), "text"))
        return "".join(f"{line}\n" for line in translator.translate(lines)).encode()

    return translate


@pytest.fixture
def make_task(bundle: Path, tmp_path: Path) -> Callable[..., BulkTask]:
    """A task for the files in `in`, with blocks of ten lines; `settings` and options may be others."""

    def make(*inputs: str, settings: dict[str, Any] | None = None, **values: Any) -> BulkTask:
        options = TranslationOptions.parse(values.pop("options", {}))
        return BulkTask(
            settings=BlockTranslatorSettings(model=bundle, options=options, **(settings or {})),
            inputs=tuple(str(tmp_path / one) for one in inputs or ("in/*",)),
            output=values.pop("output", tmp_path / "out"),
            **{"block_lines": BLOCK_LINES, **values},
        )

    return make


@pytest.fixture
def run() -> Callable[..., list[BulkProgress]]:
    """Carry out a task with real processes; returns the progress after each block."""

    def translate(task: BulkTask, num_workers: int = 2, messages: list[str] | None = None) -> list[BulkProgress]:
        def make_pool(settings: BlockTranslatorSettings, digest: str) -> ProcessPool:
            return ProcessPool(settings, digest, num_workers)

        found = messages if messages is not None else []
        progress = list(translate_files(task, make_pool, found.append))
        found.extend(message for one in progress for message in one.messages)
        return progress

    return translate


@pytest.fixture
def write_text(tmp_path: Path) -> Callable[..., bytes]:
    """Write a file of so many lines below the folder of the test; returns its content."""

    def write(name: str, num_lines: int, seed: int = 0) -> bytes:
        content = "".join(f"{line}\n" for line in make_lines(num_lines, seed)).encode()
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return content

    return write


@pytest.fixture
def wait_until() -> Callable[..., None]:
    """Wait until something holds that another process brings about."""

    def wait(condition: Callable[[], object], seconds: float = 200) -> None:
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until
            time.sleep(0.002)

    return wait


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A bucket of S3, which a server on this machine offers, as fsspec sees it."""
    pytest.importorskip("s3fs", reason="needs pip install s3fs")
    server = pytest.importorskip("moto.server", reason="needs pip install 'moto[server]'")
    import fsspec

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    running = server.ThreadedMotoServer(port=0)
    running.start()
    host, port = running.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    with urlopen(Request(f"http://{host}:{port}/moto-api/reset", method="POST")):
        pass  # what an earlier server of this process had is there otherwise
    store = fsspec.filesystem("s3", skip_instance_cache=True)
    store.clear_instance_cache()  # those that know the earlier server
    store.mkdir("bucket")
    yield store
    running.stop()
