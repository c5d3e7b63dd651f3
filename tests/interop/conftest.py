"""A tokenizer of some 300 pieces, and bundles with small networks whose weights are random."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transduce.bundle import Bundle, BundleDescription, Languages, collect_model_tensors, save_bundle
from transduce.config import SearchConfig, TransformerConfig
from transduce.model import Transformer
from transduce.text import Tokenizer

WORDS = ("sun", "moon", "river", "stone", "bird", "tree", "wind", "salt", "road", "lamp", "fish", "door")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def texts() -> list[str]:
    random = np.random.default_rng(1)
    return [" ".join(random.choice(WORDS, size=random.integers(1, 6))) for _ in range(300)]


@pytest.fixture(scope="session")
def tokenizer(texts: list[str]) -> Tokenizer:
    return Tokenizer.train(texts, 310, "bpe")


@pytest.fixture(scope="session")
def tagged(texts: list[str]) -> Tokenizer:
    """With tags of languages and one of synthetic pairs; as many ids as `tokenizer`."""
    return Tokenizer.train(texts, 310, "bpe", tags=[">>de<<", ">>bt<<", ">>fr<<"])


@pytest.fixture
def tagged_bundle(make_bundle: Callable[..., Bundle], tagged: Tokenizer, tmp_path: Path) -> Bundle:
    bundle = make_bundle()
    save_bundle(tmp_path / "tagged", bundle.load_model(), tagged, bundle.description)
    return Bundle.open(tmp_path / "tagged")


@pytest.fixture(scope="session")
def random_model(tokenizer: Tokenizer) -> Callable[..., Transformer]:
    """A network with these settings, no two of whose numbers are equal by rule; only `<pad>` has the zeros it must."""

    def make(**settings: Any) -> Transformer:
        sizes = {"num_encoder_layers": 2, "num_decoder_layers": 1, "d_model": 16, "d_ff": 24, "num_heads": 2}
        torch.manual_seed(1)
        model = Transformer(TransformerConfig(vocabulary=tokenizer.vocabulary, **{**sizes, **settings})).eval()
        with torch.no_grad():
            for name, tensor in collect_model_tensors(model).items():
                tensor.add_(0.2 * torch.randn_like(tensor))
                if name in {"source_embedding.weight", "target_embedding.weight"}:
                    tensor[-1] = 0
        return model

    return make


@pytest.fixture
def make_bundle(
    tmp_path: Path, tokenizer: Tokenizer, random_model: Callable[..., Transformer]
) -> Callable[..., Bundle]:
    """A bundle with such a network, in the folder `bundle`."""

    def make(**settings: Any) -> Bundle:
        model = random_model(**settings)
        search = SearchConfig(beam=2, max_pieces=20, max_extra_length=6)
        languages = Languages(source="en", target="no")
        description = BundleDescription(model=model.config, search=search, languages=languages)
        save_bundle(tmp_path / "bundle", model, tokenizer, description)
        return Bundle.open(tmp_path / "bundle")

    return make
