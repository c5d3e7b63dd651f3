"""Constraints in scripts without spaces between words, and in scripts whose vowel signs are no letters."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, Self, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from transduce.config import SearchConfig
from transduce.text import Tokenizer, count_phrase
from transduce.translation import LineTranslator, TranslationOptions, Translator
from transduce.translation.engines.pytorch_engine import NetworkEngine

CHINESE = (
    ("我们", "他们", "她", "老师"),
    ("在家", "在学校", "在公园"),
    ("看见", "喜欢", "买了"),
    ("一只", "两只", "三只"),
    ("猫", "狗", "鸟"),
    ("和", "跟"),
    ("朋友", "孩子", "妈妈"),
    ("一起玩。", "走了。"),
)
HINDI = (("मैं ", "हम "), ("घर ", "स्कूल "), ("में ",), ("रामायण ", "कमल "), ("पढ़ते ", "देखते "), ("हैं।",))


class NoState:
    def select(self, sentences: Tensor | None, parents: Tensor) -> Self:
        return self


class Bigrams:
    """A network without a source: the probability of each piece after the one before."""

    def __init__(self, tokenizer: Tokenizer, sentences: Sequence[str]) -> None:
        counts = np.zeros((tokenizer.vocabulary, tokenizer.vocabulary))
        for ids in tokenizer.encode_targets(sentences):
            np.add.at(counts, ([tokenizer.pad_id, *ids], [*ids, tokenizer.end_id]), 1.0)
        counts += 1e-6 + 1e-3 * counts.mean(axis=0)  # any piece may follow any other
        counts[:, tokenizer.pad_id] = 1e-30
        self.log_probs = torch.tensor(np.log(counts / counts.sum(axis=1, keepdims=True)), dtype=torch.float32)

    def start(self, source_ids: Tensor, source_mask: Tensor) -> NoState:
        return NoState()

    def step(self, last_ids: Tensor, state: NoState) -> tuple[Tensor, NoState]:
        return self.log_probs[last_ids].clone(), state


def make_translator(parts: Sequence[Sequence[str]], vocabulary: int) -> Translator:
    chance = np.random.default_rng(1)
    sentences = ["".join(map(chance.choice, parts)) for _ in range(1000)]
    tokenizer = Tokenizer.train(sentences, vocabulary, "bpe", shrink=True)
    network = cast("Any", Bigrams(tokenizer, sentences))
    return Translator(NetworkEngine(network, tokenizer.end_id, tokenizer.vocabulary), tokenizer, SearchConfig())


@pytest.fixture(scope="module", params=[40, 330], ids=["characters", "words"])
def chinese(request: pytest.FixtureRequest) -> Translator:
    """Writes in pieces of a character, or in those of several, which may reach across words."""
    return make_translator(CHINESE, request.param)


@pytest.fixture(scope="module")
def translate() -> Callable[..., str]:
    def run(translator: Translator, **options: Any) -> str:
        (line,) = LineTranslator(translator, TranslationOptions(**options)).translate(["Hello."])
        return "failed" if line.has_failed else line.translation.text

    return run


WORDS = [word.rstrip("。") for words in CHINESE for word in words][::3]


@pytest.mark.parametrize("word", WORDS)
def test_a_required_word_stands_within_the_sentence(
    chinese: Translator, translate: Callable[..., str], word: str
) -> None:
    text = translate(chinese, require=[word])
    assert count_phrase(text, word) == 1
    assert " " not in text


@pytest.mark.parametrize("word", WORDS)
def test_a_forbidden_word_is_nowhere_in_the_sentence(
    chinese: Translator, translate: Callable[..., str], word: str
) -> None:
    text = translate(chinese, forbid=[word])
    assert text.strip("。")
    assert text != "failed"
    assert word not in text


def test_the_word_that_the_prefix_has_is_not_said_again(chinese: Translator, translate: Callable[..., str]) -> None:
    for prefix, word in product(["他们在家看见三只狗", "老师在学校买了三只猫"], ["三只", "狗", "猫", "朋友"]):
        text = translate(chinese, prefix=prefix, require=[word])
        assert text.startswith(prefix)
        assert text.count(word) == 1
        assert " " not in text


def test_a_vowel_sign_continues_the_word_before_it(translate: Callable[..., str]) -> None:
    hindi = make_translator(HINDI, 60)
    assert count_phrase(translate(hindi, require=["राम"]), "राम") == 1
    assert count_phrase(translate(hindi, require=["कम", "राम"]), "कम") == 1
    assert not count_phrase(translate(hindi, forbid=["में"]), "में")
