import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from transduce.text import parallel_corpus
from transduce.text.header import is_header

Write = Callable[[str, bytes | str], Path]


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
    corpus = parallel_corpus(tmp_path, None, None, name, ("2", "3"))
    assert corpus.header() == ("English", "Swahili")
    assert list(corpus) == list(corpus) == [("a", "b"), ("English", "Swahili")]
    assert corpus.check() == 2
    other = parallel_corpus(tmp_path, None, None, name, ("1", "2"))
    assert other.header() is None
    assert other.check() == 3
