import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from transduce.bundle import collect_model_tensors
from transduce.errors import BundleError
from transduce.interop.channel_order import split_channels
from transduce.interop.ctranslate2.layout import (
    POSITIONS,
    Variables,
    find_unknown_variables,
    find_unsupported_settings,
    from_variables,
    has_shared_positions,
    list_variables,
    map_copies,
    read_embedding_scale,
    read_model_file,
    read_network_settings,
    read_positions,
    to_variables,
)
from transduce.model import Transformer, sinusoids

specs = pytest.importorskip("ctranslate2").specs


def text(content: str) -> bytes:
    return struct.pack("<H", len(content.encode()) + 1) + content.encode() + b"\0"


def variable(name: str, shape: tuple[int, ...], code: int, content: bytes, num_bytes: int | None = None) -> bytes:
    axes = struct.pack(f"<B{len(shape)}I", len(shape), *shape)
    return text(name) + axes + struct.pack("<BI", code, len(content) if num_bytes is None else num_bytes) + content


def number(value: int) -> bytes:
    return struct.pack("<I", value)


START = number(6) + text("TransformerSpec") + number(7)
ONE = variable("a", (2,), 0, struct.pack("<2f", 1.5, -2.0))
SCALE = variable("a_scale", (), 0, struct.pack("<f", 3.0))


@pytest.fixture
def read(tmp_path: Path) -> Callable:
    def make(content: bytes) -> object:
        (tmp_path / "model.bin").write_bytes(content)
        return read_model_file(tmp_path / "model.bin")

    return make


def test_variables_and_their_aliases_are_read(read: Callable) -> None:
    file = read(START + number(2) + ONE + SCALE + number(1) + text("b") + text("a"))
    assert file.kind == "TransformerSpec"
    assert file["a"].tolist() == [1.5, -2.0]
    assert file["a_scale"].shape == ()
    # What CTranslate2 does: the alias of a matrix is one of its scale, too.
    assert file.raw("b") is file.raw("a")
    assert file.raw("b_scale") is file.raw("a_scale")
    assert "b_scale" in file
    assert "c" not in file


class Specification(specs.ModelSpec):
    name = "TransformerSpec"

    def __init__(self) -> None:
        super().__init__()
        self.linear = specs.common_spec.LinearSpec()
        self.other = specs.common_spec.LinearSpec()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "int16", "int32"])
def test_what_ctranslate2_writes_is_read_in_every_type(tmp_path: Path, dtype: str) -> None:
    content = torch.arange(6).view(2, 3).to(getattr(torch, dtype))
    specification = Specification()
    specification.linear.weight, specification.other.weight = content, content.clone()
    specification.validate()
    specification.optimize()
    specification.save(str(tmp_path))
    file = read_model_file(tmp_path / "model.bin")
    assert file.kind == "TransformerSpec"
    assert file.raw("other/weight") is file.raw("linear/weight")
    assert file.raw("other/weight").dtype == content.dtype
    assert file.raw("other/weight").equal(content)


def test_files_of_version_3_tell_types_by_their_size(read: Callable) -> None:
    old = text("a") + struct.pack("<B1I", 1, 2) + struct.pack("<BI", 2, 2) + struct.pack("<2h", 7, -7)
    file = read(number(3) + text("TransformerSpec") + number(3) + number(1) + old + number(0))
    assert file.raw("a").tolist() == [7, -7]
    assert file.raw("a").dtype == torch.int16


WHOLE_FILE = START + number(2) + ONE + SCALE + number(1) + text("b") + text("a")


def test_a_file_that_breaks_off_anywhere_is_refused(read: Callable) -> None:
    for length in range(len(WHOLE_FILE)):
        with pytest.raises(BundleError, match=r"ends after|in place of a name"):
            read(WHOLE_FILE[:length])


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        (WHOLE_FILE + b"x", "has 1 extra bytes"),
        (number(7) + WHOLE_FILE[4:], "has file version 7; supported are 3 to 6"),
        (b"\x89PNG\r\n", "has file version"),
        (START + number(2) + ONE + ONE + number(0), "has the variable 'a' twice"),
        (START + number(1) + ONE + number(1) + text("b") + text("c"), "has the alias 'b' of 'c'"),
        (START + number(1) + ONE + number(1) + text("a") + text("a"), "has the variable 'a' twice"),
        (START + number(1) + variable("a", (2,), 9, b"") + number(0), "unknown type 9"),
        (START + number(1) + variable("a", (2,), 0, b"1234") + number(0), "has 4 bytes, but its shape"),
        (START + number(1) + variable("a", (2**32 - 1, 2**32 - 1), 0, b""), "has 0 bytes, but its shape"),
        (START + number(1) + variable("a", (2,), 0, b"", 2**32 - 1), "has 4,294,967,295 bytes"),
        (START + number(1) + variable("a", (2**30 - 1,), 0, b"", 2**32 - 4), "ends after"),
        (START + number(1) + text("a") + b"\xff" + b"\0" * 1020, "has 255 axes"),
        (START + number(2**32 - 1) + ONE, "ends after"),
        (START + number(1) + b"\x02\0\xff\0", "in place of a name"),
        (START + number(1) + b"\x01\0\0", "in place of a name"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_said(read: Callable, content: bytes, finding: str) -> None:
    with pytest.raises(BundleError, match=finding):
        read(content)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="cannot be read: No such file"):
        read_model_file(tmp_path / "model.bin")


GAMMA_NAME = "encoder/layer_0/self_attention/layer_norm/gamma"
NUMBERS = {
    GAMMA_NAME: torch.ones(3),
    "matrix": torch.tensor([[1, -2, 3], [4, 5, 6]], dtype=torch.int8),
    "matrix_scale": torch.tensor([2.0, 10.0]),
    "whole": torch.tensor([[10, 20, 30], [40, 50, 60]], dtype=torch.int16),
    "whole_scale": torch.tensor(10.0),
    "half": torch.tensor([0.1, 0.2, 0.3], dtype=torch.float16),
    "lonely": torch.tensor([[1, 2, 3]], dtype=torch.int8),
    "badly": torch.tensor([[1, 2, 3]], dtype=torch.int8),
    "badly_scale": torch.tensor([1.0, 2.0]),
    "num_heads": torch.tensor(7, dtype=torch.int16),
    "odd": torch.tensor(torch.nan),
    "encoder/embeddings/weight": torch.zeros(5, 3),
}


def file_variables(revision: int = 7) -> Variables:
    return Variables(Path("model.bin"), "TransformerSpec", revision, NUMBERS)


def test_whole_numbers_are_divided_by_the_scale_of_their_row() -> None:
    assert torch.equal(file_variables()["matrix"], torch.tensor([[0.5, -1.0, 1.5], [0.4, 0.5, 0.6]]))
    assert torch.equal(file_variables()["whole"], torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))


def test_half_precision_is_widened_exactly() -> None:
    assert torch.equal(file_variables()["half"], NUMBERS["half"].float())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none", "has no variable 'none'"),
        ("lonely", "no variable 'lonely_scale'"),
        ("badly", r"'badly_scale' .*\[2\]"),
    ],
)
def test_what_is_missing_or_does_not_fit_is_named(name: str, words: str) -> None:
    with pytest.raises(BundleError, match=words):
        file_variables()[name]


def test_single_numbers() -> None:
    assert file_variables().number("num_heads", 8.0) == 7
    assert file_variables().number("nothing", 8.0) == 8
    for name in ("matrix", "odd"):
        with pytest.raises(BundleError, match="must be a single number"):
            file_variables().number(name, 0.0)


def test_shapes_are_checked() -> None:
    found = file_variables()
    assert found.d_model == 3
    assert found.rows("matrix", 2).shape == (2, 3)
    assert found.rows("half", 3).shape == (3,)
    with pytest.raises(
        BundleError,
        match=r"has the shape \[2, 3\], but must have a row of 3 numbers for each of the "
        r"4",
    ):
        found.rows("matrix", 4)
    with pytest.raises(BundleError, match=r"'half' has the shape \[3\], but must be a matrix"):
        found.matrix("half")


def test_older_names_are_found() -> None:
    assert file_variables()["encoder/embeddings_0/weight"].shape == (5, 3)
    assert file_variables(4).number("encoder/num_heads", 8.0) == file_variables(4).number("decoder/num_heads", 8.0) == 7
    assert file_variables(5).number("encoder/num_heads", 8.0) == 8


def test_what_nobody_asked_for_is_known() -> None:
    found = file_variables()
    before = set(found.unread())
    assert before == {*NUMBERS}
    found["matrix"]
    assert "half" in found
    assert before - set(found.unread()) == {"matrix", "matrix_scale"}


SETTINGS: list[dict[str, Any]] = [
    {},
    {"norm_order": "pre", "tied_embeddings": "two_way", "output_bias": True},
    {"tied_embeddings": "none", "positions": "learned", "max_positions": 30, "num_heads": 4, "d_k": 3, "d_v": 3},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_every_tensor_has_its_place_and_comes_back(
    random_model: Callable[..., Transformer], settings: dict[str, Any]
) -> None:
    model = random_model(**settings)
    tensors = collect_model_tensors(model)
    found = from_variables(model.config, to_variables(model.config, tensors).__getitem__)
    assert found.keys() == tensors.keys()
    for name in tensors:
        without_pad = slice(None, -1) if name.startswith("projection.") else slice(None)
        assert found[name][without_pad].equal(tensors[name][without_pad]), name


def test_no_variable_has_two_places(random_model: Callable[..., Transformer]) -> None:
    for settings in SETTINGS:
        model = random_model(**settings)
        places = [variable for name in collect_model_tensors(model) for variable in list_variables(name)]
        copies = map_copies(model.config)
        assert len({*places, *copies}) == len(places) + len(copies)


def test_copies_that_differ_are_refused(random_model: Callable[..., Transformer]) -> None:
    model = random_model()
    variables = to_variables(model.config, collect_model_tensors(model))
    variables["decoder/projection/weight"] = variables["decoder/projection/weight"] + torch.eye(309, 16)
    with pytest.raises(BundleError, match=r"decoder/projection/weight and encoder/embeddings_0/weight differ"):
        from_variables(model.config, variables.__getitem__)


GAMMA = {"encoder/layer_0/self_attention/layer_norm/gamma": torch.ones(8)}
IN_TURN = sinusoids(50, 8)
HALVES = split_channels({"positions.table": IN_TURN})["positions.table"]


def variables(*tables: Tensor) -> Variables:
    found = dict(zip(POSITIONS, tables, strict=False))
    return Variables(Path("model.bin"), "TransformerSpec", 7, GAMMA | found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("table", "is_split"), [(IN_TURN, False), (HALVES, True)])
def test_sinusoids_are_known_in_either_layout(table: Tensor, is_split: bool, dtype: torch.dtype) -> None:
    found = read_positions(variables(table.to(dtype)))
    assert (found.kind, found.is_split, found.precision) == ("sinusoidal", is_split, str(dtype)[6:])


def test_another_table_is_learned_and_zeros_are_none() -> None:
    other = IN_TURN.clone()
    other[3, 2] += 1e-4
    found = read_positions(variables(other))
    assert (found.kind, found.precision) == ("learned", "float32")
    assert torch.equal(found.rows, other)
    assert read_positions(variables(torch.zeros(50, 8))).kind == "none"
    assert read_positions(variables(IN_TURN[:, :6])).kind == "learned"


def test_without_a_table_it_is_that_of_tensor2tensor() -> None:
    found = read_positions(variables())
    assert (found.kind, found.rows.shape) == ("learned", (2048, 8))
    rates = torch.tensor([1.0, 10_000 ** -(1 / 3), 10_000 ** -(2 / 3), 1e-4])
    torch.testing.assert_close(found.rows[0], torch.cat([rates.sin(), rates.cos()]))
    torch.testing.assert_close(found.rows[6], torch.cat([(7 * rates).sin(), (7 * rates).cos()]))


def test_both_sides_must_have_the_same() -> None:
    assert has_shared_positions(variables())
    assert has_shared_positions(variables(IN_TURN, IN_TURN.clone()))
    assert not has_shared_positions(variables(IN_TURN))
    assert not has_shared_positions(variables(IN_TURN, HALVES))


@pytest.mark.parametrize("table", [torch.ones(8), torch.ones(0, 8), torch.tensor(1.0)])
def test_a_table_has_rows(table: Tensor) -> None:
    with pytest.raises(BundleError, match="but must be a matrix"):
        read_positions(variables(table))


ATTENTION = "encoder/layer_0/self_attention"
ALL_VARIABLES = {
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


def network_variables(**changes: Tensor | None) -> Variables:
    found = ALL_VARIABLES | {name.replace("__", "/"): value for name, value in changes.items()}
    present = {name: value for name, value in found.items() if value is not None}
    return Variables(Path("model.bin"), "TransformerSpec", 7, present)


def test_settings_in_our_words() -> None:
    assert list(find_unsupported_settings(network_variables())) == []
    assert read_network_settings(network_variables()) == {
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
    assert any(words in problem for problem in find_unsupported_settings(network_variables(**changes)))


@pytest.mark.parametrize(
    ("setting", "expected"),
    [(None, 4.0), (torch.tensor(1, dtype=torch.int8), 4.0), (torch.tensor(0, dtype=torch.int8), 1.0)]
    + [(torch.tensor(value), value) for value in (4.0, 1.0, 2.5)],
)
def test_embeddings_are_multiplied_by_a_number_or_as_a_switch_says(setting: Tensor | None, expected: float) -> None:
    found = network_variables(encoder__scale_embeddings=setting)
    assert read_embedding_scale(found, "encoder/embeddings_0/weight") == expected


def test_what_is_left_is_named_and_the_rest_counted() -> None:
    found = network_variables(**{f"{ATTENTION}/relative_position_keys": torch.ones(2), "zzz": torch.ones(1)})
    for name in ALL_VARIABLES:
        found.raw(name)
    problems = list(find_unknown_variables(found))
    assert problems == [f"{ATTENTION}/relative_position_keys: relative positions", "zzz: is not supported"]
    many = list(find_unknown_variables(network_variables()))
    assert len(many) == 6
    assert many[-1] == f"and {len(ALL_VARIABLES) - 5} more unsupported variables"


def test_a_single_number_with_scales_of_rows_is_refused() -> None:
    numbers = {"a": torch.tensor(5, dtype=torch.int8), "a_scale": torch.ones(2)}
    with pytest.raises(BundleError, match=r"a_scale' has the shape \[2\], which does not match the rows"):
        Variables(Path("model.bin"), "TransformerSpec", 7, numbers)["a"]
