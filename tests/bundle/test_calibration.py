import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transduce.bundle import (
    Bundle,
    Calibration,
    LogisticFit,
    RecordedConfidence,
    RecordedHead,
    check_calibratable,
    read_calibration,
    update_calibration,
)
from transduce.bundle.calibration import CALIBRATION
from transduce.errors import BundleError, BusyError, OutputError, TransduceError
from transduce.model import Transformer
from transduce.storage import lock_folder

FIT = LogisticFit(intercept=1.0, minimum=0.5, mean=0.0)
CONFIDENCE = RecordedConfidence(
    words=FIT,
    sentences=FIT,
    data={"source": "ab" * 32, "target": "cd" * 32},
    beam=4,
    num_pairs=1000,
    num_words=6000,
    share_right=0.6,
    calibration_error_before=0.2,
    calibration_error=0.02,
    auc=0.8,
    chrf_error=10.0,
    chrf_error_of_mean=12.0,
)
HEAD = RecordedHead(layer=3, head=None, offset=1)
Save = Callable[..., Transformer]


@pytest.fixture
def bundle(bundle_folder: Path) -> Bundle:
    return Bundle.open(bundle_folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_bundle_without_one_is_complete(bundle: Bundle) -> None:
    assert read_calibration(bundle) is None


def test_what_is_written_is_read_and_nothing_else_changes(bundle: Bundle) -> None:
    before = contents(bundle.folder)
    update_calibration(bundle, confidence=CONFIDENCE)
    found = read_calibration(Bundle.open(bundle.folder))
    assert found == Calibration(files=bundle.description.files, confidence=CONFIDENCE)
    after = contents(bundle.folder)
    assert after.pop(CALIBRATION).endswith(b"\n")
    assert after == before
    assert [path.name for path in bundle.folder.parent.iterdir()] == [bundle.folder.name]


def test_each_part_is_measured_by_itself(bundle: Bundle) -> None:
    update_calibration(bundle, alignment=HEAD)
    update_calibration(bundle, confidence=CONFIDENCE)
    update_calibration(bundle)
    found = read_calibration(bundle)
    assert found is not None
    assert (found.confidence, found.alignment) == (CONFIDENCE, HEAD)


def test_a_copy_of_a_bundle_keeps_it(bundle: Bundle, tmp_path: Path) -> None:
    update_calibration(bundle, alignment=HEAD)
    shutil.copytree(bundle.folder, tmp_path / "copy")
    assert read_calibration(Bundle.open(tmp_path / "copy")) == read_calibration(bundle)


def test_a_new_model_in_its_place_comes_without(bundle: Bundle, save: Save) -> None:
    update_calibration(bundle, confidence=CONFIDENCE)
    save(bundle.folder)
    assert read_calibration(Bundle.open(bundle.folder)) is None


def test_another_models_is_refused_and_can_be_replaced(bundle: Bundle, save: Save, tmp_path: Path) -> None:
    update_calibration(bundle, confidence=CONFIDENCE, alignment=HEAD)
    save(tmp_path / "other")
    shutil.copy(bundle.folder / CALIBRATION, tmp_path / "other")
    other = Bundle.open(tmp_path / "other")
    with pytest.raises(BundleError, match=r"other.calibration\.json: was measured with other files"):
        read_calibration(other)
    update_calibration(other, alignment=HEAD)
    assert read_calibration(other) == Calibration(files=other.description.files, alignment=HEAD)


def test_a_model_that_was_replaced_meanwhile_is_not_calibrated(bundle: Bundle, save: Save) -> None:
    save(bundle.folder)
    with pytest.raises(BundleError, match="another model by now"):
        update_calibration(bundle, confidence=CONFIDENCE)
    assert not (bundle.folder / CALIBRATION).exists()


def test_while_the_bundle_is_being_written_it_waits_for_nobody(bundle: Bundle) -> None:
    with lock_folder(bundle.folder, bundle.folder.with_name(f".{bundle.folder.name}.lock")), pytest.raises(BusyError):
        update_calibration(bundle, confidence=CONFIDENCE)


def damaged(change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    def make(whole: bytes) -> bytes:
        content = json.loads(whole)
        change(content)
        return json.dumps(content).encode()

    return make


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda whole: whole[: len(whole) // 2],
        lambda whole: b"\xff" + whole,
        lambda _: b"[]",
        damaged(lambda content: content.update(format="transduce bundle")),
        damaged(lambda content: content.update(format_version=2)),
        damaged(lambda content: content.update(more=1)),
        damaged(lambda content: content.pop("files")),
        damaged(lambda content: content["confidence"].pop("words")),
        damaged(lambda content: content["confidence"]["words"].update(mean=-0.1)),
        damaged(lambda content: content["confidence"].update(auc=1.5)),
        damaged(lambda content: content["confidence"].update(beam="4")),
        damaged(lambda content: content["alignment"].update(layer=-1)),
    ],
)
def test_a_damaged_file_is_named_and_can_be_replaced(bundle: Bundle, damage: Callable[[bytes], bytes]) -> None:
    update_calibration(bundle, confidence=CONFIDENCE, alignment=HEAD)
    path = bundle.folder / CALIBRATION
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BundleError, match=r"bundle.calibration\.json"):
        read_calibration(Bundle.open(bundle.folder))
    update_calibration(bundle, confidence=CONFIDENCE, force=True)
    assert read_calibration(bundle) == Calibration(files=bundle.description.files, confidence=CONFIDENCE)


def test_a_file_that_is_no_calibration_is_not_replaced_unasked(bundle: Bundle) -> None:
    path = bundle.folder / CALIBRATION
    path.write_text('{"thermometer": 36.6}', encoding="utf-8")
    with pytest.raises(OutputError, match=r"calibration\.json: is not a calibration: .*--force"):
        check_calibratable(bundle)
    with pytest.raises(OutputError):
        update_calibration(bundle, alignment=HEAD)
    assert path.read_text(encoding="utf-8") == '{"thermometer": 36.6}'


def test_a_damaged_calibration_is_replaced(bundle: Bundle) -> None:
    update_calibration(bundle, confidence=CONFIDENCE, alignment=HEAD)
    path = bundle.folder / CALIBRATION
    path.write_bytes(path.read_bytes()[:-20])
    update_calibration(bundle, alignment=HEAD)
    assert read_calibration(bundle) == Calibration(files=bundle.description.files, alignment=HEAD)


def test_a_crash_leaves_what_was_there(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    update_calibration(bundle, alignment=HEAD)
    before = (bundle.folder / CALIBRATION).read_bytes()

    def crash(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", crash)
        with pytest.raises(TransduceError, match="nothing was changed: no space left"):
            update_calibration(bundle, confidence=CONFIDENCE)
    assert (bundle.folder / CALIBRATION).read_bytes() == before
    update_calibration(bundle, confidence=CONFIDENCE)
    assert {path.name for path in bundle.folder.iterdir()} == {
        *("bundle.json", "weights.safetensors", "tokenizer.model", "README.md", CALIBRATION)
    }
