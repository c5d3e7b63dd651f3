from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch

from transduce.bundle import BundleDescription, save_bundle
from transduce.config import SearchConfig
from transduce.errors import BundleError, ConfigError, UserError
from transduce.model import Transformer
from transduce.text import Tokenizer
from transduce.translation import ForcedDecoder
from transduce.translation import forced_decoding as forced_decoding_module
from transduce.translation.forced_decoding import numbered_blocks

SOURCES = [[5, 1], [5, 6, 7, 8, 1], [1], [9, 8, 1]]
TARGETS = [[7, 8, 9, 1], [5, 1], [6, 1], [1]]


@pytest.fixture
def make_decoder(make_model: Callable[..., Transformer], tokenizer: Tokenizer) -> Callable[..., ForcedDecoder]:
    def make(batch_tokens: int = 4096, **settings: Any) -> ForcedDecoder:
        return ForcedDecoder(make_model(**settings), tokenizer, SearchConfig(batch_tokens=batch_tokens))

    return make


@pytest.mark.parametrize("batch_tokens", [1, 10, 4096])
def test_batches_hold_every_pair_once(make_decoder: Callable[..., ForcedDecoder], batch_tokens: int) -> None:
    decoder = make_decoder(batch_tokens)
    with decoder.batches(SOURCES, TARGETS) as batches:
        found = list(batches)
    assert sorted(chain(*(indices for indices, _ in found))) == [0, 1, 2, 3]
    for indices, batch in found:
        assert batch.source_ids[batch.source_mask].tolist() == list(chain(*(SOURCES[index] for index in indices)))
        assert batch.target_ids[batch.target_mask].tolist() == list(chain(*(TARGETS[index] for index in indices)))
        # Padding up to a multiple of four, which makes the rounding of a row its own affair, is not counted.
        longest = max(int(batch.source_mask.sum(dim=1).max()), int(batch.target_mask.sum(dim=1).max()))
        assert len(indices) == 1 or len(indices) * longest <= batch_tokens


def test_logits_of_a_batch_are_bounded(
    make_decoder: Callable[..., ForcedDecoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = make_decoder()
    monkeypatch.setattr(forced_decoding_module, "MOST_LOGITS", 8 * decoder.tokenizer.vocabulary)
    with decoder.batches(SOURCES, TARGETS) as batches:
        assert [indices for indices, _ in batches] == [[1], [0, 3], [2]]


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_of_the_model_is_put_back(make_decoder: Callable[..., ForcedDecoder], *, training: bool) -> None:
    decoder = make_decoder()
    decoder.model.train(training)
    with decoder.batches(SOURCES, TARGETS):
        assert not any(part.training for part in decoder.model.modules())
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()
    assert all(part.training == training for part in decoder.model.modules())
    with pytest.raises(ZeroDivisionError), decoder.batches(SOURCES, TARGETS):
        raise ZeroDivisionError
    assert all(part.training == training for part in decoder.model.modules())


def test_what_learned_positions_do_not_reach_is_named(make_decoder: Callable[..., ForcedDecoder]) -> None:
    decoder = make_decoder(positions="learned", max_positions=4)
    with decoder.batches(SOURCES[2:], TARGETS[2:]) as batches:
        assert len(list(batches)) == 1
    with (
        pytest.raises(UserError, match=r"line 102: the source has 5 tokens.* up to 4 "),
        decoder.batches(SOURCES, TARGETS, first_line=101),
    ):
        pass
    with pytest.raises(UserError, match="line 1: the target has 5 tokens"), decoder.batches([[1]], [[5, 5, 5, 5, 1]]):
        pass


def test_a_stream_is_read_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forced_decoding_module, "_PAIRS_AT_A_TIME", 4)
    read = []

    def pairs() -> Iterator[tuple[str, str]]:
        for number in range(10):
            read.append(number)
            yield str(number), "x"

    lines = []
    for first_line, block in numbered_blocks(pairs()):
        assert len(read) == first_line - 1 + len(block)
        lines += [(first_line + index, source) for index, (source, _) in enumerate(block)]
    assert lines == [(number + 1, str(number)) for number in range(10)]


def test_it_is_loaded_from_a_bundle(random_model: Transformer, tokenizer: Tokenizer, tmp_path: Path) -> None:
    search = SearchConfig(length_penalty=1.0, max_pieces=33)
    save_bundle(
        tmp_path / "bundle", random_model, tokenizer, BundleDescription(model=random_model.config, search=search)
    )
    decoder = ForcedDecoder.load(tmp_path / "bundle", device="cpu")
    assert decoder.search == search
    assert decoder.tokenizer.model_bytes == tokenizer.model_bytes
    assert not decoder.model.training
    with pytest.raises(BundleError, match="no such folder"):
        ForcedDecoder.load(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="warp drive"):
        ForcedDecoder.load(tmp_path / "bundle", device="warp drive")
