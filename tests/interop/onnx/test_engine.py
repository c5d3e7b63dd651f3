"""Our search on ONNX Runtime against our search on the model, with every option that a search has."""

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transduce.bundle import Bundle
from transduce.config import SearchConfig
from transduce.errors import UserError
from transduce.interop.onnx import engine as onnx_engine
from transduce.interop.onnx.export_format import FORMAT
from transduce.search import Constraints, Hypothesis, Sampling
from transduce.translation import Engine, NativeEngine, Network, Translator

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

END = 1
# Of unlike lengths, and translated a few at a time.
SEARCH = SearchConfig(beam=3, max_extra_length=3, batch_tokens=20)


@pytest.fixture
def exported(make_bundle: Callable[..., Bundle], tmp_path: Path) -> Callable[..., tuple[Bundle, Path]]:
    def make(**settings: Any) -> tuple[Bundle, Path]:
        bundle = make_bundle(**settings)
        (tmp_path / "written").mkdir()
        FORMAT.write(bundle, tmp_path / "written", "float32")
        return bundle, tmp_path / "written"

    return make


@pytest.fixture
def engines(exported: Callable[..., tuple[Bundle, Path]]) -> tuple[NativeEngine, Engine]:
    bundle, folder = exported(num_encoder_layers=1, num_decoder_layers=2)
    return NativeEngine(bundle.load_model(), END), onnx_engine.load(folder)


@pytest.fixture
def sources() -> list[list[int]]:
    random = np.random.default_rng(3)
    return [[*random.integers(2, 300, size=size).tolist(), END] for size in (3, 7, 0, 4, 4, 9)]


def assert_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    assert [[one.ids for one in best] for best in found] == [[one.ids for one in best] for best in expected]
    for one, other in zip(chain(*found), chain(*expected), strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4)
        assert one.token_scores == pytest.approx(other.token_scores, abs=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        {"beam": 1},
        {"beam": 4, "length_penalty": 1.0},
        {"beam": 3, "min_length": 6},
        {"beam": 3, "no_repeat_ngram": 1, "repetition_penalty": 1.5, "diversity": 0.5},
    ],
    ids=str,
)
def test_beam_search_finds_the_same(
    engines: tuple[NativeEngine, Engine], sources: list[list[int]], settings: dict[str, Any]
) -> None:
    native, engine = engines
    assert isinstance(engine, Engine)
    search = SEARCH.model_copy(update=settings)
    assert_same(engine.search(sources, search, search.beam), native.search(sources, search, search.beam))
    assert engine.search([], search) == []


def test_constraints_are_kept_in_the_same_way(engines: tuple[NativeEngine, Engine], sources: list[list[int]]) -> None:
    native, engine = engines
    asked = [Constraints(prefix=(7,), required=((20, 21), (30,)), forbidden=((40,),))] * len(sources)
    found = engine.search(sources, SEARCH, 1, asked)
    assert_same(found, native.search(sources, SEARCH, 1, asked))
    assert all(best[0].ids[0] == 7 and {20, 21, 30} < {*best[0].ids} for best in found)


def test_samples_are_the_same_for_the_same_seed(engines: tuple[NativeEngine, Engine], sources: list[list[int]]) -> None:
    found, expected = (engine.sample(sources, SEARCH, 4, Sampling(top_p=0.9), 1) for engine in reversed(engines))
    assert_same(found, expected)


def test_threads_translate_as_one_does(engines: tuple[NativeEngine, Engine], sources: list[list[int]]) -> None:
    _, engine = engines
    alone = engine.search(sources * 3, SEARCH, 3)
    torch.set_num_threads(2)
    try:
        assert engine.search(sources * 3, SEARCH, 3) == alone
    finally:
        torch.set_num_threads(1)


def test_learned_positions_end(exported: Callable[..., tuple[Bundle, Path]], sources: list[list[int]]) -> None:
    bundle, folder = exported(positions="learned", max_positions=10, attention_score="additive")
    native, engine = NativeEngine(bundle.load_model(), END), onnx_engine.load(folder)
    found = engine.search(sources, SEARCH)
    assert_same(found, native.search(sources, SEARCH))
    assert max(len(best[0].ids) for best in found) <= 10
    with pytest.raises(UserError, match="learned positions up to 10"):
        engine.search([[*range(2, 12), END]], SEARCH)


def test_the_network_is_one(exported: Callable[..., tuple[Bundle, Path]]) -> None:
    _, folder = exported()
    assert isinstance(onnx_engine.OnnxNetwork(onnx_engine.OnnxModel(folder)), Network)


def test_a_translator_stands_on_it(exported: Callable[..., tuple[Bundle, Path]], texts: list[str]) -> None:
    bundle, folder = exported()
    native = Translator.load(bundle.folder, device="cpu", precision="float32")
    translator = Translator(onnx_engine.load(folder), native.tokenizer, native.search, "en", "no")
    assert translator.translate(["", *texts[:9]]) == native.translate(["", *texts[:9]])
