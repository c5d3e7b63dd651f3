import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from transduce.bundle import Bundle, Languages, RecordedScore, collect_model_tensors, save_bundle
from transduce.errors import BundleError, ConfigError, MissingExtraError, UserError
from transduce.interop import argos as archive
from transduce.interop.argos import FORMAT, convert_to_argos_code, pack, unpack
from transduce.interop.argos.splitter import _ALWAYS, _BEFORE_NUMBERS, list_abbreviations
from transduce.interop.export_import import export_bundle, prove_export
from transduce.interop.formats import ExportFormat, Runtime
from transduce.interop.parity import Claim
from transduce.interop.probe_sentences import make_probe
from transduce.text import Tokenizer
from transduce.text.languages import get_language_name
from transduce.translation import ForcedDecoder, Translator

pytest.importorskip("ctranslate2")
pytest.importorskip("onnx")


WORKER = Path(__file__).parents[3] / "benchmarks" / "argos_worker.py"
ARGOS_PYTHON = os.environ.get("PYTHON_WITH_ARGOSTRANSLATE", "")
TOP = "translate-en_no-1_0"


def in_languages(bundle: Bundle, source: str, target: str) -> Bundle:
    languages = Languages(source=source, target=target)
    return replace(bundle, description=bundle.description.model_copy(update={"languages": languages}))


def written(bundle: Bundle, path: Path, precision: str = "float32") -> Path:
    FORMAT.write(bundle, path, precision)
    return path


def test_it_is_a_format(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    assert isinstance(FORMAT, ExportFormat)
    assert FORMAT.precisions[0] == "float32"
    bundle = make_bundle()
    package = written(bundle, tmp_path / "made.argosmodel")
    assert isinstance(FORMAT.load(package, bundle.load_tokenizer()), Runtime)


def test_the_card_says_that_argos_translate_may_repeat_ngrams(
    make_bundle: Callable[..., Bundle], tmp_path: Path
) -> None:
    bundle = make_bundle()
    search = bundle.description.search.model_copy(update={"no_repeat_ngram": 4})
    description = bundle.description.model_copy(update={"search": search})
    save_bundle(tmp_path / "fitted", bundle.load_model(), bundle.load_tokenizer(), description)
    for model, is_said in ((bundle, False), (Bundle.open(tmp_path / "fitted"), True)):
        with zipfile.ZipFile(written(model, tmp_path / f"{is_said}.argosmodel")) as archive:
            card = archive.read(f"{TOP}/README.md").decode("utf-8")
        assert ("no 4 tokens occur twice" in card) == is_said


def test_a_package_has_what_argos_looks_for(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle()
    with zipfile.ZipFile(written(bundle, tmp_path / "made.argosmodel", "int8")) as archive:
        assert archive.testzip() is None
        names = set(archive.namelist())
        metadata = json.loads(archive.read(f"{TOP}/metadata.json"))
        tokenizer = archive.read(f"{TOP}/sentencepiece.model")
        vocabulary = json.loads(archive.read(f"{TOP}/model/shared_vocabulary.json"))
        settings = json.loads(archive.read(f"{TOP}/model/config.json"))
        card = archive.read(f"{TOP}/README.md").decode("utf-8")
    model = {"model/config.json", "model/model.bin", "model/shared_vocabulary.json"}
    files = {"metadata.json", "README.md", "sentencepiece.model", "minisbd/en.onnx", *model}
    assert names == {f"{TOP}/{name}" for name in files}
    assert metadata == {
        "package_version": "1.0",
        "argos_version": "1.9.0",
        "from_code": "en",
        "from_name": "English",
        "to_code": "no",
        "to_name": "Norwegian",
    }
    assert tokenizer == bundle.load_tokenizer().model_bytes
    assert vocabulary == bundle.load_tokenizer().pieces(range(bundle.model_config.vocabulary - 1))
    assert settings["add_source_eos"]  # Argos Translate appends nothing to the pieces of a sentence
    assert "# English to Norwegian" in card
    assert "int8" in card
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "made.argosmodel"]


def test_the_same_model_gives_the_same_file(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle()
    one, other = (written(bundle, tmp_path / f"{name}.argosmodel") for name in ("one", "other"))
    assert one.read_bytes() == other.read_bytes()


def test_scores_that_were_measured_are_in_the_readme(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle()
    score = RecordedScore(metric="BLEU", value=31.17, signature="tok:13a", data="validation")
    scored = replace(bundle, description=bundle.description.model_copy(update={"scores": [score]}))
    with zipfile.ZipFile(written(scored, tmp_path / "made.argosmodel")) as archive:
        assert "- BLEU 31.17 on validation (tok:13a)\n" in archive.read(f"{TOP}/README.md").decode("utf-8")


@pytest.mark.parametrize(
    "settings", [{}, {"norm_order": "pre", "tied_embeddings": "none", "output_bias": True, "activation": "swish"}]
)
def test_the_package_computes_the_same(
    make_bundle: Callable[..., Bundle], tmp_path: Path, settings: dict[str, Any]
) -> None:
    bundle = make_bundle(**settings)
    assert FORMAT.find_unsupported_features(bundle) == []
    decoder = ForcedDecoder.from_bundle(bundle, device="cpu")
    probe = make_probe(decoder, num_sentences=13)
    package = written(bundle, tmp_path / "made.argosmodel")
    # It sees nothing but the file.
    package = package.rename(tmp_path.parent / f"{tmp_path.name}.argosmodel")
    shutil.rmtree(tmp_path)
    parity = prove_export(decoder, FORMAT, package, probe, Claim("argos", "float32", bundle.digest))
    assert parity.largest_difference < 2e-5
    assert parity.identical_greedy == parity.identical_tokenizations == 13
    assert parity.identical_weights == len(collect_model_tensors(decoder.model))
    assert "in an Argos package" in parity.theirs


def test_a_package_is_exported_with_its_proof_beside_it(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle(d_model=32, num_heads=4, d_ff=64)
    package = tmp_path / "out" / "en-no.argosmodel"
    parity = export_bundle(bundle, "argos", package, precision="float16", num_sentences=5)
    assert parity.largest_difference > 1e-4
    assert sorted(path.name for path in package.parent.iterdir()) == [package.name, f"{package.name}.parity.json"]


@pytest.mark.parametrize(("source", "target"), [("", "de"), ("en", ""), ("English", "de"), ("en", "../de")])
def test_a_model_without_languages_is_refused(
    make_bundle: Callable[..., Bundle], tmp_path: Path, source: str, target: str
) -> None:
    bundle = in_languages(make_bundle(), source, target)
    (obstacle,) = FORMAT.find_unsupported_features(bundle)
    assert '"languages": {"source": "en", "target": "de"}' in obstacle
    with pytest.raises(ConfigError, match="found by its languages"):
        export_bundle(bundle, "argos", tmp_path / "made.argosmodel")
    with pytest.raises(BundleError, match="found by its languages"):
        FORMAT.write(bundle, tmp_path / "made.argosmodel", "float32")
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_two_tokenizers_are_an_obstacle(
    make_bundle: Callable[..., Bundle], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    bundle = make_bundle()
    special, pieces = tokenizer.pieces(range(2)), tokenizer.pieces(range(2, tokenizer.pad_id))
    two = Tokenizer.with_vocabulary(tokenizer.model_bytes, tokenizer.model_bytes, [*special, *pieces[::-1]], "two")
    save_bundle(tmp_path / "two", bundle.load_model(), two, bundle.description)
    (obstacle,) = FORMAT.find_unsupported_features(Bundle.open(tmp_path / "two"))
    assert "one SentencePiece model for both" in obstacle


def test_tags_are_an_obstacle(tagged_bundle: Bundle) -> None:
    (obstacle,) = FORMAT.find_unsupported_features(tagged_bundle)
    assert obstacle.startswith("the tokenizer has tags (>>de<<, >>fr<<), which Argos Translate spells like words")


def test_what_ctranslate2_cannot_express_is_an_obstacle_here(make_bundle: Callable[..., Bundle]) -> None:
    (obstacle,) = FORMAT.find_unsupported_features(make_bundle(attention_score="additive"))
    assert obstacle.startswith("attention_score")


def test_a_damaged_package_is_refused(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle()
    package = written(bundle, tmp_path / "made.argosmodel")
    content = package.read_bytes()
    middle = len(content) // 2  # of the model
    for damaged in (b"", content[:1000], content[:-100], content[:middle] + b"\0" * 50 + content[middle + 50 :]):
        package.write_bytes(damaged)
        with pytest.raises(BundleError, match=r"made\.argosmodel: .*give an undamaged Argos package"):
            FORMAT.load(package, bundle.load_tokenizer())
    package.unlink()
    with pytest.raises(BundleError, match=r"made\.argosmodel: cannot be read"):
        FORMAT.load(package, bundle.load_tokenizer())


def test_an_error_about_its_model_names_the_package(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    package = written(make_bundle(), tmp_path / "made.argosmodel")
    with zipfile.ZipFile(package) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(package, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, b"none" if name.endswith("model.bin") else content)
    with pytest.raises(UserError) as caught:
        FORMAT.read(package, None)
    assert str(caught.value).startswith(f"{package}: model")
    assert tempfile.gettempdir() not in str(caught.value).replace(str(tmp_path), "")


@pytest.mark.parametrize("package", ["ctranslate2", "onnx"])
def test_a_missing_package_is_named_and_nothing_written(
    make_bundle: Callable[..., Bundle], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    bundle = make_bundle()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=package):
        FORMAT.write(bundle, tmp_path / "made.argosmodel", "float32")
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


@pytest.mark.skipif(not ARGOS_PYTHON, reason="PYTHON_WITH_ARGOSTRANSLATE does not name a Python that has it")
def test_argos_translate_says_the_same_without_a_network(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle()
    package = written(bundle, tmp_path / "made.argosmodel")
    lines = ["sun moon river", "", "Fish, door! Lamp road?", "stone"]
    task = {"package": str(package), "lines": lines, "from": "en", "to": "no"}
    environment = {
        "HOME": str(tmp_path),
        "ARGOS_PACKAGES_DIR": str(tmp_path / "packages"),
        "ARGOS_BEAM_SIZE": "1",
        "ARGOS_COMPUTE_TYPE": "default",
    }
    command = [ARGOS_PYTHON, str(WORKER)]
    run = subprocess.run(
        command, input=json.dumps(task), env=environment, capture_output=True, check=True, encoding="utf-8"
    )
    answer = json.loads(run.stdout)
    assert answer["connections"] == []
    assert answer["sentences"] == [[lines[0]], [], ["Fish, door!", "Lamp road?"], [lines[3]]]
    translator = Translator.load(bundle.folder, device="cpu", precision="float32").with_search({"beam": 1})
    for line in (0, 3):
        ours, theirs = translator.translate([lines[line]])[0].replace("_", " "), answer["translations"][line]
        # Random weights rarely end a translation, and our limit is lower.
        assert len(ours) > 5
        assert theirs[: len(ours) // 2] == ours[: len(ours) // 2]
    assert answer["translations"][1] == ""


FILES = {
    "en_de/model/model.bin": b"model",
    "en_de/model/config.json": b"{}",
    "en_de/model/shared_vocabulary.json": b"[]",
    "en_de/sentencepiece.model": b"pieces",
    "en_de/metadata.json": b'{"from_code": "en", "to_code": "de"}',
    "en_de/stanza/en/tokenize.pt": b"never written",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return packed(tmp_path / "one.argosmodel", FILES)


def packed(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "deep" / "target"
    folder.mkdir(parents=True)
    return folder


def test_a_package_is_a_file_of_that_name(path: Path, tmp_path: Path) -> None:
    assert FORMAT.recognises(path)
    assert not FORMAT.recognises(tmp_path)
    assert not FORMAT.recognises(path.rename(tmp_path / "one.npz"))


def test_what_is_needed_is_unpacked_and_nothing_else(path: Path, target: Path) -> None:
    languages = unpack(path, target)
    assert (languages.source, languages.target) == ("en", "de")
    found = {str(file.relative_to(target)) for file in target.rglob("*") if file.is_file()}
    assert found == {name.removeprefix("en_de/") for name in FILES if "stanza" not in name}
    assert (target / "model" / "model.bin").read_bytes() == b"model"


@pytest.mark.parametrize(
    "name", ["../model/model.bin", "/model/model.bin", "en_de/../../evil", "en_de/model/../../evil"]
)
def test_no_name_leads_out_of_the_folder(target: Path, tmp_path: Path, name: str) -> None:
    path = packed(tmp_path / "evil.argosmodel", {**FILES, name: b"evil"})
    before = {file for file in tmp_path.rglob("*") if not file.is_relative_to(target)}
    unpack(path, target)
    assert {file for file in tmp_path.rglob("*") if not file.is_relative_to(target)} == before
    assert not (target.parent / "evil").exists()


@pytest.mark.parametrize("metadata", [b"", b"[]", b"{}", b'{"from_code": 3, "to_code": null}', b"[" * 200_000])
def test_without_readable_metadata_no_language_is_known(target: Path, tmp_path: Path, metadata: bytes) -> None:
    languages = unpack(packed(tmp_path / "x.argosmodel", {**FILES, "en_de/metadata.json": metadata}), target)
    assert (languages.source, languages.target) == ("", "")


def test_a_package_without_a_model_is_refused(target: Path, tmp_path: Path) -> None:
    path = packed(tmp_path / "x.argosmodel", {"en_de/metadata.json": b"{}"})
    with pytest.raises(BundleError, match=r"has no model/model\.bin"):
        unpack(path, target)


def test_a_package_whose_names_are_no_text_is_refused(target: Path, tmp_path: Path) -> None:
    path = packed(tmp_path / "x.argosmodel", {"é": b""})
    path.write_bytes(path.read_bytes().replace("é".encode(), b"\xff\xfe"))
    with pytest.raises(BundleError, match="is not a zip file, or is damaged"):
        unpack(path, target)


def test_a_package_that_swells_is_refused(path: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_MAX_BYTES", 40)
    with pytest.raises(BundleError, match=r"has .* bytes unpacked; at most 40"):
        unpack(path, target)
    assert not any(target.iterdir())


def test_damage_is_noticed(path: Path, target: Path) -> None:
    whole = path.read_bytes()
    for content in (b"", b"no zip", whole[: len(whole) // 2], whole.replace(b"pieces", b"peaces")):
        path.write_bytes(content)
        if content != whole:
            with pytest.raises(BundleError, match="damaged"):
                unpack(path, target)
            for file in sorted(target.rglob("*"), reverse=True):
                file.rmdir() if file.is_dir() else file.unlink()


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damage_is_noticed_however_it_is_compressed(target: Path, tmp_path: Path, method: int) -> None:
    path = tmp_path / "x.argosmodel"
    with zipfile.ZipFile(path, "w", method) as package:
        package.writestr("en_de/model/model.bin", bytes(range(256)))
    content = bytearray(path.read_bytes())
    start = content.index(b"model.bin") + len("model.bin")
    content[start : start + 60] = b"\xff" * 60
    path.write_bytes(content)
    with pytest.raises(BundleError, match=r"x\.argosmodel: (is not a zip file|cannot be read: \w+ )"):
        unpack(path, target)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "model.bin").write_bytes(bytes(range(256)) * 4000)
    (folder / "sentencepiece.model").write_bytes(b"pieces")
    (folder / "ü").write_text("text", encoding="utf-8")
    return folder


def test_what_was_packed_is_unpacked(folder: Path, target: Path, tmp_path: Path) -> None:
    pack(folder, tmp_path / "packed")
    unpack(tmp_path / "packed", target)
    assert (target / "model" / "model.bin").read_bytes() == bytes(range(256)) * 4000
    assert (target / "sentencepiece.model").read_bytes() == b"pieces"


def test_entries_have_one_date_and_can_be_read(folder: Path, tmp_path: Path) -> None:
    pack(folder, tmp_path / "packed")
    with zipfile.ZipFile(tmp_path / "packed") as packed:
        entries = packed.infolist()
    assert [entry.filename for entry in entries] == [
        "package/model/model.bin",
        "package/sentencepiece.model",
        "package/ü",
    ]
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert {stat.S_IMODE(entry.external_attr >> 16) for entry in entries} == {0o644}
    assert entries[0].compress_size < entries[0].file_size / 10


@pytest.mark.parametrize(
    ("code", "theirs", "name"),
    [
        ("en", "en", "English"),
        ("DE", "de", "German"),
        ("pt-BR", "pb", "Portuguese (Brazil)"),
        ("zh_Hant", "zt", "Chinese (traditional)"),
        ("zh-CN", "zh", "Chinese"),
        ("de_AT", "de-at", "German (at)"),
        ("hsb", "hsb", "Upper Sorbian"),
        ("aa", "aa", "Afar"),
        ("zu", "zu", "Zulu"),
        ("qqq", "qqq", "qqq"),
    ],
)
def test_languages_have_the_codes_and_names_of_argos(code: str, theirs: str, name: str) -> None:
    assert convert_to_argos_code(code) == theirs
    assert get_language_name(theirs) == name


@pytest.mark.parametrize("code", ["", "e", "English", "en/de", "../en", "en de", "e1", "de-", "de\n"])
def test_what_is_no_code_is_refused(code: str) -> None:
    with pytest.raises(BundleError, match=re.escape(repr(code))):
        convert_to_argos_code(code)


def test_abbreviations_are_those_of_a_language_or_its_neighbour() -> None:
    always, before_numbers = list_abbreviations("de")
    assert "dr" in always
    assert "abb" in before_numbers
    assert list_abbreviations("no") == list_abbreviations("nb")
    assert list_abbreviations("xx") == ([], [])
    assert _BEFORE_NUMBERS.keys() <= _ALWAYS.keys()
    # A single letter has a rule of its own, and an entry in both lists says the same twice.
    for language in _ALWAYS:
        always, before_numbers = list_abbreviations(language)
        assert all(len(word) > 1 and word == word.lower() for word in [*always, *before_numbers])
        assert len({*always, *before_numbers}) == len(always) + len(before_numbers)
