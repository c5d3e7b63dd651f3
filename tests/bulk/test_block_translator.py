import json
import shutil
from pathlib import Path

import pytest

from transduce.bulk import BlockTranslator, BlockTranslatorSettings
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
