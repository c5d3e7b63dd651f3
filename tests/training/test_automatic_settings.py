import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from transduce.config import PRESETS, UNLIMITED_UPDATES, RunConfig, load_run_config
from transduce.errors import CorpusError
from transduce.text import CorpusSize
from transduce.training import RunFolder, choose_settings_for_run
from transduce.training.automatic_settings import (
    MAX_PAIRS_OF_PRESET,
    MEASURED_RUNS,
    STANDARD_INPUT,
    choose_settings_for_size,
    expected_quality,
)


def news(num_pairs: int) -> CorpusSize:
    """A corpus of sentences as long as those of newspapers."""
    return CorpusSize(num_pairs, 150 * num_pairs)


@pytest.mark.parametrize(
    ("num_pairs", "preset"),
    [
        (0, "low-resource"),
        (200_000, "low-resource"),
        (200_001, "medium-resource"),
        (2_000_000, "medium-resource"),
        (2_000_001, "base"),
        (20_000_000, "base"),
        (20_000_001, "big"),
    ],
)
def test_a_larger_corpus_feeds_a_larger_model(num_pairs: int, preset: str) -> None:
    settings = choose_settings_for_size(news(num_pairs))
    assert settings["preset"] == preset
    assert preset in PRESETS
    config, origins = load_run_config(None, automatic=settings)
    assert config.preset == preset
    assert config.text.vocabulary == "fitted"
    assert origins["preset"] == "size of the corpus"


@pytest.mark.parametrize(
    ("num_characters", "time_limit", "dropout"),
    [
        (150_000, None, 0.4),
        (150_000, "1m", 0.4),
        (400_000, None, 0.3),
        (400_000, "1m", 0.3),
        (900_000, None, 0.2),
        (900_000, "30m", 0.2),
        (900_000, "10m", 0.1),
        (4_500_000, None, 0.2),
        (4_500_000, "2h", 0.2),
        (4_500_000, "30m", 0.1),
        (15_000_000, None, 0.1),
    ],
)
def test_less_text_and_more_passes_ask_for_more_dropout(
    num_characters: int, time_limit: str | None, dropout: float
) -> None:
    assert choose_settings_for_size(CorpusSize(6_000, num_characters), time_limit)["model.dropout"] == dropout


def test_counts_the_pairs_of_the_given_text(tmp_path: Path) -> None:
    (tmp_path / "source.gz").write_bytes(gzip.compress(b"a\nb\n"))
    (tmp_path / "target").write_bytes(b"A\nB\n")
    given = {"data.folder": str(tmp_path), "data.source": "source.gz", "data.target": "target"}
    given["output"] = str(tmp_path / "run")
    assert choose_settings_for_run(given, restart=False) == choose_settings_for_size(CorpusSize(2, 2))
    (tmp_path / "target").write_bytes(b"A\n")
    with pytest.raises(CorpusError, match="2"):
        choose_settings_for_run(given, restart=False)


def test_counts_pairs_in_any_format_as_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MAX_PAIRS_OF_PRESET, "low-resource", 2)
    (tmp_path / "a.csv").write_text('id,de,en\n1,"A,\n""A""",b\n\n2,C,d\n', encoding="utf-8")
    given = {"data.folder": str(tmp_path), "data.pairs": "a.csv", "output": str(tmp_path / "run")}
    given |= {"data.source_language": "en", "data.target_language": "de"}
    assert (
        choose_settings_for_run(given, restart=False)
        == choose_settings_for_size(CorpusSize(2, 7))
        != choose_settings_for_size(CorpusSize(3, 7))
    )


def test_dropout_of_a_run_that_starts_from_a_model_does_not_rise(tmp_path: Path) -> None:
    given = {"data.pairs": "-", "output": str(tmp_path / "run")}
    new, tuned = (
        load_run_config(None, automatic=choose_settings_for_run({**given, **start}, restart=False))[0].training
        for start in ({}, {"training.start_from": "runs/mine"})
    )
    assert new.dropout_warmup
    assert tuned.warmup < new.warmup
    assert tuned == new.model_copy(update={"dropout_warmup": 0, "warmup": tuned.warmup})


def test_a_run_that_has_begun_keeps_what_was_counted(make_config: Callable[..., RunConfig]) -> None:
    config = make_config(preset="small")
    given = {"data.source": "there/is/none", "data.target": "there/is/none", "output": config.output}
    folder = RunFolder(Path(config.output))
    with folder.lock():
        folder.begin(config, restart=False)
        expected = {"preset": "small", "text.vocabulary": config.text.vocabulary, "training.updates": 20}
        expected |= {f"model.{name}": getattr(config.model, name) for name in PRESETS["small"]["model"]}
        training = PRESETS["small"]["training"].keys() - {"updates"}
        expected |= {f"training.{name}": getattr(config.training, name) for name in training}
        assert choose_settings_for_run(given, restart=False) == expected
        timed = choose_settings_for_run(given, "30m", restart=False)
        assert timed == expected | {"training.updates": UNLIMITED_UPDATES}
    with pytest.raises(CorpusError, match="none"):
        choose_settings_for_run(given, restart=True)


def test_counts_the_pairs_of_all_corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MAX_PAIRS_OF_PRESET, "low-resource", 3)
    (tmp_path / "a.tsv").write_bytes(b"a\tA\n" * 2)
    corpora = [{"pairs": "a.tsv", "weight": 9.0}, {"pairs": "a.tsv", "weight": 0.1}]
    given = {"data.folder": str(tmp_path), "data.corpora": corpora, "output": str(tmp_path / "run")}
    assert (
        choose_settings_for_run(given, restart=False)
        == choose_settings_for_size(CorpusSize(4, 4))
        != choose_settings_for_size(CorpusSize(2, 2))
    )


def test_standard_input_is_not_read(tmp_path: Path) -> None:
    given = {"output": str(tmp_path / "run")}
    assert choose_settings_for_run({**given, "data.pairs": "-"}, restart=False) == choose_settings_for_size(
        STANDARD_INPUT
    )
    assert choose_settings_for_run(given, restart=False) == choose_settings_for_size(CorpusSize(0, 0))


def test_a_run_ends_by_epochs_or_by_its_time_and_never_by_a_fixed_number_of_updates() -> None:
    lengths = [
        choose_settings_for_size(news(num_pairs))["training.epochs"] for num_pairs in (2_000, 6_000, 30_000, 100_000)
    ]
    assert lengths == sorted(lengths, reverse=True)
    assert "training.updates" not in choose_settings_for_size(news(6_000))
    timed = choose_settings_for_size(news(6_000), "30m")
    assert timed["training.updates"] == UNLIMITED_UPDATES
    assert "training.epochs" not in timed


def test_a_larger_corpus_needs_less_dropout() -> None:
    rates = [
        choose_settings_for_size(news(num_pairs))["model.dropout"] for num_pairs in (2_000, 6_000, 30_000, 100_000)
    ]
    assert rates == sorted(rates, reverse=True)
    assert "model.dropout" not in choose_settings_for_size(news(1_000_000))


def test_little_time_asks_for_a_small_network() -> None:
    assert choose_settings_for_size(news(400_000), "30m")["preset"] == "low-resource"
    assert (
        choose_settings_for_size(news(400_000), "10h")["preset"]
        == choose_settings_for_size(news(400_000))["preset"]
        == "medium-resource"
    )


@pytest.mark.parametrize("num_pairs", [0, 1_000, 150_000, 1_000_000, 5_000_000, 50_000_000])
def test_every_corpus_can_be_trained_on_for_a_given_time(num_pairs: int) -> None:
    settings = choose_settings_for_size(news(num_pairs), "3h")
    config, _ = load_run_config(None, automatic=settings, arguments={"training.time_limit": "3h"})
    assert config.training.time_limit_seconds == 3 * 3600
    assert config.training.schedule == "warmup_stable_decay"


def test_the_nearest_corpus_of_each_kind_is_named() -> None:
    said = expected_quality(7_000)
    assert said is not None
    comparable = [run for run in MEASURED_RUNS if 7_000 / 3 <= run.num_pairs <= 3 * 7_000]
    assert 0 < len(comparable) < len(MEASURED_RUNS)
    for run in MEASURED_RUNS:
        assert (run.text in said) == any(other.text == run.text for other in comparable)
    for text in {run.text for run in comparable}:
        nearest = min((run for run in comparable if run.text == text), key=lambda run: abs(run.num_pairs - 7_000))
        assert f"{text}, {nearest.num_pairs:,} pairs" in said
        assert f"BLEU {nearest.bleu:g}, chrF {nearest.chrf:g}" in said
        assert said.count(text) == 1


def test_nothing_is_said_of_sizes_that_were_not_measured() -> None:
    assert expected_quality(0) is None
    assert expected_quality(10_000_000) is None
