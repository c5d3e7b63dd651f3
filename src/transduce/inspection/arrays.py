"""Tensors as text that a browser reads into typed arrays."""

from base64 import b64encode

import numpy as np
from jaxtyping import Float
from torch import Tensor

from transduce.inspection.network_parts import PackedArray

_FINEST_SHARE = 65_535


def exact(values: Float[Tensor, "*shape"]) -> PackedArray:
    """Every number as it is, in float32."""
    return _packed(values.float().cpu().numpy().astype("<f4"), "float32", 1.0)


def shares(values: Float[Tensor, "*shape"]) -> PackedArray:
    """Numbers from 0 to 1 in two bytes each, exact to 1 / 131,070."""
    stored = np.rint(values.cpu().double().numpy() * _FINEST_SHARE).clip(0, _FINEST_SHARE).astype("<u2")
    return _packed(stored, "uint16", 1 / _FINEST_SHARE)


def sizes(values: Float[Tensor, "*shape"]) -> PackedArray:
    """Numbers from 0 on in a byte each, exact to 1/510 of the largest."""
    numbers = values.cpu().double().numpy()
    largest = float(numbers.max(initial=0.0))
    scale = largest / 255 if largest else 1.0
    return _packed(np.rint(numbers / scale).clip(0, 255).astype("u1"), "uint8", scale)


def _packed(stored: np.ndarray, dtype: str, scale: float) -> PackedArray:
    data = b64encode(np.ascontiguousarray(stored).tobytes()).decode("ascii")
    return PackedArray.model_validate({"dtype": dtype, "shape": list(stored.shape), "scale": scale, "data": data})
