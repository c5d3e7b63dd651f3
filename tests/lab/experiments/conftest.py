"""A small network with random weights that reads text."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from transduce.config import SearchConfig, TransformerConfig
from transduce.model import Transformer
from transduce.text import Tokenizer
from transduce.translation.confidence.scoring import ForcedDecoder

WORDS = ("sun", "moon", "river", "stone", "bird", "tree", "wind", "salt", "road", "lamp", "fish", "door")


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    random = np.random.default_rng(1)
    return [" ".join(random.choice(WORDS, size=random.integers(1, 6))) for _ in range(300)]


@pytest.fixture(scope="session")
def make_decoder(sentences: list[str]) -> Callable[..., ForcedDecoder]:
    tokenizer = Tokenizer.train(sentences, 310, "bpe")

    def make(**settings: Any) -> ForcedDecoder:
        torch.manual_seed(0)
        sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "d_ff": 16, "num_heads": 2}
        config = TransformerConfig(vocabulary=tokenizer.vocabulary, **{**sizes, **settings})
        return ForcedDecoder(Transformer(config).eval(), tokenizer, SearchConfig(max_pieces=20))

    return make
