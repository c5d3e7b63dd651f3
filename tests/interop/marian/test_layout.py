from collections.abc import Callable
from typing import Any

import pytest
import torch

from transduce.bundle import model_tensors
from transduce.interop.marian.layout import from_arrays, marian_rows, numbered, to_arrays, token_matrices
from transduce.interop.marian.settings import MarianSettings, model_settings
from transduce.model import NEVER, Transformer

VARIANTS: list[dict[str, Any]] = [
    {},
    {"norm_order": "pre", "positions": "learned", "max_positions": 20},
    {"tied_embeddings": "two_way", "output_bias": True},
    {"tied_embeddings": "none", "positions": "none"},
    {"d_ff": 1, "num_heads": 1, "num_encoder_layers": 1},
]


@pytest.fixture
def parts(random_model: Callable[..., Transformer]) -> Callable[..., tuple[Transformer, dict[str, torch.Tensor]]]:
    def make(**settings: Any) -> tuple[Transformer, dict[str, torch.Tensor]]:
        model = random_model(**settings)
        with torch.no_grad():
            return model, to_arrays(model.config, model_tensors(model), model.positions(20))

    return make


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_there_and_back_is_bit_equal(parts: Callable[..., Any], settings: dict[str, Any]) -> None:
    model, arrays = parts(**settings)
    named = MarianSettings.parsed(model_settings(model.config, 20), "model")
    rows = marian_rows(model.config.vocabulary)
    found = from_arrays(model.config, arrays, token_matrices(named, arrays, rows, rows, NEVER))
    expected = model_tensors(model)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        kept = slice(None, -1) if name.startswith("projection") else slice(None)  # nobody asks for the logit of <pad>
        assert torch.equal(found[name][kept], tensor[kept]), name


def test_names_and_shapes_are_those_of_a_model_that_marian_trained(parts: Callable[..., Any]) -> None:
    _, arrays = parts(num_encoder_layers=1)
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    tokens = 309
    expected = {"Wemb": (tokens, 16), "Wpos": (20, 16), "decoder_ff_logit_out_b": (1, tokens)}
    for stack, attentions in (("encoder", ["self"]), ("decoder", ["self", "context"])):
        for attention in attentions:
            expected |= {f"{stack}_l1_{attention}_W{one}": (16, 16) for one in "qkvo"}
            expected |= {f"{stack}_l1_{attention}_b{one}": (1, 16) for one in "qkvo"}
            expected |= {f"{stack}_l1_{attention}_Wo_ln_{one}": (1, 16) for one in ("scale", "bias")}
        expected |= {f"{stack}_l1_ffn_W1": (16, 24), f"{stack}_l1_ffn_W2": (24, 16)}
        expected |= {f"{stack}_l1_ffn_b1": (1, 24), f"{stack}_l1_ffn_b2": (1, 16)}
        expected |= {f"{stack}_l1_ffn_ffn_ln_{one}": (1, 16) for one in ("scale", "bias")}
    assert shapes == expected


def test_pre_norm_has_other_names(parts: Callable[..., Any]) -> None:
    _, arrays = parts(norm_order="pre")
    assert {"encoder_top_ln_scale", "decoder_top_ln_bias", "encoder_l2_self_Wo_ln_scale_pre"} <= arrays.keys()
    assert "encoder_l2_self_Wo_ln_scale" not in arrays


def test_the_end_comes_first_and_channels_in_halves(parts: Callable[..., Any]) -> None:
    model, arrays = parts()
    weight = model.source_embedding.weight.detach()
    assert torch.equal(arrays["Wemb"][0], torch.cat([weight[1, 0::2], weight[1, 1::2]]))
    assert torch.equal(arrays["Wemb"][1, :8], weight[0, 0::2])
    assert torch.equal(arrays["Wemb"][2, :8], weight[2, 0::2])
    inner = model.encoder.layers[0].feed_forward.inner.weight.detach()
    assert torch.equal(arrays["encoder_l1_ffn_W1"][:8], inner.T[0::2])


def test_what_has_no_row_gets_what_is_said() -> None:
    assert numbered(torch.tensor([5.0, 6.0]), [1, -1, 0], NEVER).tolist() == [6.0, NEVER, 5.0]
    assert numbered(torch.ones(2, 3), [-1, 1]).tolist() == [[0.0] * 3, [1.0] * 3]
    assert marian_rows(5) == [1, 0, 2, 3, -1]


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        ("tied-embeddings-all: true", ("Wemb", "Wemb", "Wemb")),
        ("tied-embeddings: true", ("encoder_Wemb", "decoder_Wemb", "decoder_Wemb")),
        ("tied-embeddings-src: true", ("Wemb", "Wemb", "decoder_ff_logit_out_Wt")),
        ("tied-embeddings-src: true\ntied-embeddings: true", ("Wemb", "Wemb", "Wemb")),
        ("a: b", ("encoder_Wemb", "decoder_Wemb", "decoder_ff_logit_out_Wt")),
    ],
)
def test_settings_say_which_matrices_are_one(lines: str, names: tuple[str, ...]) -> None:
    every = {"Wemb", "encoder_Wemb", "decoder_Wemb", "decoder_ff_logit_out_Wt"}
    arrays = {name: torch.randn(4, 2) for name in every}
    found = token_matrices(MarianSettings.parsed(lines, "model"), arrays, [1, 0], [2, 3], NEVER)
    rows = {"source_embedding.weight": [1, 0], "target_embedding.weight": [2, 3], "projection.weight": [2, 3]}
    for (ours, chosen), theirs in zip(rows.items(), names, strict=True):
        assert torch.equal(found[ours], arrays[theirs][chosen])
    assert found["projection.bias"].tolist() == [0, 0]


def test_the_output_matrix_of_older_models_is_turned() -> None:
    arrays = {"encoder_Wemb": torch.randn(4, 2), "decoder_Wemb": torch.randn(4, 2)}
    arrays["decoder_ff_logit_out_W"] = torch.randn(2, 4)
    found = token_matrices(MarianSettings({}, "model"), arrays, [0], [3], NEVER)
    assert torch.equal(found["projection.weight"][0], arrays["decoder_ff_logit_out_W"][:, 3])
