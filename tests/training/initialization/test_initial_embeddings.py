from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from transduce.config import TransformerConfig
from transduce.data import TokenStore, create_store
from transduce.model import Transformer
from transduce.training.initialization import initial_embeddings
from transduce.training.initialization.initial_embeddings import (
    COOCCURRENCE_SHARE,
    compute_cooccurrence_vectors,
    count_cooccurrence,
    initialize_embeddings,
)

NUM_WORDS = 40
FIRST = 2
"""Sources have tokens from here on, targets those that are `NUM_WORDS` above; 0 and 1 are `<unk>` and `</s>`."""
VOCABULARY = FIRST + 2 * NUM_WORDS + 3
"""Two tokens never occur, and the last is `<pad>`."""


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    """Pairs in random order of words in which every word has one translation."""
    random = np.random.default_rng(1)
    with create_store(tmp_path / "store", VOCABULARY) as writer:
        for _ in range(400):
            words = FIRST + random.choice(NUM_WORDS, size=6, replace=False)
            writer.add([*words.tolist(), 1], [*(random.permutation(words) + NUM_WORDS).tolist(), 1])
    return TokenStore.open(tmp_path / "store")


def make_model(**changes: Any) -> Transformer:
    torch.manual_seed(3)
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "d_ff": 16, "num_heads": 2}
    return Transformer(TransformerConfig(vocabulary=VOCABULARY, **{**sizes, **changes}))


def nearest(vectors: Tensor) -> Tensor:
    likeness = vectors @ vectors.T
    return likeness.fill_diagonal_(-2.0).argmax(dim=1)


def test_the_most_similar_token_of_each_is_its_translation(store: TokenStore) -> None:
    found = nearest(compute_cooccurrence_vectors(store, VOCABULARY, 64, seed=1))
    sources = torch.arange(FIRST, FIRST + NUM_WORDS)
    assert found[sources].tolist() == (sources + NUM_WORDS).tolist()
    assert found[sources + NUM_WORDS].tolist() == sources.tolist()


@pytest.mark.parametrize("d_model", [4, 64, 200])
def test_vectors_have_length_1_and_those_of_tokens_that_do_not_occur_are_zero(store: TokenStore, d_model: int) -> None:
    lengths = compute_cooccurrence_vectors(store, VOCABULARY, d_model, seed=1).norm(dim=1)
    torch.testing.assert_close(lengths[FIRST:-3], torch.ones(2 * NUM_WORDS))
    assert lengths[-3:].count_nonzero() == 0
    assert lengths[0] == 0
    assert lengths[1] == 0  # `</s>` is in every pair: it comes together with no token more often than by chance


@pytest.mark.parametrize("num_threads", [1, 2])
def test_threads_make_no_difference(store: TokenStore, num_threads: int) -> None:
    expected = compute_cooccurrence_vectors(store, VOCABULARY, 16, seed=1)
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        assert torch.equal(compute_cooccurrence_vectors(store, VOCABULARY, 16, seed=1), expected)
    finally:
        torch.set_num_threads(before)


def test_how_frequent_tokens_are_does_not_make_them_alike(tmp_path: Path) -> None:
    """Frequent words come together with all others; their vectors would be one another's neighbours."""
    random = np.random.default_rng(3)
    share = 1 / np.arange(1, NUM_WORDS + 1)
    with create_store(tmp_path / "store", VOCABULARY) as writer:
        for _ in range(2000):
            words = FIRST + random.choice(NUM_WORDS, size=6, replace=False, p=share / share.sum())
            writer.add([*words.tolist(), 1], [*(words + NUM_WORDS).tolist(), 1])
    vectors = compute_cooccurrence_vectors(TokenStore.open(tmp_path / "store"), VOCABULARY, 64, seed=1)
    most_frequent = torch.arange(FIRST, FIRST + 5)
    assert nearest(vectors)[most_frequent].tolist() == (most_frequent + NUM_WORDS).tolist()
    likeness = vectors[most_frequent] @ vectors[most_frequent].T
    assert likeness.fill_diagonal_(0).max() < 0.3


def test_they_depend_on_text_and_seed_alone_and_draw_no_numbers_of_others(store: TokenStore) -> None:
    before = torch.random.get_rng_state()
    first = compute_cooccurrence_vectors(store, VOCABULARY, 16, seed=1)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(77)
    assert torch.equal(compute_cooccurrence_vectors(store, VOCABULARY, 16, seed=1), first)
    assert not torch.equal(compute_cooccurrence_vectors(store, VOCABULARY, 16, seed=2), first)


def test_the_most_frequent_tokens_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initial_embeddings, "MAX_TOKENS", 4)
    with create_store(tmp_path / "store", 12) as writer:
        for pair in ([[2, 1], [5, 1]], [[3, 1], [6, 1]], [[2, 1], [5, 1]], [[3, 2, 1], [6, 5, 1]], [[4, 1], [7, 1]]):
            writer.add(*pair)
    vectors = compute_cooccurrence_vectors(TokenStore.open(tmp_path / "store"), 12, 8, seed=1)
    assert vectors.norm(dim=1).nonzero().flatten().tolist() == [2, 3, 5]  # 1 is in all; 6 is as frequent as 3, after it


def test_counts_are_those_of_pairs_in_which_both_occur() -> None:
    pairs = [np.array(tokens) for tokens in ([1, 2, 4], [1, 4], [2], [1, 3, 4])]
    found = count_cooccurrence(pairs, np.array([4, 1, 2]), vocabulary=6)
    assert found.tolist() == [[3, 3, 1], [3, 3, 1], [1, 1, 2]]


@pytest.mark.parametrize(("tied", "num_matrices"), [("three_way", 1), ("two_way", 2), ("none", 3)])
def test_every_matrix_of_embeddings_gets_them_once_and_nothing_else_changes(
    store: TokenStore, tied: str, num_matrices: int
) -> None:
    model, before = make_model(tied_embeddings=tied), make_model(tied_embeddings=tied).state_dict()
    initialize_embeddings(model, store, seed=1)
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    matrices = {model.state_dict()[name].data_ptr() for name in changed}
    assert len(matrices) == num_matrices
    vectors = compute_cooccurrence_vectors(store, VOCABULARY, 16, seed=1)
    for name in changed:
        weight = model.state_dict()[name]
        random_part = (weight[2:-3] - COOCCURRENCE_SHARE * vectors[2:-3]) / (1 - COOCCURRENCE_SHARE**2) ** 0.5
        torch.testing.assert_close(random_part, before[name][2:-3])
        assert torch.equal(weight[-3:], before[name][-3:])  # `<pad>` stays zero
        assert torch.equal(weight[:2], before[name][:2])
