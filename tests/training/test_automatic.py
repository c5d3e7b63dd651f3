import gzip
from pathlib import Path

import pytest

from transduce.config import PRESETS, load_run_config
from transduce.errors import CorpusError
from transduce.training import automatic_settings_for
from transduce.training.automatic import SIZES, automatic_settings


@pytest.mark.parametrize(
    ("num_pairs", "preset"),
    [
        (0, "tiny"),
        (200_000, "tiny"),
        (200_001, "small"),
        (2_000_000, "small"),
        (2_000_001, "base"),
        (20_000_000, "base"),
        (20_000_001, "big"),
    ],
)
def test_a_larger_corpus_feeds_a_larger_model(num_pairs: int, preset: str) -> None:
    settings = automatic_settings(num_pairs)
    assert settings["preset"] == preset
    assert preset in PRESETS
    config, origins = load_run_config(None, automatic=settings)
    assert config.preset == preset
    assert config.text.vocabulary == "fitted"
    assert origins["preset"] == "size of the corpus"


def test_counts_the_pairs_of_the_given_text(tmp_path: Path) -> None:
    (tmp_path / "source.gz").write_bytes(gzip.compress(b"a\nb\n"))
    (tmp_path / "target").write_bytes(b"A\nB\n")
    given = {"data.folder": str(tmp_path), "data.source": "source.gz", "data.target": "target"}
    assert automatic_settings_for({**given, "output": "elsewhere"}) == automatic_settings(2)
    (tmp_path / "target").write_bytes(b"A\n")
    with pytest.raises(CorpusError, match="2"):
        automatic_settings_for(given)


def test_counts_the_pairs_of_all_corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "tiny", 3)
    (tmp_path / "a.tsv").write_bytes(b"a\tA\n" * 2)
    corpora = [{"pairs": "a.tsv", "weight": 9.0}, {"pairs": "a.tsv", "weight": 0.1}]
    given = {"data.folder": str(tmp_path), "data.corpora": corpora}
    assert automatic_settings_for(given) == automatic_settings(4) != automatic_settings(2)


def test_standard_input_is_not_read() -> None:
    assert automatic_settings_for({"data.pairs": "-"}) == automatic_settings(0)
    assert automatic_settings_for({}) == automatic_settings(0)
