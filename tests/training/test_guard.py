from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transduce.config import RunConfig
from transduce.training import train
from transduce.training.guard import token_f1, warning

sentences = st.lists(st.lists(st.integers(2, 9), max_size=6), min_size=1, max_size=4)


@given(sentences, st.randoms())
def test_the_order_of_tokens_does_not_matter(references: list[list[int]], random: Any) -> None:
    shuffled = [random.sample(reference, len(reference)) for reference in references]
    assert token_f1(shuffled, references) == 1.0
    assert token_f1([[1] for _ in references], references) == 0.0


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
    assert token_f1([hypothesis], [reference]) == pytest.approx(expected)
    assert token_f1([reference], [hypothesis]) == pytest.approx(expected)
    # Over all sentences, not the mean of each.
    assert token_f1([hypothesis, [8] * 10], [reference, [8] * 10]) > expected


def line(accuracy: float, own: float, kind: str = "validation") -> dict[str, Any]:
    return {"kind": kind, "update": 1, "accuracy": accuracy, "token_f1": own}


AHEAD, HEALTHY, YOUNG = line(0.9, 0.3), line(0.9, 0.8), line(0.3, 0.0)


@pytest.mark.parametrize(
    ("lines", "is_said"),
    [
        ([], False),
        ([AHEAD], False),
        ([AHEAD, AHEAD], True),
        ([AHEAD, {"kind": "training", "update": 1, "accuracy": 0.9}, AHEAD], True),
        ([AHEAD, line(0.9, 0.3, "average")], True),
        ([AHEAD, HEALTHY, AHEAD], False),
        ([AHEAD, HEALTHY, AHEAD, AHEAD], True),
        ([YOUNG, YOUNG, YOUNG], False),
        ([HEALTHY, HEALTHY], False),
        # Once is enough.
        ([AHEAD, AHEAD, AHEAD], False),
        ([AHEAD, AHEAD, HEALTHY, AHEAD, AHEAD], False),
        # What an older version logged has no such figure.
        ([{"kind": "validation", "update": 1, "accuracy": 0.9}] * 2, False),
    ],
)
def test_a_lead_is_said_once_and_only_if_it_lasts(lines: list[dict[str, Any]], is_said: bool) -> None:
    assert (warning(lines) is not None) == is_said


LEARNING: dict[str, Any] = {
    "model__d_model": 32,
    "model__dropout": 0.0,
    "training__updates": 90,
    "training__batch_tokens": 500,
    "training__validate_every": 30,
    "training__checkpoint_every": 1000,
    "training__log_every": 1000,
    "search__max_extra_length": 10,
}


def test_a_decoder_that_sees_what_it_has_to_predict_is_noticed(
    make_config: Callable[..., RunConfig], watcher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_mask(length: int, device: torch.device) -> torch.Tensor:
        return torch.ones(1, 1, length, length, dtype=torch.bool, device=device)

    monkeypatch.setattr("transduce.model.decoder.causal_attention_mask", no_mask)
    told = watcher()
    train(make_config(**LEARNING), told)
    (said,) = [text for text in told.said if text.startswith("warning")]
    assert "see the token it has to predict" in said
    assert told.validations[-1][1].accuracy > 0.5


def test_a_healthy_model_is_not_suspected(
    make_config: Callable[..., RunConfig], watcher: Any, copier: Any, metrics_of: Callable[[Path], list[dict[str, Any]]]
) -> None:
    told = watcher()
    healthy = train(make_config(**LEARNING), told).folder
    assert not any(text.startswith("warning") for text in told.said)
    for run in (healthy, copier.result.folder):
        scored = [line for line in metrics_of(run) if line["kind"] in {"validation", "average"}]
        assert all(line["token_f1"] > 0.6 * line["accuracy"] for line in scored if line["accuracy"] > 0.4)
    assert scored[-1]["token_f1"] > 0.9
