from typing import Any

import pytest

from transduce.bundle import Bundle
from transduce.translation import Translator


@pytest.mark.parametrize("name", ["best", "last"])
def test_bundles_say_what_they_are(copier: Any, metrics_of: Any, name: str) -> None:
    bundle = Bundle.open(copier.result.folder / name)
    description = bundle.description
    lines = {
        (line["update"], line["loss"]): line
        for line in metrics_of(copier.result.folder)
        if line["kind"] in {"validation", "average"}
    }
    line = lines[description.training["update"], description.training["validation_loss"]]
    assert [(score.metric, score.value, score.signature, score.data) for score in description.scores] == [
        (score["metric"], score["value"], score["signature"], "validation") for score in line["scores"]
    ]
    assert all("version:" in score.signature for score in description.scores)
    # Sentences of the corpus are short, and a bundle is not asked for more than its model has seen.
    assert description.search == copier.config.search.model_copy(update={"max_pieces": 8})
    assert (description.languages.source, description.languages.target) == ("en", "xx")
    assert {"train.tsv", "validation.tsv", "all"} <= description.data.keys()
    assert description.training["seed"] == 1
    assert bundle.load_tokenizer().vocabulary == bundle.model_config.vocabulary < 512
    assert not bundle.load_model().training


def test_best_is_what_a_run_translates_with(copier: Any) -> None:
    sources = [source for source, _ in copier.unseen]
    by_run, by_bundle = (
        Translator.load(path, device="cpu").translate(sources)
        for path in (copier.result.folder, copier.result.folder / "best")
    )
    assert by_run == by_bundle
