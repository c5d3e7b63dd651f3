import gzip
from pathlib import Path

import pytest

from transduce.errors import CorpusError
from transduce.translation import GoldAlignment, read_gold_alignments


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_sure_links_are_possible_too(tmp_path: Path) -> None:
    path = write(tmp_path / "gold", "0-0 2?1 10p12\n\n3-3\n")
    assert read_gold_alignments(path, 3) == [
        GoldAlignment(frozenset({(0, 0)}), frozenset({(0, 0), (2, 1), (10, 12)})),
        GoldAlignment(frozenset(), frozenset()),
        GoldAlignment(frozenset({(3, 3)}), frozenset({(3, 3)})),
    ]
    (tmp_path / "gold.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert read_gold_alignments(tmp_path / "gold.gz", 3) == read_gold_alignments(path, 3)


@pytest.mark.parametrize("link", ["0", "a-b", "0-", "-1-0", "0:0", "0-0-0", "0--1", "٣-٣", "99999999-0"])
def test_what_is_no_link_is_named(tmp_path: Path, link: str) -> None:
    path = write(tmp_path / "gold", f"0-0\n1-1 {link}\n")
    with pytest.raises(CorpusError, match=r"gold, line 2: .* must be") as refused:
        read_gold_alignments(path, 2)
    assert repr(link) in str(refused.value)


def test_there_must_be_one_line_for_each_pair(tmp_path: Path) -> None:
    path = write(tmp_path / "gold", "0-0\n")
    with pytest.raises(CorpusError, match="has 1 lines and its text has 2 pairs"):
        read_gold_alignments(path, 2)
    with pytest.raises(CorpusError, match="no such file"):
        read_gold_alignments(tmp_path / "nothing", 2)
