"""Packed linear layers and normalisations against PyTorch's, at every level."""

import ctypes
import subprocess
from collections.abc import Mapping
from ctypes import byref, c_void_p
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.errors import UserError
from transduce.kernels.linear import Int8Linear
from transduce.kernels.linear import quantize_rows as quantize_tensor_rows
from transduce.kernels.memory import address
from transduce.kernels.native.build import find_compiler
from transduce.kernels.native.library import Library
from transduce.kernels.native.packing import (
    ACTIVATIONS,
    Floats,
    PackedMatrix,
    PackedNormalization,
    PaddedLayout,
    check_floats,
    quantize_rows,
)

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48)
REFERENCES = {"none": lambda x: x, "relu": F.relu, "gelu": F.gelu, "swish": F.silu}


def draw(*sizes: int) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes)))


def multiply(
    library: Library, packed: PackedMatrix, inputs: Floats, residual: Floats | None = None, activation: str = "none"
) -> Floats:
    """activation(x W^T + b + residual) for rows [rows, inputs]."""
    rows = packed.inputs.pad(inputs)
    outputs = np.empty((len(rows), packed.outputs.width), dtype=np.float32)
    added = None if residual is None else packed.outputs.pad(residual)
    room, scales = np.empty(2 * (rows.size + 64 * len(rows)), dtype=np.uint8), np.empty(len(rows), dtype=np.float32)
    library.functions["apply_linear"](
        byref(packed.structure), address(rows), len(rows), address(outputs),
        None if added is None else address(added), ACTIVATIONS[activation], address(room), address(scales),
    )  # fmt: skip
    return outputs[:, packed.outputs.index]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("num_inputs", "num_outputs"), [(5, 7), (32, 32), (40, 200), (128, 96), (1500, 31)])
def test_float32_equals_torch(library: Library, num_inputs: int, num_outputs: int, activation: str) -> None:
    weight, bias = draw(num_outputs, num_inputs) / num_inputs**0.5, draw(num_outputs)
    packed = PackedMatrix(library, weight.numpy(), bias.numpy())
    for num_rows in ROWS:
        inputs, residual = draw(num_rows, num_inputs), draw(num_rows, num_outputs)
        for added in (None, residual):
            found = multiply(library, packed, inputs.numpy(), None if added is None else added.numpy(), activation)
            exact = F.linear(inputs.double(), weight.double(), bias.double())
            exact = REFERENCES[activation](exact if added is None else exact + added)
            # A rounding for every term, of half a unit each; erf is within 1.5e-7, times x, and e^x within two units.
            terms = F.linear(inputs.abs(), weight.abs(), bias.abs()) + residual.abs()
            bound = (num_inputs + 4) * 2**-24 * terms + 4e-7 * terms
            assert ((torch.from_numpy(found) - exact).abs() <= bound).all()


@pytest.mark.parametrize(("num_inputs", "num_outputs"), [(5, 7), (32, 32), (40, 200), (1500, 33), (2048, 64)])
def test_int8_is_the_reference(library: Library, num_inputs: int, num_outputs: int) -> None:
    weight, bias = draw(num_outputs, num_inputs), draw(num_outputs)
    weight[0] = 0.0
    packed = PackedMatrix(library, weight.numpy(), bias.numpy(), is_int8=True)
    without_bias = PackedMatrix(library, weight.numpy(), None, is_int8=True)
    reference, plain_reference = Int8Linear(weight, bias), Int8Linear(weight, None)
    for num_rows in ROWS:
        inputs = draw(num_rows, num_inputs) * torch.arange(1.0, num_rows + 1)[:, None]
        inputs[-1, -1] = -1000.0  # one number that decides the scale of its row
        expected, found = plain_reference(inputs).numpy(), multiply(library, without_bias, inputs.numpy())
        np.testing.assert_array_equal(found, expected)  # exact sums, and the same three roundings
        np.testing.assert_allclose(
            multiply(library, packed, inputs.numpy()), reference(inputs).numpy(), rtol=1e-6, atol=1e-6
        )


def test_integers_that_are_as_large_as_can_be_are_summed_exactly(library: Library) -> None:
    for sign in (1.0, -1.0):
        weight, inputs = torch.full((32, 2048), sign), torch.ones(3, 2048)
        found = multiply(library, PackedMatrix(library, weight.numpy(), None, is_int8=True), inputs.numpy())
        np.testing.assert_allclose(found, 2048 * sign, rtol=1e-6)


@pytest.mark.parametrize("is_int8", [False, True])
@pytest.mark.parametrize(("num_inputs", "num_outputs"), [(24, 50), (128, 384)])
def test_a_row_gets_the_same_bits_among_any_others(
    library: Library, num_inputs: int, num_outputs: int, *, is_int8: bool
) -> None:
    packed = PackedMatrix(library, draw(num_outputs, num_inputs).numpy(), draw(num_outputs).numpy(), is_int8=is_int8)
    inputs, residual = draw(69, num_inputs).numpy(), draw(69, num_outputs).numpy()
    expected = multiply(library, packed, inputs, residual)
    for num_rows in ROWS:
        for first in (0, 3, 21):
            rows = slice(first, first + num_rows)
            np.testing.assert_array_equal(multiply(library, packed, inputs[rows], residual[rows]), expected[rows])


@pytest.mark.parametrize("is_int8", [False, True])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("num_rows", "num_inputs"), [(5, 20), (20, 64)])
def test_what_is_no_number_stays_so_in_its_row(
    library: Library, num_rows: int, num_inputs: int, wrong: float, *, is_int8: bool
) -> None:
    packed = PackedMatrix(library, draw(33, num_inputs).numpy(), None, is_int8=is_int8)
    inputs = draw(num_rows, num_inputs).numpy()
    expected = multiply(library, packed, inputs)
    inputs[2, 7] = wrong
    found = multiply(library, packed, inputs)
    assert not np.isfinite(found[2]).any()
    np.testing.assert_array_equal(np.delete(found, 2, axis=0), np.delete(expected, 2, axis=0))


def test_pytorch_takes_turns_in_a_thread(library: Library) -> None:
    """Where the processor has AMX, both set the shapes of its registers for matrices."""
    packed = PackedMatrix(library, draw(96, 128).numpy(), draw(96).numpy(), is_int8=True)
    inputs, left, right = draw(40, 128).numpy(), draw(70, 200).bfloat16(), draw(200, 130).bfloat16()
    expected, product = multiply(library, packed, inputs), left @ right
    for _ in range(3):
        np.testing.assert_array_equal(multiply(library, packed, inputs), expected)
        assert torch.equal(left @ right, product)


ACCESS_TO_SHAPES = """
typedef struct { char bytes[64]; } shapes;
void set_shapes(const shapes *from) { __asm__ volatile("ldtilecfg %0" : : "m"(*from)); }
void read_shapes(shapes *to) { __asm__ volatile("sttilecfg %0" : "=m"(*to)); }
"""


@pytest.mark.parametrize("is_set", [False, True])
def test_amx_leaves_the_shapes_of_its_registers_as_they_were(
    levels: Mapping[str, Library], tmp_path: Path, *, is_set: bool
) -> None:
    if "amx" not in levels:
        pytest.skip("the processor has no AMX, or the system does not allow it")
    (tmp_path / "shapes.c").write_text(ACCESS_TO_SHAPES, encoding="utf-8")
    command = [*find_compiler(), "-shared", "-fPIC", "-mamx-tile", "shapes.c", "-o", "shapes.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    access = ctypes.CDLL(str(tmp_path / "shapes.so"))
    before, after = np.zeros(64, np.uint8), np.ones(64, np.uint8)
    if is_set:  # one register of three rows of eight bytes
        before[[0, 16, 48]] = 1, 8, 3
    access.set_shapes(c_void_p(address(before)))
    try:
        packed = PackedMatrix(levels["amx"], draw(32, 64).numpy(), None, is_int8=True)
        multiply(levels["amx"], packed, draw(40, 64).numpy())
        access.read_shapes(c_void_p(address(after)))
    finally:
        access.set_shapes(c_void_p(address(np.zeros(64, np.uint8))))
    np.testing.assert_array_equal(after, before)


def test_zeros_give_the_bias(library: Library) -> None:
    for is_int8 in (False, True):
        packed = PackedMatrix(library, draw(33, 20).numpy(), draw(33).numpy(), is_int8=is_int8)
        np.testing.assert_array_equal(
            multiply(library, packed, np.zeros((2, 20), np.float32)), np.tile(draw(33).numpy(), (2, 1))
        )


@pytest.mark.parametrize("width", [2, 16, 24, 31, 33, 512])
def test_normalisation_equals_torch(library: Library, width: int) -> None:
    inputs, gain, bias = draw(7, width) * 3 + 5, draw(width), draw(width + 1)[1:]
    packed, rows = (
        PackedNormalization(gain.numpy(), bias.contiguous().numpy()),
        PaddedLayout.in_order(width).pad(inputs.numpy()),
    )
    library.functions["normalize_rows"](
        byref(packed.structure), address(rows), len(rows), width, rows.shape[1], address(rows)
    )
    expected = F.layer_norm(inputs.double(), (width,), gain.double(), bias.double(), 1e-5)
    np.testing.assert_allclose(rows[:, :width], expected.numpy(), atol=2e-5, rtol=2e-5)


def test_padding_is_zero() -> None:
    heads = PaddedLayout.in_heads(3, 5)
    assert heads.width == 64
    assert heads.index.tolist() == [*range(5), *range(16, 21), *range(32, 37)]
    joined = PaddedLayout.side_by_side([heads, PaddedLayout.in_order(2)])
    padded = joined.pad(np.arange(1, 18, dtype=np.float32)[None])
    assert padded.shape == (1, 96)
    assert padded[0, 64:66].tolist() == [16.0, 17.0]
    assert np.count_nonzero(padded) == 17


def test_arrays_that_do_not_fit_are_refused() -> None:
    for wrong in (np.zeros((2, 5), np.float32), np.zeros(4, np.float32), np.zeros((2, 4))):
        with pytest.raises(UserError, match="must be of float32"):
            check_floats(wrong, (None, 4))
    backwards = draw(2, 4).numpy()[:, ::-1]  # not side by side: it is copied
    found = check_floats(backwards, (2, 4))
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, backwards)


def test_weights_are_rounded_as_pytorch_rounds_them() -> None:
    random = np.random.default_rng(1)
    rows = (random.standard_normal((200, 65)) * 10.0 ** random.integers(-30, 30, size=(200, 1))).astype(np.float32)
    rows[3], rows[4, :] = 0, [0.5, *[127] * 64]
    integers, scales = quantize_rows(rows)
    expected, expected_scales = quantize_tensor_rows(torch.from_numpy(rows))
    assert np.array_equal(integers, expected.numpy())
    assert np.array_equal(scales, expected_scales.numpy())
