import json
from pathlib import Path

import pytest

from transduce.bundle import (
    Bundle,
    BundleDescription,
    Languages,
    LogisticFit,
    RecordedConfidence,
    RecordedHead,
    save_bundle,
    update_calibration,
)
from transduce.config import SearchConfig
from transduce.model import Transformer
from transduce.search import Sampling
from transduce.text import Tokenizer
from transduce.translation import LineDetails, LineOptions, LineTranslator, Translator


@pytest.fixture
def bundle(tmp_path: Path, copier: Transformer, tokenizer: Tokenizer) -> Bundle:
    description = BundleDescription(
        model=copier.config, search=SearchConfig(), languages=Languages(source="en", target="en")
    )
    save_bundle(tmp_path / "bundle", copier, tokenizer, description)
    return Bundle.open(tmp_path / "bundle")


def test_a_line_with_spans_has_what_is_known_of_its_search(bundle: Bundle, translator: Translator) -> None:
    details = LineDetails(bundle, translator)
    lines = LineTranslator(translator, LineOptions(protected=("placeholder",))).translate(["sun {x} moon", "{x}"])
    one, none = details.of_all(lines)
    assert one["kept"] == "constrained"
    assert one["score"] < 0
    assert "".join(token["piece"] for token in one["tokens"]).replace("▁", " ").strip() == "sun moon</s>"
    assert (none["kept"], none["score"], none["tokens"]) == ("copied", None, [])
    json.dumps([one, none], allow_nan=False)


def test_confidence_and_alignment_are_known_of_what_was_read_as_a_whole(bundle: Bundle, translator: Translator) -> None:
    fit = LogisticFit(intercept=0.5, minimum=1.0, mean=1.0)
    figures = dict.fromkeys(
        ("share_right", "calibration_error_before", "calibration_error", "auc", "chrf_error", "chrf_error_of_mean"), 0.5
    )
    recorded = RecordedConfidence(words=fit, sentences=fit, data={}, beam=1, num_pairs=2, num_words=1, **figures)
    update_calibration(bundle, confidence=recorded, alignment=RecordedHead(layer=0, head=0, offset=0))
    details = LineDetails(bundle, translator)
    sources = ["sun moon", " ".join(["sun moon river"] * 30), "", "river"]
    lines = LineTranslator(translator, LineOptions()).translate(sources)
    found = details.of_all(lines)
    assert [one["parts"] > 1 for one in found] == [False, True, False, False]
    assert ["confidence" in one for one in found] == [True, False, False, True]
    assert ["words" in one for one in found] == [True, False, False, True]
    assert [bool(one.get("alignment")) for one in found] == [True, False, False, True]
    assert found == [one for line in lines for one in details.of_all([line])]


def test_samples_have_score_and_utility(bundle: Bundle, translator: Translator) -> None:
    details = LineDetails(bundle, translator)
    options = LineOptions(num_samples=6, num_best=6, sampling=Sampling(temperature=3.0), minimum_bayes_risk=True)
    (line,) = LineTranslator(translator, options).translate(["sun moon river"])
    (found,) = details.of_all([line])
    every = [found, *found["alternatives"]]
    assert len(every) > 1
    assert all(one["score"] <= 0 <= one["utility"] <= 100 for one in every)
    (plain,) = LineTranslator(translator, LineOptions(num_best=2)).translate(["sun"])
    (known,) = details.of_all([plain])
    assert "utility" not in {*known, *known["alternatives"][0]}
