from pathlib import Path

import pytest

from transduce.errors import BundleError
from transduce.interop.parity import TOLERANCES, read_parity


@pytest.mark.parametrize("content", ["", "{}", '{"format": "transduce bundle"}'])
def test_what_is_no_proof_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "parity.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(BundleError, match="is no proof of Transduce's"):
        read_parity(path)
    with pytest.raises(BundleError, match="cannot be read"):
        read_parity(tmp_path / "none.json")


def test_a_proof_is_as_strict_as_its_precision() -> None:
    order = ["float32", "float16", "int16", "bfloat16", "int8"]
    assert sorted(order, key=lambda name: TOLERANCES[name].mean) == order
    assert all(found.mean < found.largest for found in TOLERANCES.values())
