import json
import shutil
from pathlib import Path

import pytest

from transduce.bulk import BlockTranslator, BlockTranslatorSettings
from transduce.bundle import Bundle, LogisticFit, RecordedConfidence, RecordedHead, update_calibration
from transduce.translation import TranslationOptions


@pytest.mark.parametrize(
    ("options", "settings", "line"),
    [
        ({"guard": True}, {}, "sun 7 moon"),
        ({}, {"json_input": True}, json.dumps({"text": "sun moon", "require": ["zebra"]})),
    ],
    ids=["guard", "constraints of a line"],
)
def test_a_model_that_is_replaced_meanwhile_is_not_read_again(
    bundle: Path, tmp_path: Path, options: dict[str, object], settings: dict[str, bool], line: str
) -> None:
    model = tmp_path / "model"
    shutil.copytree(bundle, model)
    translator = BlockTranslator.load(
        BlockTranslatorSettings(model=model, options=TranslationOptions.parse(options), device="cpu", **settings)
    )
    shutil.rmtree(model)
    block = translator.translate([line], [1], "text")
    assert len(block.lines) == 1
    assert block.guard_report is None or block.guard_report.retried == 1
    assert not BlockTranslatorSettings(model=model, options=TranslationOptions()).may_need_pytorch


def test_an_ensemble_has_no_confidence_as_it_was_calibrated_for_one_model(bundle: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(bundle, model)
    fit = LogisticFit(intercept=0.5, minimum=1.0, mean=1.0)
    figures = dict.fromkeys(
        ("share_right", "calibration_error_before", "calibration_error", "auc", "chrf_error", "chrf_error_of_mean"), 0.5
    )
    confidence = RecordedConfidence(words=fit, sentences=fit, data={}, beam=1, num_pairs=2, num_words=1, **figures)
    head = RecordedHead(layer=0, head=0, offset=0)
    update_calibration(Bundle.open(model), confidence=confidence, alignment=head)

    def translate(*ensemble: Path) -> dict[str, object]:
        settings = BlockTranslatorSettings(
            model=model, options=TranslationOptions(), device="cpu", ensemble=ensemble, json=True
        )
        (line,) = BlockTranslator.load(settings).translate(["sun moon"], [1], "text").lines
        found: dict[str, object] = json.loads(line)
        return found

    alone, together = translate(), translate(bundle)
    assert alone["alignment"] == together["alignment"] != []
    assert ("confidence" in alone, "confidence" in together) == (True, False)
    assert ("words" in alone, "words" in together) == (True, False)
