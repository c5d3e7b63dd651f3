"""What scripts/build-wheels makes, and what it refuses."""

import importlib.util
import platform
import runpy
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transduce import __version__
from transduce.kernels.native.library import load_levels

SCRIPT = Path(__file__).parents[1] / "scripts" / "build-wheels"
TAG = "py3-none-manylinux_2_17_x86_64"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    """Its functions and tables."""
    path = list(sys.path)
    try:
        return runpy.run_path(str(SCRIPT))
    finally:
        sys.path[:] = path


def make_library(script: dict[str, Any], *, machine: int = 62, text: bytes = b"\0libm.so.6\0GLIBC_2.17\0") -> bytes:
    """What is read of a library for Linux: its header, and strings."""
    levels = script["find_levels"]("manylinux_2_17_x86_64")
    names = b"".join(f"transduce_{level}_run_decoder\0".encode() for level in levels)
    return b"\x7fELF".ljust(18, b"\0") + struct.pack("<H", machine) + b"\0" + names + text


@pytest.fixture
def make_wheel(tmp_path: Path) -> Callable[..., Path]:
    def make(library: bytes, *, tag: str = TAG, name: str = "kernels.so") -> Path:
        path = tmp_path / f"transduce-1-{TAG}.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"transduce/kernels/native/{name}", library)
            archive.writestr("transduce-1.dist-info/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n")
        return path

    return make


def test_a_wheel_that_is_not_what_its_name_says_is_refused(
    script: dict[str, Any], make_wheel: Callable[..., Path]
) -> None:
    tag = TAG.removeprefix("py3-none-")
    script["check_wheel"](make_wheel(make_library(script)), tag)
    wrong = [
        (make_wheel, {"library": make_library(script, machine=183)}, "for aarch64"),
        (make_wheel, {"library": make_library(script, machine=40)}, "for machine 40"),
        (make_wheel, {"library": b"MZ".ljust(60, b"\0") + struct.pack("<I4xH", 64, 0x8664)}, "is PE, not ELF"),
        (make_wheel, {"library": make_library(script, text=b"GLIBC_2.17\0GLIBC_2.27\0")}, "a newer system"),
        (make_wheel, {"library": make_library(script, text=b"\0libgomp.so.1\0")}, "needs libgomp.so.1"),
        (make_wheel, {"library": make_library(script).replace(b"avx512_vnni", b"")}, "lacks the level avx512_vnni"),
        (make_wheel, {"library": make_library(script), "tag": "py3-none-any"}, "says another tag"),
        (make_wheel, {"library": make_library(script), "name": "kernels.dll"}, "in place of"),
    ]
    for make, arguments, problem in wrong:
        with pytest.raises(SystemExit, match=problem):
            script["check_wheel"](make(**arguments), tag)
    with pytest.raises(SystemExit, match="were not compiled"):
        script["check_wheel"](make_wheel(make_library(script)), "win_amd64")


def test_the_version_of_macos_is_read(script: dict[str, Any]) -> None:
    header = b"\xcf\xfa\xed\xfe" + struct.pack("<I", 0x0100000C)
    commands = struct.pack("<4I", 0x19, 16, 0, 0) + struct.pack("<4I", 0x32, 16, 1, 11 << 16 | 2 << 8)
    library = header.ljust(16, b"\0") + struct.pack("<4I", 2, 32, 0, 0) + commands
    assert script["read_machine"](library) == ("Mach-O", "arm64")
    assert script["find_oldest_system"](library, "macosx") == (11, 2)
    assert script["read_version"]("macosx_11_0_arm64") == (11, 0)
    assert script["read_version"]("win_amd64") == ()


def test_an_unknown_platform_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "linux_arm"], capture_output=True, check=False, encoding="utf-8"
    )
    assert done.returncode == 2
    assert "linux_arm: not among manylinux_2_17_x86_64" in done.stderr


@pytest.mark.exhaustive
def test_every_wheel_can_be_built_here(script: dict[str, Any], tmp_path: Path) -> None:
    """The script checks each of them; that of this machine has the levels of a library that is compiled here."""
    for module in ("hatchling", "ziglang"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}: the extra `wheels`")
    subprocess.run([sys.executable, str(SCRIPT), "--output", str(tmp_path)], check=True)
    made = {path.name for path in tmp_path.iterdir()}
    wheels = {f"transduce-{__version__}-py3-none-{tag}.whl" for tag in script["TARGETS"]}
    assert made == {f"transduce-{__version__}.tar.gz", *wheels}
    with tarfile.open(tmp_path / f"transduce-{__version__}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"hatch_build.py", "src/transduce/kernels/native/level.c", "LICENSE", "README.md"} <= names
    assert not [name for name in names if name.endswith((".so", ".dylib", ".dll"))]
    own = tmp_path / f"transduce-{__version__}-py3-none-manylinux_2_17_{platform.machine()}.whl"
    if sys.platform != "linux" or not own.exists() or not load_levels():
        return
    with zipfile.ZipFile(own) as archive:
        library = Path(archive.extract("transduce/kernels/native/kernels.so", tmp_path))
    assert list(load_levels(library)) == list(load_levels())
