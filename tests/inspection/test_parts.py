from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from transduce.inspection.parts import locate_code, make_source_side, make_target_side, number_words
from transduce.model import Transformer
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
    assert number_words(pieces) == numbers


def test_a_source_has_no_probabilities(tokenizer: Tokenizer) -> None:
    ids = tokenizer.as_source(tokenizer.encode("moon river"))
    side = make_source_side("moon river", ids, tokenizer)
    assert side.ids == ids
    assert side.pieces == tokenizer.pieces(ids)
    assert side.log_probabilities is None
    assert side.steps is None


def test_a_target_is_judged_token_by_token(tokenizer: Tokenizer, make_sharp: Callable[[int], torch.Tensor]) -> None:
    ids = [33, 12, 1]
    log_probs = make_sharp(3)
    side = make_target_side("x", ids, log_probs, tokenizer)
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


PROJECT = Path(__file__).parents[2]


def test_every_place_is_there(model: Transformer) -> None:
    for topic, place in locate_code(model.config).items():
        lines = (PROJECT / place.file).read_text(encoding="utf-8").split("\n")
        source = place.source.split("\n")
        there = lines[place.line - 1 : place.line - 1 + len(source)]
        assert [line.strip() for line in there] == [line.strip() for line in source], topic
        assert any(line.startswith("def ") for line in source)


@pytest.mark.parametrize(
    ("kind", "topic", "words"),
    [
        ("paper", "positions", "def sinusoids("),
        ("learned", "positions", "max_positions"),
        ("none", "positions", "self.zero"),
        ("paper", "scaled_dot_product", "self.scale"),
        ("additive", "scaled_dot_product", ".tanh()"),
        ("paper", "softmax", ".softmax(dim=-1)"),
        ("paper", "length_penalty", "(5 + length) / 6"),
    ],
)
def test_a_place_computes_what_its_topic_says(
    make_model: Callable[..., Transformer], kind: str, topic: str, words: str
) -> None:
    assert words in locate_code(make_model(kind).config)[topic].source
