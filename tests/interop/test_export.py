import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from transduce.bundle import Bundle, Languages, save_bundle
from transduce.errors import ConfigError, CorpusError, OutputError, ParityError
from transduce.interop import export_bundle, find_format
from transduce.interop.ctranslate2 import export_format as ctranslate2_format
from transduce.interop.formats import FORMATS
from transduce.interop.parity import TOLERANCES, read_parity

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
    assert read_parity(tmp_path / "new" / "out" / "parity.json") == parity
    assert parity.model == bundle.digest
    assert (parity.target, parity.precision, parity.sentences) == ("ctranslate2", "float32", 14)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out"]
    assert said[0] == "probe: 14 sentences, made of the model's vocabulary"
    assert len(said) == 3


def test_an_older_export_is_replaced(bundle: Bundle, tmp_path: Path) -> None:
    export_bundle(bundle, "ctranslate2", tmp_path / "out", num_sentences=2)
    export_bundle(bundle, "ctranslate2", tmp_path / "out", precision="int8", num_sentences=2)
    parity = read_parity(tmp_path / "out" / "parity.json")
    assert parity.precision == "int8"
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


def test_a_single_file_has_its_proof_beside_it(bundle: Bundle, tmp_path: Path, contents: Callable) -> None:
    path = tmp_path / "out" / "a.argosmodel"
    for precision in ("float32", "int8"):
        parity = export_bundle(bundle, "argos", path, precision=precision, num_sentences=2)
        assert contents(tmp_path / "out").keys() == {"a.argosmodel", "a.argosmodel.parity.json"}
        assert read_parity(tmp_path / "out" / "a.argosmodel.parity.json") == parity
        assert parity.precision == precision


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
    with pytest.raises(ParityError, match=r"decoder.layers.0.feed_forward.outer.weight: numbers are not"):
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
        ("ctranslate2", "bundle", lambda _: None),
        ("argos", "a.argosmodel", lambda path: path.write_text("mine")),
        ("argos", "b.argosmodel", lambda path: path.mkdir()),
    ],
)
def test_what_is_no_export_is_not_replaced(
    bundle: Bundle, tmp_path: Path, contents: Callable, target: str, name: str, make: Callable[[Path], object]
) -> None:
    make(tmp_path / name)
    before = contents(tmp_path)
    with pytest.raises(OutputError, match=r"not replaced|no export"):
        export_bundle(bundle, target, tmp_path / name, num_sentences=2)
    assert contents(tmp_path) == before


def test_not_even_a_bundle_that_was_imported_with_a_proof(bundle: Bundle, tmp_path: Path, contents: Callable) -> None:
    export_bundle(bundle, "ctranslate2", tmp_path / "out", num_sentences=2)
    (tmp_path / "out" / "parity.json").rename(bundle.folder / "parity.json")
    before = contents(bundle.folder)
    with pytest.raises(OutputError, match="is a folder, and no export"):
        export_bundle(bundle, "ctranslate2", bundle.folder, num_sentences=2)
    assert contents(bundle.folder) == before


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
        ({"target": "argos"}, r"a file for argos is called NAME\.argosmodel"),
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
    chosen = find_format(name)
    assert set(chosen.precisions) <= TOLERANCES.keys()
    assert chosen.precisions[0] == "float32"


def test_languages_travel(bundle: Bundle, tmp_path: Path) -> None:
    description = bundle.description.model_copy(update={"languages": Languages()})
    save_bundle(tmp_path / "nameless", bundle.load_model(), bundle.load_tokenizer(), description)
    export_bundle(Bundle.open(tmp_path / "nameless"), "ctranslate2", tmp_path / "out", num_sentences=2)
    assert ", from" not in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
