import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from transduce.bundle import Bundle
from transduce.errors import BundleError, MissingExtraError, UserError
from transduce.interop.onnx.export_format import FORMAT
from transduce.interop.onnx.sessions import OnnxModel

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")


@pytest.fixture
def folder(make_bundle: Callable[..., Bundle], tmp_path: Path) -> Path:
    (tmp_path / "written").mkdir()
    FORMAT.write(make_bundle(positions="learned", max_positions=4), tmp_path / "written", "float32")
    return tmp_path / "written"


def test_nothing_reaches_behind_learned_positions(folder: Path) -> None:
    model = OnnxModel(folder)
    with pytest.raises(UserError, match="position 5; this model has learned positions up to 4"):
        model.read(np.full((1, 5), 2))
    memory, past = model.read(np.full((1, 4), 2)), model.no_past(1)
    for _ in range(4):
        _, past = model.step(np.array([2]), memory, past)
    with pytest.raises(UserError, match="position 5"):
        model.step(np.array([2]), memory, past)


@pytest.mark.parametrize("name", ["encoder.onnx", "decoder_step.onnx"])
def test_a_missing_or_damaged_graph_is_named(folder: Path, name: str) -> None:
    path = folder / name
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(BundleError, match=f"{name}: ONNX Runtime cannot read it"):
        OnnxModel(folder)
    path.unlink()
    with pytest.raises(BundleError, match=f"{name}: is missing"):
        OnnxModel(folder)


def test_without_onnx_runtime_the_message_names_the_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"'onnxruntime'.*pip install 'transduce\[onnx\]'"):
        OnnxModel(folder)
