"""A tokenizer of some 300 pieces, networks of every kind with random weights, and what comes out of their own pass."""

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from transduce.config import SearchConfig, TransformerConfig
from transduce.inspection.searches import SentenceSearches
from transduce.model import MultiHeadAttention, Transformer
from transduce.text import Tokenizer
from transduce.translation import PyTorchEngine, Translator

WORDS = ("sun", "moon", "river", "stone", "bird", "tree", "wind", "salt", "road", "lamp", "fish", "door")
SENTENCE = "moon bird salt"
KINDS: dict[str, dict[str, Any]] = {
    "paper": {"output_bias": False},
    "pre": {"norm_order": "pre"},
    "two_way": {"tied_embeddings": "two_way"},
    "untied": {"tied_embeddings": "none"},
    "learned": {"positions": "learned", "max_positions": 60},
    "none": {"positions": "none"},
    "dot": {"attention_score": "dot"},
    "additive": {"attention_score": "additive"},
    "batch": {"normalization": "batch"},
    "rms": {"normalization": "rms", "norm_order": "pre"},
    "gated": {"feed_forward": "gated", "activation": "swish"},
    "rotary": {"positions": "rotary"},
    "widths": {"d_k": 5, "d_v": 3, "num_encoder_layers": 1},
}


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    random = np.random.default_rng(1)
    lines = [" ".join(random.choice(WORDS, size=random.integers(1, 6))) for _ in range(300)]
    return Tokenizer.train(lines, 310, "bpe")


@pytest.fixture(scope="session")
def make_model(tokenizer: Tokenizer) -> Callable[..., Transformer]:
    """Sharp enough that hypotheses differ, and with a bias for `</s>`, so that some end before the limit.

    The same arguments give the same model, which is not to be changed.
    """

    @cache
    def make(kind: str = "pre", seed: int = 0, **settings: Any) -> Transformer:
        torch.manual_seed(seed)
        sizes = {"num_encoder_layers": 2, "num_decoder_layers": 2, "d_model": 16, "d_ff": 24, "num_heads": 4}
        given = {"output_bias": True, **sizes, **KINDS[kind], **settings}
        model = Transformer(TransformerConfig(vocabulary=tokenizer.vocabulary, **given)).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith("bias"):
                    nn.init.normal_(parameter, std=0.3)
            for part in model.modules():
                if isinstance(part, MultiHeadAttention):
                    part.projection.weight.mul_(2)
            model.target_embedding.weight.mul_(2)
            if model.projection.bias is not None:
                model.projection.bias[tokenizer.end_id] = 6.0
            if model.config.normalization == "batch":  # statistics like those of a trained model
                ids = torch.randint(2, tokenizer.vocabulary - 1, (30, 8, 6))
                model.train()
                for batch in ids:
                    model(batch, batch >= 0, batch, batch >= 0)
        return model.eval()

    return make


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest, make_model: Callable[..., Transformer]) -> Transformer:
    """One of each kind."""
    return make_model(request.param)


@pytest.fixture(scope="session")
def make_translator(tokenizer: Tokenizer) -> Callable[..., Translator]:
    def make(model: Transformer, **search: Any) -> Translator:
        config = SearchConfig(**{"max_extra_length": 4, "max_pieces": 40, **search})
        return Translator(PyTorchEngine(model, tokenizer.end_id), tokenizer, config, "en", "xx")

    return make


@pytest.fixture(scope="session")
def make_searches(tokenizer: Tokenizer) -> Callable[..., SentenceSearches]:
    def make(model: Transformer, text: str = SENTENCE, *, prefix: tuple[int, ...] = (), **search: Any) -> Any:
        config = SearchConfig(**{"max_extra_length": 4, **search})
        return SentenceSearches(model, tokenizer, config, tokenizer.as_source(tokenizer.encode(text)), prefix)

    return make


@dataclass
class Watched:
    """Inputs and outputs of a module, each time it was called."""

    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    """Tensors; of a decoder layer, a tensor with what it keeps of earlier positions."""


@pytest.fixture(scope="session")
def watch() -> Callable[[Transformer, list[int], list[int]], dict[str, Watched]]:
    """What passes through every module, by its name, in the model's own forward pass of a pair of ids."""

    def run(model: Transformer, source: list[int], target: list[int]) -> dict[str, Watched]:
        seen: dict[str, Watched] = {}

        def listen(name: str) -> Any:
            def hook(_module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
                watched = seen.setdefault(name, Watched())
                watched.inputs.append(inputs[0])
                watched.outputs.append(output)

            return hook

        hooks = [module.register_forward_hook(listen(name)) for name, module in model.named_modules()]
        source_ids, target_ids = torch.tensor([source]), torch.tensor([target])
        with torch.inference_mode():
            model(source_ids, source_ids >= 0, target_ids, target_ids >= 0)
        for hook in hooks:
            hook.remove()
        return seen

    return run


@pytest.fixture(scope="session")
def unpacked() -> Callable[[dict[str, Any]], np.ndarray]:
    """The numbers of a `PackedArray`, read as a browser reads them."""

    def read(array: dict[str, Any]) -> np.ndarray:
        kinds = {"float32": "<f4", "uint16": "<u2", "uint8": "u1"}
        stored = np.frombuffer(base64.b64decode(array["data"], validate=True), dtype=kinds[array["dtype"]])
        return stored.astype(np.float64).reshape(array["shape"]) * array["scale"]

    return read
