import csv
import gzip
import io
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import ConfigError, CorpusError
from transduce.text import open_parallel_corpus
from transduce.text.formats.tables import MAX_CELL_LENGTH

Write = Callable[[str, bytes | str], Path]
Pairs = list[tuple[str, str]]
ReadPairs = Callable[..., Pairs]


def test_tsv_has_columns_by_number_and_no_quotes(read_pairs: ReadPairs, write: Write) -> None:
    path = write("a.tsv", 'a "b\tc\t\nd\\t\t" e\tf\r\n')
    assert read_pairs(path) == [('a "b', "c"), ("d\\t", '" e')]
    assert read_pairs(path, ("3", "1")) == [("", 'a "b'), ("f", "d\\t")]


def test_a_short_line_is_an_error_with_its_number(read_pairs: ReadPairs, write: Write) -> None:
    path = write("a.tsv", "a\tb\nc d\n")
    with pytest.raises(CorpusError, match=r"a\.tsv, line 2: has 1 of 2 required columns, .*'c d'"):
        read_pairs(path)
    with pytest.raises(CorpusError, match="line 1: has 2 of 5 required columns"):
        read_pairs(path, ("1", "5"))


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        (
            "a\tb\nc\td\nC a\tf\t\u00e9\n",
            None,
            r"line 3: has 3 columns, but the first line has 2: 'C a\\tf\\té'; replace a tab",
        ),
        ("a\tb\nc\td\t\n", None, "line 2: has 3 columns, but the first line has 2"),
        ("en\tde\na\tb\tc\n", ("en", "de"), "line 2: has 3 columns, but the first line has 2"),
        ("a\tb\tc\nd\te\tf\tg\n", ("1", "2"), "line 2: has 4 columns, but the first line has 3"),
        ("a\tb\tc\nd\te\n", ("2", "1"), "line 2: has 2 columns, but the first line has 3"),
    ],
)
def test_a_line_with_another_number_of_columns_is_refused(
    read_pairs: ReadPairs, write: Write, rows: str, columns: tuple[str, str] | None, message: str
) -> None:
    with pytest.raises(CorpusError, match=rf"a\.tsv, {message}"):
        read_pairs(write("a.tsv", rows), columns)


def test_a_tab_at_the_end_of_every_line_is_one_more_column(read_pairs: ReadPairs, write: Write) -> None:
    assert read_pairs(write("a.tsv", "en\tde\t\na\tb\t\nc\td\t\n")) == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize("column", ["0", "-1", "two", "²", ""])
def test_columns_of_tsv_are_numbers_from_one(read_pairs: ReadPairs, write: Write, column: str) -> None:
    with pytest.raises(ConfigError, match=f'data.columns: "{column}" must be a column number'):
        read_pairs(write("a.tsv", "a\tb\n"), ("1", column))


def fill(header: str, cells: str) -> str:
    """A row of single characters with as many columns as the header."""
    return "\t".join(cells[: header.count("\t") + 1])


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_a_header_is_left_out_of_the_pairs_and_only_as_the_first_row(
    tmp_path: Path, write: Write, compress: Callable[[bytes], bytes]
) -> None:
    name = "a.tsv" if compress is bytes else "a.tsv.gz"
    write(name, compress("\ufeffnumber\tEnglish\tSwahili\n1\ta\tb\n2\tEnglish\tSwahili\n".encode()))
    corpus = open_parallel_corpus(tmp_path, None, None, name, ("2", "3"))
    assert corpus.describe_omissions().startswith("its first row, 'English' and 'Swahili', is a header and is left out")
    assert list(corpus) == list(corpus) == [("a", "b"), ("English", "Swahili")]
    assert corpus.check() == 2
    other = open_parallel_corpus(tmp_path, None, None, name, ("1", "2"))
    assert other.describe_omissions() == ""
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
        ("source\ttarget\ten\tde", ("en", "de"), (2, 3)),
        ("en\tde\tsource\ttarget", ("", ""), (2, 3)),
        ("source\ttarget\tlanguage", ("", ""), (0, 1)),
        ("English\tGerman\tscore", ("", ""), (0, 1)),
        ("English\tGerman\tscore", ("", "de"), (0, 1)),
        ("English\tSwahili", ("en", "de"), (0, 1)),
        ("English\tGerman", ("en", "en"), (0, 1)),
        ("de-DE\ten-US", ("en", "de"), (1, 0)),
        ("de_DE\ten_US\tfr_FR", ("en", "de"), (1, 0)),
        ("de-at\tde-de\ten-us", ("en", "de-DE"), (2, 1)),
        ("German\ten-GB", ("en", "de"), (1, 0)),
        ("de\ten", ("en-US", "de_DE"), (1, 0)),
        ("zh-Hant-TW\tes-419", ("es", "zh"), (1, 0)),
    ],
)
def test_a_header_says_which_columns_are_read(
    write: Write, header: str, languages: tuple[str, str], columns: tuple[int, int]
) -> None:
    path = write("a.tsv", f"{header}\n{fill(header, 'ABCD')}\n")
    corpus = open_parallel_corpus(path.parent, None, None, path.name, None, languages)
    assert list(corpus) == [tuple("ABCD"[column] for column in columns)]
    names = header.split("\t")
    source, target = (names[column] for column in columns)
    assert corpus.describe_omissions().startswith(f"its first row, {source!r} and {target!r}, is a header")


@pytest.mark.parametrize(
    ("header", "languages"),
    [
        ("id\ten\tde", ("", "")),
        ("id\ten\tde", ("en", "")),
        ("number\tEnglish\tSwahili", ("", "")),
        ("number\tEnglish\tSwahili", ("en", "de")),
        ("en\ten\tde", ("en", "de")),
        ("de-DE\ten-US\ten-GB", ("en", "de")),
        ("de-DE\ten-GB", ("en-US", "de")),
        ("de\ten", ("en", "")),
        ("Swahili\tEnglish", ("en", "de")),
    ],
)
def test_a_header_that_does_not_say_which_columns_are_meant_is_refused(
    write: Write, header: str, languages: tuple[str, str]
) -> None:
    path = write("a.tsv", f"{header}\n{fill(header, '1BC')}\n")
    corpus = open_parallel_corpus(path.parent, None, None, path.name, None, languages)
    for use in (corpus.describe_omissions, lambda: list(corpus)):
        with pytest.raises(CorpusError, match=r"cannot tell which of the columns .* choose two by data\.columns"):
            use()
    assert list(open_parallel_corpus(path.parent, None, None, path.name, ("1", "2"), languages))[-1] == ("1", "B")


def test_a_quoted_table_is_refused(write: Write) -> None:
    path = write("a.tsv", '"en"\t"de"\n"A"\t"B"\n')
    corpus = open_parallel_corpus(path.parent, None, None, path.name, None, ("en", "de"))
    with pytest.raises(CorpusError, match=r"a\.tsv: its names and texts are in quotation marks"):
        list(corpus)


@pytest.mark.parametrize(("header", "languages"), [("en\tde", ("", "")), ("English\tGerman", ("", ""))])
def test_the_order_of_languages_is_no_direction_for_a_model_that_is_trained(
    write: Write, header: str, languages: tuple[str, str]
) -> None:
    path = write("a.tsv", f"{header}\nA\tB\n")
    corpus = open_parallel_corpus(
        path.parent, None, None, path.name, None, languages, setting="--columns", has_direction=True
    )
    with pytest.raises(CorpusError, match=r"cannot tell which .* source and target: choose two by --columns$"):
        list(corpus)
    columns = header.split("\t")
    for chosen in (("1", "2"), (columns[0], columns[1])):
        given = open_parallel_corpus(
            path.parent, None, None, path.name, chosen, languages, setting="--columns", has_direction=True
        )
        assert list(given) == [("A", "B")]
    assert list(open_parallel_corpus(path.parent, None, None, path.name, None, languages)) == [("A", "B")]


@pytest.mark.parametrize("row", ["A dog.\tEin Hund.\t1", "id\tsentence\ttext", "en\tA dog.\tEin Hund."])
def test_more_columns_without_names_are_read_from_the_first_two(read_pairs: ReadPairs, write: Write, row: str) -> None:
    assert read_pairs(write("a.tsv", f"{row}\n")) == [tuple(row.split("\t")[:2])]


@pytest.mark.parametrize(
    ("rows", "number", "columns"),
    [
        ("0\tA dog.\tEin Hund.\n1\tA cat.\tEine Katze.\n", "first one has numbers alone, as '1'", ("2", "3")),
        ("7\tA dog.\tEin Hund.\n", "first one has numbers alone, as '7'", ("2", "3")),
        ("id\tsentence\ttext\n-0.25\ta\tb\n1,5e-05\tc\td\n", "first one", ("2", "3")),
        ("A dog.\t0.93\tEin Hund.\nA cat.\t1.0\tEine Katze.\n", "second one has numbers alone", ("1", "3")),
    ],
)
def test_numbers_beside_the_texts_are_not_taken_for_one_of_them(
    read_pairs: ReadPairs, write: Write, rows: str, number: str, columns: tuple[str, str]
) -> None:
    path = write("a.tsv", rows)
    with pytest.raises(CorpusError, match=rf"has 3 columns without names, and the {number}.* by data\.columns"):
        read_pairs(path)
    assert read_pairs(path, columns)[-1] == tuple(rows.split("\n")[-2].split("\t")[int(one) - 1] for one in columns)


@pytest.mark.parametrize(
    "rows",
    [
        "12\ttwelve\n13\tthirteen\n",
        "1\teins\tx\n2 apples\tzwei Äpfel\tx\n3\tdrei\tx\n",
        "two\tzwei\t1\n3\tdrei\t1\nfour\t4\t1\n",
    ],
)
def test_numbers_are_texts_where_nothing_else_can_be(read_pairs: ReadPairs, write: Write, rows: str) -> None:
    assert read_pairs(write("a.tsv", rows)) == [tuple(row.split("\t")[:2]) for row in rows.splitlines()]


HEADER = "id\tEnglish text\tde\nA\tB\tC\n"


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (("de", "English text"), ("C", "B")),
        (("id", "de"), ("A", "C")),
        (("1", "de"), ("A", "C")),
        (("English text", "3"), ("B", "C")),
    ],
)
def test_columns_of_tsv_may_be_given_by_the_names_in_its_first_row(
    read_pairs: ReadPairs, write: Write, columns: tuple[str, str], expected: tuple[str, str]
) -> None:
    assert read_pairs(write("a.tsv", HEADER), columns) == [expected]


@pytest.mark.parametrize(
    ("header", "columns", "message"),
    [
        ("en\tde", ("en", "fr"), r'"fr" must be a column number in .*a\.tsv, .* a name in its first row, which has'),
        ("en\tde\ten", ("en", "de"), r'"en" must be .* which has 2 columns of that name'),
        ("en\tde", ("en", "1"), r"'en' and '1' are the same column of .*a\.tsv"),
        ("", ("en", "de"), r'"en" must be'),
    ],
)
def test_a_name_must_be_that_of_one_column(
    read_pairs: ReadPairs, write: Write, header: str, columns: tuple[str, str], message: str
) -> None:
    path = write("a.tsv", f"{header}\na\tb\tc\n")
    with pytest.raises(ConfigError, match=rf"^data\.validation_columns: {message}"):
        read_pairs(path, columns, setting="data.validation_columns")


def test_a_number_is_a_number_also_where_a_column_is_called_so(read_pairs: ReadPairs, write: Write) -> None:
    assert read_pairs(write("a.tsv", "2\t1\n"), ("1", "2")) == [("2", "1")]


def make_csv(rows: list[tuple[str, ...]], **options: object) -> str:
    content = io.StringIO(newline="")
    csv.writer(content, **options).writerows(rows)  # type: ignore[arg-type]
    return content.getvalue()


# Without line ends at the end of a text, which are no part of it.
TEXTS = st.text(st.characters(exclude_categories=["Cs"])).map(lambda text: text.rstrip("\r\n"))


@given(st.lists(st.tuples(TEXTS, TEXTS)), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_csv_comes_back_as_it_was_written(
    read_pairs: ReadPairs, tmp_path_factory: pytest.TempPathFactory, pairs: Pairs, end: str, compress: bool
) -> None:
    rows = [("id", "de", "en"), *(("7", target, source) for source, target in pairs)]
    content = make_csv(rows, lineterminator=end, quoting=csv.QUOTE_ALL).encode()
    path = tmp_path_factory.mktemp("csv") / ("a.csv.gz" if compress else "a.csv")
    path.write_bytes(gzip.compress(content) if compress else content)
    assert read_pairs(path, ("en", "de")) == pairs
    assert read_pairs(path, languages=("en", "de")) == pairs


def test_cells_are_quoted_where_they_have_to_be(read_pairs: ReadPairs, write: Write) -> None:
    pairs = [("a, b", 'say "c"'), ("d\ne", "f\r\ng"), ("\th ", " i"), ('"', ""), ('j "k"', "l")]
    path = write("a.csv", "\ufeff" + make_csv([("source", "target"), *pairs]))
    assert read_pairs(path) == pairs
    assert read_pairs(write("b.csv", 'source,target\nj "k",l\n')) == [('j "k"', "l")]


def test_line_ends_at_the_end_of_a_cell_are_left_out(read_pairs: ReadPairs, write: Write) -> None:
    assert read_pairs(write("a.csv", 'source,target\n"a\n","b\r\n"\n"\nc\n\nd\n",""\n')) == [
        ("a", "b"),
        ("\nc\n\nd", ""),
    ]


def test_blank_lines_of_csv_are_no_rows(read_pairs: ReadPairs, write: Write) -> None:
    path = write("a.csv", "\nsource,target\n\na,b\r\n\r\n,\n\n")
    assert read_pairs(path) == [("a", "b"), ("", "")]


@pytest.mark.parametrize(
    ("header", "languages", "expected"),
    [
        ("de,en", ("en", "de"), ("B", "A")),
        ('"English","German"', ("", ""), ("A", "B")),
        ("source,target", ("en", "de"), ("A", "B")),
        ("english_text,german_text", ("de", "en"), ("B", "A")),
        ("de-DE,en-US", ("en", "de"), ("B", "A")),
    ],
)
def test_columns_of_csv_are_found_as_those_of_tsv(
    read_pairs: ReadPairs, write: Write, header: str, languages: tuple[str, str], expected: tuple[str, str]
) -> None:
    assert read_pairs(write("a.csv", f"{header}\nA,B\n"), languages=languages) == [expected]
    tsv = write("a.tsv", f"{header}\nA,B\n".replace(",", "\t"))
    assert read_pairs(tsv, languages=languages) == [expected]


@pytest.mark.parametrize("header", ["source;target", '"source";"target"'])
def test_semicolons_are_named(read_pairs: ReadPairs, write: Write, header: str) -> None:
    with pytest.raises(CorpusError, match=r"a\.csv: its cells are separated by semicolons, not by commas: .*; save it"):
        read_pairs(write("a.csv", f"{header}\na;b, c\n"))


@pytest.mark.parametrize("header", ["A dog.,Ein Hund.", "a,b", "source"])
def test_csv_without_names_of_columns_is_refused(read_pairs: ReadPairs, write: Write, header: str) -> None:
    path = write("a.csv", f"{header}\nA,B\n")
    with pytest.raises(CorpusError, match=r"a\.csv: its first row must name the columns, separated by commas, but has"):
        read_pairs(path)


@pytest.mark.parametrize(("columns", "found"), [(("en", "1"), "'en', 'de'"), (("x", "de"), "'en', 'de'")])
def test_columns_of_csv_are_given_by_name(
    read_pairs: ReadPairs, write: Write, columns: tuple[str, str], found: str
) -> None:
    with pytest.raises(ConfigError, match=rf"data\.columns: .* must be a name in the first row of .*which has {found}"):
        read_pairs(write("a.csv", "en,de\na,b\n"), columns)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("a,b\nc\n", r"line 3: has 1 cells, but the first row has 2: 'c'"),
        ("a,b\n\n\nc,d,e\n", r"line 5: has 3 cells, .*'c,d,e'.*quotation marks"),
        ('"a\n\nb",c\nd\n', r"line 5: has 1 cells"),
        ('a,b\n"c,d\ne,f\n', r"line 3: is not CSV \(unexpected end of data\)"),
        ('a,b\n"c" d,e\n', r"line 3: is not CSV .*quotation mark"),
        ("a,b\rc,d\r", r"line 2: is not CSV"),
        ('a,b\n"c,d\n' + "e,f\n" * (MAX_CELL_LENGTH // 4), r"line 3: has a cell of more than 4,194,304 characters"),
    ],
)
def test_a_wrong_row_of_csv_is_an_error_with_its_line(
    read_pairs: ReadPairs, write: Write, rows: str, message: str
) -> None:
    with pytest.raises(CorpusError, match=rf"a\.csv, {message}"):
        read_pairs(write("a.csv", f"source,target\n{rows}"))


def test_a_cell_of_csv_may_be_long(tmp_path: Path, write: Write) -> None:
    limit = csv.field_size_limit()
    long = "x" * (limit + 1)
    write("a.csv", f'source,target\n"{long}",b\nc,"d{"e" * MAX_CELL_LENGTH}"\n')
    rows = iter(open_parallel_corpus(tmp_path, None, None, "a.csv", None))
    assert next(rows) == (long, "b")
    assert csv.field_size_limit() == limit
    with pytest.raises(CorpusError, match=r"line 3: has a cell of more than 4,194,304 characters"):
        next(rows)
    assert csv.field_size_limit() == limit


def test_an_empty_csv_file_has_no_pairs(tmp_path: Path, write: Write) -> None:
    write("a.csv", "")
    with pytest.raises(CorpusError, match=r"a\.csv: empty"):
        open_parallel_corpus(tmp_path, None, None, "a.csv", None).check()


def test_memory_does_not_grow_with_a_table(tmp_path: Path, write: Write) -> None:
    line = '"a sentence of some forty characters, as it were",b\n'
    write("a.csv", "source,target\n" + line * 10_000)
    tracemalloc.start()
    assert open_parallel_corpus(tmp_path, None, None, "a.csv", None).check() == 10_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000 < 10_000 * len(line)
