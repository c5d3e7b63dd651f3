from collections.abc import Callable
from pathlib import Path

import pytest

from transduce.bundle import Bundle
from transduce.errors import TransduceError
from transduce.interop.marian.export_format import FORMAT
from transduce.interop.marian.runtime import MarianRuntime, find_marian
from transduce.interop.runtime import Runtime

marian = find_marian()
pytestmark = pytest.mark.skipif(marian is None, reason="the package pymarian, with Marian, is not installed")

SOURCES = [[50, 60, 1], [70, 71, 72, 73, 74, 1], [80, 1], [70, 71, 72, 73, 75, 1]]


@pytest.fixture
def runtime(make_bundle: Callable[..., Bundle], tmp_path: Path) -> Runtime:
    bundle = make_bundle(positions="learned", max_positions=12)
    (tmp_path / "out").mkdir()
    FORMAT.write(bundle, tmp_path / "out", "float32")
    return FORMAT.load(tmp_path / "out", bundle.load_tokenizer())


def test_it_says_which_marian_it_is(runtime: Runtime) -> None:
    assert isinstance(runtime, MarianRuntime)
    name, version = runtime.name.split()
    assert name == "Marian"
    assert version.split(".")[0].isdigit()


def test_a_sentence_has_the_same_scores_in_any_company(runtime: Runtime) -> None:
    targets = [[5, 1], [1], [90, 91, 92, 1], [93, 94, 1]]
    together = runtime.forced_scores(SOURCES, targets)
    assert list(map(len, together)) == list(map(len, targets))
    alone = [runtime.forced_scores([source], [target])[0] for source, target in zip(SOURCES, targets, strict=True)]
    assert together == alone


def test_each_translation_has_its_own_limit(runtime: Runtime) -> None:
    # In one go, with a factor for the shortest source, the longest translation would need 36 positions of 12.
    limits = [12, 11, 7, 1]
    found = runtime.greedy(SOURCES, limits)
    for row, limit in zip(found, limits, strict=True):
        assert len(row) == limit or (len(row) < limit and row[-1] == 1)
        assert 1 not in row[:-1]
    assert found == [runtime.greedy([source], [limit])[0] for source, limit in zip(SOURCES, limits, strict=True)]


def test_what_marian_complains_about_is_passed_on(runtime: Runtime, tmp_path: Path) -> None:
    (tmp_path / "out" / "vocab.yml").write_text("a: 0\n", encoding="utf-8")
    with pytest.raises(TransduceError, match=r"pymarian failed: .*vocab\.yml is expected to contain"):
        runtime.greedy(SOURCES, [5] * 4)
