"""The programs that travel with a model, started as a user starts them."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transduce.bundle import Bundle, BundleDescription, model_tensors, save_bundle
from transduce.config import SearchConfig
from transduce.errors import BundleError
from transduce.interop.export import prove_export
from transduce.interop.formats import ExportFormat
from transduce.interop.onnx import export_format as onnx_format
from transduce.interop.onnx.export_format import FORMAT, example_programs, onnx_card
from transduce.interop.onnx.runtime import OnnxSettings
from transduce.interop.probe import make_probe
from transduce.interop.proof import Claim
from transduce.model import Transformer
from transduce.text import Tokenizer
from transduce.translation import ForcedDecoder, Translator

pytest.importorskip("onnxruntime")


@pytest.fixture
def saved(random_model: Callable[..., Transformer], tmp_path: Path) -> Callable[..., Bundle]:
    """A bundle with a network that ends some translations soon, others at their limit."""

    def make(tokenizer: Tokenizer, **settings: Any) -> Bundle:
        sizes = {"num_decoder_layers": 2, "tied_embeddings": "none", "output_bias": True}
        model = random_model(**sizes, **settings)
        with torch.no_grad():
            model.projection.bias[tokenizer.end_id] += 4
        description = BundleDescription(model=model.config, search=SearchConfig(max_extra_length=5))
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


def translated(bundle: Bundle, lines: list[str], beam: int) -> list[str]:
    return Translator.load(bundle.folder, device="cpu", precision="float32").translate(lines, beam=beam)


@pytest.mark.parametrize("beam", [1, 3])
def test_the_program_translates_as_we_do(
    saved: Callable[..., Bundle], tokenizer: Tokenizer, texts: list[str], tmp_path: Path, beam: int
) -> None:
    bundle = saved(tokenizer)
    lines = [*texts[:7], "", "  ", "Größe ☃ <unk></s>", "moon"]
    found = run(bundle, tmp_path / "written", lines, *([str(beam)] if beam > 1 else []))
    assert not found.stderr
    expected = translated(bundle, lines, beam)
    assert found.stdout == "".join(text + "\n" for text in expected)
    assert len({len(text) for text in expected}) > 3


def test_the_program_says_what_is_too_long(saved: Callable[..., Bundle], tokenizer: Tokenizer, tmp_path: Path) -> None:
    bundle = saved(tokenizer, positions="learned", max_positions=4)
    found = run(bundle, tmp_path / "written", ["moon", "moon", "salt wind moon river", "moon"])
    assert found.returncode == 1
    assert found.stdout == "".join(text + "\n" for text in translated(bundle, ["moon", "moon"], 1))
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
    found = run(bundle, tmp_path / "written", lines)
    assert not found.stderr
    expected = translated(bundle, lines, 1)
    assert found.stdout == "".join(text + "\n" for text in expected)
    assert len(set(expected)) > 5


@pytest.mark.parametrize("is_joint", [True, False])
def test_the_program_is_short(is_joint: bool) -> None:
    programs = example_programs(is_joint=is_joint)
    assert programs.keys() == ({"translate.py"} if is_joint else {"translate.py", "separate_tokenizer.py"})
    for name, program in programs.items():
        compile(program, name, "exec")
        lines = program.splitlines()
        assert len(lines) <= 60
        assert max(map(len, lines)) <= 120
        imported = {line.split()[1].split(".")[0] for line in lines if line.startswith(("import ", "from "))}
        known = {"json", "re", "sys", "pathlib", "numpy", "onnxruntime", "sentencepiece", "separate_tokenizer"}
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
    card = onnx_card(exported)
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
    parity = prove_export(
        decoder, FORMAT, folder, make_probe(decoder, num_sentences=13), Claim("onnx", "float32", "model")
    )
    assert parity.identical_greedy == parity.identical_tokenizations == 13
    assert parity.identical_weights == len(model_tensors(decoder.model))


@pytest.mark.parametrize("precision", FORMAT.precisions[1:])
def test_smaller_weights_are_close(make_bundle: Callable[..., Bundle], tmp_path: Path, precision: str) -> None:
    bundle = make_bundle()
    decoder = ForcedDecoder.from_bundle(bundle, device="cpu")
    folder = written(bundle, tmp_path / "written", precision)
    parity = prove_export(
        decoder, FORMAT, folder, make_probe(decoder, num_sentences=13), Claim("onnx", precision, "model")
    )
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
    (weight,) = (one for one in model.graph.initializer if "cross_attention.projection.weight" in one.name)
    weight.raw_data = weight.raw_data[:-4] + b"\0\0\0\1"
    onnx.save(model, folder / "encoder.onnx")
    expected = model_tensors(bundle.load_model())
    found = FORMAT.read_back(folder)
    changed = [name for name in expected if not torch.equal(found[name], expected[name])]
    assert changed == ["decoder.layers.0.cross_attention.projection.weight"]


def test_a_model_beyond_protocol_buffers_is_an_obstacle(
    make_bundle: Callable[..., Bundle], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = make_bundle()
    monkeypatch.setattr(onnx_format, "MOST_BYTES", 1000)
    (obstacle,) = FORMAT.obstacles(bundle)
    assert "less than 2 GB" in obstacle
