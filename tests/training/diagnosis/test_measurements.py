import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transduce.bundle import Bundle
from transduce.config import RunConfig, TransformerConfig
from transduce.data import Batch, PreparedData
from transduce.doctor.pairing.association import MIN_RELATED_ASSOCIATION
from transduce.model import Transformer
from transduce.training import Validator
from transduce.training.diagnosis.measurements import (
    MAX_TOKENS,
    SourceProbe,
    compute_entropy,
    measure_attention_entropies,
    measure_neighbour_association,
    measure_pair_association,
    measure_similarity,
    measure_text,
)

SENTENCES = [
    [int(token) for token in np.random.default_rng(number).geometric(0.1, size=12).clip(max=60)]
    for number in range(400)
]


MEANINGS = np.random.default_rng(7).permutation(100)


def translated(sentence: list[int]) -> list[int]:
    return [int(MEANINGS[token]) for token in reversed(sentence)]


@given(st.dictionaries(st.integers(), st.integers(1, 50), min_size=1, max_size=20))
def test_entropy_is_highest_where_all_tokens_are_alike(counts: dict[int, int]) -> None:
    assert -1e-9 <= compute_entropy(counts) <= math.log(len(counts)) + 1e-9
    assert compute_entropy(dict.fromkeys(counts, 3)) == pytest.approx(math.log(len(counts)))


def test_translations_are_told_from_pairs_put_together_at_random() -> None:
    targets = [translated(sentence) for sentence in SENTENCES]
    assert measure_pair_association(SENTENCES, targets) > 2 * MIN_RELATED_ASSOCIATION
    for shift in (1, 2, 100):
        assert 0.9 < measure_pair_association(SENTENCES, targets[shift:] + targets[:shift]) < 1.15


def test_the_order_of_pairs_and_the_names_of_tokens_do_not_matter() -> None:
    targets = [translated(sentence) for sentence in SENTENCES]
    renamed = [[token + 1000 for token in sentence] for sentence in reversed(targets)]
    found = measure_pair_association(SENTENCES, targets)
    assert measure_pair_association(SENTENCES[::-1], renamed) == pytest.approx(found, rel=1e-4)


def test_neighbours_that_share_a_topic_are_not_taken_for_translations() -> None:
    topics = np.random.default_rng(3).integers(100, 120, size=len(SENTENCES)).repeat(4)[: len(SENTENCES)].tolist()
    sources = [[*sentence, topic] for sentence, topic in zip(SENTENCES, topics, strict=True)]
    targets = [[*translated(sentence), topic] for sentence, topic in zip(SENTENCES, topics, strict=True)]
    assert (
        measure_pair_association(sources, targets)
        > measure_neighbour_association(sources, targets)
        > MIN_RELATED_ASSOCIATION
    )
    for late in (targets[1:] + targets[:1], targets[-1:] + targets[:-1]):
        assert (
            MIN_RELATED_ASSOCIATION
            < measure_pair_association(sources, late)
            < measure_neighbour_association(sources, late)
        )


@pytest.mark.parametrize("sentences", [[[1]] * 300, [[number] for number in range(300)]])
def test_text_that_says_nothing_is_not_judged(sentences: list[list[int]]) -> None:
    assert measure_pair_association(sentences, sentences) == 1.0


ENGLISH = [f"the {colour} {animal} runs through the {place}" for colour in ("red", "black", "small") for animal in
           ("dog", "horse", "bird", "fox") for place in ("street", "forest", "garden")]  # fmt: skip


GERMAN = [f"der {colour} {animal} rennt durch {place}" for colour in ("rote", "schwarze", "kleine") for animal in
          ("Hund", "Hengst", "Vogel", "Fuchs") for place in ("die Straße", "den Wald", "den Garten")]  # fmt: skip


def test_a_language_is_like_itself_and_unlike_another() -> None:
    assert measure_similarity(ENGLISH[::3], ENGLISH) == pytest.approx(1, abs=0.15)
    assert measure_similarity(GERMAN[::3], GERMAN) == pytest.approx(1, abs=0.15)
    for one, other in ((GERMAN, ENGLISH), (ENGLISH, GERMAN)):
        assert 0 <= (measure_similarity(one[::3], other) or 0) < 0.4


@pytest.mark.parametrize("texts", [["x"], [""], ["日本"]])
def test_few_and_strange_texts_have_a_likeness(texts: list[str]) -> None:
    similarity = measure_similarity(texts, ENGLISH)
    assert similarity is not None
    assert similarity >= 0
    assert measure_similarity(ENGLISH, texts) is None


def test_the_text_of_a_run(
    make_config: Callable[..., RunConfig], prepare_for: Callable[[RunConfig], PreparedData]
) -> None:
    prepared = prepare_for(make_config())
    figures = measure_text(prepared)
    # Of 120 pairs, too few to judge whether they belong together.
    assert (figures.num_blocks, figures.unrelated_blocks, figures.pair_association) == (0, 0, None)
    assert 2 < figures.unigram_loss < math.log(prepared.tokenizer.vocabulary)
    # The same words in another order: both sides are alike, and everything is in one language.
    assert min(figures.source_similarity, figures.target_similarity, figures.swapped_similarity) > 0.6


def test_validation_text_is_compared_with_each_corpus(
    make_config: Callable[..., RunConfig], prepare_for: Callable[[RunConfig], PreparedData], tmp_path: Path
) -> None:
    def write(name: str, texts: list[str]) -> str:
        path = tmp_path / f"{name}.tsv"
        path.write_text("".join(f"{text}\t{text[::-1]}\n" for text in texts), encoding="utf-8")
        return str(path)

    random = np.random.default_rng(3)
    letters = {"small": "abcdefgh", "large": "stuvwxyz"}
    texts = {
        name: [" ".join("".join(random.choice([*few], 4)) for _ in range(8)) for _ in range(size)]
        for (name, few), size in zip(letters.items(), (600, 9000), strict=True)
    }
    corpora = [{"pairs": write(name, some)} for name, some in texts.items()]
    # Of sentences of which none is like another, no similarity can be told.
    letters_of_all = [*"abcdefghijklmnopqrstuvwxyzαβγδεζηθικλμνξοπρστυφχψωбгдёийлпуфцчшъ"]
    corpora.append({"pairs": write("unlike", ["".join(random.choice(letters_of_all, 9)) for _ in range(300)])})
    strange = [text.replace("a", "ж").replace("b", "д").replace("c", "щ") for text in texts["small"][:200]]
    known, foreign = (
        measure_text(
            prepare_for(
                make_config(
                    data__pairs=None,
                    data__corpora=corpora,
                    data__validation_pairs=write(name, validation),
                    text__vocabulary=500,
                )
            )
        )
        for name, validation in (("known", texts["small"][:200]), ("foreign", strange))
    )
    assert min(known.source_similarity, known.target_similarity) > 0.8
    assert max(foreign.source_similarity, foreign.target_similarity) < 0.6


@pytest.fixture
def bundle(copier: Any) -> Bundle:
    return Bundle.open(copier.result.folder / "last")


def test_a_model_that_has_learned_to_copy_needs_the_right_source(copier: Any, bundle: Bundle) -> None:
    found = SourceProbe(copier.unseen, bundle.load_tokenizer(), torch.float32).measure(bundle.load_model())
    gain = found.shuffled_loss - found.loss
    assert gain > 1
    assert gain > 5 * found.gain_error
    assert found.sharpest_entropy < found.attention_entropy < 1
    assert found.num_pairs == len(copier.unseen)


def test_the_loss_is_that_of_the_validation(copier: Any, bundle: Bundle) -> None:
    tokenizer, model = bundle.load_tokenizer(), bundle.load_model()
    found = SourceProbe(copier.unseen, tokenizer, torch.float32).measure(model)
    assert found.loss == pytest.approx(
        Validator(copier.unseen, tokenizer, copier.config).validate(model).loss, rel=1e-4
    )


def test_without_attention_to_the_source_it_makes_no_difference(copier: Any, bundle: Bundle) -> None:
    model = bundle.load_model()
    for layer in model.decoder.layers:
        torch.nn.init.zeros_(layer.cross_attention.output.weight)
    found = SourceProbe(copier.unseen, bundle.load_tokenizer(), torch.float32).measure(model)
    assert found.shuffled_loss == pytest.approx(found.loss, abs=1e-6)
    assert found.gain_error < 1e-6


def test_the_model_is_left_as_it_was(copier: Any, bundle: Bundle) -> None:
    model, probe = bundle.load_model(), SourceProbe(copier.unseen, bundle.load_tokenizer(), torch.float32)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    for training in (True, False):
        model.train(training)
        assert probe.measure(model) == probe.measure(model)
        assert all(part.training == training for part in model.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


def test_bfloat16_changes_little(copier: Any, bundle: Bundle) -> None:
    model, tokenizer = bundle.load_model(), bundle.load_tokenizer()
    exact, rounded = (
        SourceProbe(copier.unseen, tokenizer, type_).measure(model) for type_ in (torch.float32, torch.bfloat16)
    )
    assert rounded.loss == pytest.approx(exact.loss, rel=0.05, abs=0.02)
    assert model.compute_dtype is None


def test_the_sample_is_bounded_and_has_a_pair_at_least(copier: Any, bundle: Bundle) -> None:
    tokenizer = bundle.load_tokenizer()
    many = SourceProbe(copier.unseen * 100, tokenizer, torch.float32).batch
    assert many.source_mask.sum() <= MAX_TOKENS
    long = (" ".join(["river"] * 2 * MAX_TOKENS),) * 2
    assert len(SourceProbe([long], tokenizer, torch.float32).batch.source_ids) == 1
    assert SourceProbe([long], tokenizer, torch.float32).measure(bundle.load_model()).gain_error == 0


def test_uniform_attention_has_an_entropy_of_one_and_one_place_of_zero() -> None:
    torch.manual_seed(1)
    config = TransformerConfig(
        vocabulary=20, d_model=8, num_heads=2, d_ff=8, num_encoder_layers=1, num_decoder_layers=2
    )
    model = Transformer(config).eval()
    batch = Batch.from_ids([[5, 6, 7, 1], [8, 1]], [[9, 1], [5, 6, 1]], pad_id=19)
    for layer in model.decoder.layers:
        torch.nn.init.zeros_(layer.cross_attention.projection.weight[:8])
    found = measure_attention_entropies(model, batch)
    assert found.shape == (4,)
    torch.testing.assert_close(found, torch.ones(4))
    with torch.no_grad():
        for layer in model.decoder.layers:
            layer.cross_attention.projection.weight[:16] = 100 * torch.randn(16, 8)
    assert measure_attention_entropies(model, batch).max() < 0.3
    alone = Batch.from_ids([[1]], [[9, 1]], pad_id=19)
    assert measure_attention_entropies(model, alone).tolist() == [1.0]
