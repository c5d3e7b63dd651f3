from pathlib import Path

import pytest
import torch
from torch import Tensor

from transduce.interop.ctranslate2.file import ModelFile
from transduce.interop.ctranslate2.network import embedding_scale, network_settings, obstacles, unknown
from transduce.interop.ctranslate2.variables import Variables

ATTENTION = "encoder/layer_0/self_attention"
WHOLE = {
    f"{ATTENTION}/layer_norm/gamma": torch.ones(16),
    f"{ATTENTION}/layer_norm/beta": torch.ones(16),
    "encoder/layer_0/ffn/linear_0/weight": torch.ones(24, 16),
    "decoder/layer_0/ffn/linear_0/weight": torch.ones(24, 16),
    "decoder/layer_1/ffn/linear_0/weight": torch.ones(24, 16),
    "encoder/num_heads": torch.tensor(2, dtype=torch.int16),
    "decoder/num_heads": torch.tensor(2, dtype=torch.int16),
    "encoder/layer_norm/gamma": torch.ones(16),
    "decoder/layer_norm/gamma": torch.ones(16),
}


def variables(**changes: Tensor | None) -> Variables:
    found = WHOLE | {name.replace("__", "/"): value for name, value in changes.items()}
    present = {name: value for name, value in found.items() if value is not None}
    return Variables(ModelFile("TransformerSpec", 7, present, {}), Path("model.bin"))


def test_settings_in_our_words() -> None:
    assert list(obstacles(variables())) == []
    assert network_settings(variables()) == {
        "num_encoder_layers": 1,
        "num_decoder_layers": 2,
        "d_model": 16,
        "d_ff": 24,
        "num_heads": 2,
        "d_k": 8,
        "d_v": 8,
        "attention_score": "scaled_dot",
        "activation": "relu",
        "norm_order": "pre",  # unless it says something else
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"decoder__num_heads": torch.tensor(4)}, "num_heads = 2 and 4: must be the same"),
        ({"encoder__activation": torch.tensor(1), "decoder__activation": torch.tensor(1)}, "activation = 1: must be 0"),
        ({"decoder__alibi": torch.tensor(1)}, "decoder/alibi = 1: linear biases"),
        ({"encoder__multi_query_attention": torch.tensor(1)}, "multi_query_attention = 1: keys and values"),
        ({"decoder__scale_outputs": torch.tensor(0.5)}, "decoder/scale_outputs = 0.5: scaled logits"),
        ({"decoder__layer_norm__gamma": None}, "decoder/layer_norm is missing"),
        ({"encoder__num_heads": torch.tensor(3), "decoder__num_heads": torch.tensor(3)}, "num_heads = 3: must divide"),
        ({f"{ATTENTION}/head_dim": torch.tensor(5)}, "layer_0/attention/head_dim = 8: must be 5"),
    ],
)
def test_what_ours_cannot_express_is_said(changes: dict[str, Tensor | None], words: str) -> None:
    assert any(words in problem for problem in obstacles(variables(**changes)))


@pytest.mark.parametrize(
    ("setting", "expected"),
    [(None, 4.0), (torch.tensor(1, dtype=torch.int8), 4.0), (torch.tensor(0, dtype=torch.int8), 1.0)]
    + [(torch.tensor(value), value) for value in (4.0, 1.0, 2.5)],
)
def test_embeddings_are_multiplied_by_a_number_or_as_a_switch_says(setting: Tensor | None, expected: float) -> None:
    found = variables(encoder__scale_embeddings=setting)
    assert embedding_scale(found, "encoder/embeddings_0/weight") == expected


def test_what_is_left_is_named_and_the_rest_counted() -> None:
    found = variables(**{f"{ATTENTION}/relative_position_keys": torch.ones(2), "zzz": torch.ones(1)})
    for name in WHOLE:
        found.raw(name)
    problems = list(unknown(found))
    assert problems == [f"{ATTENTION}/relative_position_keys: relative positions", "zzz: ours has no such thing"]
    many = list(unknown(variables()))
    assert len(many) == 6
    assert many[-1] == f"and {len(WHOLE) - 5} more variables that ours has no place for"
