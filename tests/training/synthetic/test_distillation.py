"""A student is trained on what its teacher says, and validated by what people wrote."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transduce.bundle import Bundle, Languages, save_bundle
from transduce.config import CorpusConfig, RunConfig
from transduce.data import open_corpus, prepare
from transduce.errors import ConfigError, CorpusError
from transduce.training import train
from transduce.training.synthetic.distillation import make_student_text
from transduce.translation import Translator


def read(path: str | None) -> list[tuple[str, str]]:
    lines = Path(str(path)).read_text(encoding="utf-8").splitlines()
    return [(pair["source"], pair["target"]) for pair in map(json.loads, lines)]


@pytest.fixture
def config(make_config: Callable[..., RunConfig], copier: Any, tmp_path: Path) -> RunConfig:
    return make_config(
        data__teacher=str(copier.result.folder),
        data__validation_pairs=None,
        data__held_out=6,
        text__drop_copies=False,
        data__cache=str(tmp_path / "cache"),
        training__updates=8,
    )


def test_targets_are_the_translations_of_the_teacher(config: RunConfig, copier: Any, tmp_path: Path) -> None:
    data = make_student_text(config, tmp_path, lambda _: None)
    (corpus,) = data.training_corpora
    sources, targets = map(list, zip(*read(corpus.pairs), strict=True))
    assert targets == Translator.load(copier.result.folder / "best").translate(sources)
    assert not corpus.tag


def test_sources_that_training_leaves_out_are_not_translated(config: RunConfig, tmp_path: Path) -> None:
    lines = ["sun moon", "bird", "sun moon", "road " * 300, "", "door salt"]
    other = ["bird", "wind"]
    for name, sources in (("a", lines), ("b", other)):
        (tmp_path / f"{name}.tsv").write_text("".join(f"{one}\tx{n}\n" for n, one in enumerate(sources)), "utf-8")
    corpora = [CorpusConfig(pairs=str(tmp_path / f"{name}.tsv")) for name in "ab"]
    changes = {"pairs": None, "corpora": tuple(corpora), "validation_pairs": "validation.tsv"}
    config = config.model_copy(update={"data": config.data.model_copy(update=changes)})
    first, second = make_student_text(config, tmp_path, lambda _: None).training_corpora
    assert [source for source, _ in read(first.pairs)] == ["sun moon", "bird", "door salt"]
    assert [source for source, _ in read(second.pairs)] == ["wind"]
    # Of a corpus with other targets for the same sources, nothing is left; of that alone, nothing at all.
    again = CorpusConfig(pairs=str(tmp_path / "a.tsv"), weight=2.0)
    messages: list[str] = []
    data = config.data.model_copy(update={"corpora": (corpora[0], again)})
    (only,) = make_student_text(config.model_copy(update={"data": data}), tmp_path, messages.append).training_corpora
    assert only == first
    assert any("a.tsv: left out: every source is blank, too long" in message for message in messages)
    (tmp_path / "c.tsv").write_text("\tx\n\ty\n", encoding="utf-8")
    data = config.data.model_copy(update={"corpora": (CorpusConfig(pairs=str(tmp_path / "c.tsv")),)})
    with pytest.raises(CorpusError, match="the teacher has nothing to translate, as every source is blank"):
        make_student_text(config.model_copy(update={"data": data}), tmp_path, lambda _: None)
    kept = config.model_copy(update={"text": config.text.model_copy(update={"drop_duplicates": False})})
    first, second = make_student_text(kept, tmp_path, lambda _: None).training_corpora
    assert [source for source, _ in read(first.pairs)] == ["sun moon", "bird", "sun moon", "door salt"]
    assert [source for source, _ in read(second.pairs)] == other


def test_an_ensemble_translates_together(config: RunConfig, copier: Any, tmp_path: Path) -> None:
    alone = make_student_text(config, tmp_path, lambda _: None)
    bundle = Bundle.open(copier.result.folder / "best")
    model = bundle.load_model()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.5)
    save_bundle(tmp_path / "other", model, bundle.load_tokenizer(), bundle.description)
    data = config.data.model_copy(update={"teacher_ensemble": (str(tmp_path / "other"),)})
    messages: list[str] = []
    together = make_student_text(config.model_copy(update={"data": data}), tmp_path, messages.append)
    assert f"{bundle.folder}, {tmp_path / 'other'}" in messages[0]
    assert alone.training_corpora[0].pairs != together.training_corpora[0].pairs
    sources, targets = map(list, zip(*read(together.training_corpora[0].pairs), strict=True))
    ensemble = Translator.load(bundle.folder, ensemble=[tmp_path / "other"])
    assert targets == ensemble.translate(sources)
    assert targets != Translator.load(bundle.folder).translate(sources)


def test_a_teacher_of_other_languages_is_refused(config: RunConfig, copier: Any, tmp_path: Path) -> None:
    bundle = Bundle.open(copier.result.folder / "best")
    description = bundle.description.model_copy(update={"languages": Languages(source="en", target="fr")})
    save_bundle(tmp_path / "french", bundle.load_model(), bundle.load_tokenizer(), description)
    for changes in ({"teacher": str(tmp_path / "french")}, {"teacher_ensemble": (str(tmp_path / "french"),)}):
        other = config.model_copy(update={"data": config.data.model_copy(update=changes)})
        with pytest.raises(ConfigError, match=r"the teacher .*french translates en to fr, .* from en to xx"):
            make_student_text(other, tmp_path, lambda _: None)


def test_an_ensemble_needs_a_teacher(make_config: Callable[..., RunConfig]) -> None:
    with pytest.raises(ConfigError, match="teacher_ensemble is given without teacher"):
        make_config(data__teacher_ensemble=["other"])


@pytest.mark.parametrize("validation", [None, "validation.tsv"])
def test_targets_are_kept_beside_the_translations(config: RunConfig, tmp_path: Path, validation: str | None) -> None:
    data = config.data.model_copy(update={"validation_pairs": validation})
    config = config.model_copy(update={"data": data})
    (replaced,) = make_student_text(config, tmp_path, lambda _: None).training_corpora
    kept = config.model_copy(update={"data": data.model_copy(update={"keep_targets": True})})
    both = make_student_text(kept, tmp_path, lambda _: None)
    assert both.training_corpora == (*data.training_corpora, replaced)
    plain = prepare(data, config.text, tmp_path / "plain", report=lambda _: None)
    prepared = prepare(both, config.text, tmp_path / "both", report=lambda _: None)
    assert prepared.validation == plain.validation
    real, translated = prepared.corpora
    assert real.cleaning == plain.corpora[0].cleaning
    # What the teacher says as a person did is a repetition; no source is that of a held-out pair.
    pairs, said_by_people = read(replaced.pairs), set(open_corpus(data, *data.training_corpora))
    assert translated.cleaning["duplicate"] == sum(pair in said_by_people for pair in pairs) > 0
    assert translated.cleaning.get("held_out", 0) == translated.cleaning.get("like_held_out", 0) == 0
    assert prepared.cleaning["kept"] == len(prepared.train) > len(plain.train)


def test_keeping_targets_needs_a_teacher(make_config: Callable[..., RunConfig]) -> None:
    with pytest.raises(ConfigError, match="keep_targets is given without teacher"):
        make_config(data__keep_targets=True)


def test_translations_are_targets_where_the_sides_of_the_files_are_exchanged(config: RunConfig, tmp_path: Path) -> None:
    exchanged = config.model_copy(update={"data": config.data.model_copy(update={"swap_sides": True})})
    data = make_student_text(exchanged, tmp_path, lambda _: None)
    (corpus,) = data.training_corpora
    assert list(open_corpus(data, corpus)) == read(corpus.pairs)


def test_validation_is_that_of_a_run_without_teacher(config: RunConfig, tmp_path: Path) -> None:
    plain = config.data.model_copy(update={"teacher": None})
    expected = prepare(plain, config.text, tmp_path / "plain", report=lambda _: None).validation
    data = make_student_text(config, tmp_path, lambda _: None)
    prepared = prepare(data, config.text, tmp_path / "distilled", report=lambda _: None)
    assert prepared.validation == expected
    sources = {source for source, _ in read(data.training_corpora[0].pairs)}
    assert not sources & {source for source, _ in expected}


@pytest.mark.parametrize("is_given", [False, True])
def test_sides_that_are_swapped_are_swapped_once(config: RunConfig, tmp_path: Path, *, is_given: bool) -> None:
    given = {"swap_sides": True, "validation_pairs": "validation.tsv" if is_given else None}
    swapped = config.model_copy(update={"data": config.data.model_copy(update=given)})
    plain = swapped.data.model_copy(update={"teacher": None})
    expected = prepare(plain, config.text, tmp_path / "plain", report=lambda _: None).validation
    data = make_student_text(swapped, tmp_path, lambda _: None)
    assert prepare(data, config.text, tmp_path / "distilled", report=lambda _: None).validation == expected
    (real,), (made,) = plain.training_corpora, data.training_corpora
    sources = [source for source, _ in open_corpus(plain, real)]
    assert {source for source, _ in open_corpus(data, made)} <= {*sources}


def test_corpora_keep_weight_and_tag_and_only_real_ones_are_held_out(
    config: RunConfig, corpus: Path, tmp_path: Path
) -> None:
    lines = (corpus / "train.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    files = [tmp_path / "real.tsv", tmp_path / "made.tsv"]
    for file, part in zip(files, (lines[:60], lines[60:90]), strict=True):
        file.write_text("".join(part), encoding="utf-8")
    corpora = (
        CorpusConfig(pairs=str(files[0]), weight=10.0, tag=">>in<<"),
        CorpusConfig(pairs=str(files[1]), weight=0.5, synthetic=True),
    )
    changed = config.data.model_copy(update={"pairs": None, "corpora": corpora, "held_out": 50})
    several = config.model_copy(update={"data": changed})
    plain = changed.model_copy(update={"teacher": None})
    expected = prepare(plain, config.text, tmp_path / "plain", report=lambda _: None).validation
    data = make_student_text(several, tmp_path, lambda _: None)
    assert [(one.weight, one.tag) for one in data.training_corpora] == [(10.0, ">>in<<"), (0.5, None)]
    assert prepare(data, config.text, tmp_path / "distilled", report=lambda _: None).validation == expected
    held_out = {source.removeprefix(">>in<< ") for source, _ in expected}
    for one, part in zip(data.training_corpora, (lines[:60], lines[60:90]), strict=True):
        sources = [line.split("\t")[0] for line in part]
        assert [source for source, _ in read(one.pairs)] == [one for one in sources if one not in held_out]
    only_made = changed.model_copy(update={"corpora": corpora[1:]})
    with pytest.raises(CorpusError, match="none of the 0 pairs that no model has made can be held out"):
        make_student_text(config.model_copy(update={"data": only_made}), tmp_path, lambda _: None)


def test_filters_are_refused(make_config: Callable[..., RunConfig], copier: Any) -> None:
    with pytest.raises(ConfigError, match="what a teacher translates is not filtered"):
        make_config(data__teacher=str(copier.result.folder), data__filters=["copies"])


def test_given_validation_text_is_kept(config: RunConfig, corpus: Path, tmp_path: Path) -> None:
    given = config.model_copy(update={"data": config.data.model_copy(update={"validation_pairs": "validation.tsv"})})
    data = make_student_text(given, tmp_path, lambda _: None)
    assert (data.validation_pairs, data.validation_columns) == ("validation.tsv", None)


def test_a_run_with_a_teacher_goes_on_like_any_other_without_it(config: RunConfig, copier: Any, tmp_path: Path) -> None:
    teacher = shutil.copytree(copier.result.folder / "best", tmp_path / "teacher")
    config = config.model_copy(update={"data": config.data.model_copy(update={"teacher": str(teacher)})})
    result = train(config)
    assert Bundle.open(result.folder / "best").description.languages.source == "en"
    shutil.rmtree(teacher)
    assert train(config).updates == result.updates
