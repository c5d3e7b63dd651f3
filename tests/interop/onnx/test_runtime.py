import json
import sys
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transduce.bundle import Bundle, save_bundle
from transduce.config import SearchConfig
from transduce.errors import BundleError, MissingExtraError, UserError
from transduce.interop.formats import Runtime
from transduce.interop.onnx import runtime as onnx_runtime
from transduce.interop.onnx.export_format import FORMAT
from transduce.interop.onnx.runtime import CONFIG_FILE, OnnxModel, OnnxRuntime, OnnxSettings, read_settings
from transduce.search import Constraints, Hypothesis, Sampling
from transduce.translation import Engine, NativeEngine, Network, Translator

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")


def write(folder: Path, settings: OnnxSettings) -> Path:
    (folder / CONFIG_FILE).write_text(settings.model_dump_json(indent=2), encoding="utf-8")
    return folder


def test_they_say_what_a_program_needs(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle(num_decoder_layers=2)
    settings = OnnxSettings.of(bundle.description, "int8")
    assert read_settings(write(tmp_path, settings)) == settings
    tokenizer = bundle.load_tokenizer()
    assert (settings.unknown_id, settings.end_id, settings.pad_id) == (0, 1, tokenizer.pad_id)
    assert settings.precision == "int8"
    assert (settings.model, settings.search) == (bundle.model_config, bundle.description.search)
    assert settings.languages == bundle.description.languages
    memory = ("memory_keys_0", "memory_values_0", "memory_keys_1", "memory_values_1")
    assert settings.encoder.outputs == ("source_mask", *memory)
    assert settings.decoder_step.inputs[:6] == ("last_ids", "source_mask", *memory)
    assert settings.decoder_step.inputs[6:8] == ("past_keys_0", "past_values_0")
    assert settings.decoder_step.outputs[:3] == ("log_probabilities", "present_keys_0", "present_values_0")


@pytest.mark.parametrize(("positions", "limit"), [("sinusoidal", None), ("none", None), ("learned", 30)])
def test_only_learned_positions_end(make_bundle: Callable[..., Bundle], positions: str, limit: int | None) -> None:
    bundle = make_bundle(positions=positions, max_positions=30)
    assert OnnxSettings.of(bundle.description, "float32").max_positions == limit


def test_a_folder_without_them_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="cannot be read"):
        read_settings(tmp_path)


@pytest.mark.parametrize("change", [{"format": "other"}, {"format_version": 2}, {"end_id": "1"}, {"more": 1}])
def test_other_settings_are_refused(make_bundle: Callable[..., Bundle], tmp_path: Path, change: dict) -> None:
    write(tmp_path, OnnxSettings.of(make_bundle().description, "float32"))
    path = tmp_path / CONFIG_FILE
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | change), encoding="utf-8")
    with pytest.raises(BundleError, match=f"{next(iter(change))}: .*: give a folder that"):
        read_settings(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_what_is_no_settings_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / CONFIG_FILE).write_text(text, encoding="utf-8")
    with pytest.raises(BundleError, match="give a folder that transduce export --to onnx has written"):
        read_settings(tmp_path)


@pytest.fixture
def folder(make_bundle: Callable[..., Bundle], tmp_path: Path) -> Path:
    (tmp_path / "written").mkdir()
    FORMAT.write(make_bundle(positions="learned", max_positions=4), tmp_path / "written", "float32")
    return tmp_path / "written"


def test_nothing_reaches_behind_learned_positions(folder: Path) -> None:
    model = OnnxModel(folder)
    with pytest.raises(UserError, match="position 5; this model has learned positions up to 4"):
        model.read(np.full((1, 5), 2))
    memory, past = model.read(np.full((1, 4), 2)), model.make_empty_past(1)
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
    return NativeEngine(bundle.load_model(), END), onnx_runtime.load(folder)


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
    native, engine = NativeEngine(bundle.load_model(), END), onnx_runtime.load(folder)
    found = engine.search(sources, SEARCH)
    assert_same(found, native.search(sources, SEARCH))
    assert max(len(best[0].ids) for best in found) <= 10
    with pytest.raises(UserError, match="learned positions up to 10"):
        engine.search([[*range(2, 12), END]], SEARCH)


def test_the_network_is_one(exported: Callable[..., tuple[Bundle, Path]]) -> None:
    _, folder = exported()
    assert isinstance(onnx_runtime.OnnxNetwork(onnx_runtime.OnnxModel(folder)), Network)


def test_a_translator_stands_on_it(exported: Callable[..., tuple[Bundle, Path]], texts: list[str]) -> None:
    bundle, folder = exported()
    native = Translator.load(bundle.folder, device="cpu", precision="float32")
    translator = Translator(onnx_runtime.load(folder), native.tokenizer, native.search, "en", "no")
    assert translator.translate(["", *texts[:9]]) == native.translate(["", *texts[:9]])
