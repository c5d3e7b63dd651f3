"""Fixtures that the tests of several packages share."""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import settings

# beartype looks at one item of a list, drawn at random. A thread that still computes after its test must not draw
# from the generator that hypothesis watches.
with pytest.MonkeyPatch.context() as patch:
    patch.setattr(random, "getrandbits", random.Random().getrandbits)  # noqa: S311 - nothing here is secret
    import beartype  # noqa: F401 - takes the function with it

    # Importing the package imports beartype.
    from transduce.kernels.native.build import BuildError, build_library, find_levels, find_platform
    from transduce.kernels.native.library import Library, load_levels

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# How long an example takes says more about the machine than about the code. `make test-all` takes the other profile.
settings.register_profile("suite", deadline=None, max_examples=40)
settings.register_profile("thorough", deadline=None, max_examples=200)
settings.load_profile("suite")

# A shell without job control lets its background processes ignore Ctrl-C, and every process that they start in turn.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def checked_types(pytestconfig: pytest.Config) -> None:
    """For tests of what the checks of types and shapes refuse."""
    if not pytestconfig.getoption("jaxtyping_packages"):
        pytest.skip("types and shapes are checked by make test-all")


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """A real browser, Chromium."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def unreadable_file() -> Iterator[Path]:
    """A file that may not be read, by root neither: for the time of the test, root is nobody."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "unreadable.toml"
        path.write_text("", encoding="utf-8")
        path.chmod(0)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            yield path
        finally:
            os.seteuid(user)


@pytest.fixture
def time_growth() -> Callable[[Callable[[Any], object], Any, Any], float]:
    """How many times as much processor time a function takes for something larger, on any machine."""

    def measure(function: Callable[[Any], object], small: Any, large: Any) -> float:
        def seconds(given: Any) -> float:
            started = time.thread_time()
            function(given)
            return time.thread_time() - started

        shortest = min(seconds(small) for _ in range(3))
        return min(seconds(large) for _ in range(2)) / max(shortest, 0.002)  # less cannot be measured

    return measure


@pytest.fixture(scope="session")
def adds_up_alike() -> bool:
    """Whether the matrix library here gives a row the same bits in every product of a multiple of four rows.

    That is what `model.linear` builds on. It was seen to hold; where it does not, the same numbers come out up to
    rounding, and tests can ask for no more.
    """
    before = torch.get_num_threads()
    try:
        return all(_adds_up_alike(*shape, num_threads) for shape in SHAPES for num_threads in (1, 2))
    finally:
        torch.set_num_threads(before)


SHAPES = [(16, 24), (16, 48), (24, 50), (32, 16), (48, 16), (128, 384), (128, 256), (256, 128), (512, 129)]
"""Widths of the inputs and outputs of products."""


@torch.no_grad()
def _adds_up_alike(width: int, num_outputs: int, num_threads: int) -> bool:
    torch.set_num_threads(num_threads)
    inputs, weight = torch.randn(72, width), torch.randn(num_outputs, width)
    everything = torch.nn.functional.linear(inputs, weight)
    return all(
        torch.equal(torch.nn.functional.linear(inputs[:count], weight), everything[:count]) for count in range(4, 72, 4)
    )


@pytest.fixture(scope="session")
def levels(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Library]:
    """The compiled kernels at all levels that this processor has: as installed, or else built here."""
    found = load_levels()
    if not found:
        try:
            found = load_levels(build_library(tmp_path_factory.mktemp("native") / "kernels.so"))
        except BuildError as error:
            pytest.skip(f"compiled kernels cannot be built here: {error}")
    return found


@pytest.fixture(scope="session", params=find_levels(find_platform()))
def library(request: pytest.FixtureRequest, levels: Mapping[str, Library]) -> Library:
    """The compiled kernels at one level after the other."""
    if request.param not in levels:
        pytest.skip(f"this processor has no {request.param}")
    return levels[request.param]
