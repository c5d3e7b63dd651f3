import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings, strategies

from transduce.text import Tokenizer
from transduce.translation.words import Words, divide, summed_by_words

ODD = [
    "",
    " \t ",
    "  many   spaces  between\twords ",
    "one\u3000wide space",
    "zero\u200bwidth",
    "\u200b alone",
    "語 の 語",
    "a\u2028b\u0085c\x1cd",
    "½ ﷺ ™ ´",
    "▁ under_lined ▁▁a",
    "</s> <pad>",
    "🙂 👩‍👩‍👧",
    "a\u0301 \u0301b",
]


@given(strategies.lists(strategies.text(max_size=20), max_size=4))
@settings(max_examples=200, deadline=None)
def test_words_are_those_of_split(tokenizer: Tokenizer, lines: list[str]) -> None:
    for line, words in zip(lines, divide(tokenizer.encode_all, lines), strict=True):
        assert words.words == tuple(line.split())
        assert len(words.pieces) == len(words.words)


@pytest.mark.parametrize("line", ODD)
def test_pieces_of_odd_words(tokenizer: Tokenizer, line: str) -> None:
    (words,) = divide(tokenizer.encode_all, [line])
    assert words.words == tuple(line.split())
    for word, pieces in zip(words.words, words.pieces, strict=True):
        assert list(pieces) == tokenizer.encode(word)
    assert words.ids == [index for pieces in words.pieces for index in pieces]


def test_a_line_has_the_pieces_that_translation_gives_it(
    tokenizer: Tokenizer, make_sentences: Callable[..., list[str]]
) -> None:
    lines = [*make_sentences(50, seed=30), *ODD[:6], *ODD[6:7], *ODD[8:12], "A man, in a hat (red) — isn't he?"]
    for line, words in zip(lines, divide(tokenizer.encode_all, lines), strict=True):
        assert words.ids == tokenizer.encode(line)


def made(*sizes: int) -> Words:
    """A line of words with so many pieces each."""
    return Words(tuple("w" for _ in sizes), tuple((5,) * size for size in sizes))


@pytest.mark.parametrize("offset", [0, 1])
def test_attention_between_words_is_the_sum_over_their_pieces(offset: int) -> None:
    torch.manual_seed(0)
    sources, targets = [made(2, 1, 0, 3), made(1), made()], [made(1, 2), made(2, 0, 1), made(1)]
    weights = torch.rand(3, 2, 4, 7)
    found = summed_by_words(weights, sources, targets, offset)
    assert found.shape == (3, 2, 3, 4)
    expected = torch.zeros(3, 2, 3, 4)
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        of_source, of_target = (
            [number for number, pieces in enumerate(side.pieces) for _ in pieces] for side in (source, target)
        )
        for (t, target_word), (s, source_word) in itertools.product(enumerate(of_target), enumerate(of_source)):
            expected[row, :, target_word, source_word] += weights[row, :, t + offset, s]
    torch.testing.assert_close(found, expected)
