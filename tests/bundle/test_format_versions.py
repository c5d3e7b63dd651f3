"""Bundles of every format version that Transduce has written, each written by the code of its time, load and translate.

`formats/` has a model of some 11,000 parameters, which translates digits in words, as the first revisions with versions
1, 2 and 3 saved it, version 3 in int8 as well; model cards are left out. Beside each bundle stands what its own
revision made of sources.txt by `transduce translate --precision float32 --num-best 3`: number of the line, score,
translation.

A new format version needs a new folder here, and no folder is ever changed.
"""

import json
import shutil
from pathlib import Path
from typing import get_args

import pytest
import torch

from transduce.bundle import Bundle, BundleDescription, save_bundle
from transduce.cli import main
from transduce.errors import BundleError
from transduce.kernels.native.library import load_levels
from transduce.translation import Translator

FORMATS = Path(__file__).parent / "formats"
FOLDERS = sorted(path for path in FORMATS.iterdir() if path.is_dir())
SOURCES = (FORMATS / "sources.txt").read_text(encoding="utf-8").splitlines()
every_folder = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def read_recorded(folder: Path) -> list[list[tuple[float, str]]]:
    """What a bundle's own revision translated each line to: score and text of the alternatives, best first."""
    recorded: list[list[tuple[float, str]]] = [[] for _ in SOURCES]
    for row in folder.with_suffix(".tsv").read_text(encoding="utf-8").splitlines():
        number, score, text = row.split("\t")
        recorded[int(number) - 1].append((float(score), text))
    return recorded


def test_every_version_has_a_bundle() -> None:
    fields = BundleDescription.model_fields
    found = {
        (content["format_version"], content.get("precision", "float32"))
        for content in (json.loads((folder / "bundle.json").read_bytes()) for folder in FOLDERS)
    }
    assert {version for version, _ in found} == set(get_args(fields["format_version"].annotation))
    assert {precision for _, precision in found} == set(get_args(fields["precision"].annotation))


@every_folder
@pytest.mark.parametrize("kernels", ["compiled", "off"])
def test_an_old_bundle_translates_as_recorded(folder: Path, kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kernels == "off":
        monkeypatch.setenv("TRANSDUCE_KERNELS", "off")
    elif not load_levels():
        pytest.skip("the kernels are not compiled here")
    translator = Translator.load(folder, device="cpu", precision="float32")
    recorded = read_recorded(folder)
    assert [len(alternatives) for alternatives in recorded] == [3, 3, 1, 3, 3, 3, 3]
    for source, found, then in zip(SOURCES, translator.find_translations(SOURCES, num_best=3), recorded, strict=True):
        assert [one.text for one in found.alternatives] == [text for _, text in then], source
        assert [one.score for one in found.alternatives] == pytest.approx([score for score, _ in then], abs=2e-4)


@every_folder
def test_an_old_bundle_is_saved_anew(folder: Path, tmp_path: Path) -> None:
    """What is written is of the present version, and the same model."""
    before = Bundle.open(folder)
    save_bundle(tmp_path / "new", before.load_model(), before.load_tokenizer(), before.description)
    after = Bundle.open(tmp_path / "new")
    assert after.description.format_version == BundleDescription.model_fields["format_version"].default
    weights = before.load_model().state_dict()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in after.load_model().state_dict().items())


def test_a_newer_version_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    newer = tmp_path / "newer"
    shutil.copytree(FOLDERS[-1], newer)
    content = json.loads((newer / "bundle.json").read_bytes())
    version = BundleDescription.model_fields["format_version"].default
    content |= {"format_version": version + 1, "what_nobody_knows_yet": True}
    (newer / "bundle.json").write_text(json.dumps(content), encoding="utf-8")
    told = f"format version {version + 1}, but this Transduce reads versions up to {version}: update it"
    with pytest.raises(BundleError, match=told):
        Bundle.open(newer)
    with pytest.raises(SystemExit) as leaving:
        main(["info", str(newer)])
    assert leaving.value.code == 2
    output, messages = capfd.readouterr()
    assert output == ""
    assert told in messages
    assert "Traceback" not in messages


@pytest.mark.parametrize(
    "version",
    [pytest.param(0, id="before the first"), pytest.param("3", id="no number"), pytest.param(None, id="none")],
)
def test_no_version_at_all_is_refused(tmp_path: Path, version: object) -> None:
    folder = tmp_path / "wrong"
    shutil.copytree(FOLDERS[-1], folder)
    content = json.loads((folder / "bundle.json").read_bytes()) | {"format_version": version}
    (folder / "bundle.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(BundleError, match="format_version"):
        Bundle.open(folder)
