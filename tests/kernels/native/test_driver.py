"""The kernels under sanitizers, by `driver.c` on random Transformers and by their tests; and for ARM in an emulator."""

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from transduce.kernels.native import build
from transduce.kernels.native.library import load_levels

DRIVER = Path(__file__).with_name("driver.c")
TESTS = Path(__file__).parents[2]
# With -O2, GCC compiles code with sanitizers twice as long.
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g", "-O1")
ARM_SYSTEM = Path(os.environ.get("QEMU_LD_PREFIX", "/usr/aarch64-linux-gnu"))
NUM_SEEDS = 8
"""Of random Transformers, of which every second one is in int8, and of operations in training, of which every second
one is in bfloat16.
"""


def compile_driver(folder: Path, options: Sequence[str] = (), levels: Sequence[str] = tuple(build.LEVELS)) -> list[str]:
    """Compile library and driver with `$CC`; gives the words that run the driver on the library."""
    library, driver = folder / build.LIBRARY.name, folder / "driver"
    empty = folder / "empty.c"
    empty.write_text("int main(void) { return 0; }\n", encoding="utf-8")
    try:
        compiler = build.find_compiler()
        subprocess.run([*compiler, *options, str(empty), "-o", str(driver)], check=True)
    except (build.BuildError, subprocess.CalledProcessError) as error:
        pytest.skip(f"there is no compiler with these options: {error}")
    build.build_library(library, options, levels)
    compiling = ["-std=gnu11", "-O1", "-w", "-ffp-contract=off", f"-I{build.SOURCES}", *options]
    subprocess.run([*compiler, *compiling, str(DRIVER), "-ldl", "-lm", "-o", str(driver)], check=True)
    return [str(driver), str(library)]


def run_driver(command: Sequence[str], level: str, first_seed: int = 0, num_seeds: int = NUM_SEEDS) -> tuple[int, str]:
    """Run the driver; gives the supported levels as `processor.c` says them, and the log-probabilities as text."""
    done = subprocess.run(
        [*command, level, str(first_seed), str(num_seeds)], capture_output=True, check=False, encoding="utf-8"
    )
    assert done.returncode == 0, f"{level}: {done.stderr[-5000:]}"
    return int(done.stderr.split()[1]), done.stdout


def find_supported_levels(bits: int) -> list[str]:
    return [level for place, level in enumerate(build.LEVELS) if bits >> place & 1]


def assert_close(found: str, expected: str) -> None:
    """Within the bounds of float32; in int8 all but numbers that were halfway between two integers, in bfloat16 all
    but numbers that were halfway between two of its numbers.
    """
    errors: tuple[list[float], list[float]] = ([], [])
    for one, other in zip(found.splitlines(), expected.splitlines(), strict=True):
        (seed, *row), (same_seed, *expected_row) = (np.array(line.split(), dtype=np.float64) for line in (one, other))
        assert seed == same_seed
        errors[int(seed) % 2].append(np.abs(np.array(row) - expected_row).max())
    of_floats, of_integers = errors
    assert max(of_floats) < 1e-5
    assert np.median(of_integers) < 1e-5
    assert max(of_integers) < 0.1


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The words that run the driver on a library that watches addresses and undefined behaviour.

    Levels that this processor lacks are left out: nothing could run them.
    """
    return compile_driver(tmp_path_factory.mktemp("sanitized"), SANITIZERS, list(load_levels()) or ["portable"])


@pytest.mark.exhaustive
def test_random_transformers_touch_no_memory_but_their_own(sanitized: list[str]) -> None:
    """Odd widths, one head, vocabularies of three, wide beams; a sentence gets the same bits alone and in its batch."""
    bits, expected = run_driver(sanitized, "portable")
    for level in find_supported_levels(bits):
        run_driver(sanitized, level, 100, 60)
        assert_close(run_driver(sanitized, level)[1], expected)


@pytest.mark.exhaustive
def test_sanitizers_find_nothing(sanitized: list[str], tmp_path: Path) -> None:
    """The tests of the kernels, in a copy of the package with that library."""
    package = tmp_path / "transduce"
    shutil.copytree(build.SOURCES.parents[1], package, ignore=shutil.ignore_patterns("__pycache__", build.LIBRARY.name))
    shutil.copy(sanitized[-1], package / "kernels" / "native" / build.LIBRARY.name)
    found = subprocess.run(
        [*build.find_compiler(), "-print-file-name=libasan.so"], capture_output=True, check=True, encoding="utf-8"
    )
    runtime = Path(found.stdout.strip())
    if not runtime.is_absolute():
        pytest.skip("the sanitizers' library is not there")
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "LD_PRELOAD": str(runtime.resolve()),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python's and PyTorch's own
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "OMP_NUM_THREADS": "1",
    }
    chosen = [TESTS / "kernels" / "native", TESTS / "translation" / "engines" / "test_compiled_network.py"]
    assert all(path.exists() for path in chosen)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not exhaustive", *map(str, chosen)],
        env=environment,
        capture_output=True,
        check=False,
        encoding="utf-8",
        cwd=TESTS.parent,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]


@pytest.mark.exhaustive
def test_arm_computes_what_this_processor_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if emulator is None or not ARM_SYSTEM.is_dir():
        pytest.skip("needs Debian's packages qemu-user and libc6-arm64-cross")
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("needs ziglang, a compiler for ARM: the extra `wheels`")
    own, arm = (tmp_path / name for name in ("own", "arm"))
    own.mkdir()
    arm.mkdir()
    _, expected = run_driver(compile_driver(own, levels=["portable"]), "portable")
    monkeypatch.setenv("CC", shlex.join([sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-gnu.2.17"]))
    monkeypatch.setenv("_PYTHON_HOST_PLATFORM", "manylinux_2_17_aarch64")
    compiled = compile_driver(arm)

    def run(processor: str, level: str, num_seeds: int = NUM_SEEDS) -> tuple[int, str]:
        command = [emulator, "-cpu", processor, "-L", str(ARM_SYSTEM), *compiled]
        return run_driver(command, level, num_seeds=num_seeds)

    bits, by_portable = run("max", "portable")
    assert find_supported_levels(bits) == ["portable", "neon", "neon_dot"]
    assert_close(by_portable, expected)
    by_neon = run("max", "neon")[1]
    assert_close(by_neon, expected)
    assert run("max", "neon_dot")[1] == by_neon  # integers are exact, and floats are computed by the same instructions
    assert find_supported_levels(run("cortex-a53", "neon", 1)[0]) == ["portable", "neon"]
