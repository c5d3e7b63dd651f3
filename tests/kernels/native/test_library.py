"""Which level of instruction sets is taken, and what is said where none can be."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from transduce.errors import ConfigError
from transduce.kernels.native import library as library_module
from transduce.kernels.native.build import LEVELS
from transduce.kernels.native.library import Library, explain_missing_library, find_library, load_levels


@pytest.fixture
def present(levels: Mapping[str, Library], monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Library]:
    """The library is there, wherever it was built."""
    monkeypatch.setattr(library_module, "load_levels", lambda: levels)
    monkeypatch.delenv("TRANSDUCE_KERNELS", raising=False)
    return levels


def test_levels_have_their_own_layout(levels: Mapping[str, Library]) -> None:
    assert list(levels) == [level for level in LEVELS if level in levels]
    assert levels["portable"].offset == 0
    for level in levels.values():
        assert 32 % level.panel == 0
        four_bytes = {"avx512_vnni": 128, "amx": 128, "neon": 0, "neon_dot": 0}
        assert level.group == (4 if level.level in four_bytes else 2)
        assert level.offset == four_bytes.get(level.level, 0)


def test_the_fastest_level_is_taken(present: Mapping[str, Library]) -> None:
    found = find_library()
    assert found is not None
    assert found.level == list(present)[-1]


def test_the_environment_decides(present: Mapping[str, Library], monkeypatch: pytest.MonkeyPatch) -> None:
    for level in present:
        monkeypatch.setenv("TRANSDUCE_KERNELS", level)
        assert find_library() is present[level]
    monkeypatch.setenv("TRANSDUCE_KERNELS", "off")
    assert find_library() is None


def test_an_unknown_level_is_refused(present: Mapping[str, Library], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSDUCE_KERNELS", "avx3")
    with pytest.raises(ConfigError, match=r"'avx3': unknown level .* allowed here: off, portable"):
        find_library()


def test_a_level_that_the_processor_lacks_is_refused(
    levels: Mapping[str, Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_module, "load_levels", lambda: {"portable": levels["portable"]})
    monkeypatch.setenv("TRANSDUCE_KERNELS", "avx2")
    with pytest.raises(ConfigError, match=r"'avx2': not supported by this processor.* allowed here: off, portable$"):
        find_library()


def test_without_the_library_pytorch_computes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert load_levels(tmp_path / "kernels.so") == {}
    (tmp_path / "other.so").write_bytes(b"not a library")
    assert load_levels(tmp_path / "other.so") == {}
    monkeypatch.setattr(library_module, "load_levels", dict)
    monkeypatch.delenv("TRANSDUCE_KERNELS", raising=False)
    assert find_library() is None
    monkeypatch.setenv("TRANSDUCE_KERNELS", "portable")
    with pytest.raises(ConfigError, match=r"is missing or outdated; .* allowed here: off$"):
        find_library()


def test_a_missing_library_is_explained_where_it_would_help(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TRANSDUCE_KERNELS", raising=False)
    monkeypatch.setattr(library_module, "_has_vectors", lambda: True)
    monkeypatch.setattr(library_module, "load_levels", dict)
    monkeypatch.setattr(library_module, "LIBRARY", tmp_path / "kernels.so")
    assert "kernels are missing" in str(explain_missing_library())
    (tmp_path / "kernels.so").touch()
    assert "kernels are outdated" in str(explain_missing_library())
    monkeypatch.setenv("TRANSDUCE_KERNELS", "off")
    assert explain_missing_library() is None
    monkeypatch.delenv("TRANSDUCE_KERNELS")
    monkeypatch.setattr(library_module, "_has_vectors", lambda: False)
    assert explain_missing_library() is None


def test_where_there_is_a_library_nothing_is_explained(
    present: Mapping[str, Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRANSDUCE_KERNELS", raising=False)
    assert explain_missing_library() is None
    assert library_module._has_vectors() or present.keys() == {"portable"}


def test_a_library_of_other_sources_is_not_loaded(
    levels: Mapping[str, Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_module, "compute_source_digest", lambda: 1)
    assert load_levels.__wrapped__() == {}
