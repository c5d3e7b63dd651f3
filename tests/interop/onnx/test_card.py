"""The programs that travel with a model, started as a user starts them."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transduce.bundle import Bundle, BundleDescription, save_bundle
from transduce.config import SearchConfig
from transduce.interop.onnx.card import example_programs, onnx_card
from transduce.interop.onnx.export_format import FORMAT
from transduce.interop.onnx.settings import OnnxSettings
from transduce.model import Transformer
from transduce.text import Tokenizer
from transduce.translation import Translator

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")


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
