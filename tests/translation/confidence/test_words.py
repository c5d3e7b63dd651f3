import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings, strategies
from hypothesis import strategies as st

from transduce.errors import UserError
from transduce.text import Tokenizer
from transduce.translation import Translator
from transduce.translation.confidence.words import Words, divide_lines, score_words, sum_by_words

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
    for line, words in zip(lines, divide_lines(tokenizer.encode_all, lines), strict=True):
        assert words.words == tuple(line.split())
        assert len(words.pieces) == len(words.words)


@pytest.mark.parametrize("line", ODD)
def test_pieces_of_odd_words(tokenizer: Tokenizer, line: str) -> None:
    (words,) = divide_lines(tokenizer.encode_all, [line])
    assert words.words == tuple(line.split())
    for word, pieces in zip(words.words, words.pieces, strict=True):
        assert list(pieces) == tokenizer.encode(word)
    assert words.ids == [index for pieces in words.pieces for index in pieces]


def test_a_line_has_the_pieces_that_translation_gives_it(
    tokenizer: Tokenizer, make_sentences: Callable[..., list[str]]
) -> None:
    lines = [*make_sentences(50, seed=30), *ODD[:6], *ODD[6:7], *ODD[8:12], "A man, in a hat (red) — isn't he?"]
    for line, words in zip(lines, divide_lines(tokenizer.encode_all, lines), strict=True):
        assert words.ids == tokenizer.encode(line)


def made(*sizes: int) -> Words:
    """A line of words with so many pieces each."""
    return Words(tuple("w" for _ in sizes), tuple((5,) * size for size in sizes))


@pytest.mark.parametrize("offset", [0, 1])
def test_attention_between_words_is_the_sum_over_their_pieces(offset: int) -> None:
    torch.manual_seed(0)
    sources, targets = [made(2, 1, 0, 3), made(1), made()], [made(1, 2), made(2, 0, 1), made(1)]
    weights = torch.rand(3, 2, 4, 7)
    found = sum_by_words(weights, sources, targets, offset)
    assert found.shape == (3, 2, 3, 4)
    expected = torch.zeros(3, 2, 3, 4)
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        of_source, of_target = (
            [number for number, pieces in enumerate(side.pieces) for _ in pieces] for side in (source, target)
        )
        for (t, target_word), (s, source_word) in itertools.product(enumerate(of_target), enumerate(of_source)):
            expected[row, :, target_word, source_word] += weights[row, :, t + offset, s]
    torch.testing.assert_close(found, expected)


@given(st.data())
def test_words_are_those_of_the_decoded_text(tokenizer: Tokenizer, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocabulary - 1), max_size=30))
    scores = [-float(number) for number in range(len(ids))]
    found = score_words(tokenizer.pieces(ids), scores)
    assert [word for word, _ in found] == tokenizer.decode(ids).split()
    assert all(of_word and of_word == sorted(of_word, reverse=True) for _, of_word in found)
    # No piece counts for two words, but one that spells "<unk>" alone has spaces around it.
    used = [score for _, of_word in found for score in of_word]
    assert len(used) == len(set(used))


@given(st.text().filter(lambda text: not text or not text[-1].isspace()))
def test_no_piece_of_a_text_is_lost(tokenizer: Tokenizer, text: str) -> None:
    ids = [*tokenizer.encode(text), tokenizer.end_id]
    found = score_words(tokenizer.pieces(ids), [1.0] * len(ids))
    assert [word for word, _ in found] == tokenizer.decode(ids).split()
    assert sum(len(scores) for _, scores in found) == (len(ids) - 1 if found else 0)


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (["▁a", "b", "▁c", "</s>"], [("ab", [0, 1]), ("c", [2])]),
        (["▁", "a", "▁", "▁", "b"], [("a", [0, 1]), ("b", [2, 3, 4])]),
        (["▁", "<0xC3>", "<0xBC>", "b", "<0x20>", "c"], [("üb", [0, 1, 2, 3]), ("c", [4, 5])]),
        (["a", "<0xC3>", "b"], [("a\ufffdb", [0, 1, 2])]),
        (["<0xC3>", "</s>", "<0xBC>"], [("ü", [0, 2])]),
        (["a▁b", "c▁", "d"], [("a", [0]), ("bc", [0, 1]), ("d", [2])]),
        (["a", "<unk>", "b"], [("a", [0]), ("⁇", [1]), ("b", [2])]),
        (["<pad>", "▁", "</s>"], []),
        ([], []),
    ],
)
def test_which_pieces_make_a_word(pieces: list[str], words: list[tuple[str, list[float]]]) -> None:
    assert score_words(pieces, list(map(float, range(len(pieces))))) == words


def test_scores_of_another_hypothesis_are_refused() -> None:
    with pytest.raises(UserError, match="2 pieces and 1 scores"):
        score_words(["▁a", "b"], [0.0])


def test_a_translation_has_the_words_it_shows(translator: Translator, make_sentences: Callable[..., list[str]]) -> None:
    tokenizer = translator.tokenizer
    texts = make_sentences(20, seed=5)
    sources = [[*ids, tokenizer.end_id] for ids in tokenizer.encode_all(texts)]
    with torch.inference_mode():
        found = translator.engine.search(sources, translator.search)
    for (hypothesis,), text in zip(found, translator.translate(texts), strict=True):
        words = score_words(tokenizer.pieces(hypothesis.ids), hypothesis.token_scores)
        assert [word for word, _ in words] == text.split()
        total = sum(score for _, scores in words for score in scores) + hypothesis.token_scores[-1]
        assert total == pytest.approx(sum(hypothesis.token_scores))
