import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import CorpusError
from transduce.text import ParallelCorpus, open_parallel_corpus

Write = Callable[[str, bytes | str], Path]
Pairs = list[tuple[str, str]]
ReadPairs = Callable[..., Pairs]


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


def test_two_iterations_at_once_do_not_disturb_each_other(two_files: Callable[..., ParallelCorpus]) -> None:
    corpus = two_files("a\nb\n", "A\nB\n")
    first, second = iter(corpus), iter(corpus)
    assert [next(first), next(second), next(first), next(second)] == [("a", "A"), ("a", "A"), ("b", "B"), ("b", "B")]


@pytest.mark.parametrize(("source", "target"), [(3, 5), (5, 3), (0, 1), (1, 0), (20_000, 19_999)])
def test_unequal_files_are_an_error_with_both_counts(
    two_files: Callable[..., ParallelCorpus], source: int, target: int
) -> None:
    corpus = two_files("a\n" * source, "A\n" * target)
    with pytest.raises(CorpusError, match=rf"a\.en has {source:,} lines? and .*a\.de has {target:,}: they must"):
        corpus.check()
    with pytest.raises(CorpusError, match="line for line"):
        list(corpus)


def test_empty_files_are_an_error(two_files: Callable[..., ParallelCorpus]) -> None:
    with pytest.raises(CorpusError, match=r"a\.en and .*a\.de: empty"):
        two_files("", "").check()


def test_an_error_in_either_file_names_it(two_files: Callable[..., ParallelCorpus]) -> None:
    with pytest.raises(CorpusError, match=r"a\.de, line 2, "):
        two_files("a\nb\n", b"A\n\xff\n").check()


def test_memory_does_not_grow_with_the_corpus(two_files: Callable[..., ParallelCorpus]) -> None:
    line = "a sentence of some forty characters, as it were\n"
    corpus = two_files(line * 5_000, line * 5_000)
    tracemalloc.start()
    assert corpus.check() == 5_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150_000 < 5_000 * len(line)


LINES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\ufeff"))
COMPRESSION = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]


def write_zip(path: Path, compression: int = zipfile.ZIP_DEFLATED, **members: str) -> Path:
    """A zip file; in the names of members, "_" stands for "."."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("_", "."), content)
    return path


@given(st.lists(st.tuples(LINES, LINES)), st.sampled_from(COMPRESSION), st.booleans())
def test_two_members_of_a_zip_come_back_as_they_were_written(
    read_pairs: ReadPairs, tmp_path_factory: pytest.TempPathFactory, pairs: Pairs, compression: int, windows: bool
) -> None:
    end = "\r\n" if windows else "\n"
    sources, targets = ("".join(pair[side] + end for pair in pairs) for side in (0, 1))
    path = write_zip(
        tmp_path_factory.mktemp("zip") / "de-en.txt.ZIP",
        compression,
        README="Read me.",
        LICENSE="free",
        **{
            "Books_de-en_de": targets,
            "Books_de-en_en": sources,
            "Books_de-en_scores": "1\n",
            "Books_de-en_xml": "<a/>",
        },
    )
    assert read_pairs(path, languages=("en", "de")) == pairs
    assert read_pairs(path, ("EN", "DE"), ("de", "en")) == pairs
    assert read_pairs(path, ("Books.de-en.de", "en")) == [(target, source) for source, target in pairs]


def test_members_of_a_zip_are_found_by_the_language_of_their_country(read_pairs: ReadPairs, tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.mkdir("text.en")
        archive.writestr(zipfile.ZipInfo(""), "d\n")
        archive.writestr("text.en/a.en-pt_BR.en", "a\n")
        archive.writestr("text.en/a.en-pt_BR.pt_BR", "b\n")
        archive.writestr("__MACOSX/text.en/._a.en-pt_BR.en", "c\n")
    for code in ("pt", "pt-br", "pt_BR"):
        assert read_pairs(path, languages=("en", code)) == [("a", "b")]


@pytest.mark.parametrize(
    ("members", "languages", "columns", "message"),
    [
        (
            {"a_en": "a", "a_de": "b"},
            ("", ""),
            None,
            r"'a\.en', 'a\.de', and source and target are unknown: give --source-l",
        ),
        ({"a_en": "a", "a_de": "b"}, ("en", "en"), None, r"source and target are unknown"),
        (
            {"a_en": "a", "a_de": "b"},
            ("en", "fr"),
            None,
            r"no member ends in \.fr; it has 'a\.en', 'a\.de'.*data\.columns",
        ),
        (
            {"a_en": "", "b_en": "", "a_de": ""},
            ("en", "de"),
            None,
            r"2 members, 'a\.en', 'b\.en', end in \.en: name the",
        ),
        (
            {"a_pt-BR": "", "a_pt-PT": "", "a_de": ""},
            ("pt", "de"),
            None,
            r"2 members, 'a\.pt-BR', 'a\.pt-PT', end in \.pt",
        ),
        ({"a_en": "a", "a_de": "b"}, ("", ""), ("en", "a.en"), r"source and target are both 'a\.en'"),
        ({"a_en": "a\n", "a_de": "b\nc\n"}, ("en", "de"), None, r"a\.en has 1 line and .*: a\.de has 2: they must"),
        ({}, ("en", "de"), None, r"no member ends in \.en; it has none"),
    ],
)
def test_a_zip_that_does_not_say_which_members_are_meant_is_refused(
    read_pairs: ReadPairs,
    tmp_path: Path,
    members: dict[str, str],
    languages: tuple[str, str],
    columns: tuple[str, str] | None,
    message: str,
) -> None:
    with pytest.raises(CorpusError, match=rf"x\.zip: .*{message}"):
        read_pairs(write_zip(tmp_path / "x.zip", **members), columns, languages)


def test_a_wrong_line_in_a_zip_is_named_by_member_and_line(read_pairs: ReadPairs, tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.en", b"a\nb\n")
        archive.writestr("a.de", b"A\n\xff\n")
    with pytest.raises(CorpusError, match=r"x\.zip: a\.de, line 2, byte 1 of the line: the byte 0xff"):
        read_pairs(path, languages=("en", "de"))


def test_damaged_members_and_files_are_errors(read_pairs: ReadPairs, tmp_path: Path) -> None:
    text = "".join(f"line {number} of a text\n" for number in range(2_000))
    content = write_zip(tmp_path / "x.zip", a_en=text, a_de=text).read_bytes()
    damaged = content[:200] + bytes(byte ^ 0x5A for byte in content[200:300]) + content[300:]
    for wrong, message in [
        (content[:-40], "x.zip: damaged, or not a zip file"),
        (b"plain text\n", "x.zip: damaged, or not a zip file"),
        (b"", "x.zip: damaged, or not a zip file"),
        (damaged, r"x\.zip: a\.en(: damaged or truncated|, line \d+, byte)"),
    ]:
        (tmp_path / "x.zip").write_bytes(wrong)
        with pytest.raises(CorpusError, match=message):
            read_pairs(tmp_path / "x.zip", languages=("en", "de"))


def test_a_name_that_is_not_utf_8_though_it_says_so_is_an_error(read_pairs: ReadPairs, tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("é.en", "one\n")
        archive.writestr("é.de", "ein\n")
    path.write_bytes(path.read_bytes().replace("é".encode(), b"\xff\xa9"))
    with pytest.raises(CorpusError, match=r"x\.zip: damaged, or not a zip file \('utf-8' codec"):
        read_pairs(path, languages=("en", "de"))


def test_a_wrong_checksum_is_an_error(read_pairs: ReadPairs, tmp_path: Path) -> None:
    path = write_zip(tmp_path / "x.zip", zipfile.ZIP_STORED, a_en="one\n", a_de="ein\n")
    path.write_bytes(path.read_bytes().replace(b"one\n", b"two\n"))
    with pytest.raises(CorpusError, match=r"x\.zip: a\.en: damaged or truncated after line 0 \(Bad CRC"):
        read_pairs(path, languages=("en", "de"))


def test_an_encrypted_member_is_refused(read_pairs: ReadPairs, tmp_path: Path) -> None:
    path = write_zip(tmp_path / "x.zip", a_en="a\n", a_de="b\n")
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1  # the flags of its first entry
    path.write_bytes(content)
    with pytest.raises(CorpusError, match=r"x\.zip: a\.en: is encrypted: unpack it"):
        read_pairs(path, languages=("en", "de"))


def test_an_unknown_compression_is_an_error(read_pairs: ReadPairs, tmp_path: Path) -> None:
    path = write_zip(tmp_path / "x.zip", a_en="a\n", a_de="b\n")
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 10] = 97
    path.write_bytes(content)
    with pytest.raises(CorpusError, match=r"x\.zip: a\.en: cannot be read"):
        read_pairs(path, languages=("en", "de"))


def test_a_bomb_is_refused_before_it_is_read(read_pairs: ReadPairs, tmp_path: Path) -> None:
    path = write_zip(tmp_path / "x.zip", a_en="a" * 20_000_000, a_de="b\n")
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    with pytest.raises(CorpusError, match=r"x\.zip: a\.en: 20,000,000 bytes are compressed to .*, as no text can be"):
        read_pairs(path, languages=("en", "de"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000
