from typing import Any

import pytest
import torch

from transduce.bundle import Bundle
from transduce.config import TransformerConfig
from transduce.data import Batch
from transduce.model import Transformer
from transduce.training import Validator
from transduce.training.diagnosis import SourceProbe
from transduce.training.diagnosis.source_use import MOST_TOKENS, attention_entropies


@pytest.fixture
def bundle(copier: Any) -> Bundle:
    return Bundle.open(copier.result.folder / "last")


def test_a_model_that_has_learned_to_copy_needs_the_right_source(copier: Any, bundle: Bundle) -> None:
    found = SourceProbe(copier.unseen, bundle.load_tokenizer(), "float32").measure(bundle.load_model())
    gain = found.shuffled_loss - found.loss
    assert gain > 1
    assert gain > 5 * found.gain_error
    assert found.sharpest_entropy < found.attention_entropy < 1
    assert found.num_pairs == len(copier.unseen)


def test_the_loss_is_that_of_the_validation(copier: Any, bundle: Bundle) -> None:
    tokenizer, model = bundle.load_tokenizer(), bundle.load_model()
    found = SourceProbe(copier.unseen, tokenizer, "float32").measure(model)
    assert found.loss == pytest.approx(
        Validator(copier.unseen, tokenizer, copier.config).validate(model).loss, rel=1e-4
    )


def test_without_attention_to_the_source_it_makes_no_difference(copier: Any, bundle: Bundle) -> None:
    model = bundle.load_model()
    for layer in model.decoder.layers:
        torch.nn.init.zeros_(layer.memory_attention.output.weight)
    found = SourceProbe(copier.unseen, bundle.load_tokenizer(), "float32").measure(model)
    assert found.shuffled_loss == pytest.approx(found.loss, abs=1e-6)
    assert found.gain_error < 1e-6


def test_the_model_is_left_as_it_was(copier: Any, bundle: Bundle) -> None:
    model, probe = bundle.load_model(), SourceProbe(copier.unseen, bundle.load_tokenizer(), "float32")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    for training in (True, False):
        model.train(training)
        assert probe.measure(model) == probe.measure(model)
        assert all(part.training == training for part in model.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


def test_bfloat16_changes_little(copier: Any, bundle: Bundle) -> None:
    model, tokenizer = bundle.load_model(), bundle.load_tokenizer()
    exact, rounded = (SourceProbe(copier.unseen, tokenizer, type_).measure(model) for type_ in ("float32", "bfloat16"))
    assert rounded.loss == pytest.approx(exact.loss, rel=0.05, abs=0.02)
    assert model.activations is None


def test_the_sample_is_bounded_and_has_a_pair_at_least(copier: Any, bundle: Bundle) -> None:
    tokenizer = bundle.load_tokenizer()
    many = SourceProbe(copier.unseen * 100, tokenizer, "float32").batch
    assert many.source_mask.sum() <= MOST_TOKENS
    long = (" ".join(["river"] * 2 * MOST_TOKENS),) * 2
    assert len(SourceProbe([long], tokenizer, "float32").batch.source_ids) == 1
    assert SourceProbe([long], tokenizer, "float32").measure(bundle.load_model()).gain_error == 0


def test_uniform_attention_has_an_entropy_of_one_and_one_place_of_zero() -> None:
    torch.manual_seed(1)
    config = TransformerConfig(
        vocabulary=20, d_model=8, num_heads=2, d_ff=8, num_encoder_layers=1, num_decoder_layers=2
    )
    model = Transformer(config).eval()
    batch = Batch.from_ids([[5, 6, 7, 1], [8, 1]], [[9, 1], [5, 6, 1]], pad_id=19)
    for layer in model.decoder.layers:
        torch.nn.init.zeros_(layer.memory_attention.projection.weight[:8])
    found = attention_entropies(model, batch)
    assert found.shape == (4,)
    torch.testing.assert_close(found, torch.ones(4))
    with torch.no_grad():
        for layer in model.decoder.layers:
            layer.memory_attention.projection.weight[:16] = 100 * torch.randn(16, 8)
    assert attention_entropies(model, batch).max() < 0.3
    alone = Batch.from_ids([[1]], [[9, 1]], pad_id=19)
    assert attention_entropies(model, alone).tolist() == [1.0]
