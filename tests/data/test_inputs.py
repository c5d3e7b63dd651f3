import os
from collections.abc import Callable
from typing import Any

import pytest

from transduce.config import TextConfig
from transduce.errors import CorpusError, UserError

Corpus = list[tuple[str, str]]


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"source_language": "en"}, True),
        ({"cache": "anywhere"}, True),
        ({"held_out": 7}, False),
        ({"text": TextConfig(vocabulary=321)}, False),
        ({"text": TextConfig(vocabulary=320, max_pieces=255)}, False),
    ],
)
def test_the_key_covers_the_settings_that_matter(
    preparation: Any, make_corpus: Callable[..., Corpus], change: dict[str, Any], same: bool
) -> None:
    make_corpus(100)
    assert (preparation().folder == preparation(**change).folder) == same


def test_a_changed_byte_in_a_file_gives_another_key(preparation: Any, make_corpus: Callable[..., Corpus]) -> None:
    make_corpus(100)
    first = preparation()
    path = preparation.folder / "train.target"
    content = path.read_bytes()
    path.write_bytes(content[:10] + bytes([content[10] ^ 1]) + content[11:])
    second = preparation()
    assert first.folder != second.folder
    assert first.digests["train.source"] == second.digests["train.source"]
    assert first.digests["train.target"] != second.digests["train.target"]


def test_a_missing_file_is_named(preparation: Any) -> None:
    with pytest.raises(CorpusError, match=r"none\.tsv"):
        preparation(pairs="none.tsv")


def test_no_training_text_is_an_error(preparation: Any) -> None:
    with pytest.raises(UserError, match="source and target"):
        preparation(source=None)


def test_a_pipe_is_refused_rather_than_waited_for(preparation: Any) -> None:
    os.mkfifo(preparation.folder / "pipe.tsv")
    with pytest.raises(CorpusError, match=r"pipe\.tsv"):
        preparation(pairs="pipe.tsv")


def test_standard_input_gives_what_a_file_gives(preparation: Any, make_corpus: Callable[..., Corpus]) -> None:
    path = preparation.folder / "train.tsv"
    path.write_bytes(preparation.as_tsv(make_corpus(100)))
    from_file = preparation(pairs="train.tsv")
    with path.open("rb") as preparation.standard_input:
        piped = preparation(pairs="-")
    assert preparation.texts(piped) == preparation.texts(from_file)
    assert piped.validation == from_file.validation
    assert piped.digests["-"] == from_file.digests["train.tsv"]
    assert preparation.entries() == sorted([piped.folder.name, from_file.folder.name])
    with path.open("rb") as preparation.standard_input:
        preparation(pairs="-")
    assert "found" in preparation.said[0]
    assert len(preparation.entries()) == 2


def test_a_header_is_left_out_and_that_is_said(preparation: Any, make_corpus: Callable[..., Corpus]) -> None:
    rows = preparation.as_tsv(make_corpus(100))
    (preparation.folder / "bare.tsv").write_bytes(rows)
    (preparation.folder / "named.tsv").write_bytes(b"source\ttarget\n" + rows)
    bare = preparation(pairs="bare.tsv")
    assert not [said for said in preparation.said if "first row" in said]
    named = preparation(pairs="named.tsv")
    assert preparation.texts(named) == preparation.texts(bare)
    assert named.validation == bare.validation
    assert preparation.said[0].startswith("named.tsv: its first row, 'source' and 'target', names the columns and is")
    with (preparation.folder / "named.tsv").open("rb") as preparation.standard_input:
        piped = preparation(pairs="-")
    assert preparation.texts(piped) == preparation.texts(bare)
    assert preparation.said[0].startswith("standard input: its first row")


def test_a_row_that_is_a_header_in_one_language_pair_alone_decides_the_key(
    preparation: Any, make_corpus: Callable[..., Corpus]
) -> None:
    rows = b"is\tes\n" + preparation.as_tsv(make_corpus(100))
    (preparation.folder / "train.tsv").write_bytes(rows)
    counts = {
        source: sum(preparation(pairs="train.tsv", source_language=source, target_language="es").cleaning.values())
        for source in ("is", "en")
    }
    assert counts == {"is": 100, "en": 101}


def test_broken_standard_input_leaves_nothing(preparation: Any) -> None:
    path = preparation.folder / "broken.tsv"
    path.write_bytes(b"a\tb\nno second column\n")
    with path.open("rb") as preparation.standard_input, pytest.raises(CorpusError):
        preparation(pairs="-")
    preparation.standard_input = None
    with pytest.raises(CorpusError, match="standard input"):
        preparation(pairs="-")
    assert not preparation.cache.parent.exists()
