"""Small bundles with random weights: what they translate to makes no sense, and is the same every time."""

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from httpx._config import DEFAULT_TIMEOUT_CONFIG

from transduce.bundle import BundleDescription, Languages, save_bundle
from transduce.config import SearchConfig, TransformerConfig
from transduce.model import Transformer
from transduce.serving.app import make_app
from transduce.serving.middleware import Authorization, RequestRate
from transduce.serving.models import ModelSettings
from transduce.serving.scheduling import Limits
from transduce.serving.server import listen, make_server
from transduce.serving.service import Service
from transduce.text import Tokenizer
from transduce.translation import Translator

# A server that shares its cores with everything else may take longer than the five seconds that httpx waits.
for _phase in ("connect", "read", "write", "pool"):
    setattr(DEFAULT_TIMEOUT_CONFIG, _phase, 60.0)

WORDS = ("sun", "moon", "river", "stone", "bird", "tree", "wind", "salt", "road", "lamp", "fish", "door")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def make_sentences() -> Callable[..., list[str]]:
    def make(count: int, seed: int = 1, max_words: int = 4) -> list[str]:
        random = np.random.default_rng(seed)
        return [
            " ".join(random.choice(WORDS, size=random.integers(1, max_words + 1))).capitalize() + "."
            for _ in range(count)
        ]

    return make


@pytest.fixture(scope="session")
def tokenizer(make_sentences: Callable[..., list[str]]) -> Tokenizer:
    return Tokenizer.train(make_sentences(300), 310, "bpe")


@pytest.fixture(scope="session")
def make_bundle(tokenizer: Tokenizer) -> Callable[..., Path]:
    """Saves one, in place of another that is there."""

    def make(
        folder: Path,
        seed: int = 0,
        source: str = "en",
        target: str = "de",
        scale: float = 4,
        tokenizer: Tokenizer = tokenizer,
        **settings: object,
    ) -> Path:
        torch.manual_seed(seed)
        sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 32, "d_ff": 48, "num_heads": 4}
        config = TransformerConfig.model_validate({"vocabulary": tokenizer.vocabulary, **sizes, **settings})
        description = BundleDescription(
            model=config,
            search=SearchConfig(beam=2, max_pieces=40, max_extra_length=2),
            languages=Languages(source=source, target=target),
        )
        model = Transformer(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(scale if parameter.dim() > 1 else 1)  # so that other sources have other translations
        save_bundle(folder, model, tokenizer, description)
        return folder

    return make


@pytest.fixture(scope="session")
def bundle(make_bundle: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Translates en to de."""
    return make_bundle(tmp_path_factory.mktemp("models") / "small")


@pytest.fixture(scope="session")
def tagged_bundle(
    make_bundle: Callable[..., Path],
    make_sentences: Callable[..., list[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Translates into two languages, by a tag at the beginning of the source."""
    tokenizer = Tokenizer.train(make_sentences(300), 310, "bpe", tags=[">>de<<", ">>fr<<"])
    return make_bundle(tmp_path_factory.mktemp("models") / "tagged", tokenizer=tokenizer)


@pytest.fixture(scope="session")
def offline(bundle: Path) -> Translator:
    """What its translations are held against."""
    return Translator.load(bundle, device="cpu", precision="float32")


@dataclass(frozen=True)
class RunningServer:
    """A service that listens, in a thread of this process, with its connections, and what it says of itself."""

    url: str
    service: Service
    loop: asyncio.AbstractEventLoop
    connections: set[Any]
    log: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def make_running() -> Iterator[Callable[..., RunningServer]]:
    """Starts servers, all of which end with the tests of a file."""
    stops: list[Callable[[], None]] = []

    def make(
        *models: Path,
        limits: Limits | None = None,
        keys: tuple[str, ...] = (),
        rate: int = 0,
        cors: tuple[str, ...] = (),
        **folders: Path,
    ) -> RunningServer:
        log: list[str] = []
        service = Service(models, ModelSettings(device="cpu"), limits=limits, report=log.append)
        server = make_server(make_app(service, Authorization(keys), RequestRate(rate), cors=cors, **folders))
        listening = listen("127.0.0.1", 0)
        loop = asyncio.new_event_loop()
        is_ready = threading.Event()

        async def serve() -> None:
            await service.start()
            is_ready.set()
            await server.serve([listening])
            await service.drain()

        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
        thread.start()

        def stop() -> None:
            server.should_exit = True
            thread.join()
            loop.close()
            listening.close()

        stops.append(stop)
        assert is_ready.wait(30)
        return RunningServer(
            f"http://127.0.0.1:{listening.getsockname()[1]}", service, loop, server.server_state.connections, log
        )

    yield make
    for stop in stops:
        stop()


@pytest.fixture(scope="module")
def server(make_running: Callable[..., RunningServer], bundle: Path) -> RunningServer:
    """Translates en to de, for everybody."""
    return make_running(bundle)


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url) as found:
        yield found


@pytest.fixture
def begin_to_serve() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts `transduce serve` as a process."""
    processes: list[subprocess.Popen[bytes]] = []

    def begin(model: Path, *arguments: str, temporary: Path | None = None) -> subprocess.Popen[bytes]:
        variables = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src"), "OMP_NUM_THREADS": "1"}
        if temporary is not None:
            variables["TMPDIR"] = str(temporary)
        command = [sys.executable, "-m", "transduce", "serve", str(model), "--device=cpu", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=variables)
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def serve(
    begin_to_serve: Callable[..., subprocess.Popen[bytes]], bundle: Path
) -> Callable[..., tuple[subprocess.Popen[bytes], str]]:
    """Serves at some free port; gives the process and its address once it is ready."""

    def wait(*arguments: str) -> tuple[subprocess.Popen[bytes], str]:
        process = begin_to_serve(bundle, "--port=0", *arguments)
        assert process.stderr
        while line := process.stderr.readline().decode():
            if found := re.search(r"at (http://[0-9.:]+)", line):
                return process, found[1]
        pytest.fail("it has ended")

    return wait
