import asyncio
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transduce.bundle import Bundle
from transduce.errors import BundleError, ConfigError
from transduce.interop import export_bundle, load_translator
from transduce.serving import models
from transduce.serving.models import (
    LoadedModel,
    Models,
    ModelSettings,
    SupportedLanguages,
    compute_fingerprint,
    find_language,
    rank_languages,
)
from transduce.serving.monitoring import Metrics
from transduce.translation import TranslationOptions, Translator

SETTINGS = ModelSettings(device="cpu")


def test_a_model_says_what_it_is(bundle: Path) -> None:
    model = LoadedModel.load(bundle, SETTINGS)
    info = model.info
    assert (info.source, info.target, info.model) == ("en", "de", "small")
    assert info.digest == Bundle.open(bundle).digest
    assert (info.engine, info.precision, info.beam, info.max_pieces) == ("native", "float32", 2, 40)
    assert info.num_parameters == Bundle.open(bundle).load_model().num_parameters
    assert model.confidence is None
    assert model.head is None


# CTranslate2 cuts off sums of 8-bit products on some processors, where the proof of an export in int8 fails.
@pytest.mark.parametrize(("engine", "exported"), [("ctranslate2", "int16"), ("onnx", "int8")])
def test_the_precision_is_that_of_the_folder_that_was_exported(
    make_bundle: Callable[..., Path], tmp_path: Path, engine: str, exported: str
) -> None:
    pytest.importorskip({"onnx": "onnxruntime"}.get(engine, engine))
    bundle = make_bundle(tmp_path / "model", scale=1)
    export_bundle(Bundle.open(bundle), engine, tmp_path / "exported", precision=exported, num_sentences=3)
    for path, precision in ((tmp_path / "exported", exported), (bundle, "float32")):
        model = LoadedModel.load(path, ModelSettings(engine=engine, device="cpu", precision="auto"))
        assert model.info.precision == precision


def test_a_model_that_may_not_be_read_for_a_moment_stays(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while its folder is copied with the rights of somebody else."""
    path, warnings = tmp_path / "model", list[str]()
    shutil.copytree(bundle, path)
    loaded = Models([path], SETTINGS, Metrics(), lambda _: None, warnings.append)
    loaded.load()

    def refuse(_: Path) -> Path:
        raise PermissionError(13, "Permission denied")

    async def check() -> None:
        watching = asyncio.create_task(loaded.watch(0.01))
        with monkeypatch.context() as patch:
            patch.setattr(models, "find_bundle", refuse)
            await asyncio.sleep(0.1)
        assert not watching.done()
        watching.cancel()

    asyncio.run(check())
    assert loaded.infos
    assert warnings == [f"{path}: cannot be read: Permission denied; the model that was loaded from there is kept"]


def test_languages_can_be_given_to_a_model_that_does_not_say_them(
    make_bundle: Callable[..., Path], bundle: Path, tmp_path: Path
) -> None:
    silent = make_bundle(tmp_path / "silent", source="", target="")
    with pytest.raises(
        ConfigError,
        match=r"silent: has no recorded languages.* give --source-language and "
        r"--target-language",
    ):
        LoadedModel.load(silent, ModelSettings(device="cpu", source_language="sw"))
    given = ModelSettings(device="cpu", source_language="sw", target_language="en")
    for path, expected in ((silent, ("sw", "en")), (bundle, ("en", "de"))):
        model = LoadedModel.load(path, given)
        assert (model.info.source, model.info.target) == expected
        assert (model.translator.source_language, model.translator.target_language) == expected


def test_a_run_is_called_by_its_name(bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(bundle, tmp_path / "my-run" / "best")
    for path in (tmp_path / "my-run", tmp_path / "my-run" / "best"):
        assert LoadedModel.load(path, SETTINGS).info.model == "my-run"


@pytest.mark.skipif(sys.platform in {"win32", "darwin"}, reason="names of files are Unicode there")
def test_a_name_that_is_not_utf_8_is_escaped(bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9")
    shutil.copytree(bundle, path)
    assert LoadedModel.load(path, SETTINGS).info.model == r"caf\udce9"


def test_options_change_the_search_and_nothing_else(bundle: Path) -> None:
    model = LoadedModel.load(bundle, SETTINGS)
    granted = model.make_line_translator(TranslationOptions(beam=5, length_penalty=1.5))
    assert (granted.translator.search.beam, granted.translator.search.length_penalty) == (5, 1.5)
    assert model.translator.search.beam == 2
    assert granted.translator.engine is model.translator.engine


def test_a_fingerprint_changes_with_the_files(make_bundle: Callable[..., Path], tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "model")
    first = compute_fingerprint(path)
    assert compute_fingerprint(path) == first
    make_bundle(tmp_path / "model", seed=1)
    assert compute_fingerprint(path) != first
    with pytest.raises(BundleError, match="no such folder"):
        compute_fingerprint(tmp_path / "nothing")


def test_a_model_that_is_gone_stays_loaded_and_one_that_comes_back_is_not_loaded_again(
    make_bundle: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, said, warnings = make_bundle(tmp_path / "model"), list[str](), list[str]()
    looks: asyncio.Queue[bool] = asyncio.Queue()

    def look(path: Path) -> models.Fingerprint:
        looks.put_nowait(path.exists())
        return compute_fingerprint(path)

    async def run() -> None:
        served = Models([path], SETTINGS, Metrics(), said.append, warnings.append)
        served.load()
        monkeypatch.setattr(models, "compute_fingerprint", look)
        watching = asyncio.create_task(served.watch(0.001))
        for before, after in [(path, tmp_path / "aside"), (tmp_path / "aside", path)]:
            before.rename(after)
            for _ in range(3):  # the second look finds what the first has seen
                while await looks.get() != (after == path):
                    pass
        watching.cancel()
        assert served.find(("en", "de")) is not None
        assert served.find(("de", "en")) is None

    asyncio.run(run())
    assert said == [f"{path}: translates en-de", f"{path}: can be read again"]
    (warning,) = warnings  # once, however often it is looked for
    assert warning.startswith(f"{path}: there is no such folder")
    assert warning.endswith("; the model that was loaded from there is kept")


def test_a_model_that_is_changed_while_it_is_loaded_is_refused(
    make_bundle: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it might have the weights of the one, and the digest and calibration of the other."""
    path, other = make_bundle(tmp_path / "model"), make_bundle(tmp_path / "other", seed=1)

    def load_and_change(*arguments: Any, **options: Any) -> Translator:
        found = load_translator(*arguments, **options)
        path.rename(tmp_path / "aside")
        other.rename(path)
        return found

    monkeypatch.setattr(models, "load_translator", load_and_change)
    with pytest.raises(BundleError, match="was changed while it was being loaded"):
        LoadedModel.load(path, SETTINGS)
    monkeypatch.undo()
    assert LoadedModel.load(path, SETTINGS).info.digest == Bundle.open(path).digest


def test_what_is_translated_into_what() -> None:
    languages = SupportedLanguages([("en", "de"), ("en", "fr"), ("de", "en")])
    assert languages.sources == ("en", "de")
    assert languages.targets == ("de", "fr", "en")
    assert languages.all == ("en", "de", "fr")
    assert languages.get_targets("en") == ("de", "fr")
    assert languages.get_targets("fr") == ()
    assert languages.get_sources("en") == ("de",)


@pytest.mark.parametrize(
    ("written", "codes", "expected"),
    [
        ("de", ["en", "de"], "de"),
        ("DE", ["en", "de"], "de"),
        ("en-US", ["en", "de"], "en"),
        ("EN_us", ["en"], "en"),
        ("en", ["en-GB"], "en-GB"),
        ("en-GB", ["en", "en-GB"], "en-GB"),
        ("en-US", ["en-GB"], None),
        ("pt-BR", ["pb"], "pb"),
        ("pb", ["pt", "pt-BR"], "pt-BR"),
        ("pt-BR", ["pt"], "pt"),
        ("pt", ["pt_BR"], "pt_BR"),
        ("pt", ["pb"], "pb"),
        ("pt-PT", ["pt-BR"], None),
        ("zh-Hant", ["zh", "zh-TW"], "zh-TW"),
        ("zh-Hant", ["zh"], None),
        ("fr", ["en", "de"], None),
        ("", ["en"], None),
        ("e", ["en"], None),
        ("\ud800", ["en"], None),
    ],
)
def test_codes_as_clients_write_them(written: str, codes: list[str], expected: str | None) -> None:
    assert find_language(written, codes) == expected


GERMAN = "Ein Mann und eine Frau gehen durch den Wald."


def test_the_best_is_first() -> None:
    ranked = rank_languages(GERMAN, ["en", "fr", "de"])
    assert ranked[0].language == "de"
    assert sum(one.probability for one in ranked) == pytest.approx(1, abs=1e-5)
    assert [one.probability for one in ranked] == sorted((one.probability for one in ranked), reverse=True)


def test_codes_come_back_as_they_are_written() -> None:
    assert rank_languages(GERMAN, ["en-GB", "de-AT"])[0].language == "de-AT"
    assert rank_languages(GERMAN, ["en_GB", "de_AT"])[0].language == "de_AT"


def test_languages_that_it_does_not_know_are_last() -> None:
    ranked = rank_languages(GERMAN, ["csb", "de"])
    assert [(one.language, one.probability) for one in ranked] == [("de", pytest.approx(1)), ("csb", 0)]
    assert rank_languages(GERMAN, ["csb"]) == [("csb", 0)]


@pytest.mark.parametrize("text", ["", " ", "12", "😀", "\ud800"])
def test_without_letters_nothing_is_known(text: str) -> None:
    assert rank_languages(text, ["en", "de"]) == [("en", 0), ("de", 0)]


def test_an_answer_does_not_depend_on_those_before() -> None:
    first = rank_languages(GERMAN, ["en", "de"])
    rank_languages(GERMAN, ["fr", "es"])
    assert rank_languages(GERMAN, ["en", "de"]) == first
