from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from transduce.bundle import Bundle, save_bundle
from transduce.config import SearchConfig
from transduce.interop.onnx import runtime as onnx_runtime
from transduce.interop.onnx.export_format import FORMAT
from transduce.interop.onnx.runtime import OnnxRuntime
from transduce.interop.runtime import Runtime
from transduce.translation import NativeEngine

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

END = 1


@pytest.fixture
def bundle(make_bundle: Callable[..., Bundle], tmp_path: Path) -> Bundle:
    """With a network that ends some translations soon."""
    bundle = make_bundle(num_decoder_layers=2, tied_embeddings="none", output_bias=True)
    model = bundle.load_model()
    with torch.no_grad():
        model.projection.bias[END] += 4
    save_bundle(tmp_path / "ending", model, bundle.load_tokenizer(), bundle.description)
    return Bundle.open(tmp_path / "ending")


@pytest.fixture
def runtime(bundle: Bundle, tmp_path: Path) -> OnnxRuntime:
    (tmp_path / "written").mkdir()
    FORMAT.write(bundle, tmp_path / "written", "float32")
    return OnnxRuntime(tmp_path / "written")


def rows(seed: int, lengths: tuple[int, ...]) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [[*random.integers(2, 300, size=length - 1).tolist(), END] for length in lengths]


def test_it_is_a_runtime(runtime: OnnxRuntime) -> None:
    assert isinstance(runtime, Runtime)
    assert runtime.name.startswith("ONNX Runtime 1.")


def test_scores_of_targets_of_any_lengths_are_the_models(
    bundle: Bundle, runtime: OnnxRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_runtime, "MOST_ROWS", 3)
    sources, targets = rows(1, (3, 9, 1, 6, 6)), rows(2, (8, 1, 4, 4, 12))
    model = bundle.load_model()
    for found, source, target in zip(runtime.forced_scores(sources, targets), sources, targets, strict=True):
        ids = torch.tensor([source]), torch.tensor([target])
        with torch.no_grad():
            log_probs = model(ids[0], ids[0] >= 0, ids[1], ids[1] >= 0).log_softmax(-1)[0]
        assert found == pytest.approx(log_probs.gather(1, ids[1].T).squeeze(1).tolist(), abs=1e-5)


def test_greedy_is_beam_search_with_a_beam_of_1(bundle: Bundle, runtime: OnnxRuntime) -> None:
    sources = rows(3, (3, 9, 1, 6, 6, 2))
    engine = NativeEngine(bundle.load_model(), END)
    limit = 14
    expected = [
        engine.search([source], SearchConfig(beam=1, max_extra_length=limit - len(source)))[0][0].ids
        for source in sources
    ]
    found = runtime.greedy(sources, [limit] * len(sources))
    # At its limit, our search ends a hypothesis whatever the model says.
    assert all(len(ids) == limit or ids[-1] == END for ids in found)
    assert [ids[: limit - 1] for ids in found] == [ids[: limit - 1] for ids in expected]
    assert len({len(ids) for ids in expected}) > 1

    limits = [1, 2, 3, 4, 5, 6]
    assert runtime.greedy(sources, limits) == [ids[:most] for ids, most in zip(found, limits, strict=True)]


def test_the_tokenizer_travels(bundle: Bundle, runtime: OnnxRuntime, texts: list[str]) -> None:
    tokenizer = bundle.load_tokenizer()
    ids = runtime.encode(texts[:20])
    assert ids == [[*row, END] for row in tokenizer.encode_all(texts[:20])]
    assert runtime.decode(ids) == texts[:20]
