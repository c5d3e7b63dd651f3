"""Translators whose engines follow rules."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from transduce.config import SearchConfig
from transduce.evaluation import Sentence
from transduce.search import Constraints, Hypothesis, Sampling
from transduce.text import Tokenizer
from transduce.translation import Translator

from .rules import TAG, WORDS, Rule, translate_perfectly


class RuleEngine:
    """An engine that translates text by a rule, which is given the settings of the search, too."""

    def __init__(self, tokenizer: Tokenizer, rule: Callable[[str, SearchConfig], str]) -> None:
        self._tokenizer, self._rule = tokenizer, rule
        self.num_searches = 0

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        num_best: int = 1,
        constraints: Sequence[Constraints] | None = None,
    ) -> list[list[Hypothesis]]:
        self.num_searches += 1
        texts = [self._rule(self._read(source), config) for source in sources]
        return [
            [Hypothesis([*ids, self._tokenizer.end_id], -1.0, [-0.1] * (len(ids) + 1))]
            for ids in self._tokenizer.encode_targets(texts)
        ]

    def _read(self, source: Sequence[int]) -> str:
        """The text of a source, with the tag at its beginning."""
        tag = self._tokenizer.pieces(source[:1])[0]
        return (f"{tag} " if tag == TAG else "") + self._tokenizer.decode(source)

    def sample(
        self, sources: Sequence[Sequence[int]], config: SearchConfig, num_samples: int, sampling: Sampling, seed: int
    ) -> list[list[Hypothesis]]:
        return self.search(sources, config, num_samples)

    def check(self, config: SearchConfig, constraints: Constraints | None = None, *, num_samples: int = 0) -> None:
        """It has everything."""


@pytest.fixture(scope="session")
def make_sentences() -> Callable[..., list[Sentence]]:
    def make(count: int, *, end: str = ".", seed: int = 1) -> list[Sentence]:
        chance = np.random.default_rng(seed)
        texts = [" ".join(chance.choice(WORDS, size=chance.integers(4, 7))) for _ in range(count)]
        sources = [text.capitalize() + end for text in texts]
        return [Sentence(source, translate_perfectly(source)) for source in sources]

    return make


@pytest.fixture(scope="session")
def tokenizer(make_sentences: Callable[..., list[Sentence]]) -> Tokenizer:
    sides = [side for one in make_sentences(300) for side in (one.source, one.reference)]
    return Tokenizer.train(sides, 500, "bpe", tags=[TAG])


@pytest.fixture
def make_translator(tokenizer: Tokenizer) -> Callable[..., Translator]:
    def make(
        rule: Rule = translate_perfectly,
        *,
        with_settings: Callable[[str, SearchConfig], str] | None = None,
        **more: Any,
    ) -> Translator:
        engine = RuleEngine(tokenizer, with_settings or (lambda text, _: rule(text)))
        languages = {"source_language": "en", "target_language": "xx"}
        return Translator(engine, tokenizer, SearchConfig(max_pieces=150), **(languages | more))

    return make
