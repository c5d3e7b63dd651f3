"""Compiles the C sources in this folder to one library; needs a C compiler and only Python's standard library.

`python src/transduce/kernels/native/build.py` builds it by hand; installing the package does the same
(`hatch_build.py`).
"""

import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

SOURCES = Path(__file__).parent


def find_platform() -> str:
    """The platform that Python runs on, as `macosx-11.0-arm64`; `_PYTHON_HOST_PLATFORM` overrides it for
    cross-compilation.
    """
    found = sysconfig.get_platform().replace("universal2", platform.machine())
    # python.org's Python for both kinds of machine says 10.13 on Apple silicon, where pip knows no system before 11.
    return re.sub(r"macosx-10\.\d+-arm64", "macosx-11.0-arm64", found)


LIBRARY = SOURCES / {"win": "kernels.dll", "mac": "kernels.dylib"}.get(find_platform()[:3], "kernels.so")
"""Path of the built library."""

_AVX512 = ("-mavx2", "-mfma", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl")
_VNNI = (*_AVX512, "-mavx512vnni")
_X86_LEVELS = {
    "avx2": ("-mavx2", "-mfma"),
    "avx512": _AVX512,
    "avx512_vnni": _VNNI,
    "amx": (*_VNNI, "-mamx-tile", "-mamx-int8", "-DAMX"),
}
_ARM_LEVELS = {"neon": ("-DNEON",), "neon_dot": ("-DNEON", "-mcpu=generic+dotprod")}
LEVELS = {"portable": (), **_X86_LEVELS, **_ARM_LEVELS}
"""The levels of instruction sets, slowest first, with the options by which a compiler uses them."""

_LEVELS_OF_MACHINES = {
    ("x86_64", "amd64"): ("portable", *_X86_LEVELS),
    ("aarch64", "arm64"): ("portable", *_ARM_LEVELS),
}
_OPTIONS = ("-std=gnu11", "-O2", "-fvisibility=hidden", "-ffp-contract=off", "-Wno-psabi")
_COMPILERS = ("cc", "gcc", "clang")


class BuildError(Exception):
    """There is no compiler, or it fails; the message contains its output."""


def compute_source_digest() -> int:
    """A 63-bit hash of the sources: a library built from other sources is not loaded."""
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


def build_library(output: Path = LIBRARY, options: Sequence[str] = (), levels: Sequence[str] = tuple(LEVELS)) -> Path:
    """Compile all levels that the compiler supports for `find_platform()`, and link them to one library.

    Args:
        output: path of the library; an existing one is replaced atomically, as processes may have it loaded.
        options: more options for the compiler, when it compiles and when it links.
        levels: the levels to compile, of those of the platform.

    Raises:
        BuildError: there is no compiler, or it fails.
    """
    compiler, target = find_compiler(), find_platform()
    if target.startswith("win"):
        export, compiling, linking = "__declspec(dllexport)", [], []
    else:
        export, compiling, linking = '__attribute__((visibility("default")))', ["-fPIC"], ["-lm"]
    if target.startswith("mac"):
        linking.append(f"-Wl,-install_name,@rpath/{LIBRARY.name}")
    compile_c = [*compiler, *_OPTIONS, *compiling, f"-DEXPORTED={export}", *options, "-c"]
    with tempfile.TemporaryDirectory() as folder:
        processor = Path(folder, "processor.o")
        digest = f"-DSOURCE_DIGEST={compute_source_digest()}"
        _run([*compile_c, digest, str(SOURCES / "processor.c"), "-o", str(processor)])
        objects = [processor]
        for level in filter(set(levels).__contains__, find_levels(target)):
            compiled = Path(folder, f"{level}.o")
            try:
                _run([*compile_c, *LEVELS[level], f"-DLEVEL={level}", str(SOURCES / "level.c"), "-o", str(compiled)])
            except BuildError:
                if level == "portable":
                    raise
                continue  # an older compiler does not support these instructions
            objects.append(compiled)
        linked = Path(folder, output.name)  # a linker may write more files beside it
        _run([*compiler, "-shared", *options, *map(str, objects), *linking, "-o", str(linked)])
        copied = output.with_name(f"{output.name}.{os.getpid()}")
        try:
            shutil.copy(linked, copied)
            copied.replace(output)
        finally:
            copied.unlink(missing_ok=True)
    return output


def find_levels(target: str) -> Sequence[str]:
    """The levels that processors of a platform may support."""
    return next((levels for machines, levels in _LEVELS_OF_MACHINES.items() if target.endswith(machines)), ["portable"])


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, check=False, encoding="utf-8", errors="replace")
    except OSError as error:
        raise BuildError(f"{command[0]}: {error}") from error
    if done.returncode:
        raise BuildError(f"{shlex.join(command)} failed:\n{done.stderr.strip()}")


if __name__ == "__main__":
    build_library()
