import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from transduce.bundle import Bundle
from transduce.config import SearchConfig
from transduce.errors import CorpusError
from transduce.evaluation import score_corpus
from transduce.model import Transformer
from transduce.training import Validation, Validator
from transduce.training.model_selection.validation import (
    MAX_PIECES,
    NO_REPEAT_NGRAM,
    VALIDATION_METRICS,
    compute_commonest_share,
    compute_repetition_share,
    compute_token_f1,
)
from transduce.translation import Translator


@pytest.fixture
def validator(copier: Any) -> Validator:
    bundle = Bundle.open(copier.result.folder / "last")
    return Validator(copier.unseen, bundle.load_tokenizer(), copier.config)


@pytest.fixture
def model(copier: Any) -> Transformer:
    return Bundle.open(copier.result.folder / "last").load_model()


@pytest.mark.exhaustive
def test_figures_can_be_found_again_from_the_bundle(copier: Any, metrics_of: Any) -> None:
    folder = copier.result.folder
    line = [line for line in metrics_of(folder) if line["kind"] == "validation"][-1]
    path = copier.result.folder.parent / "validation.tsv"
    sources, references = zip(*(row.split("\t") for row in path.read_text(encoding="utf-8").splitlines()), strict=True)
    translations = Translator.load(folder / "last", device="cpu").translate(sources)
    scores = {
        score.metric: score for score in score_corpus(translations, references, ("bleu", "chrf"), confidence=True)
    }
    assert {score["metric"]: score["value"] for score in line["scores"]} == {
        metric: pytest.approx(score.value) for metric, score in scores.items()
    }
    assert {score["signature"] for score in line["scores"]} == {score.signature for score in scores.values()}
    assert scores["BLEU"].value > 20
    assert [(score["low"], score["high"]) for score in line["scores"]] == [
        (score.low, score.high) for score in scores.values()
    ]
    assert all(score["low"] - 1e-5 <= score["value"] <= score["high"] + 1e-5 for score in line["scores"])
    for sample in line["samples"]:
        place = sources.index(sample["source"])
        assert (sample["translation"], sample["reference"]) == (translations[place], references[place])


def test_loss_and_accuracy_are_those_of_each_pair_alone(validator: Validator, model: Transformer) -> None:
    tokenizer = validator.tokenizer
    losses, right = [], []
    for source, target in validator.pairs:
        ids = [torch.tensor([[*tokenizer.encode(side), tokenizer.end_id]]) for side in (source, target)]
        with torch.no_grad():
            logits = model(ids[0], torch.ones_like(ids[0]).bool(), ids[1], torch.ones_like(ids[1]).bool())[0]
        losses += F.cross_entropy(logits, ids[1][0], reduction="none").tolist()
        right += (logits.argmax(dim=-1) == ids[1][0]).tolist()
    found = validator.validate(model)
    assert found.loss == pytest.approx(sum(losses) / len(losses), rel=1e-4)
    assert found.accuracy == pytest.approx(sum(right) / len(right))
    assert found.perplexity == pytest.approx(math.exp(found.loss))


def test_a_line_too_long_for_the_loss_is_left_out_of_it(validator: Validator, model: Transformer) -> None:
    expected = validator.validate(model)
    long = " ".join(["sun"] * (MAX_PIECES + 1))
    found = Validator([*validator.pairs, (long, "sun"), ("sun", long)], validator.tokenizer, validator.config)
    assert found.short_pairs == validator.pairs
    validation = found.validate(model)
    assert (validation.loss, validation.accuracy) == (expected.loss, expected.accuracy)
    assert validation.scores != expected.scores
    longest = " ".join(["sun"] * MAX_PIECES)
    assert len(validator.tokenizer.encode(longest)) == MAX_PIECES
    assert Validator([(longest, longest)], validator.tokenizer, validator.config).short_pairs
    with pytest.raises(CorpusError, match=r"every pair .* more than 2,048 pieces, .* raise text\.max_pieces"):
        Validator([(long, long)], validator.tokenizer, validator.config)
    text = validator.config.text.model_copy(update={"max_pieces": MAX_PIECES + 1})
    more = validator.config.model_copy(update={"text": text})
    assert Validator([(long, long)], validator.tokenizer, more).short_pairs


def test_the_model_is_left_as_it_was(validator: Validator, model: Transformer) -> None:
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for training in (True, False):
        model.train(training)
        validator.validate(model)
        assert model.training == training
        assert all(part.training == training for part in model.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_few_samples_are_shown(validator: Validator, model: Transformer, copier: Any) -> None:
    samples = validator.validate(model).samples
    assert len(samples) == 3
    assert {(sample.source, sample.reference) for sample in samples} <= set(copier.unseen)
    alone = Validator(copier.unseen[:1], validator.tokenizer, copier.config).validate(model)
    assert len(alone.samples) == 1


def test_quality_is_higher_where_the_model_is_better() -> None:
    scores = tuple(score_corpus(["a small dog runs now"], ["a small dog runs now"], ("bleu", "chrf")))
    validation = Validation(2.5, 0.5, scores, (), 0.5)
    assert validation.rank("bleu") == [pytest.approx(100), pytest.approx(100), -2.5]
    assert validation.rank("loss") == [-2.5, pytest.approx(100), -2.5]
    assert Validation(1e9, 0.0, scores, (), 0.0).perplexity < math.inf


def test_the_loss_is_that_of_all_pairs_when_only_the_first_are_translated(
    copier: Any, validator: Validator, model: Transformer
) -> None:
    training = copier.config.training.model_copy(update={"max_validation_pairs": 5})
    config = copier.config.model_copy(update={"training": training})
    found = Validator(validator.pairs, validator.tokenizer, config).validate(model)
    first = Validator(validator.pairs[:5], validator.tokenizer, copier.config).validate(model)
    everything = validator.validate(model)
    assert (found.loss, found.accuracy) == (everything.loss, everything.accuracy)
    assert (found.scores, found.samples, found.token_f1) == (first.scores, first.samples, first.token_f1)
    assert first.loss != everything.loss


@pytest.mark.parametrize(("best", "tried"), [(1.5, [1.0, 1.5, 2.0]), (0.0, [1.0, 0.0]), (3.0, [1, 1.5, 2, 2.5, 3])])
def test_the_length_penalty_is_sought_upwards_and_then_downwards(
    copier: Any,
    validator: Validator,
    model: Transformer,
    monkeypatch: pytest.MonkeyPatch,
    best: float,
    tried: list[float],
) -> None:
    """The further a penalty is from the best one, the more words are wrong."""
    asked: list[float] = []

    def translate(_self: Validator, _model: Transformer, search: SearchConfig) -> list[str]:
        asked.append(search.length_penalty)
        num_wrong = round(2 * abs(search.length_penalty - best)) * len(copier.unseen) // 8
        return ["wrong"] * num_wrong + [target for _, target in copier.unseen[num_wrong:]]

    config = copier.config.with_training(fit_length_penalty=True)
    config = config.model_copy(update={"search": SearchConfig(length_penalty=0.5)})
    searcher = Validator(copier.unseen, validator.tokenizer, config)
    monkeypatch.setattr(Validator, "_translate", translate)
    references = [target for _, target in copier.unseen]
    first = score_corpus(translate(searcher, model, config.search), references, VALIDATION_METRICS)
    asked.clear()
    search, scores = searcher.fit_search(model, first)
    assert (search.length_penalty, asked) == (best, tried)
    assert scores[0].value == pytest.approx(100)


@pytest.mark.parametrize("is_better", [False, True])
def test_repetitions_are_forbidden_where_both_metrics_are_better(
    copier: Any, validator: Validator, model: Transformer, monkeypatch: pytest.MonkeyPatch, *, is_better: bool
) -> None:
    """The length penalty is fitted after that."""
    asked: list[tuple[int, float]] = []
    repeated = [target if number % 2 else f"{target} {target}" for number, (_, target) in enumerate(copier.unseen)]

    def translate(_self: Validator, _model: Transformer, search: SearchConfig) -> list[str]:
        asked.append((search.no_repeat_ngram, search.length_penalty))
        if not search.no_repeat_ngram:
            return repeated
        return [target if is_better else "x" * 30 for _, target in copier.unseen]

    config = copier.config.with_training(fit_no_repeat_ngram=True, fit_length_penalty=True)
    searcher = Validator(copier.unseen, validator.tokenizer, config)
    monkeypatch.setattr(Validator, "_translate", translate)
    first = score_corpus(repeated, [target for _, target in copier.unseen], VALIDATION_METRICS)
    search, scores = searcher.fit_search(model, first)
    chosen = NO_REPEAT_NGRAM if is_better else 0
    assert search.no_repeat_ngram == chosen
    assert asked[0] == (NO_REPEAT_NGRAM, config.search.length_penalty)
    assert {length for length, _ in asked[1:]} == {chosen}
    assert [score.value for score in scores] == pytest.approx([100, 100] if is_better else [one.value for one in first])


def test_a_given_length_of_repeated_ngrams_stays(
    copier: Any, validator: Validator, model: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = copier.config.with_training(fit_no_repeat_ngram=True)
    given = config.model_copy(update={"search": SearchConfig(no_repeat_ngram=3)})
    monkeypatch.setattr(Validator, "_translate", lambda *_: pytest.fail("there is nothing to try"))
    assert Validator(copier.unseen, validator.tokenizer, given).fit_search(model, []) == (given.search, [])


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


SENTENCES = st.lists(st.lists(st.integers(2, 9), max_size=6), min_size=1, max_size=4)


@given(SENTENCES, st.randoms())
def test_the_order_of_tokens_does_not_matter(references: list[list[int]], random: Any) -> None:
    shuffled = [random.sample(reference, len(reference)) for reference in references]
    assert compute_token_f1(shuffled, references) == 1.0
    assert compute_token_f1([[1] for _ in references], references) == 0.0


@pytest.mark.parametrize(
    ("hypothesis", "reference", "expected"),
    [
        ([5, 6], [5, 7], 0.5),
        ([5, 5, 5, 5], [5, 7], 2 / 6),  # each token of the reference counts once
        ([], [5], 0.0),
        ([5], [5, 6, 7], 2 / 4),
    ],
)
def test_tokens_in_common(hypothesis: list[int], reference: list[int], expected: float) -> None:
    assert compute_token_f1([hypothesis], [reference]) == pytest.approx(expected)
    assert compute_token_f1([reference], [hypothesis]) == pytest.approx(expected)
    # Over all sentences, not the mean of each.
    assert compute_token_f1([hypothesis, [8] * 10], [reference, [8] * 10]) > expected


@pytest.mark.parametrize(
    ("translations", "expected"),
    [
        (["x", "x", "x", "x"], 1.0),
        (["x", "y", "x", "z"], 0.5),
        (["w", "x", "y", "z"], 0.25),
    ],
)
def test_the_share_of_the_most_frequent_translation(translations: list[str], expected: float) -> None:
    assert compute_commonest_share(["a", "b", "c", "d"], translations) == expected


def test_equal_sources_may_have_equal_translations() -> None:
    assert compute_commonest_share(["a", "a", "a", "b"], ["x", "x", "x", "y"]) == 0.5
    assert compute_commonest_share(["a"], ["x"]) == 0.0


def test_the_share_of_translations_that_repeat_themselves() -> None:
    sources = ["The article said that Iran is an exception."] * 2
    repeated = "A lokacin wani bangare na farko na farko na farko na farko na farko da aka samu."
    assert compute_repetition_share(sources, [repeated, "Tana cewa Iran dai ta bambanta."]) == 0.5
    assert compute_repetition_share([repeated], [repeated]) == 0.0
