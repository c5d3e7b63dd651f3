from collections.abc import Callable
from pathlib import Path

import pytest

from transduce.inspection.code_places import code_places
from transduce.model import Transformer

PROJECT = Path(__file__).parents[2]


def test_every_place_is_there(model: Transformer) -> None:
    for topic, place in code_places(model.config).items():
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
    assert words in code_places(make_model(kind).config)[topic].source
