"""The programs that travel with a model, started as a user starts them."""

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transduce.bundle import Bundle, BundleDescription, collect_model_tensors, save_bundle
from transduce.config import SearchConfig
from transduce.errors import BundleError, MissingExtraError, UserError
from transduce.interop import formats
from transduce.interop import onnx as onnx_format
from transduce.interop.export_import import prove_export
from transduce.interop.formats import ExportFormat, Runtime
from transduce.interop.onnx import (
    CONFIG_FILE,
    FORMAT,
    OnnxNetwork,
    OnnxSettings,
    read_settings,
    render_example_programs,
    render_onnx_card,
)
from transduce.interop.parity import Claim, bound_rounding
from transduce.interop.probe_sentences import make_probe
from transduce.model import Transformer
from transduce.search import Constraints, Hypothesis, Sampling
from transduce.text import Tokenizer
from transduce.translation import Engine, ForcedDecoder, Network, PyTorchEngine, Translator

pytest.importorskip("onnxruntime")

SHORT = SearchConfig(max_extra_length=5)

SEARCHES = [
    {"beam": 2, "length_penalty": 2.0},
    {"beam": 2, "max_length": 6},
    {"beam": 3, "min_length": 7, "no_repeat_ngram": 2},
    {"beam": 2, "repetition_penalty": 1.3, "length_penalty": 2.0},
    {"beam": 3, "diversity": 1.5, "length_penalty": 1.0},
]
MORE_SEARCHES = [
    {"beam": 1},
    {"beam": 1, "no_repeat_ngram": 1, "repetition_penalty": 1.2},
    {"beam": 4, "no_repeat_ngram": 3, "length_penalty": 0.0},
    {"beam": 4, "min_length": 3, "max_length": 9, "no_repeat_ngram": 2, "repetition_penalty": 1.5, "diversity": 0.5},
]


@pytest.fixture
def saved(random_model: Callable[..., Transformer], tmp_path: Path) -> Callable[..., Bundle]:
    """A bundle with a network that ends some translations soon, others at their limit."""

    def make(tokenizer: Tokenizer, search: SearchConfig = SHORT, **settings: Any) -> Bundle:
        sizes = {"num_decoder_layers": 2, "tied_embeddings": "none", "output_bias": True}
        model = random_model(**sizes, **settings)
        with torch.no_grad():
            model.projection.bias[tokenizer.end_id] += 4
        description = BundleDescription(model=model.config, search=search)
        save_bundle(tmp_path / "bundle", model, tokenizer, description)
        return Bundle.open(tmp_path / "bundle")

    return make


def run(bundle: Bundle, folder: Path, lines: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    FORMAT.write(bundle, folder, "float32")
    return subprocess.run(
        [sys.executable, "-W", "error", str(folder / "translate.py"), *arguments],
        input="".join(line + "\n" for line in lines),
        capture_output=True,
        check=False,
        encoding="utf-8",
    )


def translated(bundle: Bundle, lines: list[str], beam: int | None = None) -> list[str]:
    return Translator.load(bundle.folder, device="cpu", precision="float32").translate(lines, beam=beam)


@pytest.mark.parametrize(
    "settings", [*SEARCHES, *(pytest.param(one, marks=pytest.mark.exhaustive) for one in MORE_SEARCHES)], ids=str
)
def test_the_program_searches_as_we_do(
    saved: Callable[..., Bundle], tokenizer: Tokenizer, texts: list[str], tmp_path: Path, settings: dict[str, Any]
) -> None:
    bundle = saved(tokenizer, SHORT.with_overrides(settings))
    found = run(bundle, tmp_path / "written", texts[:60])
    assert not found.stderr
    expected = Translator.load(bundle.folder, device="cpu", precision="float32").translate(texts[:60])
    assert found.stdout.splitlines() == expected
    assert len({len(text) for text in expected}) > 3


def test_the_program_translates_any_line_with_any_beam(
    saved: Callable[..., Bundle], tokenizer: Tokenizer, texts: list[str], tmp_path: Path
) -> None:
    bundle = saved(tokenizer)
    lines = [*texts[:7], "", "  ", "Größe ☃ <unk></s>", "moon"]
    found = run(bundle, tmp_path / "written", lines, "3")
    assert not found.stderr
    expected = translated(bundle, lines, 3)
    assert found.stdout == "".join(text + "\n" for text in expected)
    assert len({len(text) for text in expected}) > 3


def test_the_program_says_what_is_too_long(saved: Callable[..., Bundle], tokenizer: Tokenizer, tmp_path: Path) -> None:
    bundle = saved(tokenizer, positions="learned", max_positions=4)
    found = run(bundle, tmp_path / "written", ["moon", "moon", "salt wind moon river", "moon"])
    assert found.returncode == 1
    assert found.stdout == "".join(text + "\n" for text in translated(bundle, ["moon", "moon"]))
    length = len(tokenizer.encode("salt wind moon river"))
    assert found.stderr == f"line 3 has {length} pieces, the model reads at most 3: divide it\n"


def test_two_tokenizers_travel_with_a_module_of_their_own(
    saved: Callable[..., Bundle], tokenizer: Tokenizer, texts: list[str], tmp_path: Path
) -> None:
    model, pieces = tokenizer.model_bytes, tokenizer.pieces(range(2, tokenizer.pad_id))
    # As many pieces as before: a language takes the place of one.
    shared, source = ["<unk>", "</s>", *pieces[:1:-2]], [">>no<<", *pieces[-2::-2]]
    separate = Tokenizer.with_vocabulary(
        model, model, shared, "two", source_only=source[: len(pieces) + 2 - len(shared)]
    )
    assert (separate.is_joint, separate.vocabulary) == (False, tokenizer.vocabulary)
    bundle = saved(separate)
    lines = [*texts[:5], f">>no<< {texts[0]}", f" >>en<< {texts[0]}", "Größe ☃"]
    found = run(bundle, tmp_path / "written", lines, "1")
    assert not found.stderr
    expected = translated(bundle, lines, 1)
    assert found.stdout == "".join(text + "\n" for text in expected)
    assert len(set(expected)) > 5


def test_the_program_reads_tags(
    saved: Callable[..., Bundle], tagged: Tokenizer, texts: list[str], tmp_path: Path
) -> None:
    lines = [f">>de<< {texts[0]}", f" >>fr<<{texts[0]}", texts[0], f">>no<< {texts[0]}", f"{texts[0]} >>de<<"]
    bundle = saved(tagged)
    found = run(bundle, tmp_path / "written", lines, "1")
    assert not found.stderr
    expected = translated(bundle, lines, 1)
    assert found.stdout == "".join(text + "\n" for text in expected)
    assert len(set(expected)) > 3
    assert "`>>de<<`, `>>fr<<`" in (tmp_path / "written" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["joint", "tagged", "separate"])
def test_the_program_is_short(name: str, tokenizer: Tokenizer, tagged: Tokenizer) -> None:
    model, pieces = tokenizer.model_bytes, tokenizer.pieces(range(tokenizer.pad_id))
    separate = Tokenizer.with_vocabulary(model, model, pieces[:-1], "two", source_only=pieces[-1:])
    programs = render_example_programs({"joint": tokenizer, "tagged": tagged, "separate": separate}[name])
    assert programs.keys() - {f"{name}_tokenizer.py"} == {"translate.py"}
    for file, program in programs.items():
        compile(program, file, "exec")
        lines = program.splitlines()
        assert len(lines) <= 84
        assert max(map(len, lines)) <= 120
        imported = {line.split()[1].split(".")[0] for line in lines if line.startswith(("import ", "from "))}
        known = {"json", "re", "sys", "pathlib", "numpy", "onnxruntime", "sentencepiece", f"{name}_tokenizer"}
        assert imported <= known


@pytest.mark.parametrize(
    ("settings", "precision", "words"),
    [
        ({}, "float32", ["from en to no", "Lengths have no limit.", "| rows, 2, past, 8 |", "| rows, 310 |"]),
        ({"d_k": 4, "d_v": 6}, "float16", ["4 (keys) or 6", "kept in 16 bits"]),
        ({"positions": "learned", "max_positions": 30}, "int8", ["more than 30 tokens", "kept in 8 bits"]),
    ],
)
def test_the_card_says_what_it_is(
    make_bundle: Callable[..., Bundle], settings: dict[str, Any], precision: str, words: list[str]
) -> None:
    exported = OnnxSettings.of(make_bundle(**settings).description, precision)
    card = render_onnx_card(exported)
    assert [word for word in words if word not in card] == []
    named = [*exported.encoder.inputs, *exported.decoder_step.inputs, *exported.decoder_step.outputs]
    assert [name for name in named if f"`{name.removesuffix('_0')}" not in card] == []


onnx = pytest.importorskip("onnx")


def written(bundle: Bundle, folder: Path, precision: str = "float32") -> Path:
    folder.mkdir()
    FORMAT.write(bundle, folder, precision)
    return folder


def test_it_is_a_format() -> None:
    assert isinstance(FORMAT, ExportFormat)
    assert FORMAT.precisions[0] == "float32"


@pytest.mark.exhaustive
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
    assert FORMAT.find_unsupported_features(bundle) == []
    decoder = ForcedDecoder.from_bundle(bundle, device="cpu")
    folder = written(bundle, tmp_path / "written")
    parity = prove_export(
        decoder, FORMAT, folder, make_probe(decoder, num_sentences=13), Claim("onnx", "float32", "model")
    )
    assert parity.identical_greedy == parity.identical_tokenizations == 13
    assert parity.identical_weights == len(collect_model_tensors(decoder.model))


@pytest.mark.parametrize("precision", FORMAT.precisions[1:])
def test_smaller_weights_are_close(make_bundle: Callable[..., Bundle], tmp_path: Path, precision: str) -> None:
    bundle = make_bundle()
    decoder = ForcedDecoder.from_bundle(bundle, device="cpu")
    folder = written(bundle, tmp_path / "written", precision)
    parity = prove_export(
        decoder, FORMAT, folder, make_probe(decoder, num_sentences=13), Claim("onnx", precision, "model")
    )
    assert parity.mean_difference > 1e-5
    assert parity.identical_weights == len(collect_model_tensors(decoder.model))


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
    expected = collect_model_tensors(bundle.load_model())
    found = FORMAT.read_back(written(bundle, tmp_path / "written"))
    assert found.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []


def test_weights_in_bytes_come_back_within_their_rounding(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle(normalization="batch", positions="learned", max_positions=30, output_bias=True)
    expected = collect_model_tensors(bundle.load_model())
    found = FORMAT.read_back(written(bundle, tmp_path / "written", "int8"))
    assert found.keys() == expected.keys()
    bounds = {name: bound_rounding("int8", tensor) for name, tensor in expected.items()}
    assert [name for name in expected if ((found[name] - expected[name]).abs() > bounds[name]).any()] == []
    assert any(not torch.equal(found[name], expected[name]) for name in expected)


def test_a_matrix_in_bytes_that_differs_is_noticed(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle()
    folder = written(bundle, tmp_path / "written", "int8")
    model = onnx.load(folder / "encoder.onnx")
    name = "encoder.layers.0.feed_forward.outer.weight"
    (weight,) = (one for one in model.graph.initializer if one.name == name)
    width = weight.dims[1]
    weight.raw_data = weight.raw_data[width : 2 * width] + weight.raw_data[:width] + weight.raw_data[2 * width :]
    onnx.save(model, folder / "encoder.onnx")
    expected = collect_model_tensors(bundle.load_model())[name]
    difference = (FORMAT.read_back(folder)[name] - expected).abs()
    assert (difference > bound_rounding("int8", expected)).any(dim=1).nonzero().flatten().tolist() == [0, 1]


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
    with pytest.raises(BundleError, match=f"{name} differs between the graphs"):
        FORMAT.read_back(folder)


def test_a_changed_weight_is_noticed(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle()
    folder = written(bundle, tmp_path / "written")
    model = onnx.load(folder / "encoder.onnx")
    (weight,) = (one for one in model.graph.initializer if "cross_attention.projection.weight" in one.name)
    weight.raw_data = weight.raw_data[:-4] + b"\0\0\0\1"
    onnx.save(model, folder / "encoder.onnx")
    expected = collect_model_tensors(bundle.load_model())
    found = FORMAT.read_back(folder)
    changed = [name for name in expected if not torch.equal(found[name], expected[name])]
    assert changed == ["decoder.layers.0.cross_attention.projection.weight"]


def test_a_model_beyond_protocol_buffers_is_an_obstacle(
    make_bundle: Callable[..., Bundle], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = make_bundle()
    monkeypatch.setattr(onnx_format, "MAX_BYTES", 1000)
    (obstacle,) = FORMAT.find_unsupported_features(bundle)
    assert "limited to 2 GB" in obstacle


def test_an_unknown_attention_score_is_an_obstacle(
    make_bundle: Callable[..., Bundle], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_format, "ATTENTION_SCORES_OF_GRAPHS", ("dot", "additive"))
    (obstacle,) = FORMAT.find_unsupported_features(make_bundle())
    assert obstacle == 'attention_score = "scaled_dot": the graphs support only dot, additive'


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
    with pytest.raises(BundleError, match=f"{next(iter(change))}: .*: give a folder written by"):
        read_settings(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_what_is_no_settings_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / CONFIG_FILE).write_text(text, encoding="utf-8")
    with pytest.raises(BundleError, match="give a folder written by transduce export --to onnx"):
        read_settings(tmp_path)


@pytest.fixture
def folder(make_bundle: Callable[..., Bundle], tmp_path: Path) -> Path:
    (tmp_path / "written").mkdir()
    FORMAT.write(make_bundle(positions="learned", max_positions=4), tmp_path / "written", "float32")
    return tmp_path / "written"


def test_nothing_reaches_behind_learned_positions(folder: Path) -> None:
    network, five = OnnxNetwork(folder), torch.full((1, 5), 2)
    with pytest.raises(UserError, match="position 5; this model has learned positions up to 4"):
        network.start(five, five > 0)
    state = network.start(five[:, :4], five[:, :4] > 0)
    for _ in range(4):
        _, state = network.step(five[:, :1], state)
    with pytest.raises(UserError, match="position 5"):
        network.step(five[:, :1], state)


@pytest.mark.parametrize("name", ["encoder.onnx", "decoder_step.onnx"])
def test_a_missing_or_damaged_graph_is_named(folder: Path, name: str) -> None:
    path = folder / name
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(BundleError, match=f"{name}: ONNX Runtime cannot read it"):
        OnnxNetwork(folder)
    path.unlink()
    with pytest.raises(BundleError, match=f"{name}: is missing"):
        OnnxNetwork(folder)


def test_without_onnx_runtime_the_message_names_the_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"'onnxruntime'.*pip install 'transduce\[onnx\]'"):
        OnnxNetwork(folder)


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
def runtime(bundle: Bundle, tmp_path: Path) -> Runtime:
    (tmp_path / "written").mkdir()
    FORMAT.write(bundle, tmp_path / "written", "float32")
    return FORMAT.load(tmp_path / "written", bundle.load_tokenizer())


def rows(seed: int, lengths: tuple[int, ...]) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [[*random.integers(2, 300, size=length - 1).tolist(), END] for length in lengths]


def test_it_is_a_runtime(runtime: Runtime) -> None:
    assert isinstance(runtime, Runtime)
    assert runtime.name.startswith("ONNX Runtime 1.")


def test_scores_of_targets_of_any_lengths_are_the_models(
    bundle: Bundle, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "MAX_ROWS", 3)
    sources, targets = rows(1, (3, 9, 1, 6, 6)), rows(2, (8, 1, 4, 4, 12))
    model = bundle.load_model()
    for found, source, target in zip(runtime.score_targets(sources, targets), sources, targets, strict=True):
        ids = torch.tensor([source]), torch.tensor([target])
        with torch.no_grad():
            log_probs = model(ids[0], ids[0] >= 0, ids[1], ids[1] >= 0).log_softmax(-1)[0]
        assert found == pytest.approx(log_probs.gather(1, ids[1].T).squeeze(1).tolist(), abs=1e-5)


def test_greedy_is_beam_search_with_a_beam_of_1(bundle: Bundle, runtime: Runtime) -> None:
    sources = rows(3, (3, 9, 1, 6, 6, 2))
    engine = PyTorchEngine(bundle.load_model(), END)
    limit = 14
    expected = [
        engine.search([source], SearchConfig(beam=1, max_extra_length=limit - len(source)))[0][0].ids
        for source in sources
    ]
    found = runtime.translate_greedily(sources, [limit] * len(sources))
    # At its limit, our search ends a hypothesis whatever the model says.
    assert all(len(ids) == limit or ids[-1] == END for ids in found)
    assert [ids[: limit - 1] for ids in found] == [ids[: limit - 1] for ids in expected]
    assert len({len(ids) for ids in expected}) > 1

    limits = [1, 2, 3, 4, 5, 6]
    assert runtime.translate_greedily(sources, limits) == [ids[:most] for ids, most in zip(found, limits, strict=True)]


def test_the_tokenizer_travels(bundle: Bundle, runtime: Runtime, texts: list[str]) -> None:
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
def engines(exported: Callable[..., tuple[Bundle, Path]]) -> tuple[PyTorchEngine, Engine]:
    bundle, folder = exported(num_encoder_layers=1, num_decoder_layers=2)
    return PyTorchEngine(bundle.load_model(), END), onnx_format.load(folder)


@pytest.fixture
def sources() -> list[list[int]]:
    random = np.random.default_rng(3)
    return [[*random.integers(2, 300, size=size).tolist(), END] for size in (3, 7, 0, 4, 4, 9)]


def assert_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    assert [[one.ids for one in best] for best in found] == [[one.ids for one in best] for best in expected]
    for one, other in zip(chain(*found), chain(*expected), strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4)
        assert one.token_scores == pytest.approx(other.token_scores, abs=1e-4)


@pytest.mark.exhaustive
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
    engines: tuple[PyTorchEngine, Engine], sources: list[list[int]], settings: dict[str, Any]
) -> None:
    native, engine = engines
    assert isinstance(engine, Engine)
    search = SEARCH.model_copy(update=settings)
    assert_same(engine.search(sources, search, search.beam), native.search(sources, search, search.beam))
    assert engine.search([], search) == []


def test_constraints_are_kept_in_the_same_way(engines: tuple[PyTorchEngine, Engine], sources: list[list[int]]) -> None:
    native, engine = engines
    asked = [Constraints(prefix=(7,), required=((20, 21), (30,)), forbidden=((40,),))] * len(sources)
    found = engine.search(sources, SEARCH, 1, asked)
    assert_same(found, native.search(sources, SEARCH, 1, asked))
    assert all(best[0].ids[0] == 7 and {20, 21, 30} < {*best[0].ids} for best in found)


def test_samples_are_the_same_for_the_same_seed(
    engines: tuple[PyTorchEngine, Engine], sources: list[list[int]]
) -> None:
    found, expected = (engine.sample(sources, SEARCH, 4, Sampling(top_p=0.9), 1) for engine in reversed(engines))
    assert_same(found, expected)


def test_threads_translate_as_one_does(engines: tuple[PyTorchEngine, Engine], sources: list[list[int]]) -> None:
    _, engine = engines
    alone = engine.search(sources * 3, SEARCH, 3)
    torch.set_num_threads(2)
    try:
        assert engine.search(sources * 3, SEARCH, 3) == alone
    finally:
        torch.set_num_threads(1)


def test_learned_positions_end(exported: Callable[..., tuple[Bundle, Path]], sources: list[list[int]]) -> None:
    bundle, folder = exported(positions="learned", max_positions=10, attention_score="additive")
    native, engine = PyTorchEngine(bundle.load_model(), END), onnx_format.load(folder)
    found = engine.search(sources, SEARCH)
    assert_same(found, native.search(sources, SEARCH))
    assert max(len(best[0].ids) for best in found) <= 10
    with pytest.raises(UserError, match="learned positions up to 10"):
        engine.search([[*range(2, 12), END]], SEARCH)


def test_the_network_is_one(exported: Callable[..., tuple[Bundle, Path]]) -> None:
    _, folder = exported()
    assert isinstance(OnnxNetwork(folder), Network)


def test_a_translator_stands_on_it(exported: Callable[..., tuple[Bundle, Path]], texts: list[str]) -> None:
    bundle, folder = exported()
    native = Translator.load(bundle.folder, device="cpu", precision="float32")
    translator = Translator(onnx_format.load(folder), native.tokenizer, native.search, "en", "no")
    assert translator.translate(["", *texts[:9]]) == native.translate(["", *texts[:9]])
