import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transduce.bundle import Bundle, model_tensors
from transduce.errors import BundleError
from transduce.interop.export import proven
from transduce.interop.onnx import export_format as onnx_format
from transduce.interop.onnx.export_format import FORMAT
from transduce.interop.probe import make_probe
from transduce.interop.proof import Claim
from transduce.interop.runtime import ExportFormat
from transduce.translation import ForcedDecoder

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def written(bundle: Bundle, folder: Path, precision: str = "float32") -> Path:
    folder.mkdir()
    FORMAT.write(bundle, folder, precision)
    return folder


def test_it_is_a_format() -> None:
    assert isinstance(FORMAT, ExportFormat)
    assert FORMAT.precisions[0] == "float32"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"norm_order": "pre", "tied_embeddings": "two_way", "activation": "gelu", "attention_score": "additive"},
        {"tied_embeddings": "none", "output_bias": True, "activation": "swish", "d_k": 5, "d_v": 3},
        {"positions": "learned", "max_positions": 30, "norm_order": "pre", "num_decoder_layers": 3},
        {"attention_score": "dot", "num_heads": 1, "positions": "none"},
    ],
    ids=str,
)
def test_onnx_runtime_computes_the_same(
    make_bundle: Callable[..., Bundle], tmp_path: Path, settings: dict[str, Any]
) -> None:
    bundle = make_bundle(**settings)
    assert FORMAT.obstacles(bundle) == []
    decoder = ForcedDecoder.from_bundle(bundle, device="cpu")
    folder = written(bundle, tmp_path / "written")
    parity = proven(decoder, FORMAT, folder, make_probe(decoder, num_sentences=13), Claim("onnx", "float32", "model"))
    assert parity.identical_greedy == parity.identical_tokenizations == 13
    assert parity.identical_weights == len(model_tensors(decoder.model))


@pytest.mark.parametrize("precision", FORMAT.precisions[1:])
def test_smaller_weights_are_close(make_bundle: Callable[..., Bundle], tmp_path: Path, precision: str) -> None:
    bundle = make_bundle()
    decoder = ForcedDecoder.from_bundle(bundle, device="cpu")
    folder = written(bundle, tmp_path / "written", precision)
    parity = proven(decoder, FORMAT, folder, make_probe(decoder, num_sentences=13), Claim("onnx", precision, "model"))
    assert parity.mean_difference > 1e-5
    assert parity.identical_weights == (None if precision == "int8" else len(model_tensors(decoder.model)))


def test_the_folder_holds_what_is_needed_and_no_more(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle()
    folder = written(bundle, tmp_path / "written")
    names = {"encoder.onnx", "decoder_step.onnx", "tokenizer.model", "config.json", "README.md", "translate.py"}
    assert {path.name for path in folder.iterdir()} == names
    assert (folder / "tokenizer.model").read_bytes() == bundle.load_tokenizer().model_bytes
    settings = json.loads((folder / "config.json").read_text("utf-8"))
    for name in ("encoder", "decoder_step"):
        graph = onnx.load(folder / settings[name]["file"]).graph
        assert [value.name for value in graph.input] == settings[name]["inputs"]
        assert [value.name for value in graph.output] == settings[name]["outputs"]


def test_the_same_bundle_is_written_in_the_same_bytes(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle()
    first, second = (written(bundle, tmp_path / name) for name in ("first", "second"))
    for path in first.iterdir():
        assert path.read_bytes() == (second / path.name).read_bytes(), path.name


def test_every_weight_comes_back_bit_for_bit(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle(normalization="batch", positions="learned", max_positions=30, output_bias=True)
    expected = model_tensors(bundle.load_model())
    found = FORMAT.read_back(written(bundle, tmp_path / "written"))
    assert found.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []


@pytest.mark.parametrize(
    ("file", "name"), [("encoder.onnx", "source_embedding.weight"), ("decoder_step.onnx", "positions.table")]
)
def test_copies_that_differ_are_refused(
    make_bundle: Callable[..., Bundle], tmp_path: Path, file: str, name: str
) -> None:
    folder = written(make_bundle(positions="learned", max_positions=30), tmp_path / "written")
    model = onnx.load(folder / file)
    (weight,) = (one for one in model.graph.initializer if one.name == name)
    weight.raw_data = weight.raw_data[:-4] + b"\0\0\0\1"
    onnx.save(model, folder / file)
    with pytest.raises(BundleError, match=f"{name} is not the same in both graphs"):
        FORMAT.read_back(folder)


def test_a_changed_weight_is_noticed(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle()
    folder = written(bundle, tmp_path / "written")
    model = onnx.load(folder / "encoder.onnx")
    (weight,) = (one for one in model.graph.initializer if "memory_attention.projection.weight" in one.name)
    weight.raw_data = weight.raw_data[:-4] + b"\0\0\0\1"
    onnx.save(model, folder / "encoder.onnx")
    expected = model_tensors(bundle.load_model())
    found = FORMAT.read_back(folder)
    changed = [name for name in expected if not torch.equal(found[name], expected[name])]
    assert changed == ["decoder.layers.0.memory_attention.projection.weight"]


def test_a_model_beyond_protocol_buffers_is_an_obstacle(
    make_bundle: Callable[..., Bundle], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = make_bundle()
    monkeypatch.setattr(onnx_format, "MOST_BYTES", 1000)
    (obstacle,) = FORMAT.obstacles(bundle)
    assert "less than 2 GB" in obstacle
