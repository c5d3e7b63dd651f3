import json
from pathlib import Path

import pytest
import sentencepiece

from transduce.errors import BundleError, UserError
from transduce.interop.marian.vocabulary import in_marian_order, read_vocabulary, write_vocabulary
from transduce.text import Tokenizer

ODD = ["</s>", "<unk>", "'", '"', "\\x41", ":", "-", "?", "#", "no", "~", "▁a", "\x85", "\u2028", "<0x0A>", "12", "é"]


def test_a_vocabulary_comes_back(tmp_path: Path) -> None:
    write_vocabulary(tmp_path / "vocab.yml", ODD)
    assert read_vocabulary(tmp_path / "vocab.yml", len(ODD)) == ODD


def test_ctranslate2_reads_the_same(tmp_path: Path) -> None:
    marian = pytest.importorskip("ctranslate2.converters.marian")
    write_vocabulary(tmp_path / "vocab.yml", ODD)
    assert marian.load_vocab(tmp_path / "vocab.yml") == ODD


def test_yaml_itself_reads_the_same(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    pieces = [piece for piece in ODD if piece != "\x85"]  # between quotation marks a line may end, and becomes a space
    pieces.remove("\u2028")
    write_vocabulary(tmp_path / "vocab.yml", pieces)
    assert list(yaml.safe_load((tmp_path / "vocab.yml").read_text(encoding="utf-8"))) == pieces


def test_rows_without_a_piece_are_called_by_their_number(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text(json.dumps({"</s>": 0, "<unk>": 1, "a": 3, "b": 9}), encoding="utf-8")
    assert read_vocabulary(tmp_path / "vocab.json", 5) == ["</s>", "<unk>", "<id 2>", "a", "<id 4>"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("v.yml", b"</s>: 0\n<unk>: 1\na: 1\n", "'a' and '<unk>' have one number, 1"),
        ("v.yml", b"</s>: 0\n<unk>: 1\na: 2\na: 3\n", "has the piece 'a' twice"),
        ("v.yml", b"</s>: 0\na: 1\n<unk>: 7\n", "has no '<unk>' among its first 4 pieces"),
        ("v.yml", b"\xff: 0\n", "is no vocabulary"),
        ("v.json", b'{"</s>": 0', "is no vocabulary"),
        ("v.json", b"[" * 100_000, "is no vocabulary"),
        ("v.json", b'["</s>"]', "is no JSON object of pieces"),
        ("v.json", b'{"</s>": true}', "is no JSON object of pieces"),
        ("v.spm", b"nonsense", "is not a SentencePiece model"),
    ],
)
def test_a_damaged_vocabulary_is_refused(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_vocabulary(tmp_path / name, 4)
    assert str(caught.value).startswith(str(tmp_path / name))
    assert words in str(caught.value)


def test_a_vocabulary_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"v\.yml: cannot be read \(No such file"):
        read_vocabulary(tmp_path / "v.yml", 4)


def test_marian_has_the_end_first(tokenizer: Tokenizer, texts: list[str], tmp_path: Path) -> None:
    model = in_marian_order(tokenizer.model_bytes)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert (processor.eos_id(), processor.unk_id(), processor.bos_id(), processor.pad_id()) == (0, 1, -1, -1)
    assert len(model) == len(tokenizer.model_bytes)
    assert in_marian_order(model) == tokenizer.model_bytes
    odd = [*texts, "☃ <unk> </s> é\n", ""]
    exchanged = {0: 1, 1: 0}
    assert [[exchanged.get(index, index) for index in row] for row in processor.encode(odd)] == tokenizer.encode_all(
        odd
    )
    (tmp_path / "v.spm").write_bytes(model)
    pieces = tokenizer.pieces(range(tokenizer.pad_id))
    assert read_vocabulary(tmp_path / "v.spm", len(pieces)) == ["</s>", "<unk>", *pieces[2:]]
