import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from transduce.bundle import Bundle, Languages, RecordedScore, model_tensors, save_bundle
from transduce.errors import BundleError, ConfigError, MissingExtraError
from transduce.interop.argos.format import FORMAT
from transduce.interop.exchange import export_bundle, prove_export
from transduce.interop.formats import ExportFormat, Runtime
from transduce.interop.parity import Claim
from transduce.interop.probe import make_probe
from transduce.text import Tokenizer
from transduce.translation import ForcedDecoder, Translator

pytest.importorskip("ctranslate2")
pytest.importorskip("onnx")


WORKER = Path(__file__).parents[3] / "benchmarks" / "argos_worker.py"
ARGOS_PYTHON = os.environ.get("PYTHON_WITH_ARGOSTRANSLATE", "")
TOP = "translate-en_no-1_0"


def in_languages(bundle: Bundle, source: str, target: str) -> Bundle:
    languages = Languages(source=source, target=target)
    return replace(bundle, description=bundle.description.model_copy(update={"languages": languages}))


def written(bundle: Bundle, path: Path, precision: str = "float32") -> Path:
    FORMAT.write(bundle, path, precision)
    return path


def test_it_is_a_format(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    assert isinstance(FORMAT, ExportFormat)
    assert FORMAT.precisions[0] == "float32"
    bundle = make_bundle()
    package = written(bundle, tmp_path / "made.argosmodel")
    assert isinstance(FORMAT.load(package, bundle.load_tokenizer()), Runtime)


def test_a_package_has_what_argos_looks_for(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle()
    with zipfile.ZipFile(written(bundle, tmp_path / "made.argosmodel", "int8")) as archive:
        assert archive.testzip() is None
        names = set(archive.namelist())
        metadata = json.loads(archive.read(f"{TOP}/metadata.json"))
        tokenizer = archive.read(f"{TOP}/sentencepiece.model")
        vocabulary = json.loads(archive.read(f"{TOP}/model/shared_vocabulary.json"))
        settings = json.loads(archive.read(f"{TOP}/model/config.json"))
        card = archive.read(f"{TOP}/README.md").decode("utf-8")
    model = {"model/config.json", "model/model.bin", "model/shared_vocabulary.json"}
    files = {"metadata.json", "README.md", "sentencepiece.model", "minisbd/en.onnx", *model}
    assert names == {f"{TOP}/{name}" for name in files}
    assert metadata == {
        "package_version": "1.0",
        "argos_version": "1.9.0",
        "from_code": "en",
        "from_name": "English",
        "to_code": "no",
        "to_name": "Norwegian",
    }
    assert tokenizer == bundle.load_tokenizer().model_bytes
    assert vocabulary == bundle.load_tokenizer().pieces(range(bundle.model_config.vocabulary - 1))
    assert settings["add_source_eos"]  # Argos Translate appends nothing to the pieces of a sentence
    assert "# English to Norwegian" in card
    assert "int8" in card
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "made.argosmodel"]


def test_the_same_model_gives_the_same_file(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle()
    one, other = (written(bundle, tmp_path / f"{name}.argosmodel") for name in ("one", "other"))
    assert one.read_bytes() == other.read_bytes()


def test_scores_that_were_measured_are_in_the_readme(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle()
    score = RecordedScore(metric="BLEU", value=31.17, signature="tok:13a", data="validation")
    scored = replace(bundle, description=bundle.description.model_copy(update={"scores": [score]}))
    with zipfile.ZipFile(written(scored, tmp_path / "made.argosmodel")) as archive:
        assert "- BLEU 31.17 on validation (tok:13a)\n" in archive.read(f"{TOP}/README.md").decode("utf-8")


@pytest.mark.parametrize(
    "settings", [{}, {"norm_order": "pre", "tied_embeddings": "none", "output_bias": True, "activation": "swish"}]
)
def test_the_package_computes_the_same(
    make_bundle: Callable[..., Bundle], tmp_path: Path, settings: dict[str, Any]
) -> None:
    bundle = make_bundle(**settings)
    assert FORMAT.obstacles(bundle) == []
    decoder = ForcedDecoder.from_bundle(bundle, device="cpu")
    probe = make_probe(decoder, num_sentences=13)
    package = written(bundle, tmp_path / "made.argosmodel")
    # It sees nothing but the file.
    package = package.rename(tmp_path.parent / f"{tmp_path.name}.argosmodel")
    shutil.rmtree(tmp_path)
    parity = prove_export(decoder, FORMAT, package, probe, Claim("argos", "float32", bundle.digest))
    assert parity.largest_difference < 2e-5
    assert parity.identical_greedy == parity.identical_tokenizations == 13
    assert parity.identical_weights == len(model_tensors(decoder.model))
    assert "in an Argos package" in parity.theirs


def test_a_package_is_exported_with_its_proof_beside_it(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle(d_model=32, num_heads=4, d_ff=64)
    package = tmp_path / "out" / "en-no.argosmodel"
    parity = export_bundle(bundle, "argos", package, precision="int8", num_sentences=5)
    assert parity.largest_difference > 1e-4
    assert sorted(path.name for path in package.parent.iterdir()) == [package.name, f"{package.name}.parity.json"]


@pytest.mark.parametrize(("source", "target"), [("", "de"), ("en", ""), ("English", "de"), ("en", "../de")])
def test_a_model_without_languages_is_refused(
    make_bundle: Callable[..., Bundle], tmp_path: Path, source: str, target: str
) -> None:
    bundle = in_languages(make_bundle(), source, target)
    (obstacle,) = FORMAT.obstacles(bundle)
    assert '"languages": {"source": "en", "target": "de"}' in obstacle
    with pytest.raises(ConfigError, match="found by its languages"):
        export_bundle(bundle, "argos", tmp_path / "made.argosmodel")
    with pytest.raises(BundleError, match="found by its languages"):
        FORMAT.write(bundle, tmp_path / "made.argosmodel", "float32")
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_two_tokenizers_are_an_obstacle(
    make_bundle: Callable[..., Bundle], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    bundle = make_bundle()
    special, pieces = tokenizer.pieces(range(2)), tokenizer.pieces(range(2, tokenizer.pad_id))
    two = Tokenizer.with_vocabulary(tokenizer.model_bytes, tokenizer.model_bytes, [*special, *pieces[::-1]], "two")
    save_bundle(tmp_path / "two", bundle.load_model(), two, bundle.description)
    (obstacle,) = FORMAT.obstacles(Bundle.open(tmp_path / "two"))
    assert "one SentencePiece model for both" in obstacle


def test_what_ctranslate2_cannot_express_is_an_obstacle_here(make_bundle: Callable[..., Bundle]) -> None:
    (obstacle,) = FORMAT.obstacles(make_bundle(attention_score="additive"))
    assert obstacle.startswith("attention_score")


def test_a_damaged_package_is_refused(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle()
    package = written(bundle, tmp_path / "made.argosmodel")
    content = package.read_bytes()
    middle = len(content) // 2  # of the model
    for damaged in (b"", content[:1000], content[:-100], content[:middle] + b"\0" * 50 + content[middle + 50 :]):
        package.write_bytes(damaged)
        with pytest.raises(BundleError, match=r"made\.argosmodel: .*give an undamaged Argos package"):
            FORMAT.load(package, bundle.load_tokenizer())
    package.unlink()
    with pytest.raises(BundleError, match=r"made\.argosmodel: cannot be read"):
        FORMAT.load(package, bundle.load_tokenizer())


@pytest.mark.parametrize("package", ["ctranslate2", "onnx"])
def test_a_missing_package_is_named_and_nothing_written(
    make_bundle: Callable[..., Bundle], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    bundle = make_bundle()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=package):
        FORMAT.write(bundle, tmp_path / "made.argosmodel", "float32")
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


@pytest.mark.skipif(not ARGOS_PYTHON, reason="PYTHON_WITH_ARGOSTRANSLATE does not name a Python that has it")
def test_argos_translate_says_the_same_without_a_network(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle()
    package = written(bundle, tmp_path / "made.argosmodel")
    lines = ["sun moon river", "", "Fish, door! Lamp road?", "stone"]
    task = {"package": str(package), "lines": lines, "from": "en", "to": "no"}
    environment = {
        "HOME": str(tmp_path),
        "ARGOS_PACKAGES_DIR": str(tmp_path / "packages"),
        "ARGOS_BEAM_SIZE": "1",
        "ARGOS_COMPUTE_TYPE": "default",
    }
    command = [ARGOS_PYTHON, str(WORKER)]
    run = subprocess.run(
        command, input=json.dumps(task), env=environment, capture_output=True, check=True, encoding="utf-8"
    )
    answer = json.loads(run.stdout)
    assert answer["connections"] == []
    assert answer["sentences"] == [[lines[0]], [], ["Fish, door!", "Lamp road?"], [lines[3]]]
    translator = Translator.load(bundle.folder, device="cpu", precision="float32").with_search({"beam": 1})
    for line in (0, 3):
        ours, theirs = translator.translate([lines[line]])[0].replace("_", " "), answer["translations"][line]
        # Random weights rarely end a translation, and our limit is lower.
        assert len(ours) > 5
        assert theirs[: len(ours) // 2] == ours[: len(ours) // 2]
    assert answer["translations"][1] == ""
