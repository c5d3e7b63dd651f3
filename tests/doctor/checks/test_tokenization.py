from collections.abc import Callable
from pathlib import Path

import pytest

from transduce.config import TextConfig
from transduce.doctor.checks.tokenization import find_bad_tokenization, measure_tokenization, open_tokenizer
from transduce.doctor.corpus.texts import Text
from transduce.errors import UserError
from transduce.text import Tokenizer


def test_what_the_tokenizer_makes_of_a_text(read: Callable[..., Text], invented: Callable) -> None:
    pairs = invented(500)
    text, sample = read(pairs), dict(enumerate(pairs))
    config = TextConfig(vocabulary=400, max_pieces=60)
    tokenizer, description = open_tokenizer(config, sample, 500)
    assert tokenizer.vocabulary == 400
    assert description == "trained from 500 pairs, with 400 token ids"
    source, target = measure_tokenization(text, sample, tokenizer, config)
    encoded = tokenizer.encode_all([line for line, _ in pairs])
    num_pieces = sum(map(len, encoded))
    assert source.pieces_per_word == pytest.approx(num_pieces / sum(len(line.split()) for line, _ in pairs))
    assert source.characters_per_piece == pytest.approx(sum(len(line) for line, _ in pairs) / num_pieces)
    assert source.too_long == sum(len(ids) > 60 for ids in encoded) / 500
    assert source.byte_share == source.unknown_share == target.byte_share == 0
    assert [finding.name for finding in find_bad_tokenization(text, [source, target])] == [
        "too_long_lines" for one in (source, target) if one.too_long >= 0.01
    ]


def test_characters_that_the_tokenizer_lacks_are_found(
    read: Callable[..., Text], invented: Callable, tmp_path: Path
) -> None:
    pairs = invented(500)
    model = tmp_path / "tokenizer.model"
    model.write_bytes(Tokenizer.train([line for pair in pairs for line in pair], 400, "bpe").model_bytes)
    config = TextConfig(tokenizer=str(model))
    strange = [
        (source, f"{target} жук") if row < 100 else (source, target) for row, (source, target) in enumerate(pairs)
    ]
    text, sample = read(strange), dict(enumerate(strange))
    tokenizer, description = open_tokenizer(config, sample, 500)
    assert description == str(model)
    (finding,) = find_bad_tokenization(text, measure_tokenization(text, sample, tokenizer, config))
    assert (finding.name, finding.rows.tolist()) == ("characters_without_piece", [*range(100)])


def test_a_fitted_vocabulary_fits_the_whole_text(invented: Callable) -> None:
    sample = dict(enumerate(invented(300)))
    small, large = (open_tokenizer(TextConfig(vocabulary="fitted"), sample, size)[0] for size in (300, 3000))
    assert small.vocabulary < large.vocabulary


def test_a_tokenizer_that_is_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="SentencePiece"):
        open_tokenizer(TextConfig(tokenizer=str(tmp_path / "missing")), {0: ("a", "b")}, 1)
