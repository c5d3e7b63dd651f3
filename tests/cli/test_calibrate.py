import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from transduce.bundle import Bundle, read_calibration
from transduce.translation import AlignmentHead, Translator


@pytest.fixture
def bundle_folder(workspace: Path, run_folder: Path) -> Path:
    shutil.copytree(run_folder / "best", workspace / "bundle")
    return workspace / "bundle"


def test_what_is_measured_is_measured_exactly(
    transduce: Any, bundle_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    precisions = []
    load = Translator.load

    def watched(path: Path, **options: Any) -> Translator:
        precisions.append(options["precision"])
        return load(path, **options)

    monkeypatch.setattr(Translator, "load", watched)
    assert transduce("calibrate", bundle_folder, *GIVEN).exit_code == 0
    assert precisions == ["float32"]


GIVEN = ("--source", "train.source", "--target", "train.target")


def test_figures_are_printed_and_kept(transduce: Any, bundle_folder: Path, contents: Any) -> None:
    before = contents(bundle_folder)
    answer = transduce("calibrate", bundle_folder, *GIVEN, "--json")
    assert answer.exit_code == 0
    expected = f"{bundle_folder}: calibrated on 300 pairs, beam 4; words are aligned by --head "
    assert answer.messages.startswith(expected)
    found = json.loads(answer.output)
    assert found.pop("model") == str(bundle_folder)
    calibration = read_calibration(Bundle.open(bundle_folder))
    assert calibration is not None
    assert calibration.confidence is not None
    assert calibration.alignment is not None
    assert str(AlignmentHead(**dict(calibration.alignment))) == answer.messages.removeprefix(expected).strip()
    assert calibration.confidence.model_dump() == found
    assert {**contents(bundle_folder), "calibration.json": None} == {**before, "calibration.json": None}
    table = transduce("calibrate", bundle_folder, *GIVEN).lines
    assert table[0].split() == ["words", f"{found['num_words']:,}"]
    assert table[4].endswith(f" {found['auc']:.3f}")
    assert transduce("translate", bundle_folder, standard_input=b"ba do\n").exit_code == 0


def test_the_beam_is_kept(transduce: Any, bundle_folder: Path) -> None:
    assert json.loads(transduce("calibrate", bundle_folder, *GIVEN, "--beam", "1", "--json").output)["beam"] == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--source", "train.source", "--target", "valid.target"], "line for line"),
        (["--source", "missing", "--target", "valid.target"], "missing"),
        ([*GIVEN, "--beam", "0"], "at least 1"),
    ],
)
def test_mistakes_are_explained_and_change_nothing(
    transduce: Any, bundle_folder: Path, given: list[str], message: str
) -> None:
    answer = transduce("calibrate", bundle_folder, *given)
    assert answer.exit_code == 2
    assert message in answer.messages
    assert not (bundle_folder / "calibration.json").exists()


def test_an_average_comes_without(transduce: Any, workspace: Path, run_folder: Path) -> None:
    shutil.copytree(run_folder, workspace / "run")
    assert transduce("calibrate", "run", *GIVEN).exit_code == 0
    assert (workspace / "run" / "best" / "calibration.json").is_file()
    shutil.copytree(workspace / "run" / "best", workspace / "run" / "last", dirs_exist_ok=True)
    assert transduce("average", "run", "--last", 2, "--output", "averaged").exit_code == 0
    assert not (workspace / "averaged" / "calibration.json").exists()
    shutil.copytree(workspace / "run" / "best", workspace / "another")
    assert transduce("average", "run", "--last", 2, "--output", "another", "--force").exit_code == 0
    assert not (workspace / "another" / "calibration.json").exists()
