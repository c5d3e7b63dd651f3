import gzip
from pathlib import Path

import pytest

from transduce.errors import CorpusError
from transduce.interop.probe_sentences import EDGES, make_vocabulary_probe, read_probe
from transduce.text import Tokenizer


def test_the_probe_is_the_same_every_time_and_fits(tokenizer: Tokenizer) -> None:
    probe = make_vocabulary_probe(tokenizer, 24)
    assert probe == make_vocabulary_probe(tokenizer, 24)
    assert len(probe.texts) == 200
    lengths = [len(tokenizer.encode(text)) for text in probe.texts]
    assert min(lengths) >= 1
    assert max(lengths) == 24
    assert len(set(lengths)) > 15


def test_it_has_words_numbers_spaces_and_characters_that_nobody_knows(tokenizer: Tokenizer) -> None:
    texts = make_vocabulary_probe(tokenizer, 60).texts
    words = {piece.removeprefix("▁") for piece in tokenizer.pieces(range(258, tokenizer.pad_id))}
    assert set(texts[1 + len(EDGES)].split()) <= words
    everything = "\n".join(texts)
    assert all(wanted in everything for wanted in ("1999", "☃", "  ", "漢字", '"', "\N{COMBINING ACUTE ACCENT}"))
    assert any(text.split() == [text] for text in texts)


def test_a_sentence_begins_with_each_tag(tagged: Tokenizer) -> None:
    texts = make_vocabulary_probe(tagged, 24).texts
    assert {text.split()[0] for text in texts if text.startswith(">>")} == {">>de<<", ">>fr<<"}


def test_a_language_without_spaces_has_a_probe(tokenizer: Tokenizer) -> None:
    other = Tokenizer.train(["漢字仮名交文", "仮名漢字", "交文仮名"] * 5, 270, "bpe")
    texts = make_vocabulary_probe(other, 20).texts
    assert len(texts) == 200
    assert len(set(texts)) > 100


def test_a_file_gives_its_first_sentences_with_their_references(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path, reference = tmp_path / "a.en.gz", tmp_path / "a.no"
    path.write_bytes(gzip.compress(b"sun\n\nmoon river\nsun sun sun sun sun sun sun sun sun\nfish\nbird\n"))
    reference.write_text("1\n2\n3\n4\n5\n6\n", encoding="utf-8")
    probe = read_probe(tokenizer, 8, path, reference, num_sentences=3)
    assert probe.texts == ("sun", "moon river", "fish")
    assert probe.references == ("1", "3", "5")
    assert probe.origin == "3 of 6 lines of a.en.gz, the first of 1 to 8 pieces"
    assert read_probe(tokenizer, 8, path, None).references is None


def test_files_that_do_not_fit_together_are_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path, reference = tmp_path / "a", tmp_path / "b"
    path.write_text("sun\nmoon\n", encoding="utf-8")
    reference.write_text("1\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"a has 2 lines, .*b 1: line n"):
        read_probe(tokenizer, 8, path, reference)
    path.write_text("\n" + "sun " * 30, encoding="utf-8")
    with pytest.raises(CorpusError, match="has no sentence of 1 to 8 pieces"):
        read_probe(tokenizer, 8, path, None)
