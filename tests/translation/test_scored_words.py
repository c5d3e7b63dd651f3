from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import UserError
from transduce.text import Tokenizer
from transduce.translation import Translator
from transduce.translation.scored_words import scored_words


@given(st.data())
def test_words_are_those_of_the_decoded_text(tokenizer: Tokenizer, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocabulary - 1), max_size=30))
    scores = [-float(number) for number in range(len(ids))]
    found = scored_words(tokenizer.pieces(ids), scores)
    assert [word for word, _ in found] == tokenizer.decode(ids).split()
    assert all(of_word and of_word == sorted(of_word, reverse=True) for _, of_word in found)
    # No piece counts for two words, but one that spells "<unk>" alone has spaces around it.
    used = [score for _, of_word in found for score in of_word]
    assert len(used) == len(set(used))


@given(st.text().filter(lambda text: not text or not text[-1].isspace()))
def test_no_piece_of_a_text_is_lost(tokenizer: Tokenizer, text: str) -> None:
    ids = [*tokenizer.encode(text), tokenizer.end_id]
    found = scored_words(tokenizer.pieces(ids), [1.0] * len(ids))
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
    assert scored_words(pieces, list(map(float, range(len(pieces))))) == words


def test_scores_of_another_hypothesis_are_refused() -> None:
    with pytest.raises(UserError, match="2 pieces and 1 scores"):
        scored_words(["▁a", "b"], [0.0])


def test_a_translation_has_the_words_it_shows(translator: Translator, make_sentences: Callable[..., list[str]]) -> None:
    tokenizer = translator.tokenizer
    texts = make_sentences(20, seed=5)
    sources = [[*ids, tokenizer.end_id] for ids in tokenizer.encode_all(texts)]
    with torch.inference_mode():
        found = translator.engine.search(sources, translator.search)
    for (hypothesis,), text in zip(found, translator.translate(texts), strict=True):
        words = scored_words(tokenizer.pieces(hypothesis.ids), hypothesis.token_scores)
        assert [word for word, _ in words] == text.split()
        total = sum(score for _, scores in words for score in scores) + hypothesis.token_scores[-1]
        assert total == pytest.approx(sum(hypothesis.token_scores))
