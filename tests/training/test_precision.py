from collections.abc import Callable

import pytest
import torch

from transduce.config import TrainingConfig, TransformerConfig
from transduce.data import Batch
from transduce.model import Transformer
from transduce.training.precision import computing_in, resolve_precision
from transduce.training.step import BatchLoss

CPU = torch.device("cpu")


@pytest.fixture
def make_capabilities(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, bool]], None]:
    """A processor that says it can do this."""
    return lambda found: monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found, raising=False)


@pytest.mark.parametrize("capability", ["avx512_bf16", "amx_bf16"])
def test_auto_is_bfloat16_where_the_processor_has_it(
    capability: str, make_capabilities: Callable[[dict[str, bool]], None]
) -> None:
    make_capabilities({capability: True})
    assert resolve_precision("auto", CPU, 128) == "bfloat16"
    assert resolve_precision("auto", CPU, 64) == "float32"
    make_capabilities({capability: False})
    assert resolve_precision("auto", CPU, 128) == "float32"


def test_auto_is_float32_where_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert resolve_precision("auto", CPU, 128) == "float32"


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_what_is_asked_for_is_taken(precision: str) -> None:
    assert resolve_precision(precision, CPU, 64) == precision


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(1)
    return Transformer(TransformerConfig(vocabulary=30, d_model=16, d_ff=32, num_heads=2, dropout=0.1))


def test_bfloat16_is_close_to_float32_and_leaves_weights_and_gradients_in_float32(model: Transformer) -> None:
    batch = Batch.from_ids([[3, 4, 5, 1], [6, 1]], [[7, 1], [8, 9, 10, 1]], 29)
    model.eval()
    exact = model(batch.source_ids, batch.source_mask, batch.target_ids, batch.target_mask)
    with computing_in(model, "bfloat16"):
        rough = model(batch.source_ids, batch.source_mask, batch.target_ids, batch.target_mask)
    assert rough.dtype == torch.bfloat16
    real = batch.target_mask
    assert (rough.float() - exact)[real][:, :-1].norm() < 0.03 * exact[real][:, :-1].norm()
    rough[real][:, :-1].sum().backward()
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert {parameter.grad.dtype for parameter in model.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    "variant",
    [{}, {"norm_order": "pre", "activation": "swish", "output_bias": True, "positions": "learned"}],
    ids=["paper", "other_parts"],
)
def test_no_gradient_of_many_positions_is_short_of_some(variant: dict[str, str]) -> None:
    """Sums in bfloat16 stop growing when they are a few hundred times as large as what comes."""
    torch.manual_seed(1)
    sizes = {"vocabulary": 300, "d_model": 64, "d_ff": 128, "num_heads": 2, "dropout": 0.0}
    layers = {"num_encoder_layers": 2, "num_decoder_layers": 2}
    model = Transformer(TransformerConfig(**sizes, **layers, **variant))
    sources = torch.randint(2, 299, (256, 16)).tolist()
    batch = Batch.from_ids(sources, [[*row[:-2], 5, 1] for row in sources], 299)
    gradients = []
    for precision in ("float32", "bfloat16"):
        model.zero_grad()
        batch_loss = BatchLoss(model, TrainingConfig(precision=precision), CPU)
        (batch_loss(batch)[0] / batch.num_target_tokens).backward()
        gradients.append({name: parameter.grad.clone() for name, parameter in model.named_parameters()})
    exact, rough = gradients
    shares = {name: float((rough[name] * exact[name]).sum() / exact[name].square().sum()) for name in exact}
    assert {name: share for name, share in shares.items() if abs(share - 1) > 0.03} == {}


def test_afterwards_the_model_computes_as_before(model: Transformer) -> None:
    with pytest.raises(KeyError), computing_in(model, "bfloat16"):
        raise KeyError
    assert model.activations is None
