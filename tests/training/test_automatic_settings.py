import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transduce.bundle import Bundle, Languages, save_bundle
from transduce.config import PRESETS, UNLIMITED_UPDATES, RunConfig, TransformerConfig, load_run_config
from transduce.data.corpus_size import STANDARD_INPUT, CorpusSize
from transduce.data.settings_for_size import (
    MAX_PAIRS_OF_PRESET,
    choose_settings_for_size,
)
from transduce.errors import BundleError, CorpusError
from transduce.model import Transformer
from transduce.training import RunFolder, choose_settings_for_run
from transduce.training.automatic_settings import LEARNING_RATE_OF_WIDER


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., RunConfig]:
    def make(**settings: Any) -> RunConfig:
        given = {"output": str(tmp_path / "run"), "data.folder": str(tmp_path)}
        given |= {name.replace("__", "."): value for name, value in settings.items()}
        return load_run_config(None, arguments=given)[0]

    return make


def test_counts_the_pairs_of_the_given_text(tmp_path: Path, make_run: Callable[..., RunConfig]) -> None:
    (tmp_path / "source.gz").write_bytes(gzip.compress(b"a\nb\n"))
    (tmp_path / "target").write_bytes(b"A\nB\n")
    run = make_run(data__source="source.gz", data__target="target")
    assert choose_settings_for_run(run, restart=False) == choose_settings_for_size(CorpusSize(2, 2))
    (tmp_path / "target").write_bytes(b"A\n")
    with pytest.raises(CorpusError, match="2"):
        choose_settings_for_run(run, restart=False)


def test_counts_pairs_in_any_format_as_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_run: Callable[..., RunConfig]
) -> None:
    monkeypatch.setitem(MAX_PAIRS_OF_PRESET, "low-resource", 2)
    (tmp_path / "a.csv").write_text('id,de,en\n1,"A,\n""A""",b\n\n2,C,d\n', encoding="utf-8")
    run = make_run(data__pairs="a.csv", data__source_language="en", data__target_language="de")
    assert (
        choose_settings_for_run(run, restart=False)
        == choose_settings_for_size(CorpusSize(1, 1))  # the other target has a line end
        != choose_settings_for_size(CorpusSize(3, 7))
    )


def test_a_preset_that_was_chosen_is_the_one_that_is_fitted(make_run: Callable[..., RunConfig]) -> None:
    run = make_run(data__pairs="-")
    assert choose_settings_for_run(run, "small", restart=False) == {"preset": "small", "text.vocabulary": "fitted"}
    assert choose_settings_for_run(run, "small", "30m", restart=False) == choose_settings_for_size(
        STANDARD_INPUT, "30m", "small"
    )


def test_dropout_of_a_run_that_starts_from_a_model_does_not_rise(
    make_run: Callable[..., RunConfig], copier: Any
) -> None:
    new, tuned = (
        load_run_config(None, automatic=choose_settings_for_run(make_run(data__pairs="-", **start), restart=False))[0]
        for start in ({}, {"training__start_from": str(copier.result.folder)})
    )
    assert new.training.dropout_warmup
    assert tuned.training.warmup < new.training.warmup
    changed = {"dropout_warmup": 0, "warmup": tuned.training.warmup}
    assert tuned.training == new.training.model_copy(update=changed)


def test_a_wide_model_is_fine_tuned_at_a_rate_of_its_own(
    make_run: Callable[..., RunConfig], copier: Any, tmp_path: Path
) -> None:
    small = Bundle.open(copier.result.folder / "best")
    torch.manual_seed(1)
    config = TransformerConfig(
        vocabulary=small.model_config.vocabulary, num_encoder_layers=1, num_decoder_layers=1, d_model=512, d_ff=32
    )
    description = small.description.model_copy(update={"model": config})
    save_bundle(tmp_path / "wide", Transformer(config), small.load_tokenizer(), description)
    run = make_run(data__pairs="-", training__start_from=str(tmp_path / "wide"))
    assert choose_settings_for_run(run, restart=False)["training.learning_rate"] == LEARNING_RATE_OF_WIDER
    assert "training.learning_rate" not in choose_settings_for_run(run, "small", restart=False)


def test_the_languages_of_the_model_to_start_from_decide_what_is_read(
    make_run: Callable[..., RunConfig], copier: Any, tmp_path: Path
) -> None:
    known = Bundle.open(copier.result.folder / "best")
    description = known.description.model_copy(update={"languages": Languages(source="en", target="de")})
    save_bundle(tmp_path / "known", known.load_model(), known.load_tokenizer(), description)
    (tmp_path / "a.csv").write_text("id,de,en\n" + "".join(f"{n},A{n},b\n" for n in range(9)), encoding="utf-8")
    run = make_run(data__pairs="a.csv", training__start_from=str(tmp_path / "known"))
    assert choose_settings_for_run(run, restart=False)["preset"] == "low-resource"
    with pytest.raises(CorpusError, match="language"):
        choose_settings_for_run(make_run(data__pairs="a.csv"), restart=False)


def test_a_model_to_start_from_that_is_missing_is_an_error(make_run: Callable[..., RunConfig]) -> None:
    with pytest.raises(BundleError, match="nowhere"):
        choose_settings_for_run(make_run(data__pairs="-", training__start_from="nowhere"), restart=False)


def test_a_run_that_has_begun_keeps_what_was_counted(make_config: Callable[..., RunConfig]) -> None:
    config = make_config(preset="small")
    folder, given = RunFolder(Path(config.output)), {"data.source": "there/is/none", "data.target": "there/is/none"}
    run, _ = load_run_config(None, arguments={**given, "output": config.output})
    with folder.lock():
        folder.begin(config, restart=False)
        expected = {
            "preset": "small",
            "text.vocabulary": config.text.vocabulary,
            "training.updates": config.training.updates,
        }
        expected |= {f"model.{name}": getattr(config.model, name) for name in PRESETS["small"]["model"]}
        training = PRESETS["small"]["training"].keys() - {"updates"}
        expected |= {f"training.{name}": getattr(config.training, name) for name in training}
        assert choose_settings_for_run(run, restart=False) == expected
        timed = choose_settings_for_run(run, time_limit="30m", restart=False)
        assert timed == expected | {"training.updates": UNLIMITED_UPDATES}
    with pytest.raises(CorpusError, match="none"):
        choose_settings_for_run(run, restart=True)


def test_a_run_that_only_its_time_limit_ends_keeps_it(make_config: Callable[..., RunConfig]) -> None:
    training = {
        "updates": UNLIMITED_UPDATES,
        "time_limit": "20m",
        "schedule": "warmup_stable_decay",
        "learning_rate": 0.01,
    }
    config = make_config(**{f"training__{name}": value for name, value in training.items()})
    folder = RunFolder(Path(config.output))
    with folder.lock():
        folder.begin(config, restart=False)
        resumed = choose_settings_for_run(config, restart=False)
        assert resumed["training.updates"] == UNLIMITED_UPDATES
        assert resumed["training.time_limit"] == "20m"
        assert "training.time_limit" not in choose_settings_for_run(config, time_limit="30m", restart=False)


def test_standard_input_is_not_read(make_run: Callable[..., RunConfig]) -> None:
    run = make_run(data__pairs="-")
    assert choose_settings_for_run(run, restart=False) == choose_settings_for_size(STANDARD_INPUT)
    assert choose_settings_for_run(make_run(), restart=False) == choose_settings_for_size(CorpusSize(0, 0))
