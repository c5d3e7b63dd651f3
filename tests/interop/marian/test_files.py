import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch

from transduce.bundle import BundleDescription
from transduce.config import SearchConfig, TransformerConfig
from transduce.errors import BundleError, UserError
from transduce.interop.marian import files
from transduce.interop.marian.files import (
    MarianSettings,
    make_decoder_settings,
    make_model_settings,
    quote,
    read_archive,
    read_numbered,
    read_vocabulary,
    to_marian_order,
    write_archive,
    write_vocabulary,
)
from transduce.text import Tokenizer

# As yaml-cpp writes it, in which Marian has its settings written.
SETTINGS = """\
bert-train-type-embeddings: true
dim-vocabs:
  - 500
  - 600
input-types:
  []
transformer-preprocess: ""
transformer-postprocess: dan
separator-symbol: "[eos]"
version: v1.12.42 b7be0e964 2025-05-24 22:34:42 -0700
"""


def test_settings_of_marian_are_read() -> None:
    assert MarianSettings.parse(SETTINGS, "model").values == {
        "bert-train-type-embeddings": "true",
        "dim-vocabs": ["500", "600"],
        "input-types": [],
        "transformer-preprocess": "",
        "transformer-postprocess": "dan",
        "separator-symbol": "[eos]",
        "version": "v1.12.42 b7be0e964 2025-05-24 22:34:42 -0700",
    }


def test_settings_that_people_write_are_read() -> None:
    text = "---\n# how to translate\nvocabs: [a.yml, 'b c.yml']\n\n"
    text += 'models:\n- one.npz\n- "two.npz"\nlanguage: no\nnone: []\n'
    assert MarianSettings.parse(text, "decoder.yml").values == {
        "vocabs": ["a.yml", "b c.yml"],
        "models": ["one.npz", "two.npz"],
        "language": "no",
        "none": [],
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb\n", "line 3: is not YAML"),
        ("a: 1\n  b: 2\n", "line 2: is not YAML"),
        ("a: 1\n- 2\n", "line 2: is not YAML"),
        ("a: 1\na: 2\n", "line 2: 'a' occurs twice"),
        ("a: [1, 2\n", "line 2: is not YAML"),
        ("a: 'b\n", "line 2: is not YAML"),
        ("b: 1\na: !!python/object:os.system\n", "line 2: must contain only"),
        ("a: !!python/object:os.system [1]\n", "line 1: must contain only"),
        ('a: "\\q"\n', "line 1: is not YAML"),
        ('a: "\\Uffffffff"\n', "line 1: is not YAML"),
        ("{a: 1}\n", "line 1: must be names with values"),
        ("- a\n", "line 1: must be names with values"),
        ("a:\n  b: 2\n", "line 2: must contain only"),
        ("a: [[1]]\n", "line 1: must contain only"),
        ("a: " + "[" * 100_000, "line 1: is not YAML"),
        ("a: \x00\n", "line 1: is not YAML"),
    ],
)
def test_anything_else_is_refused(text: str, words: str) -> None:
    with pytest.raises(BundleError) as caught:
        MarianSettings.parse(text, "model")
    assert str(caught.value).startswith("model, line ")
    assert words in str(caught.value)


def test_settings_have_a_size_that_settings_may_have() -> None:
    with pytest.raises(BundleError, match=r"model: has 1,048,577 characters; at most 1,048,576"):
        MarianSettings.parse("#" * (2**20 + 1), "model")


def test_pieces_with_numbers_are_read() -> None:
    text = (
        '</s>: 0\n<unk>: 1\n"\\"": 2\n"\\\\x": 3\n\'\'\'\': 4\n":": 5\n▁a:b: 6\r\n"\\x85\\u2028\\U0001F642": 7\n'
        "? a very long piece\n: 8\n#: 9\n~: 10\n'no': 11\n"
    )
    pieces = ["</s>", "<unk>", '"', "\\x", "'", ":", "▁a:b", "\x85\u2028🙂", "a very long piece", "#", "~", "no"]
    assert list(read_numbered(text, "vocab.yml")) == [(piece, number) for number, piece in enumerate(pieces)]


@pytest.mark.parametrize("line", ["a", "a: b", "a: -1", ": 1", "a: ", "a: 1.5", "a: ²", "- a: b"])
def test_a_line_without_a_number_is_refused(line: str) -> None:
    with pytest.raises(BundleError, match=r"vocab\.yml, line 2"):
        list(read_numbered(f"</s>: 0\n{line}\n", "vocab.yml"))


@pytest.mark.parametrize("piece", ["a", "'", "''", '"', "\\x", "\\", ":", "- a", "#", "? a", " ", "▁it's", "ĳ"])
def test_what_is_quoted_is_read_again(piece: str) -> None:
    assert list(read_numbered(f"{quote(piece)}: 3\n", "vocab.yml")) == [(piece, 3)]


@pytest.mark.parametrize("order", ["post", "pre"])
def test_what_is_written_is_read(order: str) -> None:
    config = TransformerConfig(norm_order=order, num_encoder_layers=3, d_ff=77, tied_embeddings="two_way")
    settings = MarianSettings.parse(make_model_settings(config, 99), "model")
    assert settings.norm_order() == order
    assert [settings.number(name) for name in ("enc-depth", "dec-depth", "transformer-dim-ffn", "max-length")] == [
        3,
        6,
        77,
        99,
    ]
    assert settings.texts("dim-vocabs") == ["36999", "36999"]
    assert settings.flag("tied-embeddings")
    assert not settings.flag("tied-embeddings-all")
    assert settings.flag("output-omit-bias")


def test_the_newer_type_has_its_positions_and_never_ties_the_output() -> None:
    config = TransformerConfig()
    old, new = (MarianSettings.parse(make_model_settings(config, 99, is_new=one), "model") for one in (False, True))
    assert new.text("type") == "transformer-new"
    changed = {name for name in old.values if old.values[name] != new.values[name]}
    assert changed == {
        "type",
        "transformer-train-position-embeddings",
        "tied-embeddings-src",
        "tied-embeddings-all",
    }
    assert old.values.keys() == new.values.keys()
    assert not new.flag("tied-embeddings")


def test_sentences_are_translated_one_by_one() -> None:
    description = BundleDescription(model=TransformerConfig(), search=SearchConfig(beam=5, length_penalty=0.9))
    settings = MarianSettings.parse(make_decoder_settings(description, ["a.spm", "b.spm"]), "decoder.yml")
    assert settings.texts("vocabs") == ["a.spm", "b.spm"]
    assert settings.texts("models") == ["transformer-new.npz"]
    assert {name: settings.text(name) for name in ("mini-batch", "beam-size", "normalize", "relative-paths")} == {
        "mini-batch": "1",
        "beam-size": "5",
        "normalize": "0.9",
        "relative-paths": "true",
    }


def test_values_of_another_kind_are_refused() -> None:
    settings = MarianSettings.parse("a: [1]\nb: x\n", "model")
    for call, words in (
        (lambda: settings.text("a"), "model: a is a list"),
        (lambda: settings.number("b"), "model: b = 'x', but must be a whole number"),
        (lambda: settings.number("c"), "model: c = '', but must be a whole number"),
        (lambda: settings.flag("b"), "model: b = 'x', but must be true or false"),
    ):
        with pytest.raises(BundleError, match=words):
            call()
    assert settings.texts("b") == ["x"]
    assert settings.texts("c") == []
    assert settings.flag("c") is False


SETTINGS_ENTRY = "special:model.yml"


def test_an_archive_comes_back(tmp_path: Path) -> None:
    arrays = {"Wemb": torch.randn(3, 4), "decoder->at(0)->as<x>()": torch.randn(4, 3).T, "b": torch.randn(1, 4)}
    write_archive(tmp_path / "model.npz", "type: transformer\nname: é\n", arrays)
    settings, found, text = read_archive(tmp_path / "model.npz")
    assert text == "type: transformer\nname: é\n"
    assert settings.values == {"type": "transformer", "name": "é"}
    assert found.keys() == arrays.keys()
    assert all(torch.equal(found[name], array) for name, array in arrays.items())


def test_the_settings_are_as_marian_has_them(tmp_path: Path) -> None:
    # Bytes with one zero behind the text: CTranslate2 takes away exactly one, Marian looks for it.
    write_archive(tmp_path / "model.npz", "a: é\n", {"W": torch.ones(2, 3).T})
    with np.load(tmp_path / "model.npz", allow_pickle=False) as file:
        assert file[SETTINGS_ENTRY].dtype == np.int8
        assert file[SETTINGS_ENTRY].tobytes() == "a: é\n\0".encode()
        assert file["W"].flags.c_contiguous


def test_numbers_of_16_bits_are_read(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "m.npz", W=np.array([[1.5]], np.float16), **{SETTINGS_ENTRY: np.frombuffer(b"a: 1\0  ", np.int8)}
    )
    settings, arrays, _ = read_archive(tmp_path / "m.npz")
    assert arrays["W"].dtype == torch.float32
    assert settings.values == {"a": "1"}


def test_what_marian_adds_is_left_out(tmp_path: Path) -> None:
    text = np.frombuffer(b"a: 1\0", np.int8)
    np.savez(tmp_path / "m.npz", **{SETTINGS_ENTRY: text, "special:other": text, "W": np.ones((1, 1), np.float32)})
    assert list(read_archive(tmp_path / "m.npz").arrays) == ["W"]


def pickled() -> bytes:
    file = io.BytesIO()
    np.savez(file, **{SETTINGS_ENTRY: np.array([{}], object)})
    return file.getvalue()


def saved(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def zipped(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("W.npy", content)
    return file.getvalue()


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damage_is_noticed_however_it_is_compressed(tmp_path: Path, method: int) -> None:
    path = tmp_path / "model.npz"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("W.npy", bytes(range(256)))
    content = bytearray(path.read_bytes())
    start = content.index(b"W.npy") + len("W.npy")
    content[start : start + 60] = b"\xff" * 60
    path.write_bytes(content)
    with pytest.raises(BundleError, match=r"model\.npz: (is not an archive of arrays|cannot be read): \w+ "):
        read_archive(path)


def test_an_archive_that_swells_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_MAX_BYTES", 2000)
    (tmp_path / "model.npz").write_bytes(saved(W=np.zeros(1000, np.float32)))
    with pytest.raises(BundleError, match=r"has 4,128 bytes unpacked; at most 2,000"):
        read_archive(tmp_path / "model.npz")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not an archive of arrays"),
        (b"nonsense", "is not an archive of arrays"),
        (pickled(), "is not an archive of arrays: Object arrays cannot be loaded"),
        (saved(W=np.ones(3, np.float32))[:-40], "is not an archive of arrays"),
        (zipped(b"nonsense"), "model.npz"),
        (zipped(b"\x93NUMPY\x01\x00\x10\x00{'descr': (((\0\n  "), "is not an archive of arrays"),
        (saved(W=np.ones(3, np.float32)), "has no special:model.yml"),
        (saved(**{SETTINGS_ENTRY: np.frombuffer(b"\xff\0", np.int8)}), "is not text"),
        (saved(**{SETTINGS_ENTRY: np.frombuffer(b"a\0", np.int8)}), "special:model.yml, line 1"),
        (saved(**{SETTINGS_ENTRY: np.frombuffer(b"a: 1\0", np.int8), "W": np.ones(3, np.int8)}), "W has type int8"),
    ],
)
def test_what_is_no_model_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "model.npz").write_bytes(content)
    with pytest.raises(BundleError) as caught:
        read_archive(tmp_path / "model.npz")
    assert str(caught.value).startswith(str(tmp_path / "model.npz"))
    assert words in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"model\.npz: cannot be read: No such file"):
        read_archive(tmp_path / "model.npz")


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
        ("v.yml", b"</s>: 0\n<unk>: 1\na: 1\n", "'a' and '<unk>' have the same number, 1"),
        ("v.yml", b"</s>: 0\n<unk>: 1\na: 2\na: 3\n", "has the piece 'a' twice"),
        ("v.yml", b"</s>: 0\na: 1\n<unk>: 7\n", "has no '<unk>' among its first 4 pieces"),
        ("v.yml", b"\xff: 0\n", "is not a vocabulary"),
        ("v.json", b'{"</s>": 0', "is not a vocabulary"),
        ("v.json", b"[" * 100_000, "is not a vocabulary"),
        ("v.json", b'["</s>"]', "is not a JSON object of pieces"),
        ("v.json", b'{"</s>": true}', "is not a JSON object of pieces"),
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
    model = to_marian_order(tokenizer.model_bytes)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert (processor.eos_id(), processor.unk_id(), processor.bos_id(), processor.pad_id()) == (0, 1, -1, -1)
    assert len(model) == len(tokenizer.model_bytes)
    assert to_marian_order(model) == tokenizer.model_bytes
    odd = [*texts, "☃ <unk> </s> é\n", ""]
    exchanged = {0: 1, 1: 0}
    assert [[exchanged.get(index, index) for index in row] for row in processor.encode(odd)] == tokenizer.encode_all(
        odd
    )
    (tmp_path / "v.spm").write_bytes(model)
    pieces = tokenizer.pieces(range(tokenizer.pad_id))
    assert read_vocabulary(tmp_path / "v.spm", len(pieces)) == ["</s>", "<unk>", *pieces[2:]]
