from collections.abc import Callable
from pathlib import Path

import pytest

from transduce.bundle import Bundle
from transduce.errors import BundleError, ConfigError
from transduce.interop import ENGINES, export_bundle, load_translator
from transduce.interop.formats import FORMATS
from transduce.translation import Translator

pytest.importorskip("ctranslate2")


TEXTS = ["sun moon", "", "river stone bird " * 4]


@pytest.fixture
def bundle(make_bundle: Callable[..., Bundle]) -> Bundle:
    return make_bundle(num_encoder_layers=1)


def expected(bundle: Bundle) -> list[str]:
    return Translator.load(bundle.folder, device="cpu", precision="float32").translate(TEXTS, beam=1)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_exported_folder_translates_as_the_bundle_does(bundle: Bundle, tmp_path: Path, engine: str) -> None:
    export_bundle(bundle, engine, tmp_path / "out", num_sentences=2)
    translator = load_translator(tmp_path / "out", engine, device="cpu")
    assert translator.translate(TEXTS, beam=1) == expected(bundle)
    assert translator.search == bundle.description.search
    assert (translator.source_language, translator.target_language) == ("en", "no")
    assert load_translator(tmp_path / "out", engine, device="cpu", precision="float32")
    with pytest.raises(ConfigError, match=r"precision = 'int8': .* was exported in float32"):
        load_translator(tmp_path / "out", engine, device="cpu", precision="int8")
    with pytest.raises(ConfigError, match=rf"was exported to {engine}: use --engine {engine}"):
        load_translator(tmp_path / "out")
    (other,) = ENGINES.keys() - {engine}
    with pytest.raises(ConfigError, match=rf"was exported to {engine}: use --engine {engine}"):
        load_translator(tmp_path / "out", other)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_bundle_is_exported_for_the_occasion(bundle: Bundle, engine: str) -> None:
    said: list[str] = []
    translator = load_translator(bundle.folder, engine, device="cpu", report=said.append)
    assert translator.translate(TEXTS, beam=1) == expected(bundle)
    assert len(said) == 1
    assert sorted(path.name for path in bundle.folder.parent.iterdir()) == ["bundle"]
    load_translator(bundle.folder, engine, device="cpu", precision="int8")
    with pytest.raises(ConfigError, match=r"precision = 'int2'"):
        load_translator(bundle.folder, engine, device="cpu", precision="int2")


def test_the_native_engine_is_the_usual_one(bundle: Bundle) -> None:
    translator = load_translator(bundle.folder, device="cpu", precision="float32")
    assert translator.translate(TEXTS, beam=1) == expected(bundle)
    with pytest.raises(ConfigError, match=r"precision = 'int8': the native engine has auto, float32, bfloat16"):
        load_translator(bundle.folder, precision="int8")


def test_what_is_wrong_is_said(bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"engine = 'marian': must be one of native, ctranslate2"):
        load_translator(bundle.folder, "marian")
    with pytest.raises(ConfigError, match=r"--ensemble: the engine ctranslate2 computes with one model"):
        load_translator(bundle.folder, "ctranslate2", ensemble=[bundle.folder])
    with pytest.raises(ConfigError, match=r"device = 'cuda': the engine onnx computes on the cpu"):
        load_translator(bundle.folder, "onnx", device="cuda")
    with pytest.raises(BundleError, match="no such folder"):
        load_translator(tmp_path / "missing", "ctranslate2")


def test_engines_are_called_as_their_formats() -> None:
    assert ENGINES.keys() <= FORMATS.keys()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_damaged_export_is_noticed(bundle: Bundle, tmp_path: Path, engine: str) -> None:
    export_bundle(bundle, engine, tmp_path / "out", num_sentences=2)
    path = tmp_path / "out" / ENGINES[engine].file
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    with pytest.raises(BundleError, match="is not what was proven"):
        load_translator(tmp_path / "out", engine, device="cpu")
