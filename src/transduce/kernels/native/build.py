"""Compiles the C sources beside it to one library; needs a C compiler, and of Python nothing but its standard library.

`python src/transduce/kernels/native/build.py` builds it by hand; installing the package does the same
(`hatch_build.py`).
"""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

SOURCES = Path(__file__).parent
LIBRARY = SOURCES / ("kernels.dll" if sys.platform == "win32" else "kernels.so")
"""Where the library lies once it is built."""

_AVX512 = ("-mavx2", "-mfma", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl")
LEVELS = {"portable": (), "avx2": ("-mavx2", "-mfma"), "avx512": _AVX512, "avx512_vnni": (*_AVX512, "-mavx512vnni")}
"""The levels of instruction sets, slowest first, with the options by which a compiler uses them."""

_OPTIONS = ("-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-Wno-psabi")
_COMPILERS = ("cc", "gcc", "clang")


class BuildError(Exception):
    """There is no compiler, or it fails; the message holds what it said."""


def compute_source_digest() -> int:
    """A number of 63 bits that stands for the sources: a library of other sources is not loaded."""
    digest = hashlib.sha256()
    for path in sorted([*SOURCES.glob("*.h"), *SOURCES.glob("*.c")]):
        digest.update(path.name.encode() + path.read_bytes())
    return int.from_bytes(digest.digest()[:8], "little") >> 1


def find_compiler() -> list[str]:
    """The words that call the C compiler: `$CC`, or the first of cc, gcc and clang.

    Raises:
        BuildError: there is none.
    """
    if given := os.environ.get("CC"):
        return shlex.split(given)
    for name in _COMPILERS:
        if found := shutil.which(name):
            return [found]
    raise BuildError(f"no C compiler: neither $CC nor {', '.join(_COMPILERS)}")


def build_library(output: Path = LIBRARY, options: Sequence[str] = ()) -> Path:
    """Compile all levels that the compiler knows for this kind of processor, and link them to one library.

    Args:
        output: where the library is written; one that is there is replaced at once, as processes may have it loaded.
        options: more options for the compiler, when it compiles and when it links.

    Raises:
        BuildError: there is no compiler, or it fails.
    """
    compiler = find_compiler()
    is_x86 = platform.machine().lower() in {"x86_64", "amd64"}
    with tempfile.TemporaryDirectory() as folder:
        common = [*_OPTIONS, *options]
        processor = Path(folder, "processor.o")
        digest = f"-DSOURCE_DIGEST={compute_source_digest()}"
        _run([*compiler, *common, digest, "-c", str(SOURCES / "processor.c"), "-o", str(processor)])
        objects = [processor]
        for level, instructions in LEVELS.items():
            if instructions and not is_x86:
                continue
            compiled = Path(folder, f"{level}.o")
            source = ["-c", str(SOURCES / "level.c"), "-o", str(compiled)]
            try:
                _run([*compiler, *common, *instructions, f"-DLEVEL={level}", *source])
            except BuildError:
                if not instructions:
                    raise
                continue  # an older compiler does not know these instructions
            objects.append(compiled)
        linked = output.with_name(f"{output.name}.{os.getpid()}")
        try:
            _run([*compiler, "-shared", *options, *map(str, objects), "-lm", "-o", str(linked)])
            linked.replace(output)
        finally:
            linked.unlink(missing_ok=True)
    return output


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, check=False, encoding="utf-8", errors="replace")
    except OSError as error:
        raise BuildError(f"{command[0]}: {error}") from error
    if done.returncode:
        raise BuildError(f"{shlex.join(command)} failed:\n{done.stderr.strip()}")


if __name__ == "__main__":
    build_library()
