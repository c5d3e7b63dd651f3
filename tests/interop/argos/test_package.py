import re
import stat
import zipfile
from pathlib import Path

import pytest

from transduce.errors import BundleError
from transduce.interop.argos import package as archive
from transduce.interop.argos.package import argos_code, is_package, language_name, pack, unpack
from transduce.interop.argos.splitter import _ALWAYS, _BEFORE_NUMBERS, abbreviations

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
    assert is_package(path)
    assert not is_package(tmp_path)
    assert not is_package(path.rename(tmp_path / "one.npz"))


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


def test_a_package_that_swells_is_refused(path: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_MOST_BYTES", 40)
    with pytest.raises(BundleError, match=r"would take .* bytes, more than the 40"):
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
    assert argos_code(code) == theirs
    assert language_name(theirs) == name


@pytest.mark.parametrize("code", ["", "e", "English", "en/de", "../en", "en de", "e1", "de-", "de\n"])
def test_what_is_no_code_is_refused(code: str) -> None:
    with pytest.raises(BundleError, match=re.escape(repr(code))):
        argos_code(code)


def test_unicode_calls_languages_so() -> None:
    names = pytest.importorskip("babel").Locale("en").languages
    own = {"pb": "Portuguese (Brazil)", "zt": "Chinese (traditional)"}
    two_letters = [first + second for first in map(chr, range(97, 123)) for second in map(chr, range(97, 123))]
    known = [code for code in two_letters if language_name(code) != code]
    assert len(known) == 185
    assert {code: language_name(code) for code in known} == {code: own.get(code) or names[code] for code in known}


def test_abbreviations_are_those_of_a_language_or_its_neighbour() -> None:
    always, before_numbers = abbreviations("de")
    assert "dr" in always
    assert "abb" in before_numbers
    assert abbreviations("no") == abbreviations("nb")
    assert abbreviations("xx") == ([], [])
    assert _BEFORE_NUMBERS.keys() <= _ALWAYS.keys()
    # A single letter has a rule of its own, and an entry in both lists says the same twice.
    for language in _ALWAYS:
        always, before_numbers = abbreviations(language)
        assert all(len(word) > 1 and word == word.lower() for word in [*always, *before_numbers])
        assert len({*always, *before_numbers}) == len(always) + len(before_numbers)
