"""A network that starts from a model with another vocabulary, or more layers, has its weights that mean the same."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transduce.bundle import Bundle, BundleDescription, apply_start_from, collect_model_tensors, save_bundle
from transduce.config import RunConfig, TransformerConfig, load_run_config
from transduce.data import PreparedData
from transduce.errors import ConfigError
from transduce.model import Transformer
from transduce.text import Tokenizer
from transduce.training import train
from transduce.training.initialization.transfer import copy_spread_layers, transfer_weights


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
    before = {name: tensor.detach().clone() for name, tensor in collect_model_tensors(model).items()}
    num_shared = transfer_weights(model, parent, tokenizer)
    own, given = pieces_of(tokenizer), pieces_of(parent.load_tokenizer())
    assert num_shared == len(set(own) & set(given))
    assert 4 < num_shared < len(own)
    weights = collect_model_tensors(parent.load_model())
    for name, tensor in collect_model_tensors(model).items():
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
    with pytest.raises(ConfigError, match='start_layers = "spread" needs start_from'):
        load_run_config(None, settings=["training.start_layers=spread"])


@pytest.fixture
def deep(parent: Bundle, tmp_path: Path) -> Bundle:
    """Five layers on each side, with random weights."""
    sizes = {"num_encoder_layers": 5, "num_decoder_layers": 5, "d_model": 16, "d_ff": 24, "num_heads": 2}
    config = TransformerConfig.model_validate({"vocabulary": parent.model_config.vocabulary, **sizes})
    torch.manual_seed(3)
    save_bundle(tmp_path / "deep", Transformer(config), parent.load_tokenizer(), BundleDescription(model=config))
    return Bundle.open(tmp_path / "deep")


@pytest.mark.parametrize(("count", "chosen"), [(1, [0]), (2, [0, 4]), (3, [0, 2, 4]), (4, [0, 1, 3, 4]), (5, range(5))])
def test_layers_are_spread_from_the_first_to_the_last(deep: Bundle, count: int, chosen: list[int]) -> None:
    model = Transformer(deep.model_config.model_copy(update={"num_decoder_layers": count}))
    copy_spread_layers(model, deep)
    given = collect_model_tensors(deep.load_model())
    for name, tensor in collect_model_tensors(model).items():
        stack, _, rest = name.partition(".layers.")
        number, _, ending = rest.partition(".")
        origin = f"decoder.layers.{chosen[int(number)]}.{ending}" if stack == "decoder" and rest else name
        assert torch.equal(tensor, given[origin]), name


def test_a_run_has_as_many_layers_as_it_says(make_config: Callable[..., RunConfig], deep: Bundle) -> None:
    settings: dict[str, Any] = {"training__start_from": str(deep.folder), "training__start_layers": "spread"}
    settings |= {"text__vocabulary": deep.model_config.vocabulary}
    settings |= {f"model__{key}": getattr(deep.model_config, key) for key in ("d_model", "d_ff", "num_heads")}
    settings |= {"model__num_encoder_layers": 4, "model__num_decoder_layers": 2, "training__updates": 12}
    folder = train(make_config("few", **settings)).folder
    bundle = Bundle.open(folder / "best")
    assert (bundle.model_config.num_encoder_layers, bundle.model_config.num_decoder_layers) == (4, 2)
    assert bundle.load_tokenizer().files == deep.load_tokenizer().files


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"model__num_decoder_layers": 6}, "model.num_decoder_layers = 6: .* has 5, of which layers are chosen"),
        ({"model__d_ff": 32, "model__num_decoder_layers": 1}, "model.d_ff = 32, the bundle's is 24"),
    ],
)
def test_layers_that_the_bundle_does_not_have_are_refused(
    make_config: Callable[..., RunConfig], deep: Bundle, changes: dict[str, Any], problem: str
) -> None:
    settings: dict[str, Any] = {"training__start_from": str(deep.folder), "training__start_layers": "spread"}
    settings |= {"text__vocabulary": deep.model_config.vocabulary}
    settings |= {f"model__{key}": getattr(deep.model_config, key) for key in ("d_model", "d_ff", "num_heads")}
    settings |= {"model__num_encoder_layers": 5, "model__num_decoder_layers": 5}
    with pytest.raises(ConfigError, match=problem):
        apply_start_from(make_config("refused", **settings | changes))


def test_layers_of_other_networks_cannot_be_chosen(make_config: Callable[..., RunConfig]) -> None:
    other = train(make_config("recurrent", model__architecture="recurrent", training__updates=2)).folder / "best"
    settings = {"training__start_from": str(other), "training__start_layers": "spread"}
    with pytest.raises(ConfigError, match="is one of architecture 'recurrent'"):
        apply_start_from(make_config("student", model__architecture="recurrent", **settings))
