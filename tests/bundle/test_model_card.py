from pathlib import Path
from typing import Literal

import pytest

from transduce.bundle import Bundle, BundleDescription, RecordedScore, model_card
from transduce.config import TransformerConfig


def test_the_card_of_a_bundle_has_its_numbers(bundle_folder: Path) -> None:
    card = (bundle_folder / "README.md").read_text(encoding="utf-8")
    model = Bundle.open(bundle_folder).load_model()
    for words in (
        'language:\n- "en"\n- "no"\npipeline_tag: translation\nlibrary_name: transduce\ntags:\n',
        "# Translation from en to no\n",
        f"Parameters: {model.num_parameters:,}\n",
        "- BLEU 34.57 on validation (`nrefs:1|tok:13a`)",
        f"- train.en: `{'ab' * 32}`",
        "- update: 1200\n- epoch: 3\n",
        "transduce translate",
        "Translator.load",
        "at most 50 tokens more",
    ):
        assert words in card


def test_what_is_not_known_is_not_said() -> None:
    card = model_card(BundleDescription(model=TransformerConfig()), 1)
    assert "No scores were recorded" in card
    assert "# Translation model\n" in card
    for word in ("language:", "## Data", "## Training", "BLEU", "license", "None"):
        assert word not in card


def test_a_score_without_signature_or_data_stands_alone() -> None:
    score = RecordedScore(metric="chrF", value=60.0)
    card = model_card(BundleDescription(model=TransformerConfig(), scores=[score]), 1)
    assert "- chrF 60.00\n" in card


@pytest.mark.parametrize(("positions", "said"), [("learned", True), ("sinusoidal", False)])
def test_learned_positions_have_a_limit(positions: Literal["learned", "sinusoidal"], said: bool) -> None:
    card = model_card(BundleDescription(model=TransformerConfig(positions=positions, max_positions=77)), 1)
    assert ("at most 77 tokens" in card) == said


def test_front_matter_stands_first_and_alone() -> None:
    card = model_card(BundleDescription(model=TransformerConfig()), 1)
    assert card.startswith("---\n")
    assert card.count("\n---\n") == 1
    assert card.endswith("\n")
    assert "\n\n\n" not in card
