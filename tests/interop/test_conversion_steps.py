import json
from pathlib import Path
from typing import Any

import pytest
import torch

from transduce.bundle import collect_model_tensors, load_tensors
from transduce.config import TransformerConfig
from transduce.errors import BundleError, UserError
from transduce.interop.conversion_steps import (
    ForeignVocabulary,
    SentencePieceCodec,
    classify_positions,
    interleave_channels,
    make_tokenizer,
    select_rows,
    split_channels,
)
from transduce.interop.ctranslate2 import read_tokens
from transduce.model import Transformer, sinusoids
from transduce.text import Tokenizer

D_MODEL = 8

SETTINGS: list[dict[str, Any]] = [
    {},
    {"norm_order": "pre", "tied_embeddings": "two_way", "positions": "learned", "max_positions": 9},
    {"norm_order": "pre", "normalization": "batch", "tied_embeddings": "none"},
    {"norm_order": "pre", "normalization": "rms", "feed_forward": "gated"},
    {"positions": "rotary"},
    {"positions": "relative"},
    {"attention_score": "additive", "d_k": 3, "d_v": 5},
]


def make_model(seed: int, settings: dict[str, Any]) -> Transformer:
    """All of its numbers differ, those too that start as 0 or 1."""
    torch.manual_seed(seed)
    sizes = {"vocabulary": 20, "num_encoder_layers": 2, "num_decoder_layers": 1, "d_ff": 12, "num_heads": 2}
    model = Transformer(TransformerConfig(d_model=D_MODEL, **sizes, **settings))
    with torch.no_grad():
        for tensor in collect_model_tensors(model).values():
            tensor.add_(torch.rand_like(tensor) / 8)
    return model.eval()


def halves_of_sinusoids(length: int) -> torch.Tensor:
    """As Marian computes them."""
    frequency = 10_000 ** -(torch.arange(0, D_MODEL, 2) / D_MODEL)
    angle = torch.arange(length)[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=1)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@torch.no_grad()
def test_it_is_the_same_model(settings: dict[str, Any]) -> None:
    model, other = make_model(0, settings), make_model(1, settings)
    load_tensors(other, split_channels(collect_model_tensors(model)), "rearranged")
    if other.config.positions == "sinusoidal":
        other.positions.table = halves_of_sinusoids(9)
    source, target = torch.randint(1, 19, (2, 3, 9))
    real = torch.ones_like(source, dtype=torch.bool)
    expected, found = (one(source, real, target, real)[..., :-1] for one in (model, other))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_there_and_back_is_bit_equal(settings: dict[str, Any]) -> None:
    tensors = collect_model_tensors(make_model(0, settings))
    back = interleave_channels(split_channels(tensors))
    assert back.keys() == tensors.keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in tensors.items())


def test_even_channels_come_first() -> None:
    assert split_channels({"encoder.final.gain": torch.arange(6)})["encoder.final.gain"].tolist() == [0, 2, 4, 1, 3, 5]


def test_the_bias_of_the_logits_is_left_alone() -> None:
    assert split_channels({"projection.bias": torch.arange(4)})["projection.bias"].tolist() == [0, 1, 2, 3]


def test_a_foreign_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"lm_head\.scale: is not the name"):
        interleave_channels({"lm_head.scale": torch.ones(3)})


def halves() -> torch.Tensor:
    return split_channels({"positions.table": sinusoids(9, 8)})["positions.table"].clone()


def test_kinds() -> None:
    assert classify_positions(halves()) == classify_positions(sinusoids(9, 8), is_split=False) == "sinusoidal"
    assert classify_positions(halves(), is_split=False) == classify_positions(sinusoids(9, 8)) == "learned"
    assert classify_positions(torch.zeros(9, 8)) == classify_positions(torch.zeros(9, 7)) == "none"
    assert classify_positions(torch.rand(9, 7)) == "learned"


@pytest.mark.parametrize("place", [(0, 0), (8, 7)])
def test_one_number_that_is_another_is_noticed_unless_rounding_explains_it(place: tuple[int, int]) -> None:
    table = halves()
    table[place] += 1e-3
    assert classify_positions(table) == "learned"
    assert classify_positions(table, rounding=2e-3) == "sinusoidal"


def test_rows_are_taken_and_what_is_missing_is_said() -> None:
    matrix, vector = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([5.0, 6.0])
    assert select_rows(matrix, [1, -1, 0]).tolist() == [[3, 4], [0, 0], [1, 2]]
    assert select_rows(vector, [-1, 0, 0, 1], -9.0).tolist() == [-9, 5, 5, 6]


SPECIAL = ["<unk>", "</s>"]


def write(folder: Path, **vocabularies: list[str]) -> Path:
    for name, tokens in vocabularies.items():
        (folder / f"{name}_vocabulary.json").write_text(json.dumps(tokens), "utf-8")
    return folder


def test_one_vocabulary_is_that_of_both_sides(tmp_path: Path) -> None:
    found = read_tokens(write(tmp_path, shared=[*SPECIAL, "a"], source=["never read"]))
    assert found == ForeignVocabulary([*SPECIAL, "a"], [*SPECIAL, "a"])


def test_each_side_may_have_its_own(tmp_path: Path) -> None:
    found = read_tokens(write(tmp_path, source=["</s>", "<unk>", "a"], target=[*SPECIAL, "b"]))
    assert found == ForeignVocabulary(["</s>", "<unk>", "a"], [*SPECIAL, "b"])


@pytest.mark.parametrize("name", ["source", "target"])
def test_one_side_alone_is_not_enough(tmp_path: Path, name: str) -> None:
    with pytest.raises(BundleError, match="not both"):
        read_tokens(write(tmp_path, **{name: SPECIAL}))


def test_the_numbering_is_ours(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """`<unk>`, `</s>`, what both have, what the source has, what the target has."""
    tokens = ForeignVocabulary(["x", "</s>", "y", "<unk>", "z"], ["z", "w", "<unk>", "y", "</s>"])
    (tmp_path / "sentencepiece.model").write_bytes(tokenizer.model_bytes)
    found = make_tokenizer(tokens, tmp_path, None)
    assert found.pieces(range(found.vocabulary)) == ["<unk>", "</s>", "y", "z", "x", "w", "<pad>"]
    assert tokens.rows(found) == ([3, 1, 2, 4, 0, -1, -1], [2, 4, 3, 0, -1, 1, -1])


def test_the_model_is_looked_for_in_the_folder_and_beside_it(tokenizer: Tokenizer, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    pieces = tokenizer.pieces(range(tokenizer.pad_id))
    tokens = ForeignVocabulary(pieces, pieces)
    with pytest.raises(UserError, match=r"neither in it nor beside it \(tokenizer\.model and target_tokenizer\.model"):
        make_tokenizer(tokens, folder, None)
    (tmp_path / "sentencepiece.model").write_bytes(tokenizer.model_bytes)
    assert make_tokenizer(tokens, folder, None).files == tokenizer.files
    (folder / "source.spm").write_bytes(b"damaged")
    (folder / "target.spm").write_bytes(tokenizer.model_bytes)
    with pytest.raises(UserError, match="source: is not a SentencePiece model"):
        make_tokenizer(tokens, folder, None)
    assert make_tokenizer(tokens, folder, tmp_path / "sentencepiece.model").files == tokenizer.files
    with pytest.raises(UserError, match=r"not in .*none"):
        make_tokenizer(tokens, folder, tmp_path / "none")


def test_the_vocabulary_of_an_export_must_be_that_of_its_tokenizer(tokenizer: Tokenizer, tmp_path: Path) -> None:
    pieces = tokenizer.pieces(range(tokenizer.pad_id))
    model = tokenizer.model_bytes
    separate = Tokenizer.with_vocabulary(model, model, pieces[:-1], "separate", target_only=pieces[-1:])
    for name, content in separate.files.items():
        (tmp_path / name).write_bytes(content)
    assert make_tokenizer(ForeignVocabulary(pieces, pieces), tmp_path, None).files == separate.files
    for sources in (pieces[:-1], pieces[::-1]):
        with pytest.raises(BundleError, match="has other pieces than the vocabulary"):
            make_tokenizer(ForeignVocabulary(sources, pieces), tmp_path, None)


def test_sentencepiece_alone_has_the_ids_of_one_model_for_both_sides(tokenizer: Tokenizer, texts: list[str]) -> None:
    pieces = SentencePieceCodec(tokenizer)
    odd = [*texts[:20], "", "☃ </s> é", "  sun   moon "]
    ids = [[*row, 1] for row in tokenizer.encode_all(odd)]
    assert pieces.encode(odd) == ids
    assert pieces.encode([]) == []
    assert pieces.decode(ids) == [tokenizer.decode(row) for row in ids]


def test_tags_are_read_as_the_programs_of_exports_read_them(tagged: Tokenizer) -> None:
    texts = [">>de<< sun moon", " >>fr<<sun", ">>fr<<", "sun >>de<< moon", ">>no<< sun", ">>de<< >>fr<< sun"]
    found = SentencePieceCodec(tagged).encode(texts)
    assert found == [[*row, 1] for row in tagged.encode_all(texts)]
    assert [tagged.pieces(row)[0] for row in found[:3]] == [">>de<<", ">>fr<<", ">>fr<<"]


def test_what_the_source_lacks_is_unknown_to_sentencepiece_alone(tokenizer: Tokenizer) -> None:
    known, model = tokenizer.pieces(range(tokenizer.pad_id)), tokenizer.model_bytes
    sun = tokenizer.pieces(tokenizer.encode("sun"))
    own = Tokenizer.with_vocabulary(
        model, model, [piece for piece in known if piece not in sun], "test", source_only=[">>fra<<"], target_only=sun
    )
    pieces = SentencePieceCodec(own)
    texts = [">>fra<< sun moon", "sun"]
    assert pieces.encode(texts) == [[*row, 1] for row in own.encode_all(texts)]
    assert pieces.encode(["sun"]) == [[0] * len(sun) + [1]]
    ids = [*own.encode_targets(["moon sun"])[0], own.pieces(range(own.pad_id)).index("▁"), 1]
    assert pieces.decode([ids]) == ["moon sun"]
