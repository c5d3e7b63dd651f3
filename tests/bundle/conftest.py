import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch

from transduce.baselines import make_encoder_decoder
from transduce.bundle import BundleDescription, Languages, RecordedScore, save_bundle
from transduce.config import SearchConfig, TransformerConfig
from transduce.model import EncoderDecoder
from transduce.text import Tokenizer

VOCABULARY = 300


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    lines = [f"a small dog number {number} runs over the green meadow and comes back" for number in range(100)]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=VOCABULARY - 1,
        model_type="bpe",
        byte_fallback=True,
        unk_id=0,
        eos_id=1,
        bos_id=-1,
        pad_id=-1,
        minloglevel=2,
    )
    return Tokenizer.from_bytes(model.getvalue(), "test")


@pytest.fixture(scope="session")
def make_model() -> Callable[..., EncoderDecoder]:
    """A small network with weights and running statistics that no other network has."""

    def make(**settings: Any) -> EncoderDecoder:
        sizes = {
            "vocabulary": VOCABULARY,
            "num_encoder_layers": 1,
            "num_decoder_layers": 2,
            "d_model": 8,
            "d_ff": 12,
            "num_heads": 2,
        }
        model = make_encoder_decoder(TransformerConfig(**(sizes | settings)))
        with torch.no_grad():
            for tensor in {id(tensor): tensor for tensor in model.state_dict(keep_vars=True).values()}.values():
                tensor.add_(torch.rand_like(tensor))
        return model

    return make


@pytest.fixture
def describe() -> Callable[[EncoderDecoder], BundleDescription]:
    def make(model: EncoderDecoder) -> BundleDescription:
        return BundleDescription(
            model=model.config,
            search=SearchConfig(beam=3),
            languages=Languages(source="en", target="no"),
            data={"train.en": "ab" * 32},
            scores=[
                RecordedScore(
                    metric="BLEU", value=34.567, low=33.1, high=36.0, signature="nrefs:1|tok:13a", data="validation"
                )
            ],
            training={"update": 1200, "epoch": 3},
        )

    return make


@pytest.fixture
def save(
    make_model: Callable[..., EncoderDecoder],
    tokenizer: Tokenizer,
    describe: Callable[[EncoderDecoder], BundleDescription],
) -> Callable[..., EncoderDecoder]:
    """Save a bundle with a network of these settings, and return the network."""

    def make(folder: Path, **settings: Any) -> EncoderDecoder:
        model = make_model(**settings)
        save_bundle(folder, model, tokenizer, describe(model))
        return model

    return make


@pytest.fixture
def bundle_folder(tmp_path: Path, save: Callable[..., EncoderDecoder]) -> Path:
    save(tmp_path / "bundle")
    return tmp_path / "bundle"
