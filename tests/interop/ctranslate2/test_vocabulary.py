import json
from pathlib import Path

import pytest

from transduce.errors import BundleError, UserError
from transduce.interop.ctranslate2.vocabulary import TheirTokens, make_tokenizer, read_tokens
from transduce.text import Tokenizer

SPECIAL = ["<unk>", "</s>"]


def write(folder: Path, **vocabularies: list[str]) -> Path:
    for name, tokens in vocabularies.items():
        (folder / f"{name}_vocabulary.json").write_text(json.dumps(tokens), "utf-8")
    return folder


def test_one_vocabulary_is_that_of_both_sides(tmp_path: Path) -> None:
    found = read_tokens(write(tmp_path, shared=[*SPECIAL, "a"], source=["never read"]))
    assert found == TheirTokens([*SPECIAL, "a"], [*SPECIAL, "a"])


def test_each_side_may_have_its_own(tmp_path: Path) -> None:
    found = read_tokens(write(tmp_path, source=["</s>", "<unk>", "a"], target=[*SPECIAL, "b"]))
    assert found.rows([*SPECIAL, "a", "b", "c"]) == ([1, 0, 2, -1, -1], [0, 1, -1, 2, -1])


@pytest.mark.parametrize("name", ["source", "target"])
def test_one_side_alone_is_not_enough(tmp_path: Path, name: str) -> None:
    with pytest.raises(BundleError, match="not both"):
        read_tokens(write(tmp_path, **{name: SPECIAL}))


def test_the_numbering_is_ours(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """`<unk>`, `</s>`, what both have, what the source has, what the target has."""
    tokens = TheirTokens(["x", "</s>", "y", "<unk>", "z"], ["z", "w", "<unk>", "y", "</s>"])
    (tmp_path / "sentencepiece.model").write_bytes(tokenizer.model_bytes)
    found = make_tokenizer(tokens, tmp_path, None)
    assert found.pieces(range(found.vocabulary)) == ["<unk>", "</s>", "y", "z", "x", "w", "<pad>"]
    assert tokens.rows(found.pieces(range(found.pad_id))) == ([3, 1, 2, 4, 0, -1], [2, 4, 3, 0, -1, 1])


def test_the_model_is_looked_for_in_the_folder_and_beside_it(tokenizer: Tokenizer, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    pieces = tokenizer.pieces(range(tokenizer.pad_id))
    tokens = TheirTokens(pieces, pieces)
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
    assert make_tokenizer(TheirTokens(pieces, pieces), tmp_path, None).files == separate.files
    for sources in (pieces[:-1], pieces[::-1]):
        with pytest.raises(BundleError, match="has other pieces than the vocabulary"):
            make_tokenizer(TheirTokens(sources, pieces), tmp_path, None)
