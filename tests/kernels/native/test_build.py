"""The library is built by any C compiler, from the sources as they are."""

import platform
import sysconfig
from pathlib import Path

import pytest

from transduce.kernels.native import build
from transduce.kernels.native.build import find_platform


@pytest.mark.parametrize(
    ("said", "machine", "found"),
    [
        ("macosx-10.13-universal2", "arm64", "macosx-11.0-arm64"),
        ("macosx-10.13-universal2", "x86_64", "macosx-10.13-x86_64"),
        ("macosx-14.2-arm64", "arm64", "macosx-14.2-arm64"),
        ("linux-aarch64", "aarch64", "linux-aarch64"),
    ],
)
def test_a_platform_is_one_that_pip_knows(monkeypatch: pytest.MonkeyPatch, said: str, machine: str, found: str) -> None:
    monkeypatch.setattr(sysconfig, "get_platform", lambda: said)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert find_platform() == found


def test_what_fails_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    output = tmp_path / "kernels.so"
    monkeypatch.setenv("CC", "/nowhere/cc -g")
    with pytest.raises(build.BuildError, match="/nowhere/cc"):
        build.build_library(output)
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho no such option >&2\nexit 1\n", encoding="utf-8")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    with pytest.raises(build.BuildError, match="no such option"):
        build.build_library(output)
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(build.BuildError, match=r"no C compiler: neither \$CC nor cc, gcc, clang"):
        build.build_library(output)
    assert not output.exists()


def test_the_digest_is_that_of_the_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = build.compute_source_digest()
    for path in build.SOURCES.glob("*.[ch]"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    assert build.compute_source_digest() == before
    (tmp_path / "more.h").write_text("", encoding="utf-8")
    assert build.compute_source_digest() != before
