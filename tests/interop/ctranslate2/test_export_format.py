import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transduce.bundle import Bundle, Languages, model_tensors, save_bundle
from transduce.interop import load_translator
from transduce.interop.ctranslate2.engine import load
from transduce.interop.ctranslate2.export_format import FORMAT
from transduce.interop.ctranslate2.model_file import read_model_file
from transduce.interop.ctranslate2.runtime import adds_source_end, read_settings
from transduce.interop.export import prove_export
from transduce.interop.formats import ExportFormat
from transduce.interop.parity import record_export, write_parity
from transduce.interop.probe import Probe, make_probe
from transduce.interop.proof import Claim
from transduce.text import Tokenizer
from transduce.translation import Engine, ForcedDecoder, NativeEngine, Translator

pytest.importorskip("ctranslate2")


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
        {"norm_order": "pre", "tied_embeddings": "two_way", "activation": "gelu"},
        {"tied_embeddings": "none", "output_bias": True, "activation": "swish"},
        {"output_bias": True, "positions": "learned", "max_positions": 30},
        {"attention_score": "dot", "num_heads": 1, "positions": "none"},
        {"d_k": 5, "d_v": 5},
        {"d_k": 32, "d_v": 32, "attention_score": "dot", "norm_order": "pre"},
        {"num_encoder_layers": 1, "num_decoder_layers": 3},
    ],
    ids=str,
)
def test_ctranslate2_computes_the_same(
    make_bundle: Callable[..., Bundle], tmp_path: Path, settings: dict[str, Any]
) -> None:
    bundle = make_bundle(**settings)
    assert FORMAT.obstacles(bundle) == []
    decoder = ForcedDecoder.from_bundle(bundle, device="cpu")
    num_sentences = 5 if settings else 13  # all that is odd
    probe = make_probe(decoder, num_sentences=num_sentences)
    folder = written(bundle, tmp_path / "written")
    parity = prove_export(decoder, FORMAT, folder, probe, Claim("ctranslate2", "float32", bundle.digest))
    assert parity.largest_difference < 2e-5
    assert parity.identical_greedy == parity.identical_tokenizations == num_sentences
    assert parity.identical_weights == len(model_tensors(decoder.model))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"attention_score": "additive"}, "attention_score"),
        ({"normalization": "batch"}, "normalization"),
        ({"d_k": 4, "d_v": 8}, "d_k = 4, d_v = 8"),
    ],
)
def test_what_ctranslate2_has_no_word_for_is_an_obstacle(
    make_bundle: Callable[..., Bundle], settings: dict[str, Any], words: str
) -> None:
    (obstacle,) = FORMAT.obstacles(make_bundle(**settings))
    assert obstacle.startswith(words)


@pytest.mark.parametrize("precision", FORMAT.precisions[1:])
def test_other_precisions_are_close_and_smaller(
    make_bundle: Callable[..., Bundle], tmp_path: Path, precision: str
) -> None:
    bundle = make_bundle(d_model=32, num_heads=4, d_ff=64)
    exact, folder = written(bundle, tmp_path / "exact"), written(bundle, tmp_path / precision, precision)
    decoder = ForcedDecoder.from_bundle(bundle, device="cpu")
    probe = make_probe(decoder, num_sentences=5)
    parity = prove_export(decoder, FORMAT, folder, probe, Claim("ctranslate2", precision, bundle.digest))
    assert parity.largest_difference > 1e-4
    assert parity.identical_weights == len(model_tensors(decoder.model))
    assert (folder / "model.bin").stat().st_size < (exact / "model.bin").stat().st_size
    assert read_settings(folder).precision == precision


def test_a_matrix_that_is_shared_is_written_once(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    file = read_model_file(written(make_bundle(), tmp_path / "written") / "model.bin")
    shared = {"encoder/embeddings_0/weight", "decoder/projection/weight"}
    assert file.aliases.keys() >= shared
    assert {file.aliases[name] for name in shared} == {"decoder/embeddings/weight"}


def test_pad_is_left_out_and_the_target_starts_with_zeros(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle()
    folder = written(bundle, tmp_path / "written")
    file = read_model_file(folder / "model.bin")
    tokens = json.loads((folder / "shared_vocabulary.json").read_text(encoding="utf-8"))
    assert tokens[:2] == ["<unk>", "</s>"]
    assert len(tokens) == len(file["decoder/embeddings/weight"]) == bundle.model_config.vocabulary - 1
    assert file["decoder/start_from_zero_embedding"].item() == 1
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert settings["add_source_eos"] is True
    # YAML would have made a false of Norwegian.
    assert read_settings(folder).languages == Languages(source="en", target="no")


@pytest.mark.parametrize("settings", [{}, {"tied_embeddings": "none", "output_bias": True}], ids=str)
@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
def test_targets_may_begin_behind_any_vector(
    make_bundle: Callable[..., Bundle], tmp_path: Path, settings: dict[str, Any], precision: str
) -> None:
    # As those of models that were imported.
    bundle = make_bundle(**settings)
    model = bundle.load_model()
    with torch.no_grad():
        model.target_embedding.weight[-1] = 1.5
    save_bundle(tmp_path / "begun", model, bundle.load_tokenizer(), bundle.description)
    bundle = Bundle.open(tmp_path / "begun")
    folder = written(bundle, tmp_path / "written", precision)
    decoder = ForcedDecoder.from_bundle(bundle, device="cpu")
    probe = make_probe(decoder, num_sentences=3)
    parity = prove_export(decoder, FORMAT, folder, probe, Claim("ctranslate2", precision, bundle.digest))
    if precision == "float32":
        assert parity.identical_weights == len(model_tensors(decoder.model))
        assert parity.largest_difference < 2e-5
    assert parity.identical_tokenizations == 3
    tokens = json.loads((folder / "shared_vocabulary.json").read_text(encoding="utf-8"))
    assert tokens[-1] == "<pad>"


@pytest.mark.parametrize("ends_sources", [True, False])
def test_a_tokenizer_of_two_models_travels(
    make_bundle: Callable[..., Bundle], tmp_path: Path, ends_sources: bool
) -> None:
    bundle, other = make_bundle(), Tokenizer.train(["sol måne elv", "stein fugl tre vind"] * 9, 290, "bpe")
    first = bundle.load_tokenizer()
    tokenizer = Tokenizer.with_vocabulary(
        first.model_bytes,
        other.model_bytes,
        [*first.pieces(range(first.pad_id - 1)), ">>no<<"],
        "two",
        ends_sources=ends_sources,
    )
    save_bundle(tmp_path / "two", bundle.load_model(), tokenizer, bundle.description)
    bundle = Bundle.open(tmp_path / "two")
    folder = written(bundle, tmp_path / "written")
    assert adds_source_end(folder) == ends_sources
    decoder = ForcedDecoder.from_bundle(bundle, device="cpu")
    probe = Probe((">>no<< sun moon", "river stone", "☃ bird"), "made for this test")
    parity = prove_export(decoder, FORMAT, folder, probe, Claim("ctranslate2", "float32", bundle.digest))
    assert parity.identical_tokenizations == parity.identical_greedy == 3
    write_parity(folder / "parity.json", record_export(parity, folder))
    native = Translator.load(bundle.folder, device="cpu", precision="float32")
    translated = load_translator(folder, "ctranslate2", device="cpu").translate(probe.texts, beam=1)
    assert translated == native.translate(probe.texts, beam=1)
    assert "target_tokenizer.model" in (folder / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("max_pieces", "rows"), [(20, 2048), (4000, 4007)])
def test_positions_reach_as_far_as_the_search_does(
    make_bundle: Callable[..., Bundle], tmp_path: Path, max_pieces: int, rows: int
) -> None:
    bundle = make_bundle()
    search = bundle.description.search.model_copy(update={"max_pieces": max_pieces})
    description = bundle.description.model_copy(update={"search": search})
    save_bundle(tmp_path / "long", bundle.load_model(), bundle.load_tokenizer(), description)
    file = read_model_file(written(Bundle.open(tmp_path / "long"), tmp_path / "written") / "model.bin")
    assert file["decoder/position_encodings/encodings"].shape == (rows, 16)
    assert file["decoder/position_encodings/encodings"].equal(file["encoder/position_encodings/encodings"])


def test_a_long_source_is_read_whole(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    # Unless told otherwise, CTranslate2 cuts sources after 1,024 tokens.
    bundle = make_bundle()
    runtime = FORMAT.load(written(bundle, tmp_path / "written"), bundle.load_tokenizer())
    source = [*(2 + index % 300 for index in range(1500)), 1]
    decoder = ForcedDecoder.from_bundle(bundle, device="cpu")
    with decoder.batches([source], [[5, 1]]) as batches:
        ((_, batch),) = batches
        logits = decoder.model(batch.source_ids, batch.source_mask, batch.target_ids, batch.target_mask)
    expected = logits.log_softmax(-1)[0, [0, 1], [5, 1]]
    assert torch.tensor(runtime.forced_scores([source], [[5, 1]])[0]).sub(expected).abs().max() < 1e-5


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"beam": 1},
        {"length_penalty": 2.0, "max_extra_length": 2},
        {"min_length": 6},
        {"no_repeat_ngram": 2},
        {"max_length": 4},
    ],
    ids=str,
)
def test_the_lines_of_the_readme_translate_as_we_do(
    make_bundle: Callable[..., Bundle], tmp_path: Path, texts: list[str], settings: dict[str, Any]
) -> None:
    bundle = make_bundle(output_bias=True)
    model, tokenizer = bundle.load_model(), bundle.load_tokenizer()
    with torch.no_grad():
        model.projection.bias[tokenizer.end_id] += 3  # most translations end before they must
    search = bundle.description.search.changed({"beam": 4, **settings})
    save_bundle(tmp_path / "ending", model, tokenizer, bundle.description.model_copy(update={"search": search}))
    folder = written(Bundle.open(tmp_path / "ending"), tmp_path / "written")
    (program,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    lines = [*texts[:39], ""]
    program = program.replace('["One sentence.", "And another."]', str(lines))
    command = [sys.executable, "-c", program]
    found = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True, env={"OMP_NUM_THREADS": "1"}
    )
    theirs = ast.literal_eval(found.stdout)
    sources = [tokenizer.as_source(ids) for ids in tokenizer.encode_all(lines[:-1])]
    decoder = ForcedDecoder.from_bundle(Bundle.open(tmp_path / "ending"), device="cpu")
    native = NativeEngine(decoder.model, tokenizer.end_id, "float32")

    def num_same(engine: Engine) -> int:
        ours = [*(tokenizer.decode(best.ids) for best, *_ in engine.search(sources, search)), ""]
        return sum(one == other for one, other in zip(theirs, ours, strict=True))

    assert len(theirs) == 40
    assert num_same(load(folder, "cpu")) >= 39  # rounding can decide between two of about the same score
    # CTranslate2's beam applies these two rules to other continuations than ours does; a greedy search has no others.
    if not {"min_length", "no_repeat_ngram"} & settings.keys():
        assert num_same(native) >= (40 if search.beam == 1 else 39)
