from pathlib import Path

import pytest

from transduce.errors import BundleError, UserError
from transduce.interop.tokenizers import ForeignVocabulary, SentencePieceCodec, make_tokenizer
from transduce.text import Tokenizer


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
