"""A tokenizer of some 300 pieces, a network with random weights, and one that has learned to copy."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from transduce.config import SearchConfig, TransformerConfig
from transduce.data import Batch
from transduce.model import Transformer
from transduce.text import Tokenizer
from transduce.translation import PyTorchEngine, Translator

WORDS = ("sun", "moon", "river", "stone", "bird", "tree", "wind", "salt", "road", "lamp", "fish", "door")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def sentences(count: int, seed: int, max_words: int = 5) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, size=random.integers(1, max_words + 1))) for _ in range(count)]


@pytest.fixture(scope="session")
def make_sentences() -> Callable[..., list[str]]:
    return sentences


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(sentences(300, seed=1), 310, "bpe")


@pytest.fixture(scope="session")
def make_model(tokenizer: Tokenizer) -> Callable[..., Transformer]:
    def make(seed: int = 0, **settings: Any) -> Transformer:
        torch.manual_seed(seed)
        sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 32, "d_ff": 48, "num_heads": 4}
        model = Transformer(TransformerConfig(vocabulary=tokenizer.vocabulary, **{**sizes, **settings})).eval()
        if model.projection.bias is not None:  # zero, like all biases before training
            torch.nn.init.normal_(model.projection.bias)
        return model

    return make


@pytest.fixture(scope="session")
def random_model(make_model: Callable[..., Transformer]) -> Transformer:
    return make_model(num_decoder_layers=2)


@pytest.fixture(scope="session")
def copier(make_model: Callable[..., Transformer], tokenizer: Tokenizer) -> Transformer:
    """Copies most of what is made of the words above."""
    model = make_model(dropout=0.0).train()
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    for number in range(1, 151):
        ids = [[*line, tokenizer.end_id] for line in tokenizer.encode_all(sentences(40, seed=number))]
        batch = Batch.from_ids(ids, ids, tokenizer.pad_id)
        logits = model(batch.source_ids, batch.source_mask, batch.target_ids, batch.target_mask)
        loss = F.cross_entropy(logits[batch.target_mask], batch.target_ids[batch.target_mask])
        optimizer.param_groups[0]["lr"] = 1e-2 * min(number / 30, (30 / number) ** 0.5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@pytest.fixture(scope="session")
def translator(copier: Transformer, tokenizer: Tokenizer) -> Translator:
    search = SearchConfig(max_pieces=40, max_extra_length=8)
    return Translator(PyTorchEngine(copier, tokenizer.end_id), tokenizer, search)


@pytest.fixture(scope="session")
def tagged_translator() -> Translator:
    """A model of random weights, one for two languages."""
    tokenizer = Tokenizer.train(sentences(300, seed=1), 310, "bpe", tags=[">>de<<", ">>fr<<"])
    torch.manual_seed(1)
    config = TransformerConfig(
        vocabulary=tokenizer.vocabulary, num_encoder_layers=1, num_decoder_layers=1, d_model=32, d_ff=48, num_heads=4
    )
    engine = PyTorchEngine(Transformer(config).eval(), tokenizer.end_id)
    return Translator(engine, tokenizer, SearchConfig(max_pieces=40, max_extra_length=8))
