"""Bundles in int8: a quarter of the size, the same integers when they are computed with, and their proof."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from transduce.bundle import Bundle, collect_model_tensors, find_bundle
from transduce.bundle.arrays import SCALE_SUFFIX, quantize_arrays
from transduce.bundle.bundle import write_bundle
from transduce.bundle.manifest import read_description, record_files
from transduce.config import SearchConfig
from transduce.errors import BundleError, OutputError, ParityError
from transduce.interop import export_bundle
from transduce.interop.int8_bundle import FORMAT
from transduce.interop.parity import PARITY_FILE, Parity, bound_rounding
from transduce.kernels.linear import quantize_rows as quantize_rows_with_torch
from transduce.kernels.native.packing import quantize_rows
from transduce.translation import ForcedDecoder, Translator, score_ids
from transduce.translation.engines.pytorch_engine import PyTorchEngine

VARIANTS = [
    {},
    {"norm_order": "pre", "tied_embeddings": "two_way", "output_bias": True},
    {"tied_embeddings": "none", "positions": "learned", "max_positions": 60, "activation": "gelu"},
    {"attention_score": "additive"},
]

MATRIX = "encoder.layers.0.feed_forward.inner.weight"


@pytest.fixture
def small(make_bundle: Callable[..., Bundle], tmp_path: Path) -> Bundle:
    """A bundle with a random network in int8."""
    export_bundle(make_bundle(), "transduce", tmp_path / "small", num_sentences=3)
    return Bundle.open(tmp_path / "small")


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_every_network_is_proven(
    make_bundle: Callable[..., Bundle], tmp_path: Path, settings: dict[str, object]
) -> None:
    bundle = make_bundle(**settings)
    parity = export_bundle(bundle, "transduce", tmp_path / "small", num_sentences=12)
    small = Bundle.open(tmp_path / "small")
    assert read_description(small.folder / PARITY_FILE, Parity) == parity
    assert (parity.target, parity.precision, parity.model) == ("transduce", "int8", bundle.digest)
    assert small.description.precision == "int8"
    assert small.description.model == bundle.description.model
    assert bundle.description.precision == "float32"
    assert 0 < parity.largest_difference < 0.5
    assert parity.identical_weights == len(collect_model_tensors(bundle.load_model()))
    assert "stored in 8-bit integers" in (small.folder / "README.md").read_text(encoding="utf-8")


def test_matrices_take_a_quarter(small: Bundle, tmp_path: Path) -> None:
    tensors = load_file(small.folder / "weights.safetensors")
    matrices = {name for name in tensors if name + SCALE_SUFFIX in tensors}
    assert {"source_embedding.weight", MATRIX} <= matrices
    assert all(tensors[name].dtype == torch.int8 for name in matrices)
    assert all(tensor.dtype == torch.float32 for name, tensor in tensors.items() if name not in matrices)
    before = load_file(find_bundle(tmp_path / "bundle") / "weights.safetensors")
    assert all(before[name].numel() == tensors[name].numel() for name in matrices)


def test_what_is_read_rounds_to_the_same_integers(small: Bundle) -> None:
    arrays = small.load_arrays()
    assert arrays is not None
    stored = load_file(small.folder / "weights.safetensors")
    again = quantize_arrays(arrays)
    assert again.keys() == stored.keys()
    for name, tensor in stored.items():
        if tensor.dtype == torch.int8:
            assert np.array_equal(again[name], tensor.numpy())
        else:  # a scale may be another by its last bit
            np.testing.assert_array_max_ulp(again[name], tensor.numpy(), maxulp=1)
    for name, tensor in collect_model_tensors(small.load_model()).items():
        assert np.array_equal(tensor.detach().numpy(), arrays[name])


def test_batch_normalization_keeps_its_statistics(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    model, place = make_bundle(normalization="batch"), tmp_path / "small"
    place.mkdir()
    write_bundle(place, model.load_model(), model.load_tokenizer(), model.description, precision="int8")
    found, before = (collect_model_tensors(one.load_model()) for one in (Bundle.open(place), model))
    for name, tensor in before.items():
        bound = bound_rounding("int8", tensor) if name.endswith(".weight") else 0
        assert ((found[name] - tensor).abs() <= bound).all()


def test_it_is_computed_in_int8_unless_told_otherwise(small: Bundle, texts: list[str]) -> None:
    usual, exact, rounded = (
        Translator.load(small.folder, device="cpu", precision=precision).translate(texts[:20])
        for precision in ("auto", "float32", "int8")
    )
    assert usual == rounded != exact


@pytest.mark.parametrize("is_first", [True, False])
def test_an_ensemble_with_a_model_in_float32_is_not_rounded(
    small: Bundle, tmp_path: Path, texts: list[str], *, is_first: bool
) -> None:
    folders = [small.folder, tmp_path / "bundle"] if is_first else [tmp_path / "bundle", small.folder]
    usual, exact = (
        Translator.load(folders[0], device="cpu", precision=precision, ensemble=folders[1:]).translate(texts[:20])
        for precision in ("auto", "float32")
    )
    assert usual == exact


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_with_and_without_pytorch_translations_are_the_same(small: Bundle, texts: list[str], precision: str) -> None:
    translator = Translator.load(small.folder, device="cpu", precision=precision)  # type: ignore[arg-type]
    sources = [translator.tokenizer.as_source(ids) for ids in translator.tokenizer.encode_all(texts[:20])]
    native = PyTorchEngine(small.load_model(), translator.tokenizer.end_id, precision)  # type: ignore[arg-type]
    search = SearchConfig(max_extra_length=4)
    assert translator.engine.search(sources, search, 2) == native.search(sources, search, 2)


def test_scores_are_those_of_the_search(small: Bundle, texts: list[str]) -> None:
    """What the proof compares is what `--precision int8` computes."""
    tokenizer = small.load_tokenizer()
    runtime = FORMAT.load(small.folder, tokenizer)
    sources = [tokenizer.as_source(ids) for ids in tokenizer.encode_all(texts[:20])]
    engine = PyTorchEngine(small.load_model(), tokenizer.end_id, "int8")
    found = [best for (best,) in engine.search(sources, SearchConfig(beam=1, max_extra_length=4))]
    scores = runtime.score_targets(sources, [best.ids for best in found])
    assert scores == [best.token_scores for best in found]
    limits = [len(best.ids) for best in found]
    # A search ends a translation at its limit, where the runtime goes on, as a search with a greater limit does.
    longer = [best for (best,) in engine.search(sources, SearchConfig(beam=1, max_extra_length=9))]
    expected = [best.ids[:limit] for best, limit in zip(longer, limits, strict=True)]
    assert [ids[:-1] for ids in expected] == [best.ids[:-1] for best in found]
    assert runtime.translate_greedily(sources, limits) == expected
    exact = score_ids(ForcedDecoder.from_bundle(small, device="cpu"), sources, [best.ids for best in found])
    assert any(one.token_scores != other for one, other in zip(exact, scores, strict=True))


def test_an_older_one_is_replaced(small: Bundle, tmp_path: Path) -> None:
    other = Bundle.open(tmp_path / "bundle")
    export_bundle(other, "transduce", small.folder, num_sentences=2)
    assert read_description(small.folder / PARITY_FILE, Parity).sentences == 2


def test_another_model_and_a_changed_one_are_not_replaced_unasked(small: Bundle, tmp_path: Path) -> None:
    other = Bundle.open(tmp_path / "bundle")
    shutil.copytree(other.folder, tmp_path / "copy")
    with pytest.raises(OutputError, match=r"contains a model.*--force"):
        export_bundle(other, "transduce", tmp_path / "copy", num_sentences=3)
    (small.folder / "README.md").write_text("mine", encoding="utf-8")
    with pytest.raises(OutputError, match=r"README\.md: was changed after the export"):
        export_bundle(other, "transduce", small.folder, num_sentences=3)
    for folder in (tmp_path / "copy", small.folder):
        export_bundle(other, "transduce", folder, num_sentences=3, force=True)
        assert Bundle.open(folder).description.precision == "int8"


def test_a_wrong_rounding_is_found_out(
    make_bundle: Callable[..., Bundle], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quantize_wrongly(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        rounded = quantize_arrays(arrays)
        rounded[MATRIX] = np.where(rounded[MATRIX] == 3, np.int8(6), rounded[MATRIX])
        return rounded

    monkeypatch.setattr("transduce.bundle.bundle.quantize_arrays", quantize_wrongly)
    with pytest.raises(ParityError, match=f"{MATRIX}: values differ by more than rounding"):
        export_bundle(make_bundle(), "transduce", tmp_path / "small", num_sentences=3)
    assert not (tmp_path / "small").exists()


def test_numbers_too_small_for_int8_are_zero() -> None:
    rows = np.array(
        [[1e-39, 0, -1e-39, 5e-40], [np.nan, 1, 2, 3], [np.inf, 1, 2, 3], [1, 0.5, -1, 0]], dtype=np.float32
    )
    integers, scales = quantize_rows(rows)
    assert integers[:3].any() == np.False_
    assert scales[0] == 0
    assert np.isnan(scales[1])
    assert np.isinf(scales[2])
    assert integers[3].tolist() == [127, 64, -127, 0]
    same_integers, same_scales = quantize_rows_with_torch(torch.from_numpy(rows))
    assert np.array_equal(same_integers.numpy(), integers)
    assert np.array_equal(same_scales.numpy(), scales, equal_nan=True)


@pytest.mark.parametrize("said", ["float32", "int8"])
def test_the_description_names_what_is_stored(small: Bundle, tmp_path: Path, said: str) -> None:
    folder = small.folder if said == "float32" else tmp_path / "bundle"
    description = folder / "bundle.json"
    content = json.loads(description.read_text(encoding="utf-8")) | {"precision": said}
    description.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(
        BundleError,
        match=r"weights\.safetensors: its matrices are in .*, but bundle\.json says "
        rf"{said}",
    ):
        Bundle.open(folder)


@pytest.mark.parametrize(
    "change", ["scales of another length", "no scales", "scales of nothing", "float16", "no matrix", "whole scales"]
)
def test_damaged_weights_are_refused(small: Bundle, change: str) -> None:
    path = small.folder / "weights.safetensors"
    tensors = load_file(path)
    match change:
        case "scales of another length":
            tensors[MATRIX + SCALE_SUFFIX] = torch.ones(3)
        case "no scales":
            del tensors[MATRIX + SCALE_SUFFIX]
        case "scales of nothing":
            tensors["another.weight_scale"] = torch.ones(3)
        case "float16":
            tensors[MATRIX] = tensors[MATRIX].half()
        case "no matrix":
            tensors[MATRIX], tensors[MATRIX + SCALE_SUFFIX] = torch.tensor(1, dtype=torch.int8), torch.tensor(1.0)
        case "whole scales":
            tensors[MATRIX + SCALE_SUFFIX] = tensors[MATRIX + SCALE_SUFFIX].long()
    save_file(tensors, path)
    description = small.folder / "bundle.json"
    content = json.loads(description.read_text(encoding="utf-8"))
    records = record_files(small.folder, list(content["files"]))
    content["files"] = {name: record.model_dump() for name, record in records.items()}
    description.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(BundleError, match=r"weights\.safetensors: .*(another|feed_forward)"):
        Bundle.open(small.folder)
