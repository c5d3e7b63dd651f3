from collections.abc import Callable
from pathlib import Path

import pytest

from transduce.bundle import Bundle
from transduce.errors import ParityError
from transduce.interop import ctranslate2 as ctranslate2_format
from transduce.interop import export_bundle
from transduce.interop.ctranslate2 import arithmetic
from transduce.interop.ctranslate2.arithmetic import is_exact_in_8_bits, measure_product
from transduce.interop.parity import TOLERANCES, Tolerance

pytest.importorskip("ctranslate2")

# Inputs of 127 are 255 there; of what is left of their sums in pairs, 128 times the weights of 127 is subtracted again.
CUT_OFF = (32767 / 2 - 128 * 127) / 127**2


def test_sums_of_products_are_exact_or_cut_off_in_16_bits() -> None:
    product = measure_product()
    assert product == pytest.approx(1.0 if is_exact_in_8_bits() else CUT_OFF, abs=1e-5)


@pytest.mark.parametrize(("product", "is_exact"), [(0.9999, True), (CUT_OFF, False), (0.99, False), (1.01, False)])
def test_what_is_measured_decides(monkeypatch: pytest.MonkeyPatch, product: float, is_exact: bool) -> None:
    monkeypatch.setattr(arithmetic, "measure_product", lambda: product)
    assert is_exact_in_8_bits.__wrapped__() == is_exact


@pytest.mark.parametrize("target", ["ctranslate2", "argos"])
@pytest.mark.parametrize("is_exact", [True, False])
def test_a_proof_in_int8_says_if_sums_are_cut_off(
    make_bundle: Callable[..., Bundle], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, is_exact: bool
) -> None:
    monkeypatch.setattr(ctranslate2_format, "is_exact_in_8_bits", lambda: is_exact)
    monkeypatch.setitem(TOLERANCES, "int8", Tolerance(largest=1e-6, mean=1e-6))
    bundle, output = make_bundle(), tmp_path / "out.argosmodel"
    parity = export_bundle(bundle, target, output, num_sentences=2)
    assert "8-bit" not in parity.theirs
    with pytest.raises(ParityError, match=r"nothing is rounded with --precision float32$") as refused:
        export_bundle(bundle, target, output, precision="int8", num_sentences=2)
    said = "whose sums of 8-bit products are cut off on this processor does not compute the same as the model"
    assert (said in str(refused.value)) != is_exact
