import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.errors import ConfigError, CorpusError
from transduce.text import parallel_corpus

Write = Callable[[str, bytes | str], Path]
Pairs = list[tuple[str, str]]


def pairs_of(path: Path, columns: tuple[str, str] | None = None) -> Pairs:
    return list(parallel_corpus(path.parent, None, None, path.name, columns))


def test_tsv_has_columns_by_number_and_no_quotes(write: Write) -> None:
    path = write("a.tsv", 'a "b\tc\t\nd\\t\t" e\tf\r\n')
    assert pairs_of(path) == [('a "b', "c"), ("d\\t", '" e')]
    assert pairs_of(path, ("3", "1")) == [("", 'a "b'), ("f", "d\\t")]


def test_a_short_line_is_an_error_with_its_number(write: Write) -> None:
    path = write("a.tsv", "a\tb\nc d\n")
    with pytest.raises(CorpusError, match=r"a\.tsv, line 2: has 1 of the 2 columns .*'c d'"):
        pairs_of(path)
    with pytest.raises(CorpusError, match="line 1: has 2 of the 5 columns"):
        pairs_of(path, ("1", "5"))


@pytest.mark.parametrize("column", ["0", "-1", "two", "²", ""])
def test_columns_of_tsv_are_numbers_from_one(write: Write, column: str) -> None:
    with pytest.raises(ConfigError, match=f'data.columns: "{column}" must be the number'):
        pairs_of(write("a.tsv", "a\tb\n"), ("1", column))


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@settings(deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS)), st.booleans())
def test_json_lines_come_back_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, pairs: Pairs, ascii_only: bool
) -> None:
    path = tmp_path_factory.mktemp("json") / "a.jsonl"
    records = [{"source": source, "target": target, "id": 7} for source, target in pairs]
    lines = [json.dumps(record, ensure_ascii=ascii_only) + "\n" for record in records]
    path.write_text("".join(lines), encoding="utf-8", newline="\n")
    assert pairs_of(path) == pairs


def test_json_lines_have_other_keys_and_endings_too(write: Write) -> None:
    content = '{"en": "a", "de": "b"}\n{"de": "d", "en": "c"}'
    for path in (write("a.ndjson", content), write("a.b.jsonl.gz", gzip.compress(content.encode()))):
        assert pairs_of(path, ("en", "de")) == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "must be a JSON object, but is ''"),
        ('{"source": "a"', "must be a JSON object, but is .*delimiter"),
        ("[" * 100_000, r"must be a JSON object, but is '\[\[.*…"),
        ('["a", "b"]', "must be a JSON object, but is"),
        ('{"source": "a"}', "must have the key 'target', but has 'source'"),
        ("{}", "must have the key 'source', but has no keys"),
        ('{"source": "a", "target": 3}', "'target' must be text, but is '3'"),
        ('{"source": "a", "target": null}', "'target' must be text, but is 'null'"),
        ('{"source": "\\ud83d", "target": "b"}', r"'source' has half of a surrogate pair.*ud83d"),
    ],
)
def test_a_wrong_line_of_json_is_an_error_with_its_number(write: Write, line: str, message: str) -> None:
    path = write("a.jsonl", f'{{"source": "a", "target": "b"}}\n{line}\n')
    with pytest.raises(CorpusError, match=rf"a\.jsonl, line 2: {message}"):
        pairs_of(path)


def read_with_languages(path: Path, languages: tuple[str, str], columns: tuple[str, str] | None = None) -> Pairs:
    return list(parallel_corpus(path.parent, None, None, path.name, columns, languages))


TRANSLATIONS = [{"id": "0", "translation": {"en": "a [", "sw": "b"}}, {"translation": {"sw": 'd"', "en": "c\n"}}]
IN_ORDER = [("a [", "b"), ("c\n", 'd"')]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
@pytest.mark.parametrize(
    "content",
    [
        "\n".join(map(json.dumps, TRANSLATIONS)),
        json.dumps(TRANSLATIONS),
        json.dumps(TRANSLATIONS, indent=2) + "\r\n",
        json.dumps(TRANSLATIONS, indent="\t").replace(":", "\n:\n").replace(",", "\n,"),
    ],
    ids=["lines", "array", "indented", "a token a line"],
)
def test_texts_of_hugging_face_are_found_by_their_languages(write: Write, name: str, content: str) -> None:
    path = write(name, content)
    assert read_with_languages(path, ("en", "sw")) == IN_ORDER
    assert read_with_languages(path, ("", ""), ("en", "sw")) == IN_ORDER
    assert read_with_languages(path, ("en", "sw"), ("sw", "en")) == [(target, source) for source, target in IN_ORDER]


@given(st.lists(st.tuples(TEXTS, TEXTS)), st.sampled_from([None, 0, 1, "\t"]), st.booleans())
@settings(deadline=None)
def test_an_array_comes_back_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, pairs: Pairs, indent: int | str | None, ascii_only: bool
) -> None:
    path = tmp_path_factory.mktemp("json") / "a.json"
    records = [{"source": source, "target": target, "more": [{}, [1]]} for source, target in pairs]
    path.write_text(json.dumps(records, ensure_ascii=ascii_only, indent=indent), encoding="utf-8", newline="\n")
    assert pairs_of(path) == pairs


@pytest.mark.parametrize("languages", [("", ""), ("en", ""), ("en", "en")])
def test_without_both_languages_nothing_says_which_text_is_the_source(write: Write, languages: tuple[str, str]) -> None:
    path = write("a.json", json.dumps(TRANSLATIONS[0]))
    with pytest.raises(CorpusError, match=r"line 1: its .*'en', 'sw', and nothing says which .*--source-language"):
        read_with_languages(path, languages)


def test_a_language_that_is_not_there_is_an_error_with_those_that_are(write: Write) -> None:
    path = write("a.json", json.dumps(TRANSLATIONS))
    with pytest.raises(CorpusError, match=r"item 1 .*'en' and 'swh', but has 'en', 'sw': if 'swh' has another name"):
        read_with_languages(path, ("en", "swh"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"source": "a", "target": "b"}', "a.json: its JSON array has no end"),
        ('[{"source": "a",\n "target":', "a.json: its JSON array has no end"),
        ('[{"source": "a", "target": "b"}\n{"source"', r"line 2, item 2 .*comma before it, but there is .*source"),
        ('[{"source": "a", "target": "b"}, ["c"]]', r"line 1, item 2 .*must be a JSON object, but is"),
        ('[\n{"source": "a\n"}]', r"line 2, item 1 .*must be a JSON object, but is .*Unterminated"),
        ('[{"source": "a", "target": "b"}] {}', "has more behind the end"),
        ('[{"source": "a", "target": "b"}]\n[]', "has more behind the end"),
        ("[" * 100_000, "line 1, item 1 .*must be a JSON object"),
        ('{\n"source": "a"}', "line 1: must be a JSON object"),
    ],
)
def test_a_wrong_array_is_an_error_with_its_place(write: Write, content: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        pairs_of(write("a.json", content))
