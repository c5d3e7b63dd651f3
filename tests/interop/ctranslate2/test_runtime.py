import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transduce.bundle import Bundle, Languages, save_bundle
from transduce.config import SearchConfig
from transduce.errors import BundleError, ConfigError, MissingExtraError
from transduce.interop import export_bundle
from transduce.interop.ctranslate2 import FORMAT
from transduce.interop.ctranslate2.runtime import CTranslate2Engine, CTranslate2Runtime, compute_type, read_settings
from transduce.interop.formats import Runtime
from transduce.search import Constraints, Hypothesis, Sampling
from transduce.translation import Engine, ForcedDecoder, PyTorchEngine, score_ids

pytest.importorskip("ctranslate2")


@pytest.fixture
def bundle(make_bundle: Callable[..., Bundle]) -> Bundle:
    return make_bundle(num_encoder_layers=1)


@pytest.fixture
def folder(bundle: Bundle, tmp_path: Path) -> Path:
    (tmp_path / "written").mkdir()
    FORMAT.write(bundle, tmp_path / "written", "float32")
    return tmp_path / "written"


def test_texts_come_back(bundle: Bundle, folder: Path) -> None:
    tokenizer, texts = bundle.load_tokenizer(), ["sun moon", "  ☃ 漢字 river", "7"]
    runtime = FORMAT.load(folder, tokenizer)
    assert isinstance(runtime, Runtime)
    ids = [[*row, tokenizer.end_id] for row in tokenizer.encode_all(texts)]
    assert runtime.encode(texts) == ids
    assert runtime.decode(ids) == [tokenizer.decode(row) for row in ids]


def test_a_folder_without_a_tokenizer_has_none(bundle: Bundle, folder: Path) -> None:
    (folder / "tokenizer.model").unlink()
    runtime = FORMAT.load(folder, bundle.load_tokenizer())
    assert runtime.encode(["sun"]) is None
    assert runtime.decode([[5, 1]]) is None


def test_a_folder_that_does_not_end_sources_is_given_the_end(bundle: Bundle, folder: Path) -> None:
    runtime = FORMAT.load(folder, bundle.load_tokenizer())
    asked = [[5, 280, 7, 1], [9, 1]], [[6, 1], [8, 290, 1]]
    expected = runtime.score_targets(*asked), runtime.translate_greedily(asked[0], [6, 6])
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(settings | {"add_source_eos": False}), encoding="utf-8")
    other = CTranslate2Runtime(folder, bundle.load_tokenizer())
    assert (other.score_targets(*asked), other.translate_greedily(asked[0], [6, 6])) == expected


def test_each_greedy_translation_has_its_own_limit(bundle: Bundle, folder: Path) -> None:
    runtime = FORMAT.load(folder, bundle.load_tokenizer())
    sources = [[5, 280, 7, 1], [9, 1], [281, 1]]
    short, long = runtime.translate_greedily(sources, [1, 3, 2]), runtime.translate_greedily(sources, [8, 8, 8])
    assert [len(row) for row in short] == [1, 3, 2]
    assert [row[: len(beginning)] for row, beginning in zip(long, short, strict=True)] == short


def test_settings_travel_in_what_ctranslate2_passes_over(bundle: Bundle, folder: Path) -> None:
    settings = read_settings(folder)
    assert settings.model == bundle.model_config
    assert settings.search == bundle.description.search
    assert settings.languages == Languages(source="en", target="no")
    (folder / "config.json").unlink()
    with pytest.raises(BundleError, match=r"config.json: cannot be read"):
        read_settings(folder)


def test_arithmetic_that_the_device_does_not_have_is_float32() -> None:
    assert compute_type("int8", "cpu") == "int8"
    assert compute_type("no such type", "cpu") == "float32"


def test_without_ctranslate2_the_command_to_install_it_is_said(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'transduce\[ctranslate2\]'"):
        export_bundle(bundle, "ctranslate2", tmp_path / "out", num_sentences=2)
    assert not (tmp_path / "out").exists()


pytest.importorskip("ctranslate2")


@pytest.fixture
def decoder(make_bundle: Callable[..., Bundle], tmp_path: Path) -> ForcedDecoder:
    """A model most of whose translations end before they must, and a folder `exported` with it."""
    bundle = make_bundle(output_bias=True)
    model = bundle.load_model()
    with torch.no_grad():
        model.projection.bias[bundle.load_tokenizer().end_id] += 3
    save_bundle(tmp_path / "ending", model, bundle.load_tokenizer(), bundle.description)
    bundle = Bundle.open(tmp_path / "ending")
    (tmp_path / "exported").mkdir()
    FORMAT.write(bundle, tmp_path / "exported", "float32")
    return ForcedDecoder.from_bundle(bundle, device="cpu")


@pytest.fixture
def engine(decoder: ForcedDecoder, tmp_path: Path) -> Engine:
    return CTranslate2Engine(tmp_path / "exported", "cpu")


@pytest.fixture
def sources(decoder: ForcedDecoder, texts: list[str]) -> list[list[int]]:
    return [[*ids, decoder.tokenizer.end_id] for ids in decoder.tokenizer.encode_all(texts[:10])]


def ids(found: list[list[Hypothesis]]) -> list[list[int]]:
    return [hypotheses[0].ids for hypotheses in found]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"no_repeat_ngram": 1},
        {"no_repeat_ngram": 2},
        {"min_length": 5},
        {"max_extra_length": 1},
        {"batch_tokens": 7},
    ],
    ids=str,
)
def test_greedy_search_is_the_native_engines(
    engine: Engine, decoder: ForcedDecoder, sources: list[list[int]], settings: dict[str, Any]
) -> None:
    config = SearchConfig(**{"beam": 1, "max_extra_length": 8, **settings})
    native = PyTorchEngine(decoder.model, decoder.tokenizer.end_id, "float32")
    found = engine.search(sources, config)
    assert ids(found) == ids(native.search(sources, config))
    assert all(
        len(row) <= len(source) + config.max_extra_length for row, source in zip(ids(found), sources, strict=True)
    )


def test_a_beam_finds_what_ours_finds_ranked_by_our_length_penalty(
    engine: Engine, decoder: ForcedDecoder, sources: list[list[int]]
) -> None:
    native = PyTorchEngine(decoder.model, decoder.tokenizer.end_id, "float32")
    for alpha in (0.0, 0.6, 2.0):
        config = SearchConfig(beam=4, max_extra_length=8, length_penalty=alpha)
        found, expected = engine.search(sources, config, 3), native.search(sources, config, 3)
        same = sum(one == other for one, other in zip(ids(found), ids(expected), strict=True))
        assert same >= 0.8 * len(sources)  # it may stop earlier than ours
        for hypotheses in found:
            scores = [hypothesis.score for hypothesis in hypotheses]
            assert scores == sorted(scores, reverse=True)
            assert len({tuple(hypothesis.ids) for hypothesis in hypotheses}) == len(hypotheses)


def test_scores_are_those_of_forced_decoding(engine: Engine, decoder: ForcedDecoder, sources: list[list[int]]) -> None:
    for config in (decoder.search, SearchConfig(max_extra_length=1)):
        found = engine.search(sources, config, config.beam)
        pairs = [(source, one) for source, rows in zip(sources, found, strict=True) for one in rows]
        expected = score_ids(decoder, [source for source, _ in pairs], [one.ids for _, one in pairs])
        for (source, one), other in zip(pairs, expected, strict=True):
            assert one.ids[-1] == decoder.tokenizer.end_id
            assert len(one.ids) <= len(source) + config.max_extra_length
            assert one.score == pytest.approx(other.score, abs=1e-4)
            assert one.token_scores == pytest.approx(other.token_scores, abs=1e-4)


def test_nothing_gives_nothing(engine: Engine) -> None:
    assert engine.search([], SearchConfig()) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("settings", "constraints", "words"),
    [
        ({"repetition_penalty": 2.0}, None, r"--repetition-penalty"),
        ({"diversity": 1.0}, None, r"--diversity"),
        ({}, Constraints(prefix=(5,)), r"--prefix"),
        ({}, Constraints(required=((5,),)), r"--require"),
        ({"diversity": 1.0}, Constraints(forbidden=((5,),)), r"--forbid\) and diversity"),
    ],
)
def test_what_ctranslate2_does_not_have_is_refused_by_name(
    engine: Engine, settings: dict[str, Any], constraints: Constraints | None, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        engine.search([[5, 1]], SearchConfig(**settings), constraints=None if constraints is None else [constraints])


def test_it_says_so_before_there_is_a_source(engine: Engine) -> None:
    engine.check(SearchConfig(no_repeat_ngram=2), Constraints())
    with pytest.raises(ConfigError, match=r"forbidden words \(--forbid\); use the engine native"):
        engine.check(SearchConfig(), Constraints(forbidden=((5,),)))
    with pytest.raises(ConfigError, match=r"--repetition-penalty"):
        engine.check(SearchConfig(repetition_penalty=2.0))
    with pytest.raises(ConfigError, match="--samples 3"):
        engine.check(SearchConfig(), num_samples=3)


def test_lengths_are_each_sources_own(engine: Engine, sources: list[list[int]]) -> None:
    for settings in ({"min_length": 30}, {"max_extra_length": 1}, {"min_length": 12, "max_extra_length": 9}):
        config = SearchConfig(beam=2, **{"max_extra_length": 8, **settings})
        found = ids(engine.search(sources, config))
        assert found == [ids(engine.search([source], config))[0] for source in sources]
        for source, row in zip(sources, found, strict=True):
            limit = len(source) + config.max_extra_length
            assert min(config.min_length, limit) <= len(row) <= limit


def test_no_constraints_are_none(engine: Engine) -> None:
    config = SearchConfig(max_extra_length=4)
    assert engine.search([[5, 1]], config, constraints=[Constraints()]) == engine.search([[5, 1]], config)


def test_samples_are_refused(engine: Engine) -> None:
    with pytest.raises(ConfigError, match="--samples 3"):
        engine.sample([[5, 1]], SearchConfig(), 3, Sampling(), 1)


def test_damage_is_said(decoder: ForcedDecoder, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"device = 'mps': CTranslate2 supports cpu, cuda and auto"):
        CTranslate2Engine(tmp_path / "exported", "mps")
    path = tmp_path / "exported" / "model.bin"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(BundleError, match="CTranslate2 cannot read it"):
        CTranslate2Engine(tmp_path / "exported", "cpu")
    (tmp_path / "exported" / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(BundleError, match=r"config.json: has no section 'transduce'"):
        CTranslate2Engine(tmp_path / "exported", "cpu")
