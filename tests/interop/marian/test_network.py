from typing import Any

import pytest
import torch

from transduce.errors import BundleError
from transduce.interop.marian.archive import Archive
from transduce.interop.marian.network import Tokens, marian_sinusoids, network, problems, with_positions
from transduce.interop.marian.settings import MarianSettings
from transduce.interop.residual_channels import in_halves
from transduce.model import sinusoids

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
TOKENS = Tokens([1, 0, 2, -1], [1, 0, 2, -1])


def archive(table: torch.Tensor | None = None, **changed: Any) -> Archive:
    """Only what decides the shape."""
    arrays = {name: torch.ones(8, 12) for name in ("encoder_l1_ffn_W1", "encoder_l2_ffn_W1", "decoder_l1_ffn_W1")}
    arrays["decoder_ff_logit_out_b"] = torch.zeros(1, 3)
    arrays = with_positions(arrays if table is None else {**arrays, "Wpos": table})
    settings = {**SETTINGS, **{name.replace("_", "-"): value for name, value in changed.items()}}
    return Archive(MarianSettings(settings, "model"), arrays, "")


def test_the_shape_in_our_words() -> None:
    assert list(problems(archive())) == []
    config = network(archive(), TOKENS)
    assert (config.num_encoder_layers, config.num_decoder_layers, config.d_model, config.d_ff) == (2, 1, 8, 12)
    assert (config.num_heads, config.activation, config.norm_order, config.vocabulary) == (2, "swish", "post", 4)
    assert (config.tied_embeddings, config.output_bias) == ("three_way", True)
    assert (config.positions, config.max_positions) == ("learned", 2048)


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        (in_halves({"positions.table": sinusoids(9, 8)})["positions.table"], "sinusoidal"),
        (marian_sinusoids(9, 8), "learned"),
        (sinusoids(9, 8), "learned"),
        (torch.zeros(9, 8), "none"),
    ],
)
def test_a_table_of_positions_is_recognised(table: torch.Tensor, kind: str) -> None:
    config = network(archive(table), TOKENS)
    assert config.positions == kind
    assert config.max_positions == (9 if kind == "learned" else 1024)


def test_marians_sinusoids() -> None:
    table = marian_sinusoids(30, 8)
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
    assert network(archive(**settings), Tokens(TOKENS.sources, targets)).tied_embeddings == expected


def test_a_token_that_targets_never_have_needs_a_bias() -> None:
    omitted = archive(output_omit_bias="true")
    assert network(omitted, TOKENS).output_bias is False
    assert network(omitted, Tokens(TOKENS.sources, [1, 0, -1, -1])).output_bias is True


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
    ],
)
def test_what_ours_has_not_is_named(name: str, value: str | list[str]) -> None:
    (problem,) = problems(archive(**{name: value}))
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
        network(archive(**settings), TOKENS)
