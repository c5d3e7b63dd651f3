import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given, strategies

from transduce.config import SearchConfig, TransformerConfig
from transduce.errors import ConfigError, UserError
from transduce.model import Transformer
from transduce.search import Constraints, Hypothesis, Sampling
from transduce.translation import Engine, NetworkEngine, PyTorchEngine, batch_by_length
from transduce.translation.engines.networks import ModelNetwork

END = 1
# Of unlike lengths, and translated a few at a time.
SEARCH = SearchConfig(beam=3, max_extra_length=5, batch_tokens=30)
VARIANTS = [
    {"d_model": 128, "d_ff": 256},
    {"d_model": 24, "num_heads": 6, "d_ff": 50, "norm_order": "pre"},
    {"num_heads": 1, "activation": "gelu", "d_ff": 64},
    {"activation": "swish", "d_ff": 64},
    {"positions": "learned", "max_positions": 40},
    {"attention_score": "additive"},
    {"normalization": "batch"},
    {"normalization": "rms", "d_k": 6, "d_v": 5},
    {"feed_forward": "gated", "activation": "swish", "d_ff": 85},
    {"positions": "relative", "d_k": 6, "d_v": 5},
    {"positions": "rotary", "d_k": 6},
    {"attention_score": "additive", "d_model": 80, "num_heads": 8},
    {"positions": "relative", "d_model": 40, "num_heads": 10},
    {"positions": "relative", "d_model": 36, "num_heads": 12, "d_ff": 33},
]
"""Networks of the compiled kernels, then those that the model itself computes."""


@pytest.fixture(scope="module")
def sources(random_model: Transformer) -> list[list[int]]:
    random = np.random.default_rng(3)
    return [[*random.integers(2, random_model.pad_id, size=size).tolist(), END] for size in (3, 9, 0, 6, 6, 15)]


@pytest.fixture(scope="module", params=["random_model", "copier"])
def model(request: pytest.FixtureRequest) -> Transformer:
    found: Transformer = request.getfixturevalue(request.param)
    return found


def assert_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    assert [[hypothesis.ids for hypothesis in best] for best in found] == [
        [hypothesis.ids for hypothesis in best] for best in expected
    ]
    for one, other in zip(chain(*found), chain(*expected), strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-5)
        assert one.token_scores == pytest.approx(other.token_scores, abs=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("beam", [1, 3])
def test_a_batch_is_each_alone_in_any_order(
    model: Transformer, sources: list[list[int]], beam: int, assert_batches_change_nothing: Callable[..., None]
) -> None:
    search = SEARCH.model_copy(update={"beam": beam})
    assert_batches_change_nothing(PyTorchEngine(model, END), sources, search)


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_a_batch_is_each_alone_whatever_computes_it(
    make_model: Callable[..., Transformer],
    sources: list[list[int]],
    settings: dict[str, object],
    assert_batches_change_nothing: Callable[..., None],
) -> None:
    assert_batches_change_nothing(PyTorchEngine(make_model(**settings), END), sources, SEARCH)


@pytest.mark.exhaustive
def test_a_batch_is_each_alone_for_an_ensemble_and_two_threads(
    make_model: Callable[..., Transformer],
    copier: Transformer,
    sources: list[list[int]],
    assert_batches_change_nothing: Callable[..., None],
) -> None:
    engine = PyTorchEngine(copier, END, ensemble=[make_model(seed=7)])
    assert_batches_change_nothing(engine, sources, SEARCH)
    torch.set_num_threads(2)
    try:
        assert_batches_change_nothing(engine, sources, SEARCH)
    finally:
        torch.set_num_threads(1)


@pytest.fixture
def assert_batches_change_nothing(*, adds_up_alike: bool) -> Callable[..., None]:
    """Neither the hypotheses nor, in float32, one bit of their scores; elsewhere rounding."""

    def compare(engine: PyTorchEngine, sources: list[list[int]], search: SearchConfig) -> None:
        together = engine.search(sources, search, search.beam)
        assert len(together) == len(sources)
        others = [
            [engine.search([source], search, search.beam)[0] for source in sources],
            engine.search(sources[::-1], search, search.beam)[::-1],
            engine.search(sources, search.model_copy(update={"batch_tokens": 20}), search.beam),
            engine.search(sources, search.model_copy(update={"batch_tokens": 10_000}), search.beam),
        ]
        for other in others:
            if adds_up_alike:
                assert other == together
            else:
                assert_same(other, together)

    return compare


@pytest.mark.exhaustive
def test_beam_1_is_greedy(model: Transformer, sources: list[list[int]]) -> None:
    found = PyTorchEngine(model, END).search(sources, SEARCH.model_copy(update={"beam": 1}))
    for source, (hypothesis,) in zip(sources, found, strict=True):
        source_ids, ids = torch.tensor([source]), []
        mask = torch.ones_like(source_ids).bool()
        while END not in ids:
            target = torch.tensor([[*ids, END]])  # the last one is what is asked for
            with torch.no_grad():
                logits = model(source_ids, mask, target, torch.ones_like(target).bool())[0, -1]
            ids.append(END if len(ids) + 1 == len(source) + 5 else int(logits.argmax()))
        assert hypothesis.ids == ids


@pytest.mark.exhaustive
@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_scores_are_those_of_forced_decoding(model: Transformer, sources: list[list[int]], alpha: float) -> None:
    search = SEARCH.model_copy(update={"length_penalty": alpha})
    for source, hypotheses in zip(sources, PyTorchEngine(model, END).search(sources, search, 3), strict=True):
        for hypothesis in hypotheses:
            ids, target = torch.tensor([source]), torch.tensor([hypothesis.ids])
            masks = torch.ones_like(ids).bool(), torch.ones_like(target).bool()
            with torch.no_grad():
                log_probs = model.decode(target, masks[1], model.encode(ids, masks[0]), masks[0]).log_softmax(-1)
            token_scores = log_probs[0].gather(1, target[0, :, None]).squeeze(1).tolist()
            assert hypothesis.token_scores == pytest.approx(token_scores, abs=1e-4)
            penalty = ((5 + len(hypothesis.ids)) / 6) ** alpha
            assert hypothesis.score == pytest.approx(sum(token_scores) / penalty, abs=1e-4)


def test_at_most_so_many_tokens_more_than_the_source(random_model: Transformer, sources: list[list[int]]) -> None:
    assert SearchConfig().max_extra_length == 50
    for beam in (1, 3):
        search = SEARCH.model_copy(update={"beam": beam})
        found = PyTorchEngine(random_model, END).search(sources, search)
        extra = [len(best[0].ids) - len(source) for source, best in zip(sources, found, strict=True)]
        assert max(extra) == 5
        assert all(best[0].ids[-1] == END for best in found)
        assert all(END not in best[0].ids[:-1] for best in found)


def test_several_hypotheses_come_best_first(model: Transformer, sources: list[list[int]]) -> None:
    for hypotheses in PyTorchEngine(model, END).search(sources, SEARCH, num_best=3):
        assert len(hypotheses) == 3
        assert len({tuple(hypothesis.ids) for hypothesis in hypotheses}) == 3
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert all(math.isfinite(score) for score in scores)


@pytest.mark.parametrize("settings", [{}, {"attention_score": "additive"}, {"normalization": "batch"}])
@pytest.mark.parametrize("training", [True, False])
def test_the_mode_of_the_model_does_not_matter_and_stays(
    make_model: Callable[..., Transformer], settings: dict[str, str], *, training: bool
) -> None:
    model = make_model(dropout=0.5, **settings).train(training)
    engine = PyTorchEngine(model, END)
    first, second = (engine.search([[5, 6, END]], SEARCH) for _ in range(2))
    assert first == second
    assert all(part.training == training for part in model.modules())
    with pytest.raises(IndexError):
        engine.search([[10_000, END]], SEARCH)
    assert all(part.training == training for part in model.modules())


@pytest.mark.exhaustive
def test_threads_translate_as_one_does(model: Transformer, sources: list[list[int]]) -> None:
    alone = PyTorchEngine(model, END).search(sources * 5, SEARCH, 3)
    torch.set_num_threads(2)
    try:
        together = PyTorchEngine(model, END).search(sources * 5, SEARCH, 3)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert together == alone


@pytest.mark.exhaustive
def test_threads_leave_a_training_model_as_it_is(
    make_model: Callable[..., Transformer], sources: list[list[int]]
) -> None:
    model = make_model(dropout=0.5, attention_score="additive").train()
    alone = PyTorchEngine(model, END).search(sources * 5, SEARCH, 3)
    torch.set_num_threads(2)
    try:
        engine = PyTorchEngine(model, END)
        for _ in range(3):
            assert engine.search(sources * 5, SEARCH, 3) == alone
            assert all(part.training for part in model.modules())
    finally:
        torch.set_num_threads(1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("min_length", [1, 7])
def test_a_translation_has_so_many_tokens_at_least(
    model: Transformer, sources: list[list[int]], min_length: int
) -> None:
    search = SEARCH.model_copy(update={"min_length": min_length, "max_extra_length": 9})
    found = PyTorchEngine(model, END).search(sources, search)
    assert min(len(best[0].ids) for best in found) >= min_length


@pytest.mark.exhaustive
@pytest.mark.parametrize("max_length", [2, 7])
def test_a_translation_has_so_many_tokens_at_most(
    model: Transformer, sources: list[list[int]], max_length: int
) -> None:
    engine, search = PyTorchEngine(model, END), SEARCH.model_copy(update={"max_length": max_length})
    all_constraints = [Constraints(prefix=(5,), required=((6, 7),))] * len(sources)
    for found in (
        engine.search(sources, search, 3),
        engine.search(sources, search, 3, all_constraints),
        engine.sample(sources, search, 3, Sampling(), 1),
    ):
        assert max(len(hypothesis.ids) for hypothesis in chain(*found)) == max_length


def test_what_is_longer_than_the_model_can_write_is_refused(
    make_model: Callable[..., Transformer], random_model: Transformer
) -> None:
    short = PyTorchEngine(make_model(positions="learned", max_positions=9), END)
    with pytest.raises(ConfigError, match="min_length = 10: this model writes at most 9 tokens"):
        short.search([[5, END]], SearchConfig(min_length=10))
    constraints = Constraints(prefix=(5,) * 200, required=((6,) * 57,))
    with pytest.raises(ConfigError, match="constraints need 257 tokens; at most max_pieces = 256"):
        PyTorchEngine(random_model, END).search([[5, END]], SearchConfig(), 1, [constraints])


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("num_sentences", [1, 9])
def test_what_is_longer_than_the_model_can_read_is_refused(
    make_model: Callable[..., Transformer], precision: str, num_sentences: int
) -> None:
    engine = PyTorchEngine(make_model(positions="learned", max_positions=9), END, precision)
    sources = [[5] * 11 + [END]] + [[5, END]] * (num_sentences - 1)
    with pytest.raises(UserError, match=r"learned positions up to 9 .* split the sentence"):
        engine.sample(sources, SearchConfig(max_extra_length=5), 1, Sampling(), 1)


@contextmanager
def pytorchs_defaults(dtype: torch.dtype, device: str) -> Iterator[None]:
    """PyTorch makes tensors of this type on this device, where it is not told otherwise."""
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    ("settings", "precision", "has_kernels"),
    [
        ({}, "float32", True),
        ({}, "float32", False),
        ({}, "int8", False),
        ({}, "bfloat16", True),
        ({"positions": "rotary", "normalization": "rms"}, "float32", True),
    ],
    ids=str,
)
def test_pytorchs_defaults_do_not_matter(
    make_model: Callable[..., Transformer],
    sources: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, object],
    precision: str,
    *,
    has_kernels: bool,
) -> None:
    if not has_kernels:
        monkeypatch.setattr("transduce.translation.engines.networks.find_library", lambda: None)
    engine = PyTorchEngine(make_model(**settings), END, precision)
    of_each = [Constraints(prefix=(5,), required=((6, 7),), continuing=(frozenset({8, 9}),))] * len(sources)

    def translate() -> list[list[list[Hypothesis]]]:
        return [
            engine.search(sources, SEARCH, 3),
            engine.search(sources, SEARCH.model_copy(update={"no_repeat_ngram": 2}), 3),
            engine.search(sources, SEARCH, 3, of_each),
            engine.sample(sources, SEARCH, 3, Sampling(top_p=0.8), 1),
        ]

    expected = translate()
    for defaults in ((torch.bfloat16, "cpu"), (torch.float64, "cpu"), (torch.float32, "meta")):
        with pytorchs_defaults(*defaults):
            assert translate() == expected


@pytest.mark.exhaustive
@pytest.mark.parametrize("beam", [1, 3])
def test_what_bfloat16_finds_has_the_score_that_it_says(
    model: Transformer, sources: list[list[int]], beam: int
) -> None:
    """Up to rounding: which hypotheses it finds may differ, as a token that is nearly as probable may be taken.

    A number in bfloat16 is off by up to 2^-9 of it. About six are made of each other in every sub-layer, and their
    errors, independent of each other, grow as the root of their number. A logit is a sum of products, to each of which
    that applies.
    """
    config = model.config
    roundings = 6 * (2 * config.num_encoder_layers + 3 * config.num_decoder_layers) + 3
    found = PyTorchEngine(model, END, "bfloat16").search(sources, SEARCH.model_copy(update={"beam": beam}), beam)
    for source, best in zip(sources, found, strict=True):
        for hypothesis in best:
            ids, target = torch.tensor([source]), torch.tensor([hypothesis.ids])
            masks = torch.ones_like(ids).bool(), torch.ones_like(target).bool()
            with torch.no_grad():
                hidden = model.decode_hidden(target, masks[1], model.encode(ids, masks[0]), masks[0])[0]
                exact = model.projection(hidden).log_softmax(-1).gather(1, target[0, :, None]).squeeze(1)
                products = (hidden.abs() @ model.projection.weight.abs().T).amax(dim=-1)
            errors = (torch.tensor(hypothesis.token_scores) - exact).abs()
            assert (errors <= roundings**0.5 * 2**-9 * products).all()
            penalty = ((5 + len(hypothesis.ids)) / 6) ** SEARCH.length_penalty
            assert hypothesis.score == pytest.approx(sum(hypothesis.token_scores) / penalty)


@pytest.mark.exhaustive
def test_samples_do_not_depend_on_the_batch() -> None:
    torch.manual_seed(4)
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 32, "d_ff": 64, "num_heads": 4}
    engine = PyTorchEngine(Transformer(TransformerConfig(vocabulary=6000, **sizes)), END)
    random, search = np.random.default_rng(5), SearchConfig(max_extra_length=5)
    sources = [[*random.integers(2, 5_999, size=size).tolist(), END] for size in random.integers(1, 6, size=76)]
    together = engine.sample(sources, search, 3, Sampling(), 1)
    for size in (1, 7):
        parts = [sources[first : first + size] for first in range(0, len(sources), size)]
        found = list(chain(*(engine.sample(part, search, 3, Sampling(), 1) for part in parts)))
        different = [one.ids != other.ids for one, other in zip(chain(*found), chain(*together), strict=True)]
        assert sum(different) == 0
    fewer = engine.sample(sources, search, 2, Sampling(), 1)
    assert [[one.ids for one in few] for few in fewer] == [[one.ids for one in several[:2]] for several in together]


def test_any_network_can_be_searched(model: Transformer, sources: list[list[int]]) -> None:
    engine = NetworkEngine(ModelNetwork(model), END, model.config.vocabulary)
    assert isinstance(engine, Engine)
    assert_same(engine.search(sources, SEARCH, 3), PyTorchEngine(model, END).search(sources, SEARCH, 3))
    one, other = (each.sample(sources, SEARCH, 2, Sampling(), 1) for each in (engine, PyTorchEngine(model, END)))
    assert_same(one, other)


def test_few_sentences_can_have_a_network_of_their_own(random_model: Transformer, copier: Transformer) -> None:
    of_many, of_few = PyTorchEngine(random_model, END), PyTorchEngine(copier, END)
    engine = NetworkEngine(
        ModelNetwork(random_model), END, random_model.config.vocabulary, for_few=ModelNetwork(copier)
    )
    for count, expected in ((8, of_few), (9, of_many)):
        sources = [[5, 6, 7, END]] * count
        assert_same(engine.search(sources, SEARCH), expected.search(sources, SEARCH))


def test_nothing_gives_nothing(random_model: Transformer) -> None:
    assert PyTorchEngine(random_model, END).search([], SEARCH) == []


@given(strategies.lists(strategies.integers(1, 60)), strategies.integers(1, 100))
def test_batches_hold_every_sentence_once_and_little_padding(lengths: list[int], batch_tokens: int) -> None:
    batches = list(batch_by_length(lengths, batch_tokens))
    assert sorted(chain(*batches)) == list(range(len(lengths)))
    in_order = [lengths[index] for batch in batches for index in batch]
    assert in_order == sorted(lengths, reverse=True)
    assert all(len(batch) == 1 or lengths[batch[0]] * len(batch) <= batch_tokens for batch in batches)
    # none could have taken in the next one's first sentence
    for batch in batches[:-1]:
        assert lengths[batch[0]] * (len(batch) + 1) > batch_tokens


def test_a_batch_has_so_many_rows_at_most() -> None:
    assert list(batch_by_length([1, 2, 1, 1], 100, max_rows=2)) == [[1, 0], [2, 3]]


@given(strategies.lists(strategies.integers(1, 40)), strategies.integers(1, 60), strategies.integers(2, 5))
def test_threads_get_batches_of_as_many_tokens(lengths: list[int], max_rows: int, num_threads: int) -> None:
    batches = list(batch_by_length(lengths, 100, max_rows, num_threads))
    assert sorted(chain(*batches)) == list(range(len(lengths)))
    assert all(len(batch) == 1 or lengths[batch[0]] * len(batch) <= 100 for batch in batches)
    assert all(len(batch) <= max_rows for batch in batches)
    # No batch is more than a thread's share of all tokens, but for the sentence that begins within it.
    share = -(-sum(lengths) // num_threads)
    assert all(sum(lengths[index] for index in batch) < share + lengths[batch[-1]] for batch in batches)


def test_equal_sentences_are_divided_evenly_among_threads() -> None:
    assert [len(batch) for batch in batch_by_length([5] * 30, 60, num_threads=2)] == [8, 8, 8, 6]
    assert [len(batch) for batch in batch_by_length([5] * 30, 1000, num_threads=3)] == [10, 10, 10]


def test_a_search_that_cannot_fit_is_refused_before_it_begins(
    random_model: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, sources = PyTorchEngine(random_model, END), [[*([5] * 9), END]]
    monkeypatch.setattr("transduce.translation.engines.engine.MEMORY_CHECK_BYTES", 0)
    monkeypatch.setattr("transduce.translation.engines.engine.get_available_memory", lambda _: 10**3)
    with pytest.raises(ConfigError, match=r"^beam = 3: .* 10 tokens need at least 0\.0 GB .* 0\.0 GB are free"):
        engine.search(sources, SEARCH)
    monkeypatch.setattr("transduce.translation.engines.engine.get_available_memory", lambda _: None)
    assert len(engine.search(sources, SEARCH)) == 1
