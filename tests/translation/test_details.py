import json
from pathlib import Path

import pytest

from transduce.bundle import Bundle, BundleDescription, Languages, save_bundle
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
    one, none = map(details.of, lines)
    assert one["kept"] == "constrained"
    assert one["score"] < 0
    assert "".join(token["piece"] for token in one["tokens"]).replace("▁", " ").strip() == "sun moon</s>"
    assert (none["kept"], none["score"], none["tokens"]) == ("copied", None, [])
    json.dumps([one, none], allow_nan=False)


def test_samples_have_score_and_utility(bundle: Bundle, translator: Translator) -> None:
    details = LineDetails(bundle, translator)
    options = LineOptions(num_samples=6, num_best=6, sampling=Sampling(temperature=3.0), minimum_bayes_risk=True)
    (line,) = LineTranslator(translator, options).translate(["sun moon river"])
    found = details.of(line)
    every = [found, *found["alternatives"]]
    assert len(every) > 1
    assert all(one["score"] <= 0 <= one["utility"] <= 100 for one in every)
    (plain,) = LineTranslator(translator, LineOptions(num_best=2)).translate(["sun"])
    assert "utility" not in {*details.of(plain), *details.of(plain)["alternatives"][0]}
