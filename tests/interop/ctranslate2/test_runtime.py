import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from transduce.bundle import Bundle, Languages
from transduce.errors import BundleError, MissingExtraError
from transduce.interop import export_bundle
from transduce.interop.ctranslate2.export_format import FORMAT
from transduce.interop.ctranslate2.runtime import CTranslate2Runtime, compute_type, read_settings
from transduce.interop.formats import Runtime

pytest.importorskip("ctranslate2")


@pytest.fixture
def bundle(make_bundle: Callable[..., Bundle]) -> Bundle:
    return make_bundle(num_encoder_layers=1)


@pytest.fixture
def folder(bundle: Bundle, tmp_path: Path) -> Path:
    (tmp_path / "written").mkdir()
    FORMAT.write(bundle, tmp_path / "written", "float32")
    return tmp_path / "written"


def test_texts_come_back(bundle: Bundle, folder: Path) -> None:
    tokenizer, texts = bundle.load_tokenizer(), ["sun moon", "  ☃ 漢字 river", "7"]
    runtime = FORMAT.load(folder, tokenizer)
    assert isinstance(runtime, Runtime)
    ids = [[*row, tokenizer.end_id] for row in tokenizer.encode_all(texts)]
    assert runtime.encode(texts) == ids
    assert runtime.decode(ids) == [tokenizer.decode(row) for row in ids]


def test_a_folder_without_a_tokenizer_has_none(bundle: Bundle, folder: Path) -> None:
    (folder / "tokenizer.model").unlink()
    runtime = FORMAT.load(folder, bundle.load_tokenizer())
    assert runtime.encode(["sun"]) is None
    assert runtime.decode([[5, 1]]) is None


def test_a_folder_that_does_not_end_sources_is_given_the_end(bundle: Bundle, folder: Path) -> None:
    runtime = FORMAT.load(folder, bundle.load_tokenizer())
    asked = [[5, 280, 7, 1], [9, 1]], [[6, 1], [8, 290, 1]]
    expected = runtime.forced_scores(*asked), runtime.greedy(asked[0], [6, 6])
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(settings | {"add_source_eos": False}), encoding="utf-8")
    other = CTranslate2Runtime(folder, bundle.load_tokenizer())
    assert (other.forced_scores(*asked), other.greedy(asked[0], [6, 6])) == expected


def test_each_greedy_translation_has_its_own_limit(bundle: Bundle, folder: Path) -> None:
    runtime = FORMAT.load(folder, bundle.load_tokenizer())
    sources = [[5, 280, 7, 1], [9, 1], [281, 1]]
    short, long = runtime.greedy(sources, [1, 3, 2]), runtime.greedy(sources, [8, 8, 8])
    assert [len(row) for row in short] == [1, 3, 2]
    assert [row[: len(beginning)] for row, beginning in zip(long, short, strict=True)] == short


def test_settings_travel_in_what_ctranslate2_passes_over(bundle: Bundle, folder: Path) -> None:
    settings = read_settings(folder)
    assert settings.model == bundle.model_config
    assert settings.search == bundle.description.search
    assert settings.languages == Languages(source="en", target="no")
    (folder / "config.json").unlink()
    with pytest.raises(BundleError, match=r"config.json: cannot be read"):
        read_settings(folder)


def test_arithmetic_that_the_device_does_not_have_is_float32() -> None:
    assert compute_type("int8", "cpu") == "int8"
    assert compute_type("no such type", "cpu") == "float32"


def test_without_ctranslate2_the_command_to_install_it_is_said(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'transduce\[ctranslate2\]'"):
        export_bundle(bundle, "ctranslate2", tmp_path / "out", num_sentences=2)
    assert not (tmp_path / "out").exists()
