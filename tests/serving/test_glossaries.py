"""Glossaries that are kept: in memory or in a folder, by owner, and within limits."""

import json
import os
from pathlib import Path

import pytest

from transduce.errors import ConfigError, TooManyGlossariesError, UnknownGlossaryError, UserError
from transduce.serving.glossaries import GlossaryStore, StoredGlossary

PAIR = ("en", "de")


def add(store: GlossaryStore, owner: str = "", entries: str = "moon\tMond") -> StoredGlossary:
    return store.add(owner, "Sky", PAIR, entries, "tsv")


def test_everybody_has_only_their_own() -> None:
    store = GlossaryStore()
    mine, theirs = add(store, "me"), add(store, "them")
    assert store.list_all("me") == [mine]
    assert store.get("them", theirs.identifier).parse().targets == {"moon": "Mond"}
    for call in (store.get, store.remove):
        with pytest.raises(UnknownGlossaryError):
            call("me", theirs.identifier)
    store.remove("me", mine.identifier)
    assert store.list_all("me") == []


def test_terms_are_found_in_capitals_of_their_language() -> None:
    store = GlossaryStore()
    for language, num_found in (("tr", 1), ("en", 0)):
        stored = store.add("me", "x", (language, "de"), "sığır\tRind", "tsv")
        assert len(stored.parse().find_terms("SIĞIR")) == num_found


def test_a_folder_outlives_the_service(tmp_path: Path) -> None:
    first = GlossaryStore(tmp_path / "new" / "folder")
    kept, gone = add(first, "me"), add(first, "me")
    first.remove("me", gone.identifier)
    assert GlossaryStore(tmp_path / "new" / "folder").list_all("me") == [kept]


def test_services_share_a_folder(tmp_path: Path) -> None:
    one, other = GlossaryStore(tmp_path), GlossaryStore(tmp_path)
    made = add(one)
    assert other.get("", made.identifier) == made
    other.remove("", made.identifier)
    with pytest.raises(UnknownGlossaryError):
        one.get("", made.identifier)


def test_an_id_is_no_path(tmp_path: Path) -> None:
    store = GlossaryStore(tmp_path / "store")
    (tmp_path / "x.json").write_text("{}", encoding="utf-8")
    for identifier in ("../x", str(tmp_path / "x"), ""):
        with pytest.raises(UnknownGlossaryError):
            store.remove("", identifier)
    assert (tmp_path / "x.json").exists()


@pytest.mark.parametrize("content", ["{}", "", '{"identifier": 1}', "\u0000"])
def test_what_is_no_glossary_is_refused_at_the_start(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.json").write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"x\.json: is no glossary"):
        GlossaryStore(tmp_path)


def test_damage_is_noticed(tmp_path: Path) -> None:
    made = add(GlossaryStore(tmp_path))
    path = tmp_path / f"{made.identifier}.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"terms": "moon"}), encoding="utf-8")
    with pytest.raises(ConfigError, match="is no glossary"):
        GlossaryStore(tmp_path)
    path.rename(tmp_path / "other.json")
    with pytest.raises(ConfigError, match="is no glossary"):
        GlossaryStore(tmp_path)


def test_a_running_service_goes_on_without_a_damaged_file(tmp_path: Path) -> None:
    store = GlossaryStore(tmp_path)
    made = add(store)
    (tmp_path / "x.json").write_text("{}", encoding="utf-8")
    assert store.list_all("") == [made]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot be used for glossaries"):
        GlossaryStore(tmp_path / "x")


def test_there_are_not_too_many() -> None:
    store = GlossaryStore(max_glossaries=2)
    first, _ = add(store, "me"), add(store, "me")
    with pytest.raises(TooManyGlossariesError, match="delete one first"):
        add(store, "me")
    add(store, "them")
    store.remove("me", first.identifier)
    add(store, "me")


@pytest.mark.parametrize(
    ("entries", "entries_format", "message"),
    [
        ("moon", "tsv", "entries, line 1: must be a source term, one tab and a target term, not 'moon'"),
        ("sun\tSonne\nmoon,Mond", "tsv", "entries, line 2: must be"),
        ("moon\tMond", "csv", "entries, line 1: 'moon\\\\tMond' has a control character"),
        ("a\tb\nmoon\tM\x85nd", "tsv", "entries, line 2: 'M.*' has a control character"),
        ('"mo\non",Mond', "csv", "control character"),
        ('"moon,Mond', "csv", "entries: not CSV"),
        ("moon,Mond,en,fr", "csv", "is of the languages 'en, fr', but the glossary of en, de"),
        ("moon\tMond\nmoon\tTrabant", "tsv", "'moon' has the translation 'Trabant' here, but 'Mond' in line 1"),
        ("\n \n", "tsv", "entries: contains no terms"),
        (f"moon\t{'M' * 1_025}", "tsv", "has 1,025 bytes, more than 1,024"),
        ("moon\tMond\n" * 1_000, "tsv", "entries: 10,000 bytes; this service accepts at most 5,000"),
    ],
)
def test_what_is_wrong_with_a_glossary_is_said(entries: str, entries_format: str, message: str) -> None:
    store = GlossaryStore(max_bytes=5_000)
    with pytest.raises(UserError, match=message):
        store.add("", "Sky", PAIR, entries, "csv" if entries_format == "csv" else "tsv")
    assert store.list_all("") == []


def test_a_folder_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "glossaries").mkdir(mode=0o555)
    if os.geteuid() == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(ConfigError, match="cannot be used for glossaries"):
            GlossaryStore(tmp_path / "glossaries")
    finally:
        os.seteuid(os.getuid())


def test_a_file_that_was_mended_is_read_again(tmp_path: Path) -> None:
    store, other = GlossaryStore(tmp_path), GlossaryStore(tmp_path)
    stored = store.add("me", "Sky", ("en", "de"), "sun\tSonne", "tsv")
    path = tmp_path / f"{stored.identifier}.json"
    content = path.read_bytes()
    path.write_bytes(content[:20])
    os.utime(path, ns=(1, 1))
    assert other.list_all("me") == []
    path.write_bytes(content)
    assert other.list_all("me") == [stored]
