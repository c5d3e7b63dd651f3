import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from transduce.errors import BundleError
from transduce.interop.ctranslate2.model_file import ModelFile, Variables, read_model_file

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
    assert (file.kind, file.revision) == ("TransformerSpec", 7)
    assert file["a"].tolist() == [1.5, -2.0]
    assert file["a_scale"].shape == ()
    # What CTranslate2 does: the alias of a matrix is one of its scale, too.
    assert file["b"] is file["a"]
    assert file["b_scale"] is file["a_scale"]
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
    assert (file.kind, file.revision) == ("TransformerSpec", 1)
    assert file.aliases == {"other/weight": "linear/weight"}
    assert file["linear/weight"].dtype == content.dtype
    assert file["other/weight"].equal(content)


def test_files_of_version_3_tell_types_by_their_size(read: Callable) -> None:
    old = text("a") + struct.pack("<B1I", 1, 2) + struct.pack("<BI", 2, 2) + struct.pack("<2h", 7, -7)
    file = read(number(3) + text("TransformerSpec") + number(3) + number(1) + old + number(0))
    assert file["a"].tolist() == [7, -7]
    assert file["a"].dtype == torch.int16


WHOLE = START + number(2) + ONE + SCALE + number(1) + text("b") + text("a")


def test_a_file_that_breaks_off_anywhere_is_refused(read: Callable) -> None:
    for length in range(len(WHOLE)):
        with pytest.raises(BundleError, match=r"ends after|where a name"):
            read(WHOLE[:length])


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        (WHOLE + b"x", "goes on for 1 bytes"),
        (number(7) + WHOLE[4:], "has file version 7, known are 3 to 6"),
        (b"\x89PNG\r\n", "has file version"),
        (START + number(2) + ONE + ONE + number(0), "has the variable 'a' twice"),
        (START + number(1) + ONE + number(1) + text("b") + text("c"), "says that 'b' is 'c'"),
        (START + number(1) + ONE + number(1) + text("a") + text("a"), "has the variable 'a' twice"),
        (START + number(1) + variable("a", (2,), 9, b"") + number(0), "unknown type 9"),
        (START + number(1) + variable("a", (2,), 0, b"1234") + number(0), "has 4 bytes, its shape"),
        (START + number(1) + variable("a", (2**32 - 1, 2**32 - 1), 0, b""), "has 0 bytes, its shape"),
        (START + number(1) + variable("a", (2,), 0, b"", 2**32 - 1), "has 4,294,967,295 bytes"),
        (START + number(1) + variable("a", (2**30 - 1,), 0, b"", 2**32 - 4), "ends after"),
        (START + number(1) + text("a") + b"\xff" + b"\0" * 1020, "has 255 axes"),
        (START + number(2**32 - 1) + ONE, "ends after"),
        (START + number(1) + b"\x02\0\xff\0", "where a name should stand"),
        (START + number(1) + b"\x01\0\0", "where a name should stand"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_said(read: Callable, content: bytes, finding: str) -> None:
    with pytest.raises(BundleError, match=finding):
        read(content)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="cannot be read: No such file"):
        read_model_file(tmp_path / "model.bin")


GAMMA = "encoder/layer_0/self_attention/layer_norm/gamma"
NUMBERS = {
    GAMMA: torch.ones(3),
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


def variables(revision: int = 7) -> Variables:
    return Variables(ModelFile("TransformerSpec", revision, NUMBERS, {"alias": "half"}), Path("model.bin"))


def test_whole_numbers_are_divided_by_the_scale_of_their_row() -> None:
    assert torch.equal(variables()["matrix"], torch.tensor([[0.5, -1.0, 1.5], [0.4, 0.5, 0.6]]))
    assert torch.equal(variables()["whole"], torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))


def test_half_precision_is_widened_exactly() -> None:
    assert torch.equal(variables()["alias"], NUMBERS["half"].float())


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
        variables()[name]


def test_single_numbers() -> None:
    assert variables().number("num_heads", 8.0) == 7
    assert variables().number("nothing", 8.0) == 8
    for name in ("matrix", "odd"):
        with pytest.raises(BundleError, match="must be one number"):
            variables().number(name, 0.0)


def test_shapes_are_checked() -> None:
    found = variables()
    assert found.d_model == 3
    assert found.rows("matrix", 2).shape == (2, 3)
    assert found.rows("half", 3).shape == (3,)
    with pytest.raises(BundleError, match=r"has the shape \[2, 3\], must have a row of 3 numbers for each of the 4"):
        found.rows("matrix", 4)
    with pytest.raises(BundleError, match=r"'half' has the shape \[3\], must be a matrix"):
        found.matrix("half")


def test_older_names_are_found() -> None:
    assert variables()["encoder/embeddings_0/weight"].shape == (5, 3)
    assert variables(4).number("encoder/num_heads", 8.0) == variables(4).number("decoder/num_heads", 8.0) == 7
    assert variables(5).number("encoder/num_heads", 8.0) == 8


def test_what_nobody_asked_for_is_known() -> None:
    found = variables()
    before = set(found.unread())
    assert before == {*NUMBERS, "alias"}
    found["matrix"]
    assert "half" in found
    assert before - set(found.unread()) == {"matrix", "matrix_scale"}
