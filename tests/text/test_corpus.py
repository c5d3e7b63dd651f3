import gzip
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.config import TextConfig
from transduce.errors import ConfigError, CorpusError
from transduce.text import Cleaner, ParallelCorpus, open_parallel_corpus, write_standard_input
from transduce.text.corpus import is_header

Write = Callable[[str, bytes | str], Path]


@pytest.fixture
def two_files(tmp_path: Path, write: Write) -> Callable[[bytes | str, bytes | str], ParallelCorpus]:
    def make(source: bytes | str, target: bytes | str) -> ParallelCorpus:
        write("a.en", source)
        write("a.de", target)
        return open_parallel_corpus(tmp_path, "a.en", "a.de", None, None)

    return make


def test_two_files_line_for_line(two_files: Callable[..., ParallelCorpus], tmp_path: Path) -> None:
    corpus = two_files("a\n\nc", "A\r\nB\r\n\r\n")
    assert corpus.files == (tmp_path / "a.en", tmp_path / "a.de")
    assert list(corpus) == list(corpus) == [("a", "A"), ("", "B"), ("c", "")]
    assert corpus.check() == 3
    assert corpus.measure() == (3, 2)


def test_two_iterations_at_once_do_not_disturb_each_other(two_files: Callable[..., ParallelCorpus]) -> None:
    corpus = two_files("a\nb\n", "A\nB\n")
    first, second = iter(corpus), iter(corpus)
    assert [next(first), next(second), next(first), next(second)] == [("a", "A"), ("a", "A"), ("b", "B"), ("b", "B")]


@pytest.mark.parametrize(("source", "target"), [(3, 5), (5, 3), (0, 1), (1, 0), (20_000, 19_999)])
def test_unequal_files_are_an_error_with_both_counts(
    two_files: Callable[..., ParallelCorpus], source: int, target: int
) -> None:
    corpus = two_files("a\n" * source, "A\n" * target)
    with pytest.raises(CorpusError, match=rf"a\.en has {source} lines? and .*a\.de has {target}: they must"):
        corpus.check()
    with pytest.raises(CorpusError, match="line for line"):
        list(corpus)


def test_empty_files_are_an_error(two_files: Callable[..., ParallelCorpus], tmp_path: Path, write: Write) -> None:
    with pytest.raises(CorpusError, match=r"a\.en and .*a\.de: empty"):
        two_files("", "").check()
    write("a.tsv.gz", gzip.compress(b""))
    with pytest.raises(CorpusError, match=r"a\.tsv\.gz: empty"):
        open_parallel_corpus(tmp_path, None, None, "a.tsv.gz", None).check()


def test_an_error_in_either_file_names_it(two_files: Callable[..., ParallelCorpus]) -> None:
    with pytest.raises(CorpusError, match=r"a\.de, line 2, "):
        two_files("a\nb\n", b"A\n\xff\n").check()


@pytest.mark.parametrize("name", ["none", "folder"])
def test_missing_files_are_found_before_anything_is_read(tmp_path: Path, write: Write, name: str) -> None:
    (tmp_path / "folder").mkdir()
    write("a.en", "a\n")
    for arguments in (("a.en", name, None), (name, "a.en", None), (None, None, name)):
        with pytest.raises(CorpusError, match=rf"{name}(:| is a)"):
            open_parallel_corpus(tmp_path, *arguments, None)


def test_the_ending_of_a_file_of_pairs_says_its_format(tmp_path: Path, write: Write) -> None:
    for name in ("pairs", "pairs.csv", "pairs.gz", ".gz", "tsv"):
        write(name, "a\tb\n")
        with pytest.raises(CorpusError, match=r"must end in \.tsv, \.json, \.jsonl or \.ndjson"):
            open_parallel_corpus(tmp_path, None, None, name, None)
    with pytest.raises(ConfigError, match="give source and target, or pairs"):
        open_parallel_corpus(tmp_path, None, None, None, None)


def test_memory_does_not_grow_with_the_corpus(two_files: Callable[..., ParallelCorpus]) -> None:
    line = "a sentence of some forty characters, as it were\n"
    corpus = two_files(line * 5_000, line * 5_000)
    tracemalloc.start()
    assert corpus.check() == 5_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150_000 < 5_000 * len(line)


def test_standard_input_is_kept_as_it_is(tmp_path: Path, write: Write) -> None:
    content = b"a\tb\r\n\xff\t\x00" * 100_000
    with write("piped", content).open("rb") as stream:
        write_standard_input(stream, tmp_path / "spooled.tsv")
    assert (tmp_path / "spooled.tsv").read_bytes() == content


Pairs = list[tuple[str, str]]


def pairs_of(path: Path, columns: tuple[str, str] | None = None) -> Pairs:
    return list(open_parallel_corpus(path.parent, None, None, path.name, columns))


def test_tsv_has_columns_by_number_and_no_quotes(write: Write) -> None:
    path = write("a.tsv", 'a "b\tc\t\nd\\t\t" e\tf\r\n')
    assert pairs_of(path) == [('a "b', "c"), ("d\\t", '" e')]
    assert pairs_of(path, ("3", "1")) == [("", 'a "b'), ("f", "d\\t")]


def test_a_short_line_is_an_error_with_its_number(write: Write) -> None:
    path = write("a.tsv", "a\tb\nc d\n")
    with pytest.raises(CorpusError, match=r"a\.tsv, line 2: has 1 of 2 required columns, .*'c d'"):
        pairs_of(path)
    with pytest.raises(CorpusError, match="line 1: has 2 of 5 required columns"):
        pairs_of(path, ("1", "5"))


@pytest.mark.parametrize("column", ["0", "-1", "two", "²", ""])
def test_columns_of_tsv_are_numbers_from_one(write: Write, column: str) -> None:
    with pytest.raises(ConfigError, match=f'data.columns: "{column}" must be a column number'):
        pairs_of(write("a.tsv", "a\tb\n"), ("1", column))


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


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
        ("", "must be a JSON object, not ''"),
        ('{"source": "a"', "must be a JSON object, not .*delimiter"),
        ("[" * 100_000, r"must be a JSON object, not '\[\[.*…"),
        ('["a", "b"]', "must be a JSON object, not"),
        ('{"source": "a"}', "must have the key 'target', but has 'source'"),
        ("{}", "must have the key 'source', but has no keys"),
        ('{"source": "a", "target": 3}', "'target' must be text, but is '3'"),
        ('{"source": "a", "target": null}', "'target' must be text, but is 'null'"),
        ('{"source": "\\ud83d", "target": "b"}', r"'source' contains an unpaired surrogate.*ud83d"),
    ],
)
def test_a_wrong_line_of_json_is_an_error_with_its_number(write: Write, line: str, message: str) -> None:
    path = write("a.jsonl", f'{{"source": "a", "target": "b"}}\n{line}\n')
    with pytest.raises(CorpusError, match=rf"a\.jsonl, line 2: {message}"):
        pairs_of(path)


def read_with_languages(path: Path, languages: tuple[str, str], columns: tuple[str, str] | None = None) -> Pairs:
    return list(open_parallel_corpus(path.parent, None, None, path.name, columns, languages))


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
    with pytest.raises(CorpusError, match=r"line 1: its .*'en', 'sw', and the source is unknown.*--source-language"):
        read_with_languages(path, languages)


def test_a_language_that_is_not_there_is_an_error_with_those_that_are(write: Write) -> None:
    path = write("a.json", json.dumps(TRANSLATIONS))
    with pytest.raises(CorpusError, match=r"item 1 .*'en' and 'swh', but has 'en', 'sw': if 'swh' has another name"):
        read_with_languages(path, ("en", "swh"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"source": "a", "target": "b"}', "a.json: its JSON array is not closed"),
        ('[{"source": "a",\n "target":', "a.json: its JSON array is not closed"),
        ('[{"source": "a", "target": "b"}\n{"source"', r"line 2, item 2 .*follow a comma, but found .*source"),
        ('[{"source": "a", "target": "b"}, ["c"]]', r"line 1, item 2 .*must be a JSON object, not"),
        ('[\n{"source": "a\n"}]', r"line 2, item 1 .*must be a JSON object, not .*Unterminated"),
        ('[{"source": "a", "target": "b"}] {}', "has text after its JSON array"),
        ('[{"source": "a", "target": "b"}]\n[]', "has text after its JSON array"),
        ("[" * 100_000, "line 1, item 1 .*must be a JSON object"),
        ('{\n"source": "a"}', "line 1: must be a JSON object"),
    ],
)
def test_a_wrong_array_is_an_error_with_its_place(write: Write, content: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        pairs_of(write("a.json", content))


@pytest.mark.parametrize("languages", [("", ""), ("en", "sw")])
@pytest.mark.parametrize(
    "row",
    [
        ("source", "target"),
        ("Target", "SOURCE"),
        ("src", "tgt"),
        ("source_text", "translation"),
        ("en", "sw"),
        ("sw", "en"),
        ("English", "Swahili"),
        ("English sentence", "Swahili translation"),
        ("eng_Latn", "swh_Latn"),
        ("original", "Swahili"),
        (' "English"', '"Swahili" '),
    ],
)
def test_names_of_columns_and_languages_are_a_header(row: tuple[str, str], languages: tuple[str, str]) -> None:
    assert is_header(*row, languages)


@pytest.mark.parametrize("languages", [("", ""), ("en", "sw"), ("de", "es")])
@pytest.mark.parametrize(
    "row",
    [
        ("A dog.", "Mbwa."),
        ("English", "Kiingereza"),
        ("Swahili", "Swahili"),
        ("no", "no"),
        ("source", "chanzo"),
        ("source", "source"),
        ("the source", "target"),
        ("Translation", "Tafsiri"),
        ("English is spoken", "Swahili"),
        ("", "target"),
        ("", ""),
        ("text", "sentence"),
    ],
)
def test_a_pair_is_no_header(row: tuple[str, str], languages: tuple[str, str]) -> None:
    assert not is_header(*row, languages)


def test_words_that_happen_to_be_codes_are_a_pair_where_the_languages_are_others() -> None:
    assert not is_header("is", "es", ("en", "de"))
    assert is_header("is", "es", ("is", "es"))


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_a_header_is_left_out_of_the_pairs_and_only_as_the_first_row(
    tmp_path: Path, write: Write, compress: Callable[[bytes], bytes]
) -> None:
    name = "a.tsv" if compress is bytes else "a.tsv.gz"
    write(name, compress("\ufeffnumber\tEnglish\tSwahili\n1\ta\tb\n2\tEnglish\tSwahili\n".encode()))
    corpus = open_parallel_corpus(tmp_path, None, None, name, ("2", "3"))
    assert corpus.header() == ("English", "Swahili")
    assert list(corpus) == list(corpus) == [("a", "b"), ("English", "Swahili")]
    assert corpus.check() == 2
    other = open_parallel_corpus(tmp_path, None, None, name, ("1", "2"))
    assert other.header() is None
    assert other.check() == 3


@pytest.mark.parametrize(
    ("header", "languages", "columns"),
    [
        ("id\ten\tde", ("en", "de"), (1, 2)),
        ("id\tEnglish\tGerman", ("en", "de"), (1, 2)),
        ("de\ten\tfr", ("en", "de"), (1, 0)),
        ("de\ten", ("en", "de"), (1, 0)),
        ("score\teng_Latn\tdeu_Latn", ("eng_Latn", "deu_Latn"), (1, 2)),
        ("id\tsource\ttarget", ("en", "de"), (1, 2)),
        ("number\tsrc\ttgt", ("", ""), (1, 2)),
        ("source\ttarget\tlanguage", ("", ""), (0, 1)),
        ("English\tGerman\tscore", ("", ""), (0, 1)),
        ("English\tGerman\tscore", ("", "de"), (0, 1)),
        ("English\tSwahili", ("en", "de"), (0, 1)),
        ("English\tGerman", ("en", "en"), (0, 1)),
    ],
)
def test_a_header_says_which_columns_are_read(
    write: Write, header: str, languages: tuple[str, str], columns: tuple[int, int]
) -> None:
    path = write("a.tsv", f"{header}\nA\tB\tC\n")
    corpus = open_parallel_corpus(path.parent, None, None, path.name, None, languages)
    assert list(corpus) == [tuple("ABC"[column] for column in columns)]
    names = header.split("\t")
    assert corpus.header() == tuple(names[column] for column in columns)


@pytest.mark.parametrize(
    ("header", "languages"),
    [
        ("id\ten\tde", ("", "")),
        ("id\ten\tde", ("en", "")),
        ("number\tEnglish\tSwahili", ("", "")),
        ("number\tEnglish\tSwahili", ("en", "de")),
        ("en\ten\tde", ("en", "de")),
    ],
)
def test_a_header_that_does_not_say_which_columns_are_meant_is_refused(
    write: Write, header: str, languages: tuple[str, str]
) -> None:
    path = write("a.tsv", f"{header}\n1\tB\tC\n")
    corpus = open_parallel_corpus(path.parent, None, None, path.name, None, languages)
    for use in (corpus.header, lambda: list(corpus)):
        with pytest.raises(CorpusError, match=r"cannot tell which of the columns .* choose two by data\.columns"):
            use()
    assert list(open_parallel_corpus(path.parent, None, None, path.name, ("2", "3"), languages))[-1] == ("B", "C")


@pytest.mark.parametrize("row", ["1\tA dog.\tEin Hund.", "id\tsentence\ttext", "en\tA dog.\tEin Hund."])
def test_more_columns_without_names_are_read_from_the_first_two(write: Write, row: str) -> None:
    assert pairs_of(write("a.tsv", f"{row}\n")) == [tuple(row.split("\t")[:2])]


def broken(
    source: str, target: str, source_pieces: int = 5, target_pieces: int = 5, *, repeats: bool = False, **config: object
) -> str:
    """The rule under which a pair is counted."""
    cleaner = Cleaner(TextConfig(**config))
    kept = cleaner.keeps(source, target, source_pieces, target_pieces, repeats=repeats)
    [rule] = [rule for rule, count in cleaner.counts.items() if count]
    assert kept == (rule == "kept")
    return rule


def test_every_rule_has_a_count_from_the_start() -> None:
    rules = ["blank", "control_characters", "copy", "too_long", "ratio", "duplicate", "kept"]
    assert list(Cleaner(TextConfig()).counts.items()) == [(rule, 0) for rule in rules]


@pytest.mark.parametrize("side", ["", " ", "\t", "\u00a0\u3000", "\u200b\ufeff", "\u2028", "\x00"])
def test_a_side_that_shows_nothing_is_blank(side: str) -> None:
    assert broken(side, "b") == broken("a", side) == "blank"


def test_a_side_without_pieces_is_blank() -> None:
    assert broken("▁", "b", 0, 1) == broken("a", "▁", 1, 0) == "blank"


@pytest.mark.parametrize("side", ["。", "☃", "\u0915\u094d", ".", "\ue000"])
def test_a_side_that_shows_anything_is_not_blank(side: str) -> None:
    assert broken(side, "b") == broken("a", side) == "kept"


@pytest.mark.parametrize("character", ["\x00", "\x07", "\n", "\r", "\x1b", "\x7f", "\x85", "\x9f"])
def test_control_characters_are_left_out(character: str) -> None:
    assert broken(f"a{character}b", "c") == broken("a", f"{character}c") == "control_characters"


@pytest.mark.parametrize("character", ["\t", "\u200d", "\u00ad", "\ufffd", "\u2028", "\u00a0"])
def test_tabs_and_format_characters_stay(character: str) -> None:
    assert broken(f"a{character}b", "c") == "kept"


def test_copies_are_left_out_if_asked() -> None:
    assert broken("same ", "\tsame") == "copy"
    assert broken("same", "same", drop_copies=False) == "kept"
    assert broken("same", "Same") == "kept"


def test_repetitions_are_left_out_if_asked() -> None:
    assert broken("a", "b", repeats=True) == "duplicate"
    assert broken("a", "b", repeats=True, drop_duplicates=False) == "kept"


@pytest.mark.parametrize("side", ["", "a\x00", "b", "long"])
def test_what_is_left_out_by_itself_counts_under_its_rule_every_time(side: str) -> None:
    rules = [broken(side, "b", 300 if side == "long" else 5, repeats=repeats) for repeats in (False, True)]
    assert rules[0] == rules[1] != "duplicate"


@pytest.mark.parametrize("pieces", [(20, 21), (21, 20)])
def test_the_longer_side_decides_the_length(pieces: tuple[int, int]) -> None:
    assert broken("a", "b", *pieces, max_pieces=20) == "too_long"
    assert broken("a", "b", *pieces, max_pieces=21) == "kept"


@pytest.mark.parametrize(
    ("pieces", "rule"), [((2, 8), "kept"), ((1, 8), "kept"), ((1, 9), "ratio"), ((3, 12), "kept"), ((3, 13), "ratio")]
)
def test_lengths_must_be_alike_unless_both_are_short(pieces: tuple[int, int], rule: str) -> None:
    assert broken("a", "b", *pieces, max_ratio=4.0) == broken("a", "b", *reversed(pieces), max_ratio=4.0) == rule


def test_the_first_broken_rule_counts() -> None:
    assert broken("\x00", "", 900, 1) == "blank"
    assert broken("\x00a", "\x00a", 900, 1) == "control_characters"
    assert broken("a", "a", 900, 1) == "copy"
    assert broken("a", "b", 900, 1) == "too_long"


SIDES = st.sampled_from(["", "a", "b", "c\x00", "d"])
COUNTS = st.integers(0, 300)


@given(st.lists(st.tuples(SIDES, SIDES, COUNTS, COUNTS, st.booleans())))
def test_every_pair_is_counted_once(pairs: list[tuple[str, str, int, int, bool]]) -> None:
    cleaner = Cleaner(TextConfig())
    kept = [cleaner.keeps(*pair, repeats=repeats) for *pair, repeats in pairs]
    assert sum(cleaner.counts.values()) == len(pairs)
    assert cleaner.counts["kept"] == sum(kept)
