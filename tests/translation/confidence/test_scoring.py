import math
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from transduce.bundle import BundleDescription, save_bundle
from transduce.config import SearchConfig
from transduce.errors import BundleError, ConfigError, UserError
from transduce.model import Transformer
from transduce.text import Tokenizer
from transduce.translation import (
    ForcedDecoder,
    PairScore,
    Perplexity,
    PyTorchEngine,
    Token,
    Translator,
    score_ids,
    score_pairs,
    score_stream,
)
from transduce.translation.confidence import scoring as scoring_module
from transduce.translation.confidence.scoring import number_blocks

SOURCES = [[5, 1], [5, 6, 7, 8, 1], [1], [9, 8, 1]]
TARGETS = [[7, 8, 9, 1], [5, 1], [6, 1], [1]]


@pytest.fixture
def make_decoder(make_model: Callable[..., Transformer], tokenizer: Tokenizer) -> Callable[..., ForcedDecoder]:
    def make(batch_tokens: int = 4096, **settings: Any) -> ForcedDecoder:
        return ForcedDecoder(make_model(**settings), tokenizer, SearchConfig(batch_tokens=batch_tokens))

    return make


@pytest.mark.parametrize("batch_tokens", [1, 10, 4096])
def test_batches_hold_every_pair_once(make_decoder: Callable[..., ForcedDecoder], batch_tokens: int) -> None:
    decoder = make_decoder(batch_tokens)
    with decoder.make_batches(SOURCES, TARGETS) as batches:
        found = list(batches)
    assert sorted(chain(*(indices for indices, _ in found))) == [0, 1, 2, 3]
    for indices, batch in found:
        assert batch.source_ids[batch.source_mask].tolist() == list(chain(*(SOURCES[index] for index in indices)))
        assert batch.target_ids[batch.target_mask].tolist() == list(chain(*(TARGETS[index] for index in indices)))
        # Padding up to a multiple of four, which makes the rounding of a row its own affair, is not counted.
        longest = max(int(batch.source_mask.sum(dim=1).max()), int(batch.target_mask.sum(dim=1).max()))
        assert len(indices) == 1 or len(indices) * longest <= batch_tokens


def test_logits_of_a_batch_are_bounded(
    make_decoder: Callable[..., ForcedDecoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = make_decoder()
    monkeypatch.setattr(scoring_module, "MAX_LOGITS", 8 * decoder.tokenizer.vocabulary)
    with decoder.make_batches(SOURCES, TARGETS) as batches:
        assert [indices for indices, _ in batches] == [[1], [0, 3], [2]]


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_of_the_model_is_put_back(make_decoder: Callable[..., ForcedDecoder], *, training: bool) -> None:
    decoder = make_decoder()
    decoder.model.train(training)
    with decoder.make_batches(SOURCES, TARGETS):
        assert not any(part.training for part in decoder.model.modules())
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()
    assert all(part.training == training for part in decoder.model.modules())
    with pytest.raises(ZeroDivisionError), decoder.make_batches(SOURCES, TARGETS):
        raise ZeroDivisionError
    assert all(part.training == training for part in decoder.model.modules())


def test_what_learned_positions_do_not_reach_is_named(make_decoder: Callable[..., ForcedDecoder]) -> None:
    decoder = make_decoder(positions="learned", max_positions=4)
    with decoder.make_batches(SOURCES[2:], TARGETS[2:]) as batches:
        assert len(list(batches)) == 1
    with (
        pytest.raises(UserError, match=r"line 102: the source has 5 tokens.* up to 4 "),
        decoder.make_batches(SOURCES, TARGETS, first_line=101),
    ):
        pass
    with (
        pytest.raises(UserError, match="line 1: the target has 5 tokens"),
        decoder.make_batches([[1]], [[5, 5, 5, 5, 1]]),
    ):
        pass


def test_a_stream_is_read_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring_module, "_PAIRS_AT_A_TIME", 4)
    read = []

    def pairs() -> Iterator[tuple[str, str]]:
        for number in range(10):
            read.append(number)
            yield str(number), "x"

    lines = []
    for first_line, block in number_blocks(pairs()):
        assert len(read) == first_line - 1 + len(block)
        lines += [(first_line + index, source) for index, (source, _) in enumerate(block)]
    assert lines == [(number + 1, str(number)) for number in range(10)]


def test_it_is_loaded_from_a_bundle(random_model: Transformer, tokenizer: Tokenizer, tmp_path: Path) -> None:
    search = SearchConfig(length_penalty=1.0, max_pieces=33)
    save_bundle(
        tmp_path / "bundle", random_model, tokenizer, BundleDescription(model=random_model.config, search=search)
    )
    decoder = ForcedDecoder.load(tmp_path / "bundle", device="cpu")
    assert decoder.search == search
    assert decoder.tokenizer.model_bytes == tokenizer.model_bytes
    assert not decoder.model.training
    with pytest.raises(BundleError, match="no such folder"):
        ForcedDecoder.load(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="warp drive"):
        ForcedDecoder.load(tmp_path / "bundle", device="warp drive")


Sentences = Callable[..., list[str]]
BLANK = ["", "  ", "\t", "\u3000", "\u200b"]


@pytest.fixture
def decoder(copier: Transformer, tokenizer: Tokenizer, translator: Translator) -> ForcedDecoder:
    return ForcedDecoder(copier, tokenizer, translator.search)


@pytest.fixture
def pairs(make_sentences: Sentences) -> list[tuple[str, str]]:
    """Of unlike lengths, a blank side here and there."""
    sources, targets = make_sentences(24, seed=21), make_sentences(24, seed=22, max_words=9)
    return [*zip(sources, targets, strict=True), ("sun", ""), ("", "sun moon"), ("🙂 语", "ﷺ</s>")]


@pytest.fixture
def assert_same(*, adds_up_alike: bool) -> Callable[[list[PairScore], list[PairScore]], None]:
    """To the last bit; where the matrix library adds up otherwise, up to rounding."""

    def compare(found: list[PairScore], expected: list[PairScore]) -> None:
        if adds_up_alike:
            assert found == expected
        for one, other in zip(found, expected, strict=True):
            assert [token.piece for token in one.tokens] == [token.piece for token in other.tokens]
            log_probabilities = [token.log_probability for token in other.tokens]
            assert [token.log_probability for token in one.tokens] == pytest.approx(log_probabilities, abs=1e-5)

    return compare


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("beam", [1, 3])
def test_a_hypothesis_has_the_score_it_was_found_with(
    copier: Transformer, tokenizer: Tokenizer, make_sentences: Sentences, alpha: float, beam: int
) -> None:
    search = SearchConfig(beam=beam, length_penalty=alpha, max_extra_length=8)
    sources = [[*ids, tokenizer.end_id] for ids in tokenizer.encode_all(make_sentences(20, seed=20))]
    found = PyTorchEngine(copier, tokenizer.end_id).search(sources, search, num_best=beam)
    decoder = ForcedDecoder(copier, tokenizer, search)
    for rank in range(beam):
        hypotheses = [best[rank] for best in found]
        for hypothesis, scored in zip(
            hypotheses, score_ids(decoder, sources, [hypothesis.ids for hypothesis in hypotheses]), strict=True
        ):
            assert scored.ids == hypothesis.ids
            assert scored.score == pytest.approx(hypothesis.score, abs=1e-4)
            assert scored.token_scores == pytest.approx(hypothesis.token_scores, abs=1e-4)


def test_a_translation_has_the_score_it_was_found_with(
    decoder: ForcedDecoder, translator: Translator, make_sentences: Sentences
) -> None:
    sources = [*make_sentences(60, seed=23), ""]
    best = [translation.alternatives[0] for translation in translator.find_translations(sources)]
    pairs = [(source, alternative.text) for source, alternative in zip(sources, best, strict=True)]
    scores = [score.score for score in score_pairs(decoder, pairs)]
    differing = [
        alternative.text
        for alternative, score in zip(best, scores, strict=True)
        if score != pytest.approx(alternative.score, abs=1e-4)
    ]
    # The text of a translation can be cut into other pieces than those it was made of, and only then differs.
    assert len(differing) < 20
    for text in differing:
        assert not any(text == source for source, _ in pairs)


def test_every_piece_is_scored_and_the_sum_is_divided_by_the_length_penalty(
    decoder: ForcedDecoder, pairs: list[tuple[str, str]]
) -> None:
    for (_, target), score in zip(pairs, score_pairs(decoder, pairs), strict=True):
        ids = decoder.tokenizer.encode(target)
        assert [token.piece for token in score.tokens] == [*decoder.tokenizer.pieces(ids), "</s>"]
        assert all(-100 < token.log_probability <= 0 for token in score.tokens)
        assert score.log_probability == pytest.approx(sum(token.log_probability for token in score.tokens))
        assert score.score == pytest.approx(score.log_probability / ((5 + len(ids) + 1) / 6) ** 0.6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("batch_tokens", [1, 50, 100_000])
def test_the_size_of_batches_changes_nothing(
    decoder: ForcedDecoder, pairs: list[tuple[str, str]], batch_tokens: int, assert_same: Callable[..., None]
) -> None:
    search = decoder.search.model_copy(update={"batch_tokens": batch_tokens})
    other = ForcedDecoder(decoder.model, decoder.tokenizer, search)
    expected = score_pairs(decoder, pairs)
    assert_same(score_pairs(other, pairs), expected)
    assert_same(score_pairs(other, pairs[::-1])[::-1], expected)
    assert_same([score_pairs(other, [pair])[0] for pair in pairs], expected)


def test_a_stream_is_its_pairs(
    decoder: ForcedDecoder,
    pairs: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    assert_same: Callable[..., None],
) -> None:
    expected = score_pairs(decoder, pairs)
    monkeypatch.setattr(scoring_module, "_PAIRS_AT_A_TIME", 5)
    assert_same(list(score_stream(decoder, iter(pairs))), expected)
    assert list(score_stream(decoder, [])) == []


def test_line_n_in_is_line_n_out(
    decoder: ForcedDecoder, pairs: list[tuple[str, str]], assert_same: Callable[..., None]
) -> None:
    blanks = [(source, target) for source in BLANK for target in BLANK]
    mixed = [one for pair, blank in zip(pairs, blanks, strict=False) for one in (pair, blank)]
    found = score_pairs(decoder, mixed)
    assert_same(found[::2], score_pairs(decoder, pairs[: len(blanks)]))
    assert set(found[1::2]) == {PairScore(0.0, 0.0, ())}
    # A blank source translates into a blank line for certain, and what a model says of another is its own affair.
    assert math.isfinite(score_pairs(decoder, [("", "sun")])[0].score)


def test_copies_are_more_probable_for_one_who_copies(decoder: ForcedDecoder, make_sentences: Sentences) -> None:
    lines = make_sentences(50, seed=24)
    copies = score_pairs(decoder, list(zip(lines, lines, strict=True)))
    others = score_pairs(decoder, list(zip(lines, lines[1:] + lines[:1], strict=True)))
    better = sum(copy.score > other.score for copy, other in zip(copies, others, strict=True))
    assert better >= 48


def test_perplexity_is_that_of_all_tokens(decoder: ForcedDecoder, pairs: list[tuple[str, str]]) -> None:
    perplexity = Perplexity()
    assert perplexity.value == 1.0
    losses = []
    for pair, score in zip([*pairs, ("", "")], score_pairs(decoder, [*pairs, ("", "")]), strict=True):
        perplexity.add(score)
        source, target = (torch.tensor([[*decoder.tokenizer.encode(text), decoder.tokenizer.end_id]]) for text in pair)
        if pair != ("", ""):
            with torch.no_grad():
                logits = decoder.model(source, source > 0, target, target > 0)
            losses += F.cross_entropy(logits[0], target[0], reduction="none").tolist()
    assert (perplexity.num_pairs, perplexity.num_tokens) == (len(pairs) + 1, len(losses))
    assert perplexity.value == pytest.approx(math.exp(sum(losses) / len(losses)), rel=1e-4)
    perplexity.add(PairScore(-1e9, -1e9, (Token("</s>", -1e9),)))
    assert perplexity.value == math.inf


def test_dropout_has_no_part(make_model: Callable[..., Transformer], tokenizer: Tokenizer) -> None:
    model = make_model(dropout=0.5).train()
    decoder = ForcedDecoder(model, tokenizer, SearchConfig())
    first, second = (score_pairs(decoder, [("sun moon", "moon sun")]) for _ in range(2))
    assert first == second
    assert model.training


def test_what_is_longer_than_the_model_reads_at_a_time_is_scored_and_marked(decoder: ForcedDecoder) -> None:
    long = " ".join(["moon"] * (decoder.search.max_pieces + 1))
    fits = " ".join(["moon"] * decoder.search.max_pieces)
    found = score_pairs(decoder, [("moon", fits), (fits, "moon"), (long, "moon"), ("moon", long)])
    assert len(decoder.tokenizer.encode("moon")) == 1
    assert [score.is_long for score in found] == [False, False, True, False]
    assert all(math.isfinite(score.score) for score in found)


def test_what_learned_positions_do_not_reach_is_named_by_line(
    make_model: Callable[..., Transformer], tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = ForcedDecoder(make_model(positions="learned", max_positions=6), tokenizer, SearchConfig())
    monkeypatch.setattr(scoring_module, "_PAIRS_AT_A_TIME", 2)
    stream = score_stream(decoder, [("moon", "moon")] * 5 + [("moon moon moon moon moon moon", "moon")])
    assert [next(stream) for _ in range(5)]
    with pytest.raises(UserError, match=r"line 6: the source has 7 tokens, .* up to 6 .* split"):
        next(stream)


def test_a_text_that_attention_has_no_memory_for_is_named_by_line(
    decoder: ForcedDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring_module, "MAX_TOKENS", 6)
    stream = score_stream(decoder, [("moon moon", "moon"), ("moon", "moon " * 6)])
    assert next(stream)
    with pytest.raises(UserError, match=r"line 2: the target has 7 tokens, .* at most 6, .* split"):
        next(stream)
