from collections.abc import Callable

import pytest
import torch

from transduce.inspection.sides import source_side, target_side, word_numbers
from transduce.text import Tokenizer


@pytest.mark.parametrize(
    ("pieces", "numbers"),
    [
        (["▁mo", "on", "▁sun", "</s>"], [0, 0, 1, 2]),
        (["▁", "mo", "on", "▁", "▁sun", "</s>"], [0, 0, 0, 1, 1, 2]),
        (["<0xC3>", "<0xA4>", "▁a", "</s>"], [0, 0, 1, 2]),
        (["▁a", "▁", "</s>"], [0, 0, 1]),
        (["<unk>", "▁a", "</s>"], [0, 1, 2]),
        (["</s>"], [0]),
        (["▁a", "▁b"], [0, 1]),
    ],
)
def test_pieces_belong_to_words(pieces: list[str], numbers: list[int]) -> None:
    assert word_numbers(pieces) == numbers


def test_a_source_has_no_probabilities(tokenizer: Tokenizer) -> None:
    ids = tokenizer.as_source(tokenizer.encode("moon river"))
    side = source_side("moon river", ids, tokenizer)
    assert side.ids == ids
    assert side.pieces == tokenizer.pieces(ids)
    assert side.log_probabilities is None
    assert side.steps is None


def test_a_target_is_judged_token_by_token(tokenizer: Tokenizer, make_sharp: Callable[[int], torch.Tensor]) -> None:
    ids = [33, 12, 1]
    log_probs = make_sharp(3)
    side = target_side("x", ids, log_probs, tokenizer)
    assert side.log_probabilities == pytest.approx([log_probs[row, token].item() for row, token in enumerate(ids)])
    assert side.steps is not None
    for step, token, row in zip(side.steps, ids, log_probs, strict=True):
        in_order = row.argsort(descending=True).tolist()
        assert step.chosen_rank == in_order.index(token) + 1
        assert step.entropy == pytest.approx(-sum(p.exp().item() * p.item() for p in row[:-1]), abs=1e-4)
        assert [choice.token for choice in step.alternatives] == in_order[:5]
        assert [choice.piece for choice in step.alternatives] == tokenizer.pieces(in_order[:5])
        expected = [row[choice.token].exp().item() for choice in step.alternatives]
        assert [choice.probability for choice in step.alternatives] == pytest.approx(expected, abs=1e-6)


@pytest.fixture
def make_sharp(tokenizer: Tokenizer) -> Callable[[int], torch.Tensor]:
    """Log-probabilities of some positions; `<pad>`, the last, has none."""

    def make(positions: int) -> torch.Tensor:
        logits = torch.randn(positions, tokenizer.vocabulary, generator=torch.Generator().manual_seed(3)) * 3
        logits[:, -1] = -torch.inf
        return logits.log_softmax(dim=-1)

    return make
