"""A network that starts from a model with another vocabulary has all of its weights that mean the same."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transduce.bundle import Bundle, apply_start_from, model_tensors
from transduce.config import RunConfig
from transduce.data import PreparedData
from transduce.errors import ConfigError
from transduce.model import Transformer
from transduce.text import Tokenizer
from transduce.training import train
from transduce.training.transfer import transfer_weights


@pytest.fixture
def parent(copier: Any) -> Bundle:
    return Bundle.open(copier.result.folder / "best")


@pytest.fixture
def make_child(make_config: Callable[..., RunConfig], parent: Bundle, tmp_path: Path) -> Callable[..., RunConfig]:
    def make(name: str = "child", **changes: Any) -> RunConfig:
        network = {f"model__{key}": getattr(parent.model_config, key) for key in ("d_model", "d_ff")}
        start = {"training__start_from": str(parent.folder), "training__start_vocabulary": "new"}
        return make_config(name, **{**network, **start, "data__cache": str(tmp_path / "cache"), **changes})

    return make


def test_tokens_in_both_vocabularies_keep_their_vectors(
    parent: Bundle, make_child: Callable[..., RunConfig], prepare_for: Callable[[RunConfig], PreparedData]
) -> None:
    config, _ = apply_start_from(make_child())
    tokenizer = prepare_for(config).tokenizer
    torch.manual_seed(1)
    model = Transformer(config.with_vocabulary(tokenizer.vocabulary).model)
    before = {name: tensor.detach().clone() for name, tensor in model_tensors(model).items()}
    num_shared = transfer_weights(model, parent, tokenizer)
    own, given = pieces_of(tokenizer), pieces_of(parent.load_tokenizer())
    assert num_shared == len(set(own) & set(given))
    assert 4 < num_shared < len(own)
    weights = model_tensors(parent.load_model())
    for name, tensor in model_tensors(model).items():
        if tensor.shape[:1] != (len(own),):
            assert torch.equal(tensor, weights[name])
            continue
        for index, piece in enumerate(own):
            expected = weights[name][given.index(piece)] if piece in given else before[name][index]
            assert torch.equal(tensor[index], expected)


def pieces_of(tokenizer: Tokenizer) -> list[str]:
    return tokenizer.pieces(range(tokenizer.vocabulary))


def test_other_layers_are_refused(parent: Bundle, make_child: Callable[..., RunConfig]) -> None:
    config, _ = apply_start_from(make_child())
    other = config.model.model_copy(update={"d_ff": 48, "vocabulary": 320})
    with pytest.raises(ConfigError, match="has other layers than this run"):
        transfer_weights(Transformer(other), parent, parent.load_tokenizer())


def test_a_run_has_its_own_vocabulary_and_languages(
    make_child: Callable[..., RunConfig], parent: Bundle, watcher: Any
) -> None:
    reporter = watcher()
    result = train(make_child(text__vocabulary=330, training__updates=8), reporter)
    bundle = Bundle.open(result.folder / "best")
    assert bundle.model_config.vocabulary == 330 != parent.model_config.vocabulary
    assert bundle.description.languages.target == "xx"
    assert any("of 330 tokens have their vectors from" in line for line in reporter.said)


def test_a_stopped_run_goes_on_with_the_same_result(
    make_child: Callable[..., RunConfig], watcher: Any, killed: Any, outcome_of: Callable[[Path], dict[str, Any]]
) -> None:
    whole = outcome_of(train(make_child("whole")).folder)
    with pytest.raises(killed):
        train(make_child("stopped"), watcher(end_at=11))
    assert outcome_of(train(make_child("stopped")).folder) == whole


def test_a_new_vocabulary_needs_a_model_to_start_from(make_child: Callable[..., RunConfig]) -> None:
    with pytest.raises(ConfigError, match="has no effect without start_from"):
        make_child(training__start_from=None)
