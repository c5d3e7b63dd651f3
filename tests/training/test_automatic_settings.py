import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from transduce.config import PRESETS, UNLIMITED_UPDATES, RunConfig, load_run_config
from transduce.data.settings_for_size import (
    MAX_PAIRS_OF_PRESET,
    choose_settings_for_size,
)
from transduce.errors import CorpusError
from transduce.text import CorpusSize
from transduce.training import RunFolder, choose_settings_for_run
from transduce.training.automatic_settings import STANDARD_INPUT


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


def test_a_preset_that_was_chosen_is_the_one_that_is_fitted(tmp_path: Path) -> None:
    given = {"data.pairs": "-", "output": str(tmp_path / "run"), "preset": "small"}
    assert choose_settings_for_run(given, restart=False) == {"preset": "small", "text.vocabulary": "fitted"}
    assert choose_settings_for_run(given, "30m", restart=False) == choose_settings_for_size(
        STANDARD_INPUT, "30m", "small"
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


def test_a_run_that_only_its_time_limit_ends_keeps_it(make_config: Callable[..., RunConfig]) -> None:
    training = {
        "updates": UNLIMITED_UPDATES,
        "time_limit": "20m",
        "schedule": "warmup_stable_decay",
        "learning_rate": 0.01,
    }
    config = make_config(**{f"training__{name}": value for name, value in training.items()})
    given = {"data.source": "there/is/none", "data.target": "there/is/none", "output": config.output}
    folder = RunFolder(Path(config.output))
    with folder.lock():
        folder.begin(config, restart=False)
        resumed = choose_settings_for_run(given, restart=False)
        assert resumed["training.updates"] == UNLIMITED_UPDATES
        assert resumed["training.time_limit"] == "20m"
        assert "training.time_limit" not in choose_settings_for_run(given, "30m", restart=False)


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
