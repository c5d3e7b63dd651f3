import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import CorpusError

Write = Callable[[str, bytes | str], Path]
Pairs = list[tuple[str, str]]
ReadPairs = Callable[..., Pairs]

# Without line ends at the end of a text, which are no part of it.
TEXTS = st.text(st.characters(exclude_categories=["Cs"])).map(lambda text: text.rstrip("\r\n"))


@given(st.lists(st.tuples(TEXTS, TEXTS)), st.booleans())
def test_json_lines_come_back_as_they_were_written(
    read_pairs: ReadPairs, tmp_path_factory: pytest.TempPathFactory, pairs: Pairs, ascii_only: bool
) -> None:
    path = tmp_path_factory.mktemp("json") / "a.jsonl"
    records = [{"source": source, "target": target, "id": 7} for source, target in pairs]
    lines = [json.dumps(record, ensure_ascii=ascii_only) + "\n" for record in records]
    path.write_text("".join(lines), encoding="utf-8", newline="\n")
    assert read_pairs(path) == pairs


def test_json_lines_have_other_keys_and_endings_too(read_pairs: ReadPairs, write: Write) -> None:
    content = '{"en": "a", "de": "b"}\n{"de": "d", "en": "c"}'
    for path in (write("a.ndjson", content), write("a.b.jsonl.gz", gzip.compress(content.encode()))):
        assert read_pairs(path, ("en", "de")) == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"source": "a"', "must be a JSON object, not .*delimiter"),
        ("[" * 100_000, r"must be a JSON object, not '\[\[.*…"),
        ('["a", "b"]', "must be a JSON object, not"),
        ('{"source": "a"}', "must have the key 'target', but has 'source'"),
        ("{}", "must have the key 'source', but has no keys"),
        ('{"source": "a", "target": "b", "source": "c"}', "has the key 'source' twice: give it once"),
        ('{"translation": {"en": "a", "en": "b"}}', "has the key 'en' twice"),
        ('{"source": "a", "target": 3}', "'target' must be text, but is '3'"),
        ('{"source": "a", "target": null}', "'target' must be text, but is 'null'"),
        ('{"source": "\\ud83d", "target": "b"}', r"'source' contains an unpaired surrogate.*ud83d"),
    ],
)
def test_a_wrong_line_of_json_is_an_error_with_its_number(
    read_pairs: ReadPairs, write: Write, line: str, message: str
) -> None:
    path = write("a.jsonl", f'{{"source": "a", "target": "b"}}\n{line}\n')
    with pytest.raises(CorpusError, match=rf"a\.jsonl, line 2: {message}"):
        read_pairs(path)


@pytest.mark.parametrize("end", ["\n\n", "\r\n \t\r\n\n", "\n "])
def test_blank_lines_may_come_at_the_end_of_json_lines(read_pairs: ReadPairs, write: Write, end: str) -> None:
    line = '{"source": "a", "target": "b"}'
    assert read_pairs(write("a.jsonl", f"{line}{end}")) == [("a", "b")]
    with pytest.raises(CorpusError, match=r"a\.jsonl, line 2: must be a JSON object, not blank"):
        read_pairs(write("a.jsonl", f"{line}\n{end}\n{line}\n"))


def test_line_ends_at_the_end_of_a_text_are_left_out(read_pairs: ReadPairs, write: Write) -> None:
    records = [{"source": "a\n", "target": "b\r\n\n"}, {"source": "\nc\nd", "target": "\n"}]
    path = write("a.jsonl", "\n".join(map(json.dumps, records)))
    assert read_pairs(path) == [("a", "b"), ("\nc\nd", "")]


TRANSLATIONS = [{"id": "0", "translation": {"en": "a [", "sw": "b"}}, {"translation": {"sw": 'd"', "en": "c\n"}}]
IN_ORDER = [("a [", "b"), ("c", 'd"')]


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
def test_texts_of_hugging_face_are_found_by_their_languages(
    read_pairs: ReadPairs, write: Write, name: str, content: str
) -> None:
    path = write(name, content)
    assert read_pairs(path, languages=("en", "sw")) == IN_ORDER
    assert read_pairs(path, ("en", "sw"), ("", "")) == IN_ORDER
    assert read_pairs(path, ("sw", "en"), ("en", "sw")) == [(target, source) for source, target in IN_ORDER]


@given(st.lists(st.tuples(TEXTS, TEXTS)), st.sampled_from([None, 0, 1, "\t"]), st.booleans())
def test_an_array_comes_back_as_it_was_written(
    read_pairs: ReadPairs,
    tmp_path_factory: pytest.TempPathFactory,
    pairs: Pairs,
    indent: int | str | None,
    ascii_only: bool,
) -> None:
    path = tmp_path_factory.mktemp("json") / "a.json"
    records = [{"source": source, "target": target, "more": [{}, [1]]} for source, target in pairs]
    path.write_text(json.dumps(records, ensure_ascii=ascii_only, indent=indent), encoding="utf-8", newline="\n")
    assert read_pairs(path) == pairs


def test_an_array_may_begin_after_blank_lines(read_pairs: ReadPairs, write: Write) -> None:
    assert read_pairs(write("a.json", '\n \n[{"source": "a", "target": "b"}]\n')) == [("a", "b")]
    with pytest.raises(CorpusError, match=r"line 3, item 1 .*must be a JSON object"):
        read_pairs(write("b.json", '\n\n["c"]'))


@pytest.mark.parametrize(
    ("keys", "languages"),
    [
        (("en-US", "de"), ("en", "de")),
        (("EN_us", "de"), ("en-US", "de-AT")),
        (("en", "de"), ("English", "German")),
    ],
)
def test_languages_match_their_variants_as_in_other_formats(
    read_pairs: ReadPairs, write: Write, keys: tuple[str, str], languages: tuple[str, str]
) -> None:
    record = dict(zip(keys, "ab", strict=True))
    for content in (record, {"translation": record}):
        assert read_pairs(write("a.jsonl", json.dumps(content)), languages=languages) == [("a", "b")]


def test_keys_may_be_the_languages(read_pairs: ReadPairs, write: Write) -> None:
    path = write("a.jsonl", '{"en": "a", "de": "b", "target": "c"}\n')
    assert read_pairs(path, languages=("de", "en")) == [("b", "a")]
    with pytest.raises(CorpusError, match="must have the key 'fr', but has 'en', 'de'"):
        read_pairs(path, languages=("en", "fr"))
    for languages in (("", ""), ("en", ""), ("en", "en"), ("es", "fr")):
        with pytest.raises(CorpusError, match="must have the key 'source', but has 'en', 'de'"):
            read_pairs(path, languages=languages)
    with pytest.raises(CorpusError, match="must have the key 'x'"):
        read_pairs(path, ("x", "de"), ("en", "de"))
    both = write("b.jsonl", '{"en": "a", "de": "b", "source": "c", "target": "d"}\n')
    assert read_pairs(both, languages=("de", "en")) == [("c", "d")]


@pytest.mark.parametrize("languages", [("", ""), ("en", ""), ("en", "en")])
def test_without_both_languages_nothing_says_which_text_is_the_source(
    read_pairs: ReadPairs, write: Write, languages: tuple[str, str]
) -> None:
    path = write("a.json", json.dumps(TRANSLATIONS[0]))
    with pytest.raises(CorpusError, match=r"line 1: its .*'en', 'sw', and the source is unknown.*--source-language"):
        read_pairs(path, languages=languages)


def test_a_language_that_is_not_there_is_an_error_with_those_that_are(read_pairs: ReadPairs, write: Write) -> None:
    path = write("a.json", json.dumps(TRANSLATIONS))
    with pytest.raises(CorpusError, match=r"item 1 .*'en' and 'swh', but has 'en', 'sw': if 'swh' has another name"):
        read_pairs(path, languages=("en", "swh"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"source": "a", "target": "b"}', "a.json: its JSON array is not closed"),
        ('[{"source": "a",\n "target":', "a.json: its JSON array is not closed"),
        ('[{"source": "a", "target": "b"}\n{"source"', r"line 2, item 2 .*follow a comma, but found .*source"),
        ('[{"source": "a", "target": "b"}, ["c"]]', r"line 1, item 2 .*must be a JSON object, not"),
        ('[{"source": "a",\n"target": "b",\n"target": "c"}]', "line 1, item 1 .*has the key 'target' twice"),
        ('[\n{"source": "a\n"}]', r"line 2, item 1 .*must be a JSON object, not .*Unterminated"),
        ('[{"source": "a", "target": "b"}] {}', "has text after its JSON array"),
        ('[{"source": "a", "target": "b"}]\n[]', "has text after its JSON array"),
        ("[" * 100_000, "line 1, item 1 .*must be a JSON object"),
        ('{\n"source": "a"}', "line 1: must be a JSON object"),
    ],
)
def test_a_wrong_array_is_an_error_with_its_place(
    read_pairs: ReadPairs, write: Write, content: str, message: str
) -> None:
    with pytest.raises(CorpusError, match=message):
        read_pairs(write("a.json", content))


def test_an_item_of_many_lines_takes_linear_time(
    write: Write, read_pairs: ReadPairs, time_growth: Callable[..., float]
) -> None:
    paths = [
        write(f"{count}.json", '[{"source": "a",' + "\n" * count + '"target": "b"}\n,\n[]]')
        for count in (4_000, 32_000)
    ]

    def read(path: Path) -> None:
        with pytest.raises(CorpusError, match=f"line {int(path.stem) + 3}, item 2 .*must be a JSON object, not"):
            read_pairs(path)

    assert time_growth(read, *paths) < 40  # 64 if quadratic
