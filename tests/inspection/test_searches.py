from collections.abc import Callable

import pytest

from transduce.errors import UserError
from transduce.inspection.searches import SentenceSearches, make_search_tree
from transduce.model import Transformer
from transduce.search import Constraints, length_penalty
from transduce.translation import PyTorchEngine, score_ids
from transduce.translation.confidence.scoring import ForcedDecoder

HABITS = {"no_repeat_ngram": 1, "repetition_penalty": 1.3, "diversity": 0.2}
Make = Callable[..., SentenceSearches]


@pytest.mark.exhaustive
def test_it_finds_what_the_engine_finds(model: Transformer, make_searches: Make) -> None:
    searches = make_searches(model, beam=4)
    found = searches.run_traced_beam_search().finished
    assert found[:1] == PyTorchEngine(model, 1).search([searches.source], searches.config)[0]


@pytest.mark.parametrize(("beam", "alpha"), [(1, 0.0), (2, 0.0), (5, 2.0)])
def test_with_any_beam_and_length_penalty(
    make_model: Callable[..., Transformer], make_searches: Make, beam: int, alpha: float
) -> None:
    model = make_model(seed=5)  # its hypotheses end early
    searches = make_searches(model, beam=beam, length_penalty=alpha)
    expected = PyTorchEngine(model, 1).search([searches.source], searches.config)[0]
    assert searches.run_traced_beam_search().finished[:1] == expected


def test_it_finds_what_the_search_for_one_translation_finds(
    make_model: Callable[..., Transformer], make_searches: Make
) -> None:
    gains = []
    for seed in range(12):
        searches = make_searches(make_model(seed=seed), beam=3, length_penalty=2.0, max_extra_length=8)
        engine = PyTorchEngine(searches.model, 1)
        (best,), (first, *_) = (engine.search([searches.source], searches.config, count)[0] for count in (1, 3))
        traced = searches.run_traced_beam_search()
        assert traced.finished[0] == best
        gains.append(first.score - best.score)
        decoder = ForcedDecoder(searches.model, searches.tokenizer, searches.config)
        scored = score_ids(decoder, [searches.source] * len(traced.finished), [one.ids for one in traced.finished])
        for hypothesis, expected in zip(traced.finished, scored, strict=True):
            assert hypothesis.token_scores == pytest.approx(expected.token_scores, abs=1e-4)
            assert None not in traced.find_path(hypothesis.ids)
    assert min(gains) == 0.0
    assert max(gains) > 0.0  # the search for several goes on longer


@pytest.mark.exhaustive
@pytest.mark.parametrize("settings", [{}, HABITS, {"min_length": 5}])
@pytest.mark.parametrize("prefix", [(), (33,), (33, 12, 33)])
def test_it_obeys_prefixes_and_logits_processors_as_the_engine_does(
    make_model: Callable[..., Transformer], make_searches: Make, settings: dict[str, float], prefix: tuple[int, ...]
) -> None:
    if settings == HABITS:
        prefix = prefix[:2]  # no token twice
    model = make_model()
    searches = make_searches(model, prefix=prefix, beam=3, **settings)
    expected = PyTorchEngine(model, 1).search([searches.source], searches.config, 1, [Constraints(prefix=prefix)])[0]
    traced = searches.run_traced_beam_search()
    assert traced.finished[:1] == expected
    for hypothesis in traced.finished:
        assert tuple(hypothesis.ids[: len(prefix)]) == prefix
        assert None not in traced.find_path(hypothesis.ids)


@pytest.mark.parametrize("prefix", [(1,), (33, 12, 1)])
def test_a_prefix_with_its_end_is_the_translation(
    make_model: Callable[..., Transformer], make_searches: Make, prefix: tuple[int, ...]
) -> None:
    model = make_model()
    searches = make_searches(model, prefix=prefix, beam=3)
    (expected,) = score_ids(ForcedDecoder(model, searches.tokenizer, searches.config), [searches.source], [prefix])
    (found,) = searches.run_traced_beam_search().finished
    assert found.ids == list(prefix)
    assert found.token_scores == pytest.approx(expected.token_scores, abs=1e-5)


def test_what_the_model_rules_out_is_refused(make_model: Callable[..., Transformer], make_searches: Make) -> None:
    model = make_model()
    searches = make_searches(model, prefix=(33, model.pad_id))
    with pytest.raises(UserError, match="cannot begin a translation"):
        searches.run_traced_beam_search()


@pytest.mark.exhaustive
@pytest.mark.parametrize(("kind", "beam"), [("paper", 1), ("pre", 3), ("learned", 3), ("additive", 3), ("batch", 2)])
def test_the_tree_adds_up(make_model: Callable[..., Transformer], make_searches: Make, kind: str, beam: int) -> None:
    searches = make_searches(make_model(kind), beam=beam)
    traced = searches.run_traced_beam_search()
    (greedy,) = searches.run_greedy_search([()])
    tree = make_search_tree(traced, greedy, searches)
    decoder = ForcedDecoder(searches.model, searches.tokenizer, searches.config)
    for number, node in enumerate(tree.nodes):
        assert node.id == number
        parent = None if node.parent is None else tree.nodes[node.parent]
        assert node.step == (1 if parent is None else parent.step + 1)
        assert parent is None or (parent.state == "kept" and parent.id < node.id)
        assert node.sum == pytest.approx(node.log_probability + (0 if parent is None else parent.sum), abs=2e-6)
        assert node.score == pytest.approx(node.sum / length_penalty(node.step, 0.6), abs=2e-6)
        assert (node.state == "finished") <= (node.token == 1)
        assert node.piece == searches.tokenizer.pieces([node.token])[0]
    for step in {node.step for node in tree.nodes}:
        at_step = [node for node in tree.nodes if node.step == step]
        assert len(at_step) <= 2 * beam
        kept = [node.sum for node in at_step if node.state == "kept"]
        assert len(kept) <= beam
        pruned = [node.sum for node in at_step if node.state == "pruned" and node.token != 1]
        assert min(kept, default=0) >= max(pruned, default=-1e9)
    for end, hypothesis in zip(tree.ranking, traced.finished, strict=True):
        ids, node = [], tree.nodes[end]
        assert node.state == "finished"
        assert node.score == pytest.approx(hypothesis.score, abs=2e-6)
        while True:
            ids.insert(0, node.token)
            if node.parent is None:
                break
            node = tree.nodes[node.parent]
        assert ids == hypothesis.ids
    (expected,) = score_ids(decoder, [searches.source], [traced.finished[0].ids])
    assert tree.nodes[tree.ranking[0]].sum == pytest.approx(sum(expected.token_scores), abs=1e-4)


@pytest.mark.exhaustive
def test_greedy_search_is_followed_until_it_leaves_the_tree(
    make_model: Callable[..., Transformer], make_searches: Make
) -> None:
    left = stayed = 0
    for seed in range(40):  # few searches lose the way of the greedy one
        searches = make_searches(make_model(seed=seed), beam=2)
        traced, (greedy,) = searches.run_traced_beam_search(), searches.run_greedy_search([()])
        tree = make_search_tree(traced, greedy, searches)
        assert len(tree.greedy) == len(greedy.ids)
        known = [number for number in tree.greedy if number is not None]
        assert tree.greedy == known + [None] * (len(greedy.ids) - len(known))
        assert [tree.nodes[number].token for number in known] == greedy.ids[: len(known)]
        assert [tree.nodes[number].parent for number in known] == [None, *known[:-1]]
        left += len(known) < len(greedy.ids)
        stayed += len(known) == len(greedy.ids)
    assert left
    assert stayed


def test_a_beam_wider_than_the_vocabulary_counts_what_is_there(
    make_model: Callable[..., Transformer], make_searches: Make
) -> None:
    searches = make_searches(make_model(), beam=200, max_extra_length=1)
    traced = searches.run_traced_beam_search()
    first = [one for one in traced.traced if one.step == 1]
    assert len(first) == searches.model.config.vocabulary - 1  # <pad> is never predicted
    assert all(one.parent is None for one in first)
    assert all(one.parent is not None for one in traced.traced if one.step > 1)
