from collections.abc import Callable
from typing import Any

import pytest
import torch

from transduce.bundle import collect_model_tensors
from transduce.config import TransformerConfig
from transduce.errors import BundleError
from transduce.interop.bundle_tensors import TokenRows, select_rows
from transduce.interop.channel_order import compute_tensor2tensor_sinusoids, split_channels
from transduce.interop.marian.files import Archive, MarianSettings, make_model_settings
from transduce.interop.marian.layout import (
    add_positions,
    find_unsupported_settings,
    from_arrays,
    map_to_marian_rows,
    read_config,
    select_token_matrices,
    to_arrays,
    to_new_arrays,
)
from transduce.model import EXCLUDED_TOKEN_BIAS, Transformer, sinusoids

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
            return model, to_arrays(model.config, collect_model_tensors(model), model.positions(20))

    return make


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_there_and_back_is_bit_equal(parts: Callable[..., Any], settings: dict[str, Any]) -> None:
    model, arrays = parts(**settings)
    named = MarianSettings.parse(make_model_settings(model.config, 20), "model")
    rows = map_to_marian_rows(model.config.vocabulary)
    found = from_arrays(model.config, arrays, select_token_matrices(named, arrays, TokenRows(rows, rows)))
    expected = collect_model_tensors(model)
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
    selected = select_rows(torch.tensor([5.0, 6.0]), [1, -1, 0], EXCLUDED_TOKEN_BIAS)
    assert selected.tolist() == [6.0, EXCLUDED_TOKEN_BIAS, 5.0]
    assert select_rows(torch.ones(2, 3), [-1, 1]).tolist() == [[0.0] * 3, [1.0] * 3]
    assert map_to_marian_rows(5) == [1, 0, 2, 3, -1]


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
    found = select_token_matrices(MarianSettings.parse(lines, "model"), arrays, TokenRows([1, 0], [2, 3]))
    rows = {"source_embedding.weight": [1, 0], "target_embedding.weight": [2, 3], "projection.weight": [2, 3]}
    for (ours, chosen), theirs in zip(rows.items(), names, strict=True):
        assert torch.equal(found[ours], arrays[theirs][chosen])
    assert found["projection.bias"].tolist() == [0, 0]


def test_the_output_matrix_of_older_models_is_turned() -> None:
    arrays = {"encoder_Wemb": torch.randn(4, 2), "decoder_Wemb": torch.randn(4, 2)}
    arrays["decoder_ff_logit_out_W"] = torch.randn(2, 4)
    found = select_token_matrices(MarianSettings({}, "model"), arrays, TokenRows([0], [3]))
    assert torch.equal(found["projection.weight"][0], arrays["decoder_ff_logit_out_W"][:, 3])


_DECODER = (
    "TransformerBatchDecoder->decoder->layers->at(0)->as<marian::nn::TransformerDecoderLayerWithCrossAttention>()->"
)
_ENCODER = "TransformerBatchEncoder->encoder->layers->at(0)->as<marian::nn::TransformerEncoderLayer>()->"

Arrays = dict[str, torch.Tensor]


@pytest.fixture
def arrays(random_model: Callable[..., Transformer]) -> Callable[..., tuple[Arrays, Arrays]]:
    """Those of the older and of the newer type."""

    def make(**settings: Any) -> tuple[Arrays, Arrays]:
        model = random_model(num_encoder_layers=1, **settings)
        with torch.no_grad():
            old = to_arrays(model.config, collect_model_tensors(model), model.positions(20))
            return old, to_new_arrays(model.config, old)

    return make


def names_of_marian(before: str) -> set[str]:
    """As in the models that Marian 1.12.42 trained with `--type transformer-new --transformer-train-position-...`."""
    found = {"decoder_ff_logit_out_b", "decoder_ff_logit_out_Wt", "encoder_Wemb", "decoder_Wemb"}
    found |= {f"TransformerBatch{one.title()}->{one}->positionEmbedding->embeddings" for one in ("encoder", "decoder")}
    blocks = {
        _ENCODER + "selfAttentionBlock->": "selfAttention",
        _DECODER + "autoRegressiveBlock->": "selfAttention",
        _DECODER + "crossAttentionBlock->": "crossAttention",
    }
    for block, attention in blocks.items():
        found |= {f"{block}{attention}->{one}Proj->{kind}" for one in "qkvo" for kind in ("weight", "bias")}
    for layer in (_ENCODER, _DECODER):
        blocks[layer + "filterBlock->"] = ""
        for inside in ("at(0)->as<marian::nn::LinearReluDropout>()", "at(1)->as<marian::nn::Linear>()"):
            found |= {f"{layer}filterBlock->layers->{inside}->{kind}" for kind in ("weight", "bias")}
    return found | {f"{block}{before}processor->norm->{kind}" for block in blocks for kind in ("weight", "bias")}


def test_the_names_are_those_of_a_model_that_marian_trained(arrays: Callable[..., Any]) -> None:
    _, found = arrays(tied_embeddings="none")
    assert found.keys() == names_of_marian("post")


def test_pre_norm_has_two_more_normalisations(arrays: Callable[..., Any]) -> None:
    _, found = arrays(tied_embeddings="none", norm_order="pre")
    stacks = ("Encoder->encoder", "Decoder->decoder")
    top = {f"TransformerBatch{stack}->postprocessor->norm->{kind}" for stack in stacks for kind in ("weight", "bias")}
    assert found.keys() == names_of_marian("pre") | top


def test_other_activations_are_layers_of_their_own(arrays: Callable[..., Any]) -> None:
    _, found = arrays(activation="swish")
    assert {f"{_ENCODER}filterBlock->layers->at({place})->as<marian::nn::Linear>()->bias" for place in (0, 3)} <= set(
        found
    )


@pytest.mark.parametrize(("tied", "names"), [("three_way", {"Wemb"}), ("two_way", {"encoder_Wemb", "decoder_Wemb"})])
def test_embeddings_are_multiplied_and_the_output_is_not(
    arrays: Callable[..., Any], tied: str, names: set[str]
) -> None:
    old, new = arrays(tied_embeddings=tied)
    assert {name for name in new if name.endswith("Wemb")} == names
    assert all(torch.equal(new[name], old[name] * 4) for name in names)  # 16 channels
    assert torch.equal(new["decoder_ff_logit_out_Wt"], old[max(names, key=lambda name: name[0] != "e")])


@pytest.mark.parametrize("d_ff", [24, 1])
def test_vectors_have_one_axis_and_matrices_two(arrays: Callable[..., Any], d_ff: int) -> None:
    old, new = arrays(d_ff=d_ff)
    assert torch.equal(
        new[_DECODER + "crossAttentionBlock->crossAttention->kProj->weight"], old["decoder_l1_context_Wk"]
    )
    assert torch.equal(new[_DECODER + "autoRegressiveBlock->selfAttention->oProj->bias"], old["decoder_l1_self_bo"][0])
    assert torch.equal(
        new[_ENCODER + "filterBlock->postprocessor->norm->weight"], old["encoder_l1_ffn_ffn_ln_scale"][0]
    )
    outer = new[_ENCODER + "filterBlock->layers->at(1)->as<marian::nn::Linear>()->weight"]
    assert outer.shape == (d_ff, 16)
    assert new["decoder_ff_logit_out_b"].ndim == 2


SETTINGS: dict[str, Any] = {
    "type": "transformer",
    "dim-emb": "8",
    "enc-depth": "2",
    "dec-depth": "1",
    "transformer-heads": "2",
    "transformer-dim-ffn": "12",
    "transformer-ffn-depth": "2",
    "transformer-ffn-activation": "swish",
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-decoder-autoreg": "self-attention",
    "tied-embeddings-all": "true",
}
TOKENS = TokenRows([1, 0, 2, -1], [1, 0, 2, -1])
EMBEDDINGS = {name: torch.randn(3, 8) for name in ("Wemb", "encoder_Wemb", "decoder_Wemb", "decoder_ff_logit_out_Wt")}


def archive(table: torch.Tensor | None = None, **changed: Any) -> Archive:
    """Only what decides the shape."""
    arrays = {name: torch.ones(8, 12) for name in ("encoder_l1_ffn_W1", "encoder_l2_ffn_W1", "decoder_l1_ffn_W1")}
    arrays |= {**EMBEDDINGS, "decoder_ff_logit_out_b": torch.zeros(1, 3)}
    arrays = add_positions(arrays if table is None else {**arrays, "Wpos": table})
    settings = {**SETTINGS, **{name.replace("_", "-"): value for name, value in changed.items()}}
    return Archive(MarianSettings(settings, "model"), arrays, "")


def config_of(archive: Archive, rows: TokenRows = TOKENS) -> TransformerConfig:
    return read_config(archive, select_token_matrices(archive.settings, archive.arrays, rows))


def test_the_shape_in_our_words() -> None:
    assert list(find_unsupported_settings(archive())) == []
    config = config_of(archive())
    assert (config.num_encoder_layers, config.num_decoder_layers, config.d_model, config.d_ff) == (2, 1, 8, 12)
    assert (config.num_heads, config.activation, config.norm_order, config.vocabulary) == (2, "swish", "post", 4)
    assert (config.tied_embeddings, config.output_bias) == ("three_way", True)
    assert (config.positions, config.max_positions) == ("learned", 2048)


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        (split_channels({"positions.table": sinusoids(9, 8)})["positions.table"], "sinusoidal"),
        (compute_tensor2tensor_sinusoids(9, 8), "learned"),
        (sinusoids(9, 8), "learned"),
        (torch.zeros(9, 8), "none"),
    ],
)
def test_a_table_of_positions_is_recognised(table: torch.Tensor, kind: str) -> None:
    config = config_of(archive(table))
    assert config.positions == kind
    assert config.max_positions == (9 if kind == "learned" else 1024)


def test_marians_sinusoids() -> None:
    table = compute_tensor2tensor_sinusoids(30, 8)
    # Frequencies 1, 10000^-1/3, 10000^-2/3 and 10000^-1; the paper's last one is 10000^-3/4.
    expected = [10_000 ** (-place / 3) for place in range(4)]
    torch.testing.assert_close(table[7, :4], torch.tensor(expected).mul(7).sin())
    torch.testing.assert_close(table[29, 4:], torch.tensor(expected).mul(29).cos())
    assert table[0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("settings", "targets", "expected"),
    [
        ({}, TOKENS.targets, "three_way"),
        ({}, [1, 0, -1, -1], "two_way"),
        ({"tied_embeddings_all": "false", "tied_embeddings": "true"}, TOKENS.targets, "two_way"),
        (
            {"tied_embeddings_all": "false", "tied_embeddings": "true", "tied_embeddings_src": "true"},
            TOKENS.targets,
            "three_way",
        ),
        ({"tied_embeddings_all": "false", "tied_embeddings_src": "true"}, TOKENS.targets, "none"),
        ({"tied_embeddings_all": "false"}, TOKENS.targets, "none"),
    ],
)
def test_which_matrices_are_one(settings: dict[str, str], targets: list[int], expected: str) -> None:
    assert config_of(archive(**settings), TokenRows(TOKENS.sources, targets)).tied_embeddings == expected


def test_a_token_that_targets_never_have_needs_a_bias() -> None:
    omitted = archive(output_omit_bias="true")
    assert config_of(omitted).output_bias is False
    assert config_of(omitted, TokenRows(TOKENS.sources, [1, 0, -1, -1])).output_bias is True


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("type", "s2s"),
        ("type", "transformer-new"),
        ("transformer-decoder-autoreg", "rnn"),
        ("transformer-ffn-depth", "3"),
        ("transformer-ffn-activation", "gelu"),
        ("transformer-postprocess-emb", "nd"),
        ("transformer-attention-mask", "alibi"),
        ("transformer-no-projection", "true"),
        ("transformer-train-position-embeddings", "true"),
        ("right-left", "true"),
        ("transformer-tied-layers", ["1", "1"]),
        ("transformer-postprocess", "da"),
        ("transformer-preprocess", "n"),
        ("transformer-decoder-dim-ffn", "24"),
        ("enc-depth", "3"),
        ("dec-depth", "1000000000"),
    ],
)
def test_what_ours_has_not_is_named(name: str, value: str | list[str]) -> None:
    (problem,) = find_unsupported_settings(archive(**{name: value}))
    assert problem.startswith(name) or name in problem.split(" must be")[0]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"transformer_heads": "3"}, "model: .*num_heads = 3"),
        ({"transformer_heads": "0"}, "model: num_heads: .*greater than or equal to 1"),
        ({"transformer_heads": "x"}, "model: transformer-heads = 'x'"),
    ],
)
def test_an_impossible_shape_is_refused(settings: dict[str, str], words: str) -> None:
    with pytest.raises(BundleError, match=words):
        config_of(archive(**settings))
