import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from transduce.errors import ConfigError, CorpusError
from transduce.text import open_parallel_corpus

Write = Callable[[str, bytes | str], Path]


@pytest.mark.parametrize("name", ["none", "folder"])
def test_missing_files_are_found_before_anything_is_read(tmp_path: Path, write: Write, name: str) -> None:
    (tmp_path / "folder").mkdir()
    write("a.en", "a\n")
    for arguments in (("a.en", name, None), (name, "a.en", None), (None, None, name)):
        with pytest.raises(CorpusError, match=rf"{name}(:| is a)"):
            open_parallel_corpus(tmp_path, *arguments, None)


def test_the_ending_of_a_file_of_pairs_says_its_format(tmp_path: Path, write: Write) -> None:
    for name in ("pairs", "pairs.xlsx", "pairs.gz", ".gz", "tsv", "a.parquet.gz", "a.zip.xz"):
        write(name, "a\tb\n")
        with pytest.raises(
            CorpusError,
            match=r"must end in \.tsv, \.csv, \.json, \.jsonl, \.ndjson or \.tmx, and then in \.gz, \.xz or \.zst if "
            r"it is compressed, or in \.parquet or \.zip",
        ):
            open_parallel_corpus(tmp_path, None, None, name, None)
    with pytest.raises(ConfigError, match="give source and target, or pairs"):
        open_parallel_corpus(tmp_path, None, None, None, None)


def test_an_empty_file_of_pairs_is_an_error(tmp_path: Path, write: Write) -> None:
    write("a.tsv.gz", gzip.compress(b""))
    with pytest.raises(CorpusError, match=r"a\.tsv\.gz: empty"):
        open_parallel_corpus(tmp_path, None, None, "a.tsv.gz", None).check()


def test_another_folder_is_refused_with_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "folder.tsv").mkdir()
    with pytest.raises(
        CorpusError, match=r"folder\.tsv is a folder, and .*save_to_disk did not write it .*state\.json"
    ):
        open_parallel_corpus(tmp_path, None, None, "folder.tsv", None)
