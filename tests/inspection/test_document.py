from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from transduce.errors import ConfigError
from transduce.inspection import EVERYTHING, QUICK, Head, InspectionRequest
from transduce.inspection.document import pack_exact, pack_shares, pack_sizes

NUMBERS = torch.rand(3, 5, 7, generator=torch.Generator().manual_seed(0))


def test_exact_numbers_are_exact(unpacked: Callable[..., np.ndarray]) -> None:
    array = pack_exact(NUMBERS * 1e6 - 3).model_dump()
    assert (array["dtype"], array["shape"], array["scale"]) == ("float32", [3, 5, 7], 1.0)
    assert np.array_equal(unpacked(array), (NUMBERS * 1e6 - 3).double().numpy())


@pytest.mark.parametrize(
    ("pack", "factor", "error"),
    [(pack_shares, 1.0, 1 / 131_070), (pack_sizes, 1.0, 1 / 510), (pack_sizes, 250.0, 250 / 510)],
)
def test_small_numbers_are_near(pack: Any, factor: float, error: float, unpacked: Callable[..., np.ndarray]) -> None:
    found = unpacked(pack(NUMBERS * factor).model_dump())
    assert np.abs(found - (NUMBERS * factor).double().numpy()).max() <= error * 1.001


def test_all_and_nothing_are_exact(unpacked: Callable[..., np.ndarray]) -> None:
    assert unpacked(pack_shares(torch.tensor([0.0, 1.0])).model_dump()).tolist() == [0.0, 1.0]
    assert unpacked(pack_sizes(torch.zeros(2)).model_dump()).tolist() == [0.0, 0.0]
    assert unpacked(pack_sizes(torch.tensor([7.5, 0.0])).model_dump()).tolist() == [7.5, 0.0]


def test_order_is_that_of_the_axes(unpacked: Callable[..., np.ndarray]) -> None:
    turned = torch.arange(6.0).reshape(2, 3).T
    assert unpacked(pack_exact(turned).model_dump()).tolist() == turned.tolist()


def test_a_head_is_written_from_one() -> None:
    head = Head(attention="encoder_decoder", layer=0, head=2)
    assert str(head) == "encoder_decoder.1.3"
    assert Head.parse(str(head)) == head


@pytest.mark.parametrize("text", ["", "encoder", "encoder.0.1", "encoder.1.0", "memory.1.1", "encoder.1.1 ", "1.1"])
def test_what_is_no_head_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"must be ATTENTION\.LAYER\.HEAD"):
        Head.parse(text)


def test_a_request_from_json_is_the_same() -> None:
    request = InspectionRequest(
        text="x", prefix=[3], arithmetic=[Head(attention="decoder", layer=1, head=0)], include=list(EVERYTHING)
    )
    assert InspectionRequest.model_validate_json(request.model_dump_json()) == request
    assert InspectionRequest.parse(**request.model_dump()) == request
    assert InspectionRequest(text="x").include == list(QUICK)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"beam": 17}, "beam: .* less than or equal to 16"),
        ({"beam": 0}, "beam: "),
        ({"text": "x" * 10_001}, "text: "),
        ({"include": ["pictures"]}, r"include\.0: "),
        ({"colour": "red"}, "colour: Input should be left out"),
        ({"masked_heads": [{"attention": "memory", "layer": 0, "head": 0}]}, r"masked_heads\.0\.attention: "),
        ({"prefix": [1] * 129}, "prefix: "),
    ],
)
def test_what_breaks_a_rule_is_named(values: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        InspectionRequest.parse(**{"text": "x", **values})
