"""What holds for every network, whatever its parts."""

from collections.abc import Callable
from itertools import chain
from typing import Any, cast, get_args

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.baselines import ARCHITECTURES, make_encoder_decoder
from transduce.config import SearchConfig, TransformerConfig
from transduce.model import Dropout, EncoderDecoder, Transformer
from transduce.search import SearchTask, beam_search
from transduce.translation import PyTorchEngine
from transduce.translation.engines.networks import ModelNetwork

Examples = Callable[..., Any]
Models = Callable[..., EncoderDecoder]


def test_every_architecture_of_the_settings_has_a_network() -> None:
    assert list(ARCHITECTURES) == list(get_args(TransformerConfig.model_fields["architecture"].annotation))


def test_settings_choose_the_network(variant: dict[str, Any], make_model: Models) -> None:
    assert type(make_model(**variant)) is ARCHITECTURES[variant["architecture"]]


def test_the_setting_is_the_share_that_every_dropout_drops(variant: dict[str, Any], make_model: Models) -> None:
    model = make_model(**variant | {"dropout": 0.3})
    assert {part.p for part in model.modules() if isinstance(part, Dropout)} == {0.3}


@torch.no_grad()
def test_a_target_token_decides_only_what_comes_after_it(
    variant: dict[str, Any], make_model: Models, make_example: Examples
) -> None:
    model, example = make_model(**variant), make_example([3, 5], [4, 4])
    logits = model(*example)
    for t in range(4):
        changed_ids = example.target_ids.clone()
        changed_ids[:, t] = (changed_ids[:, t] + 5) % 22
        changed = model(*example._replace(target_ids=changed_ids))
        assert torch.equal(changed[:, : t + 1], logits[:, : t + 1])
        differs = (changed[:, t + 1 :] - logits[:, t + 1 :])[..., :-1].abs().amax(dim=-1) > 1e-4
        assert differs[:, :1].all()  # a convolution may not reach further


@torch.no_grad()
def test_every_source_token_matters(variant: dict[str, Any], make_model: Models, make_example: Examples) -> None:
    model, example = make_model(**variant), make_example([4, 6], [8, 8])
    logits = model(*example)
    for row, length in ((0, 4), (1, 6)):
        for position in range(length):
            changed_ids = example.source_ids.clone()
            changed_ids[row, position] = (changed_ids[row, position] + 5) % 22
            changed = model(*example._replace(source_ids=changed_ids))
            assert not torch.allclose(changed[row, :, :-1], logits[row, :, :-1], atol=1e-4)
            assert torch.equal(changed[1 - row], logits[1 - row])


@torch.no_grad()
def test_padding_changes_nothing(variant: dict[str, Any], make_model: Models, make_example: Examples) -> None:
    model = make_model(**variant)
    sources, targets = [4, 1, 6], [2, 9, 1]
    padded, other_padding = make_example(sources, targets, length=13), make_example(sources, targets, length=13, pad=3)
    logits = model(*padded)
    mask = padded.target_mask
    assert torch.equal(logits[mask], model(*other_padding)[mask])
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        source_ids, source_mask = padded.source_ids[row, None, :source], padded.source_mask[row, None, :source]
        target_ids, target_mask = padded.target_ids[row, None, :target], padded.target_mask[row, None, :target]
        alone = model(source_ids, source_mask, target_ids, target_mask)
        torch.testing.assert_close(logits[row, None, :target], alone, atol=1e-5, rtol=1e-5)


def test_padding_changes_no_gradient(variant: dict[str, Any], make_model: Models, make_example: Examples) -> None:
    results: list[Tensor] = []
    for length, pad in ((0, 22), (13, 22), (13, 3)):
        model = make_model(**variant).double().train()
        example = make_example([4, 1, 6], [2, 9, 1], length=length, pad=pad)
        model(*example)[example.target_mask][:, :-1].logsumexp(dim=-1).sum().backward()
        results.append(torch.cat([cast("Tensor", parameter.grad).flatten() for parameter in model.parameters()]))
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(
    ("sources", "targets"), [([1], [1]), ([1, 1], [1, 1]), ([4, 4], [3, 3]), ([1, 7, 3], [9, 1, 2])]
)
def test_gradients_reach_all_parameters(
    variant: dict[str, Any], make_model: Models, make_example: Examples, sources: list[int], targets: list[int]
) -> None:
    model, example = make_model(**variant | {"dropout": 0.1}).train(), make_example(sources, targets)
    logits = model(*example)
    assert logits[..., :-1].isfinite().all()
    assert (logits[..., -1] == -torch.inf).all()
    F.cross_entropy(logits[example.target_mask], example.target_ids[example.target_mask]).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        # Where nothing has to be chosen or remembered yet, what chooses or remembers does not matter.
        assert len(sources) < 3 or parameter.grad.any(), name


def test_bfloat16_comes_close(variant: dict[str, Any], make_model: Models, make_example: Examples) -> None:
    model, example = make_model(**variant), make_example([4, 1, 6], [2, 9, 1])
    exact = model(*example)[example.target_mask].softmax(dim=-1)
    model.compute_dtype = torch.bfloat16
    memory = model.encode(example.source_ids, example.source_mask)
    hidden = model.decode_hidden(example.target_ids, example.target_mask, memory, example.source_mask)
    assert memory.dtype == hidden.dtype == torch.bfloat16
    rough = model.projection(hidden)[example.target_mask].float().softmax(dim=-1)
    torch.testing.assert_close(rough, exact, atol=0.15, rtol=0)
    F.cross_entropy(rough, example.target_ids[example.target_mask]).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.dtype == torch.float32, name
        assert parameter.grad.isfinite().all(), name


@torch.no_grad()
@pytest.mark.usefixtures("kept")
def test_decoding_by_token_equals_decoding_at_once(
    variant: dict[str, Any], make_model: Models, make_example: Examples
) -> None:
    """The targets are longer than what ByteNet's encoder is unfolded to."""
    model, example = make_model(**variant), make_example([3, 7, 1], [20, 20, 20])
    logits = model(*example)
    state = model.start(model.encode(example.source_ids, example.source_mask), example.source_mask)
    for t, last_ids in enumerate(model.shift_right(example.target_ids).unbind(1)):
        found, state = model.decode_step(last_ids, state)
        torch.testing.assert_close(found, logits[:, t], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_rows_of_a_state_are_dropped_repeated_and_exchanged(
    variant: dict[str, Any], make_model: Models, make_example: Examples
) -> None:
    model, example = make_model(**variant), make_example([3, 7, 4], [12, 12, 12])
    index = torch.tensor([2, 0, 2, 2])
    expected = model(*(part[index] for part in example))
    state = model.start(model.encode(example.source_ids, example.source_mask), example.source_mask)
    ids = model.shift_right(example.target_ids)
    for t in range(12):
        if t == 5:
            before = state
            state, ids = state.reorder(index), ids[index]
        found, state = model.decode_step(ids[:, t], state)
        if t >= 5:
            torch.testing.assert_close(found, expected[:, t], atol=1e-5, rtol=1e-5)
    # The state is a value: to go on from an earlier one is possible.
    found, _ = model.decode_step(model.shift_right(example.target_ids)[:, 5], before)
    torch.testing.assert_close(found[index], expected[:, 5], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_search_finds_the_hypothesis_that_the_network_scores(
    variant: dict[str, Any], make_model: Models, make_example: Examples
) -> None:
    model, example = make_model(**variant), make_example([3, 7, 1], [1, 1, 1])
    network = ModelNetwork(cast("Transformer", model))  # it needs `encode`, `start` and `decode_step` only
    task = SearchTask(start_id=model.pad_id, end_id=1, max_lengths=[12, 20, 9])
    state = network.start(example.source_ids, example.source_mask)
    found = beam_search(network.step, state, task, beam=3, alpha=0.6)
    for row, (best, *_) in enumerate(found):
        target = torch.tensor([best.ids])
        logits = model(
            example.source_ids[row, None], example.source_mask[row, None], target, torch.ones_like(target).bool()
        )
        scores = logits.log_softmax(dim=-1)[0].gather(1, target.T).flatten()
        torch.testing.assert_close(torch.tensor(best.token_scores), scores, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_a_batch_is_each_alone(variant: dict[str, Any], make_model: Models, *, adds_up_alike: bool) -> None:
    random = torch.Generator().manual_seed(3)
    lengths = (3, 9, 1, 6, 15, 6, 17)
    sources = [[*torch.randint(2, 22, (length,), generator=random).tolist(), 1] for length in lengths]
    engine, search = PyTorchEngine(make_model(**variant), end_id=1), SearchConfig(beam=3, max_extra_length=5)
    together = engine.search(sources, search, 3)
    alone = [engine.search([source], search, 3)[0] for source in sources]
    if adds_up_alike:
        assert alone == together  # to the last bit
    for one, other in zip(chain(*alone), chain(*together), strict=True):
        assert one.ids == other.ids
        assert one.score == pytest.approx(other.score, abs=1e-5)


def reverse(positions: Tensor, lengths: Tensor) -> Tensor:
    """The places of the words that a sentence written backwards has: a network has to find each one."""
    return lengths - 1 - positions


def delay(positions: Tensor, lengths: Tensor) -> Tensor:
    """The places of the words that a sentence has whose first word is said twice, and whose last one is left out."""
    return (positions - 1).expand(len(lengths), -1)


LEARNERS: dict[str, tuple[int, Callable[[Tensor, Tensor], Tensor]]] = {
    "recurrent": (1, reverse),
    "convs2s": (3, reverse),
    "bytenet": (3, delay),  # without attention, it is slow to learn to look elsewhere
}
"""For each network the number of layers, and what it can learn to write within seconds."""


@pytest.mark.parametrize("architecture", LEARNERS)
def test_it_learns_to_write_words_in_another_place(architecture: str) -> None:
    torch.manual_seed(0)
    num_layers, places = LEARNERS[architecture]
    end, pad, longest = 10, 11, 5
    settings: dict[str, Any] = {"vocabulary": 12, "d_model": 32, "num_heads": 4, "dropout": 0.0}
    settings |= {"architecture": architecture, "num_encoder_layers": num_layers, "num_decoder_layers": num_layers}
    model = make_encoder_decoder(TransformerConfig(**settings))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    positions = torch.arange(longest + 1)

    def draw(sentences: int) -> tuple[Tensor, ...]:
        lengths = torch.randint(2, longest + 1, (sentences, 1))
        mask = positions <= lengths
        source_words = torch.randint(0, end, (sentences, longest + 1))
        target_words = source_words.gather(1, places(positions, lengths).clamp(min=0))
        source_ids, target_ids = (
            words.where(positions != lengths, end).masked_fill(~mask, pad) for words in (source_words, target_words)
        )
        return source_ids, mask, target_ids, mask

    # Roundings differ from processor to processor, and with them the updates that it takes: at most 228 with 60 seeds.
    for _ in range(600):
        _, mask, target_ids, _ = example = draw(32)
        loss = F.cross_entropy(model(*example)[mask], target_ids[mask])
        if loss < 0.1:  # of new examples each time
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _, mask, target_ids, _ = example = draw(200)
    with torch.no_grad():
        is_right = (model.eval()(*example).argmax(dim=-1) == target_ids)[mask]
    assert is_right.float().mean() > 0.9
