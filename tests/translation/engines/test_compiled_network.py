"""The network in compiled code against the model, against PyTorch's operations, and in searches."""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from transduce.config import SearchConfig, TransformerConfig
from transduce.errors import ConfigError, TransduceError, UserError
from transduce.kernels.device import ComputePrecision
from transduce.kernels.native import library as library_module
from transduce.kernels.native.decoding import FoundHypothesis, run_beam_search
from transduce.kernels.native.library import Library
from transduce.model import Transformer
from transduce.search import Hypothesis, LogitsProcessor, Sampling, SearchTask, beam_search
from transduce.translation import NetworkEngine, PyTorchEngine
from transduce.translation.engines.networks import (
    CompiledNetwork,
    InferenceModel,
    ModelNetwork,
    Network,
    make_network,
)

END = 1
LENGTHS = (7, 3, 7, 1)
VARIANTS: list[dict[str, object]] = [
    {},
    {"norm_order": "pre", "num_encoder_layers": 2, "num_decoder_layers": 2},
    {"attention_score": "dot", "d_k": 5, "d_v": 7},
    {"activation": "gelu", "positions": "learned", "max_positions": 40},
    {"positions": "none", "tied_embeddings": "none", "d_model": 33, "num_heads": 3, "d_ff": 70},
    {"tied_embeddings": "two_way", "d_k": 16, "d_v": 32, "activation": "swish"},
    {"output_bias": True, "tied_embeddings": "none", "d_model": 64, "num_heads": 1},
]
SEARCHES = [
    SearchConfig(beam=3, max_extra_length=5, batch_tokens=30),
    SearchConfig(beam=1, max_extra_length=5),
    SearchConfig(beam=4, min_length=6, max_length=9, length_penalty=0.0),
]


@pytest.fixture
def fastest(levels: Mapping[str, Library], monkeypatch: pytest.MonkeyPatch) -> Library:
    """The fastest level is what `make_network` takes."""
    monkeypatch.setattr(library_module, "load_levels", lambda: levels)
    monkeypatch.delenv("TRANSDUCE_KERNELS", raising=False)
    return list(levels.values())[-1]


@pytest.fixture(scope="module")
def sources(random_model: Transformer) -> list[list[int]]:
    random = np.random.default_rng(3)
    return [[*random.integers(2, random_model.pad_id, size=size).tolist(), END] for size in (3, 9, 0, 6, 6, 15)]


def make_batch(model: Transformer) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(1)
    source_ids = torch.randint(2, model.pad_id, (len(LENGTHS), max(LENGTHS)), generator=random)
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    return source_ids.masked_fill(~mask, model.pad_id), mask


def pad(sources: list[list[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """The inputs of a network's `start`."""
    longest = max(map(len, sources))
    ids = torch.tensor([[*source, *[pad_id] * (longest - len(source))] for source in sources])
    return ids, ids != pad_id


@torch.inference_mode()
def walk(model: Transformer, networks: list[Network[Any]], num_steps: int) -> Iterator[list[Tensor]]:
    """Log-probabilities of each network, step by step, for random hypotheses, of which some go and come."""
    random = torch.Generator().manual_seed(2)
    states = [network.start(*make_batch(model)) for network in networks]
    last_ids = torch.full((len(LENGTHS), 1), model.pad_id)
    for number in range(num_steps):
        results = [network.step(last_ids, state) for network, state in zip(networks, states, strict=True)]
        yield [log_probs for log_probs, _ in results]
        width = (3, 3, 5, 1, 4)[number % 5]
        kept = torch.arange(len(last_ids))[1:] if number in (2, 5) else None
        num_sentences = len(last_ids) if kept is None else len(kept)
        parents = torch.randint(0, last_ids.size(1), (num_sentences, width), generator=random)
        states = [state.select(kept, parents) for _, state in results]
        last_ids = torch.randint(2, model.pad_id, (num_sentences, width), generator=random)


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_float32_equals_the_model(
    library: Library, make_model: Callable[..., Transformer], settings: dict[str, object]
) -> None:
    model = make_model(seed=3, **settings)
    for found, expected in walk(model, [CompiledNetwork.from_model(model, library), ModelNetwork(model)], 30):
        assert torch.isneginf(found[:, :, -1]).all()
        assert torch.allclose(found[:, :, :-1], expected[:, :, :-1], atol=1e-5, rtol=0)


def draw_model(random: np.random.Generator, vocabulary: int) -> Transformer:
    """Any sizes: odd widths, one head, one layer, the smallest vocabularies."""
    num_heads = int(random.integers(1, 4))
    torch.manual_seed(int(random.integers(1000)))
    config = TransformerConfig(
        vocabulary=vocabulary,
        d_model=int(random.integers(2, 70)),
        num_heads=num_heads,
        d_k=int(random.integers(1, 40)),
        d_v=int(random.integers(1, 40)),
        d_ff=int(random.integers(1, 100)),
        num_encoder_layers=int(random.integers(1, 3)),
        num_decoder_layers=int(random.integers(1, 3)),
        norm_order=random.choice(["pre", "post"]).item(),
        activation=random.choice(["relu", "gelu", "swish"]).item(),
        positions="none",
        tied_embeddings=random.choice(["none", "three_way"]).item(),
    )
    return Transformer(config).eval()


@torch.inference_mode()
@pytest.mark.parametrize("is_int8", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_any_sizes_masks_and_widths(library: Library, seed: int, *, is_int8: bool) -> None:
    random = np.random.default_rng(seed)
    vocabulary = 4 if seed % 4 == 0 else int(random.integers(4, 120))
    model = draw_model(random, vocabulary)
    lengths = random.integers(1, 30, size=int(random.integers(1, 6)))
    mask = torch.from_numpy(np.arange(lengths.max()) < lengths[:, None])
    source_ids = torch.from_numpy(random.integers(0, vocabulary, size=mask.shape))
    compiled = CompiledNetwork.from_model(model, library, is_int8=is_int8)
    reference = InferenceModel(model, ComputePrecision(torch.float32, is_int8=is_int8))
    states = [network.start(source_ids, mask) for network in (compiled, reference)]
    last_ids = torch.full((len(lengths), 1), vocabulary - 1)
    for _ in range(4):
        (found, state), (expected, other) = compiled.step(last_ids, states[0]), reference.step(last_ids, states[1])
        assert torch.allclose(found.exp(), expected.exp(), atol=0.1 if is_int8 else 1e-5, rtol=0)
        width, count, num_sentences = int(random.integers(1, 25)), last_ids.size(1), len(last_ids)
        kept = torch.from_numpy(np.flatnonzero(random.random(num_sentences) < 0.8))
        kept = kept if len(kept) else torch.arange(num_sentences)
        parents = torch.from_numpy(random.integers(0, count, size=(len(kept), width)))
        states = [state.select(kept, parents), other.select(kept, parents)]
        last_ids = torch.from_numpy(random.integers(0, vocabulary, size=(len(kept), width)))


@pytest.mark.parametrize("is_int8", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_the_compiled_search_is_beam_search_to_the_last_bit(library: Library, seed: int, *, is_int8: bool) -> None:
    """Any network and settings: ties, beams wider than the vocabulary, limits of one token, or beyond one call."""
    random = np.random.default_rng(seed)
    vocabulary = 4 if seed % 4 == 0 else int(random.integers(4, 120))
    model = draw_model(random, vocabulary)
    with torch.no_grad():  # what is to come is certain, as usual, or equally probable
        model.projection.weight.mul_(random.choice([0.0, 1.0, 5.0]))
    network = CompiledNetwork.from_model(model, library, is_int8=is_int8)
    sources = [
        [*random.integers(2, vocabulary - 1, size=int(random.integers(0, 9))).tolist(), END]
        for _ in range(int(random.integers(1, 9)))
    ]
    beam = int(random.choice([1, 2, 4, 9, 30]))
    limits = random.integers(1, 70, size=len(sources)).tolist()
    task = SearchTask(model.pad_id, END, limits, int(random.choice([0, 1, 3, 40])))
    for num_best in (1, int(random.integers(1, 2 * beam + 2))):
        settings = {"beam": beam, "alpha": float(random.choice([0.0, 0.6, 2.0])), "num_best": num_best}
        for length in (0, int(random.choice([1, 2, 3, 4, 100]))):
            state = network.start(*pad(sources, model.pad_id))
            processor = LogitsProcessor(no_repeat_ngram=length)
            expected = beam_search(network.step, state, task, logits_processor=processor, **settings)
            assert network.model.search(sources, task, no_repeat_ngram=length, **settings) == expected


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_int8_is_its_reference_but_for_numbers_halfway_between_two_integers(
    library: Library, make_model: Callable[..., Transformer], settings: dict[str, object]
) -> None:
    """The last bit of a sum in float32 decides where those are rounded to: they are few, and move little."""
    model = make_model(seed=3, **settings)
    networks = [
        CompiledNetwork.from_model(model, library, is_int8=True),
        InferenceModel(model, ComputePrecision(torch.float32, is_int8=True)),
    ]
    errors = [(found - expected)[:, :, :-1].abs().amax(dim=-1) for found, expected in walk(model, networks, 30)]
    worst = torch.cat([part.flatten() for part in errors])
    assert worst.quantile(0.5) < 2e-5
    assert worst.max() < 0.1


@pytest.mark.parametrize("is_int8", [False, True])
@pytest.mark.parametrize("settings", [{"d_model": 128, "d_ff": 256}, {"d_model": 24, "num_heads": 6, "d_ff": 50}])
def test_a_sentence_gets_the_same_bits_in_every_batch(
    library: Library,
    make_model: Callable[..., Transformer],
    sources: list[list[int]],
    settings: dict[str, object],
    *,
    is_int8: bool,
) -> None:
    model = make_model(**settings, num_decoder_layers=2)
    engine = NetworkEngine(CompiledNetwork.from_model(model, library, is_int8=is_int8), END, model.config.vocabulary)
    search = SEARCHES[0]
    together = engine.search(sources * 6, search, search.beam)
    assert together[: len(sources)] * 6 == together
    assert [engine.search([source], search, search.beam)[0] for source in sources] == together[: len(sources)]
    assert engine.search(sources[::-1], search, search.beam)[::-1] == together[: len(sources)]


def assert_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    assert [[one.ids for one in best] for best in found] == [[one.ids for one in best] for best in expected]
    for one, other in zip(chain(*found), chain(*expected), strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-5)
        assert one.token_scores == pytest.approx(other.token_scores, abs=1e-5)


@pytest.mark.parametrize("search", SEARCHES, ids=str)
@pytest.mark.parametrize("name", ["random_model", "copier"])
def test_searches_find_what_they_find_by_pytorch(
    request: pytest.FixtureRequest, fastest: Library, sources: list[list[int]], search: SearchConfig, name: str
) -> None:
    model = request.getfixturevalue(name)
    compiled, by_torch = (
        NetworkEngine(network, END, model.config.vocabulary)
        for network in (
            CompiledNetwork.from_model(model, fastest),
            InferenceModel(model, ComputePrecision(torch.float32, is_batch_invariant=True)),
        )
    )
    assert_same(compiled.search(sources, search, search.beam), by_torch.search(sources, search, search.beam))
    penalised = search.model_copy(update={"no_repeat_ngram": 2, "repetition_penalty": 1.2})
    assert_same(compiled.search(sources, penalised, 1), by_torch.search(sources, penalised, 1))
    one, other = (engine.sample(sources, search, 2, Sampling(), 1) for engine in (compiled, by_torch))
    assert_same(one, other)


@pytest.mark.parametrize("is_int8", [False, True])
@pytest.mark.parametrize("min_length", [1, 5])
def test_the_choice_of_continuations_is_that_of_all_probabilities(
    library: Library, random_model: Transformer, *, is_int8: bool, min_length: int
) -> None:
    """To the last bit, whoever chooses."""
    network = CompiledNetwork.from_model(random_model, library, is_int8=is_int8)
    source_ids, mask = make_batch(random_model)
    task = SearchTask(random_model.pad_id, END, [9, 4, 30, 1], min_length)
    settings = {"beam": 4, "alpha": 0.6, "num_best": 4}
    sources = [row[own].tolist() for row, own in zip(source_ids, mask, strict=True)]
    expected = beam_search(network.step, network.start(source_ids, mask), task, **settings)
    assert network.model.search(sources, task, **settings) == expected


def test_where_every_continuation_is_forbidden_the_sentence_ends(
    library: Library, make_model: Callable[..., Transformer]
) -> None:
    """All but the end have no probability, and the end comes too early."""
    model = make_model(output_bias=True, tied_embeddings="none")
    with torch.no_grad():
        model.projection.bias.fill_(-torch.inf)[END] = 0.0
    network = CompiledNetwork.from_model(model, library)
    sources, settings = [[3, END], [4, 5, END]], {"beam": 3, "alpha": 0.6, "num_best": 3}
    for limits, score in (([9, 9], -np.inf), ([1, 1], 0.0)):
        task = SearchTask(model.pad_id, END, limits, min_length=3)
        found = network.model.search(sources, task, **settings)
        assert found == [[Hypothesis([END], score, [score])]] * 2
        assert found == beam_search(network.step, network.start(*pad(sources, model.pad_id)), task, **settings)


def test_a_cache_is_searched_once(library: Library, random_model: Transformer) -> None:
    network = CompiledNetwork.from_model(random_model, library)
    cache = network.start(*make_batch(random_model)).cache

    def search() -> list[list[FoundHypothesis]]:
        return run_beam_search(
            cache,
            lambda length: np.zeros((length, random_model.config.d_model), dtype=np.float32),
            float,
            start_id=random_model.pad_id,
            end_id=END,
            max_lengths=[3] * len(LENGTHS),
            min_length=1,
            no_repeat_ngram=0,
            beam=2,
            num_best=1,
        )

    assert len(search()) == len(LENGTHS)
    with pytest.raises(UserError, match="a cache without tokens"):
        search()


def test_a_batch_may_be_empty(library: Library, random_model: Transformer) -> None:
    network = CompiledNetwork.from_model(random_model, library)
    assert network.model.search([], SearchTask(random_model.pad_id, END, []), beam=2, alpha=0.6) == []


@pytest.mark.parametrize("is_int8", [False, True])
def test_caches_and_positions_grow(fastest: Library, make_model: Callable[..., Transformer], *, is_int8: bool) -> None:
    """Beyond what they begin with, and beyond the table of sinusoids."""
    model = make_model(d_model=16, num_heads=2, d_ff=16)
    network = CompiledNetwork.from_model(model, fastest, is_int8=is_int8)
    engine = NetworkEngine(network, END, model.config.vocabulary)
    source = [5, *range(2, 302), END]
    search = SearchConfig(beam=2, min_length=300, max_length=300)
    (alone,), (expected,) = engine.search([source], search)[0], (engine.search([source, source[5:]], search)[0])
    assert alone == expected
    assert len(alone.ids) == 300
    ids, target = torch.tensor([source]), torch.tensor([alone.ids])
    masks = torch.ones_like(ids).bool(), torch.ones_like(target).bool()
    with torch.no_grad():
        log_probs = model.decode(target, masks[1], model.encode(ids, masks[0]), masks[0]).log_softmax(-1)
    exact = log_probs[0].gather(1, target[0, :, None]).squeeze(1).tolist()
    assert alone.token_scores == pytest.approx(exact, abs=0.5 if is_int8 else 1e-4)


def test_learned_positions_end_where_they_end(library: Library, make_model: Callable[..., Transformer]) -> None:
    model = make_model(positions="learned", max_positions=5)
    network = CompiledNetwork.from_model(model, library)
    with pytest.raises(UserError, match="learned positions up to 5"):
        network.start(torch.full((1, 6), 3), torch.ones(1, 6, dtype=torch.bool))
    state = network.start(torch.full((1, 5), 3), torch.ones(1, 5, dtype=torch.bool))
    for _ in range(5):
        _, state = network.step(torch.full((1, 1), 3), state)
    with pytest.raises(UserError, match="learned positions up to 5"):
        network.step(torch.full((1, 1), 3), state)
    settings = {"beam": 2, "alpha": 0.6}
    (found,) = network.model.search([[3, END]], SearchTask(3, END, [5], min_length=5), **settings)[0]
    assert len(found.ids) == 5
    with pytest.raises(UserError, match="learned positions up to 5"):
        network.model.search([[3, END]], SearchTask(3, END, [6], min_length=6), **settings)


def test_nothing_is_read_that_is_not_there(library: Library, random_model: Transformer) -> None:
    network, vocabulary = CompiledNetwork.from_model(random_model, library), random_model.config.vocabulary
    real = torch.ones(1, 2, dtype=torch.bool)
    for wrong in (vocabulary, -1, 2**40 + 5):
        with pytest.raises(IndexError, match="not in the vocabulary"):
            network.start(torch.tensor([[wrong, END]]), real)
        state = network.start(torch.tensor([[3, END]]), real)
        with pytest.raises(IndexError, match="not in the vocabulary"):
            network.step(torch.tensor([[wrong]]), state)
    with pytest.raises(UserError, match="sentences of"):
        network.start(torch.tensor([[3, END]]), ~real)
    state = network.start(torch.tensor([[3, END]]), real)
    with pytest.raises(IndexError, match="2 ids for 1 sentences"):
        network.step(torch.tensor([[3, 3]]), state)
    for sentences, parents in ((None, [[1]]), (None, [[-1]]), ([1], [[0]]), ([-1], [[0]]), (None, [[0], [0]])):
        with pytest.raises(IndexError):
            state.cache.select(sentences, parents)
    for start_id, end_id in ((3, vocabulary), (3, -1), (vocabulary, END), (-1, END), (2**40 + 5, END)):
        with pytest.raises(IndexError, match="not in the vocabulary"):
            network.model.search([[3, END]], SearchTask(start_id, end_id, [5]), beam=2, alpha=0.6)
    with pytest.raises(IndexError, match="2 greatest lengths for 1 sentences"):
        network.model.search([[3, END]], SearchTask(3, END, [5, 5]), beam=2, alpha=0.6)
    for settings in ({"beam": 0}, {"num_best": 0}, {"alpha": -1.0}):
        with pytest.raises(ConfigError, match=next(iter(settings))):
            network.model.search([[3, END]], SearchTask(3, END, [5]), **{"beam": 2, "alpha": 0.6, **settings})


def test_a_batch_may_have_no_hypotheses(library: Library, random_model: Transformer) -> None:
    network, vocabulary = CompiledNetwork.from_model(random_model, library), random_model.config.vocabulary
    for num_sentences in (0, 2):
        state = network.start(*make_batch(random_model))
        state = state.select(torch.arange(num_sentences), torch.zeros(num_sentences, 0, dtype=torch.int64))
        log_probs, _ = network.step(torch.zeros(num_sentences, 0, dtype=torch.int64), state)
        assert log_probs.shape == (num_sentences, 0, vocabulary)


@pytest.mark.parametrize("is_int8", [False, True])
@pytest.mark.parametrize("bits", [0x7FC00000, -1])
@pytest.mark.parametrize("name", ["feed_forward.outer.bias", "cross_attention.projection.bias"])
def test_damaged_weights_are_noticed(
    library: Library, make_model: Callable[..., Transformer], name: str, bits: int, *, is_int8: bool
) -> None:
    """NaN as processors make it, and as four bytes 0xFF, which memory that was erased is full of."""
    model = make_model()
    with torch.no_grad():
        model.decoder.layers[0].get_parameter(name)[3] = torch.tensor([bits], dtype=torch.int32).view(torch.float32)[0]
    engine = NetworkEngine(CompiledNetwork.from_model(model, library, is_int8=is_int8), END, model.config.vocabulary)
    with pytest.raises(TransduceError, match="NaN"):
        engine.search([[3, 4, END]], SEARCHES[0])


def test_the_library_is_taken_where_it_can_be(
    fastest: Library, make_model: Callable[..., Transformer], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model()
    float32, int8 = ComputePrecision(torch.float32), ComputePrecision(torch.float32, is_int8=True)
    assert isinstance(make_network(model, float32), CompiledNetwork)
    assert isinstance(make_network(model, int8), CompiledNetwork)
    assert isinstance(make_network(model, ComputePrecision(torch.bfloat16)), InferenceModel)
    assert isinstance(make_network(make_model().double(), ComputePrecision(torch.float64)), InferenceModel)
    assert isinstance(make_network(make_model(attention_score="additive"), float32), ModelNetwork)
    monkeypatch.setenv("TRANSDUCE_KERNELS", "off")
    assert isinstance(make_network(model, float32), InferenceModel)
    assert isinstance(make_network(model, int8), InferenceModel)


@pytest.mark.parametrize("setting", ["", "off"])
def test_int8_translates_as_the_model_does(
    copier: Transformer, sources: list[list[int]], fastest: Library, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.setenv("TRANSDUCE_KERNELS", setting)
    expected = PyTorchEngine(copier, END).search(sources, SEARCHES[0])
    found = PyTorchEngine(copier, END, "int8").search(sources, SEARCHES[0])
    same = [one[0].ids == other[0].ids for one, other in zip(found, expected, strict=True)]
    assert sum(same) >= len(same) - 1
    for one, other, is_same in zip(found, expected, same, strict=True):
        assert one[0].score == pytest.approx(other[0].score, abs=0.2 if is_same else 2.0)


def test_threads_find_the_same(sources: list[list[int]], random_model: Transformer, fastest: Library) -> None:
    alone = PyTorchEngine(random_model, END, "int8").search(sources * 5, SEARCHES[0], 3)
    torch.set_num_threads(2)
    try:
        assert PyTorchEngine(random_model, END, "int8").search(sources * 5, SEARCHES[0], 3) == alone
    finally:
        torch.set_num_threads(1)
