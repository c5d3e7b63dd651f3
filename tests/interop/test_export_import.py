import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from transduce import interop
from transduce.bundle import Bundle, Languages, save_bundle
from transduce.bundle.manifest import read_description
from transduce.config import TransformerConfig
from transduce.errors import BundleError, ConfigError, CorpusError, MissingExtraError, OutputError, ParityError
from transduce.interop import ENGINES, export_bundle, find_export_format, load_translator
from transduce.interop import ctranslate2 as ctranslate2_format
from transduce.interop.ctranslate2 import FORMAT, CTranslate2Format
from transduce.interop.formats import FORMATS
from transduce.interop.parity import PARITY_FILE, TOLERANCES, Parity
from transduce.translation import Translator

pytest.importorskip("ctranslate2")


@pytest.fixture
def bundle(make_bundle: Callable[..., Bundle]) -> Bundle:
    return make_bundle(num_encoder_layers=1)


@pytest.fixture
def contents() -> Callable[[Path], dict[str, bytes | None]]:
    def read(folder: Path) -> dict[str, bytes | None]:
        paths = sorted(folder.rglob("*"))
        return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in paths}

    return read


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exporter with a mistake: one number of one matrix is one percent too large."""
    right = ctranslate2_format.to_variables

    def wrong(*arguments: Any) -> dict[str, Tensor]:
        variables = right(*arguments)
        matrix = variables["decoder/layer_0/ffn/linear_1/weight"].detach().clone()
        matrix[3, 5] *= 1.01
        return variables | {"decoder/layer_0/ffn/linear_1/weight": matrix}

    monkeypatch.setattr(ctranslate2_format, "to_variables", wrong)


def test_an_export_has_its_proof_and_says_what_it_does(bundle: Bundle, tmp_path: Path) -> None:
    said: list[str] = []
    parity = export_bundle(bundle, "ctranslate2", tmp_path / "new" / "out", num_sentences=14, report=said.append)
    assert read_description(tmp_path / "new" / "out" / "parity.json", Parity) == parity
    assert parity.model == bundle.digest
    assert (parity.target, parity.precision, parity.sentences) == ("ctranslate2", "float32", 14)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out"]
    assert said[0] == "probe: 14 sentences, made of the model's vocabulary"
    assert len(said) == 3


def test_an_older_export_is_replaced(bundle: Bundle, tmp_path: Path) -> None:
    export_bundle(bundle, "ctranslate2", tmp_path / "out", num_sentences=2)
    export_bundle(bundle, "ctranslate2", tmp_path / "out", precision="float16", num_sentences=2)
    parity = read_description(tmp_path / "out" / "parity.json", Parity)
    assert parity.precision == "float16"
    assert {*parity.files, "parity.json"} == {path.name for path in (tmp_path / "out").iterdir()}


def test_files_of_others_beside_an_older_export_are_not_lost(
    bundle: Bundle, tmp_path: Path, contents: Callable
) -> None:
    export_bundle(bundle, "ctranslate2", tmp_path / "out", num_sentences=2)
    (tmp_path / "out" / ".git").mkdir()
    (tmp_path / "out" / ".git" / "HEAD").touch()
    before = contents(tmp_path)
    with pytest.raises(OutputError, match="HEAD: is not from an export"):
        export_bundle(bundle, "ctranslate2", tmp_path / "out", num_sentences=2)
    assert contents(tmp_path) == before


def test_an_older_export_that_was_changed_is_not_replaced_unasked(
    bundle: Bundle, tmp_path: Path, contents: Callable
) -> None:
    export_bundle(bundle, "ctranslate2", tmp_path / "out", num_sentences=2)
    card = tmp_path / "out" / "README.md"
    card.write_text("Our model of 1926.", encoding="utf-8")
    before = contents(tmp_path)
    with pytest.raises(OutputError, match=r"README\.md: was changed after the export: .* --force"):
        export_bundle(bundle, "ctranslate2", tmp_path / "out", num_sentences=2)
    assert contents(tmp_path) == before
    export_bundle(bundle, "ctranslate2", tmp_path / "out", num_sentences=2, force=True)
    assert "1926" not in card.read_text(encoding="utf-8")


@pytest.mark.parametrize("target", ["ctranslate2", "transduce"])
def test_the_model_itself_is_never_replaced(bundle: Bundle, tmp_path: Path, contents: Callable, target: str) -> None:
    (tmp_path / "link").symlink_to(bundle.folder)
    before = contents(bundle.folder)
    for output in (bundle.folder, tmp_path / "link"):
        with pytest.raises(OutputError, match="is the model to export, which would be lost"):
            export_bundle(bundle, target, output, num_sentences=2, force=True)
    assert contents(bundle.folder) == before


def test_a_single_file_has_its_proof_beside_it(bundle: Bundle, tmp_path: Path, contents: Callable) -> None:
    path = tmp_path / "out" / "a.argosmodel"
    left = tmp_path / "out" / "a.argosmodel.transduce-tmp-1"  # by an export that was killed
    left.mkdir(parents=True)
    for precision in ("float32", "float16"):
        parity = export_bundle(bundle, "argos", path, precision=precision, num_sentences=2)
        assert contents(tmp_path / "out").keys() == {"a.argosmodel", "a.argosmodel.parity.json"}
        assert read_description(tmp_path / "out" / "a.argosmodel.parity.json", Parity) == parity
        assert parity.precision == precision
        path.chmod(0o600)
        mode = path.stat().st_mode
        export_bundle(bundle, "argos", path, precision=precision, num_sentences=2)
        assert path.stat().st_mode == mode


@pytest.mark.parametrize(
    ("target", "package"),
    [
        ("ctranslate2", "ctranslate2"),
        ("argos", "ctranslate2"),
        ("marian", "ctranslate2"),
        ("huggingface", "transformers"),
        ("onnx", "onnx"),
        ("onnx", "onnxruntime"),
    ],
)
def test_a_missing_package_is_said_before_anything_is_written(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, package: str
) -> None:
    monkeypatch.setattr("transduce.interop.marian.find_marian", lambda: None)
    monkeypatch.setitem(sys.modules, package, None)
    said: list[str] = []
    with pytest.raises(MissingExtraError, match=f"exporting to {target} needs the package '{package}'"):
        export_bundle(bundle, target, tmp_path / f"out{find_export_format(target).suffix}", report=said.append)
    assert not said


def test_a_missing_package_is_said_before_a_model_is_read(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_bundle(bundle, "ctranslate2", tmp_path / "out", num_sentences=2)
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    said: list[str] = []
    with pytest.raises(MissingExtraError, match="importing from ctranslate2 needs the package 'ctranslate2'"):
        import_model(tmp_path / "out", tmp_path / "imported", report=said.append)
    assert not said


@pytest.mark.usefixtures("faulty")
@pytest.mark.parametrize(
    ("target", "name", "precision"),
    [
        ("ctranslate2", "out", "float32"),
        ("ctranslate2", "out", "float16"),
        ("ctranslate2", "out", "bfloat16"),
        ("argos", "out.argosmodel", "float32"),
    ],
)
def test_an_export_that_is_not_the_same_leaves_nothing(
    bundle: Bundle, tmp_path: Path, contents: Callable, target: str, name: str, precision: str
) -> None:
    before = contents(tmp_path)
    with pytest.raises(ParityError, match=r"decoder.layers.0.feed_forward.outer.weight: values differ"):
        export_bundle(bundle, target, tmp_path / name, precision=precision, num_sentences=2)
    assert contents(tmp_path) == before


def test_an_older_export_outlives_a_failure(
    bundle: Bundle, tmp_path: Path, contents: Callable, request: pytest.FixtureRequest
) -> None:
    export_bundle(bundle, "ctranslate2", tmp_path / "out", num_sentences=2)
    export_bundle(bundle, "argos", tmp_path / "out.argosmodel", num_sentences=2)
    before = contents(tmp_path)
    request.getfixturevalue("faulty")
    for target, name in (("ctranslate2", "out"), ("argos", "out.argosmodel")):
        with pytest.raises(ParityError):
            export_bundle(bundle, target, tmp_path / name, num_sentences=2)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("target", "name", "make"),
    [
        ("ctranslate2", "foreign", lambda path: (path.mkdir(), (path / "thesis.tex").touch())),
        ("ctranslate2", "file", lambda path: path.touch()),
        ("ctranslate2", "almost", lambda path: (path.mkdir(), (path / "parity.json").write_text("{}"))),
        ("ctranslate2", "model", lambda path: shutil.copytree(path.with_name("bundle"), path)),
        ("argos", "a.argosmodel", lambda path: path.write_text("mine")),
        ("argos", "b.argosmodel", lambda path: path.mkdir()),
    ],
)
def test_what_is_no_export_is_not_replaced(
    bundle: Bundle, tmp_path: Path, contents: Callable, target: str, name: str, make: Callable[[Path], object]
) -> None:
    make(tmp_path / name)
    before = contents(tmp_path)
    with pytest.raises(OutputError, match=r"not replaced|not an export"):
        export_bundle(bundle, target, tmp_path / name, num_sentences=2)
    assert contents(tmp_path) == before


def test_of_a_folder_that_was_never_an_export_no_proof_is_missed(bundle: Bundle, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").touch()
    with pytest.raises(OutputError, match=r"out: contains thesis\.tex and is not an export"):
        export_bundle(bundle, "ctranslate2", tmp_path / "out", num_sentences=2)


def test_not_even_a_bundle_that_was_imported_with_a_proof(bundle: Bundle, tmp_path: Path, contents: Callable) -> None:
    export_bundle(bundle, "ctranslate2", tmp_path / "out", num_sentences=2)
    imported = shutil.copytree(bundle.folder, tmp_path / "imported")
    (tmp_path / "out" / "parity.json").rename(imported / "parity.json")
    before = contents(imported)
    with pytest.raises(OutputError, match="contains a model that is not an export"):
        export_bundle(bundle, "ctranslate2", imported, num_sentences=2)
    assert contents(imported) == before


def test_all_that_the_format_cannot_express_is_said_at_once(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle(attention_score="additive", normalization="batch", d_k=4, d_v=8)
    with pytest.raises(ConfigError) as error:
        export_bundle(bundle, "ctranslate2", tmp_path / "out")
    lines = str(error.value).split("\n")
    assert [line.split()[0] for line in lines[1:]] == ["attention_score", "normalization", "d_k"]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target": "pdf"}, r"format = 'pdf': must be one of ctranslate2, "),
        ({"precision": "int2"}, r"precision = 'int2': ctranslate2 has float32, float16"),
        ({"reference": Path("a")}, r"reference = 'a'"),
        ({"target": "argos"}, r"must end in \.argosmodel"),
    ],
)
def test_wrong_options_are_refused(bundle: Bundle, tmp_path: Path, options: dict[str, Any], words: str) -> None:
    target = options.pop("target", "ctranslate2")
    with pytest.raises(ConfigError, match=words):
        export_bundle(bundle, target, tmp_path / "out", **options)


def test_a_probe_of_ones_own(bundle: Bundle, tmp_path: Path) -> None:
    for name, lines in (("a.en", "sun moon\nriver\n"), ("a.no", "sol måne\nelv\n")):
        (tmp_path / name).write_text(lines, encoding="utf-8")
    names = {"probe": tmp_path / "a.en", "reference": tmp_path / "a.no"}
    parity = export_bundle(bundle, "ctranslate2", tmp_path / "out", **names)
    assert parity.sentences == 2
    assert parity.probe.startswith("2 of 2 lines of a.en")
    assert json.loads((tmp_path / "out" / "parity.json").read_text(encoding="utf-8"))["bleu"]["against"] == "reference"
    with pytest.raises(CorpusError):
        export_bundle(bundle, "ctranslate2", tmp_path / "none", probe=tmp_path / "missing")
    assert not (tmp_path / "none").exists()


def test_the_model_is_not_changed(bundle: Bundle, tmp_path: Path, contents: Callable) -> None:
    before = contents(bundle.folder)
    export_bundle(bundle, "ctranslate2", tmp_path / "out", num_sentences=2)
    assert contents(bundle.folder) == before


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_tolerances_for_its_precisions(name: str) -> None:
    chosen = find_export_format(name)
    assert set(chosen.precisions) <= TOLERANCES.keys()
    assert chosen.precisions[0] == ("int8" if name == "transduce" else "float32")


def test_languages_travel(bundle: Bundle, tmp_path: Path) -> None:
    description = bundle.description.model_copy(update={"languages": Languages()})
    save_bundle(tmp_path / "nameless", bundle.load_model(), bundle.load_tokenizer(), description)
    export_bundle(Bundle.open(tmp_path / "nameless"), "ctranslate2", tmp_path / "out", num_sentences=2)
    assert ", from" not in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


pytest.importorskip("ctranslate2")

import_model = partial(interop.import_model, num_sentences=12)


@pytest.fixture
def exported(make_bundle: Callable[..., Bundle], tmp_path: Path) -> Path:
    folder = tmp_path / "exported"
    folder.mkdir()
    FORMAT.write(make_bundle(), folder, "float32")
    return folder


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_bundle_has_its_proof(exported: Path, tmp_path: Path) -> None:
    said: list[str] = []
    parity = import_model(exported, tmp_path / "imported", target_language="nn", report=said.append)
    bundle = Bundle.open(tmp_path / "imported")
    assert read_description(bundle.folder / PARITY_FILE, Parity) == parity
    assert (parity.model, parity.target) == (bundle.digest, "ctranslate2")
    assert (bundle.description.languages.source, bundle.description.languages.target) == ("en", "nn")
    assert PARITY_FILE not in bundle.description.files
    assert len(said) == 2
    assert names(tmp_path) == {"bundle", "exported", "imported"}
    card = (bundle.folder / "README.md").read_text("utf-8")
    assert "- imported from: exported\n- format: ctranslate2\n- made for: CTranslate2" in card


def test_a_probe_is_used(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "probe").write_text("sun moon\nriver\n", "utf-8")
    assert import_model(exported, tmp_path / "x", probe=tmp_path / "probe").sentences == 2
    (tmp_path / "probe").write_text("\n", "utf-8")
    with pytest.raises(CorpusError):
        import_model(exported, tmp_path / "y", probe=tmp_path / "probe")
    assert not (tmp_path / "y").exists()


def test_an_older_bundle_is_replaced_only_by_what_is_proven(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_model(exported, tmp_path / "imported")
    before = {path.name: path.read_bytes() for path in (tmp_path / "imported").iterdir()}
    read = CTranslate2Format.read

    def wrong(self: CTranslate2Format, path: Path, tokenizer: Path | None) -> Any:
        found = read(self, path, tokenizer)
        tensors = dict(found.tensors)
        tensors["decoder.layers.0.feed_forward.inner.bias"] = 1 + tensors["decoder.layers.0.feed_forward.inner.bias"]
        return replace(found, tensors=tensors)

    monkeypatch.setattr(CTranslate2Format, "read", wrong)
    with pytest.raises(OutputError, match=r"contains a model.*--force"):
        import_model(exported, tmp_path / "imported")
    with pytest.raises(ParityError, match="does not compute the same"):
        import_model(exported, tmp_path / "imported", force=True)
    with pytest.raises(ParityError):
        import_model(exported, tmp_path / "new")
    assert {path.name: path.read_bytes() for path in (tmp_path / "imported").iterdir()} == before
    assert names(tmp_path) == {"bundle", "exported", "imported"}


def test_no_network_is_made_that_the_weights_do_not_fill(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = CTranslate2Format.read

    def huge(self: CTranslate2Format, path: Path, tokenizer: Path | None) -> Any:
        found = read(self, path, tokenizer)
        config = found.config.model_dump() | {"d_ff": 2**31 - 1, "num_encoder_layers": 2}
        return replace(found, config=TransformerConfig(**config))

    monkeypatch.setattr(CTranslate2Format, "read", huge)
    with pytest.raises(BundleError, match=r"is float32 \[24\], its model needs float32 \[2147483647\]"):
        import_model(exported, tmp_path / "new")


@pytest.mark.parametrize(("name", "words"), [("nothing", "no such file"), ("bundle", "is a bundle already")])
def test_what_is_no_foreign_model_is_refused(exported: Path, tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(BundleError, match=words):
        import_model(tmp_path / name, tmp_path / "new")


def test_nothing_else_is_replaced(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("precious", "utf-8")
    with pytest.raises(OutputError, match="contains other files"):
        import_model(exported, tmp_path / "mine")
    assert names(tmp_path / "mine") == {"file"}


pytest.importorskip("ctranslate2")


TEXTS = ["sun moon", "", "river stone bird " * 4]


def expected(bundle: Bundle) -> list[str]:
    return Translator.load(bundle.folder, device="cpu", precision="float32").translate(TEXTS, beam=1)


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
@pytest.mark.parametrize("engine", ENGINES)
def test_a_bundle_is_exported_for_the_occasion(bundle: Bundle, engine: str) -> None:
    said: list[str] = []
    translator = load_translator(bundle.folder, engine, device="cpu", report=said.append)
    assert translator.translate(TEXTS, beam=1) == expected(bundle)
    assert len(said) == 1
    assert sorted(path.name for path in bundle.folder.parent.iterdir()) == ["bundle"]
    load_translator(bundle.folder, engine, device="cpu", precision="float16")
    with pytest.raises(ConfigError, match=r"precision = 'int2'"):
        load_translator(bundle.folder, engine, device="cpu", precision="int2")


def test_the_native_engine_is_the_usual_one(bundle: Bundle) -> None:
    translator = load_translator(bundle.folder, device="cpu", precision="float32")
    assert translator.translate(TEXTS, beam=1) == expected(bundle)
    with pytest.raises(
        ConfigError, match=r"precision = 'float16': the native engine has auto, float32, bfloat16, int8"
    ):
        load_translator(bundle.folder, precision="float16")
    in_integers = load_translator(bundle.folder, device="cpu", precision="int8")
    assert len(in_integers.translate(TEXTS, beam=1)) == len(TEXTS)


def test_what_is_wrong_is_said(bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"engine = 'marian': must be one of native, ctranslate2"):
        load_translator(bundle.folder, "marian")
    with pytest.raises(ConfigError, match=r"--ensemble: the engine ctranslate2 computes with one model"):
        load_translator(bundle.folder, "ctranslate2", ensemble=[bundle.folder])
    with pytest.raises(ConfigError, match=r"device = 'cuda': the engine onnx supports only cpu"):
        load_translator(bundle.folder, "onnx", device="cuda")
    with pytest.raises(BundleError, match="no such folder"):
        load_translator(tmp_path / "missing", "ctranslate2")


def test_engines_are_called_as_their_formats() -> None:
    assert ENGINES.keys() <= FORMATS.keys()


@pytest.mark.parametrize("name", ["/dev/zero", "../bundle/bundle.json", "a/../../b", "", "a\0b", "C:\\a", "..\\a"])
def test_a_proof_names_no_file_elsewhere(bundle: Bundle, tmp_path: Path, name: str) -> None:
    export_bundle(bundle, "ctranslate2", tmp_path / "out", num_sentences=2)
    path = tmp_path / "out" / PARITY_FILE
    content = json.loads(path.read_bytes())
    content["files"][name] = {"bytes": 0, "sha256": "0" * 64}
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(BundleError, match="must be the path of a file within the folder"):
        load_translator(tmp_path / "out", "ctranslate2", device="cpu")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_damaged_export_is_noticed(bundle: Bundle, tmp_path: Path, engine: str) -> None:
    export_bundle(bundle, engine, tmp_path / "out", num_sentences=2)
    path = tmp_path / "out" / ENGINES[engine]
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    with pytest.raises(BundleError, match=r"parity\.json says .*: the folder is damaged or was changed"):
        load_translator(tmp_path / "out", engine, device="cpu")
