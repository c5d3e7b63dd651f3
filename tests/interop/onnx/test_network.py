"""The graphs in ONNX Runtime against the model, whose whole-sentence decoding they take step by step."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from transduce.interop.onnx.network import cache_names, decoder_step_graph, encoder_graph
from transduce.model import KeysAndValues, Transformer

pytest.importorskip("onnx")

onnxruntime = pytest.importorskip("onnxruntime")

Arrays = dict[str, np.ndarray]

STRUCTURES: list[dict[str, Any]] = [
    {},
    {"norm_order": "pre", "num_decoder_layers": 3, "tied_embeddings": "two_way"},
    {"tied_embeddings": "none", "output_bias": True, "activation": "swish"},
    {"attention_score": "additive", "positions": "learned", "max_positions": 9},
    {"attention_score": "dot", "normalization": "batch", "positions": "none"},
    {"normalization": "batch", "norm_order": "pre", "activation": "gelu", "num_heads": 1},
    {"attention_score": "additive", "d_k": 5, "d_v": 3, "num_heads": 3, "output_bias": True},
]
# Of sentences in a batch.
LENGTHS = [(7,), (1, 1), (3, 9, 1, 6)]


class Graphs:
    def __init__(self, encoder: bytes, decoder_step: bytes) -> None:
        self.encoder, self.decoder_step = map(self.session, (encoder, decoder_step))

    @staticmethod
    def session(content: bytes) -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    @staticmethod
    def run(session: Any, inputs: Arrays) -> Arrays:
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(None, inputs), strict=True))

    def read(self, source_ids: Tensor) -> Arrays:
        return self.run(self.encoder, {"source_ids": source_ids.numpy()})

    def steps(self, memory: Arrays, target_ids: Tensor, pad_id: int) -> Iterator[np.ndarray]:
        """The log-probabilities of every token, given those before."""
        caches = [cache for cache in self.decoder_step.get_inputs() if cache.name.startswith("past")]
        rows, _ = target_ids.shape
        past = {cache.name: np.zeros((rows, cache.shape[1], 0, cache.shape[3]), np.float32) for cache in caches}
        last_ids = torch.full((rows,), pad_id)
        for next_ids in target_ids.T:
            found = self.run(self.decoder_step, {"last_ids": last_ids.numpy(), **memory, **past})
            yield found.pop("log_probabilities")
            past = {name.replace("present", "past"): value for name, value in found.items()}
            last_ids = next_ids


def graphs_of(model: Transformer, precision: str = "float32") -> Graphs:
    return Graphs(encoder_graph(model, precision), decoder_step_graph(model, precision))


def sources(model: Transformer, lengths: tuple[int, ...]) -> Tensor:
    random = torch.Generator().manual_seed(1)
    ids = torch.randint(0, model.pad_id, (len(lengths), max(lengths)), generator=random)
    return ids.masked_fill(torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None], model.pad_id)


def targets(model: Transformer, rows: int, length: int) -> Tensor:
    return torch.randint(0, model.pad_id, (rows, length), generator=torch.Generator().manual_seed(2))


@torch.no_grad()
def with_statistics(model: Transformer) -> Transformer:
    """The running statistics of batch normalisation as they are in training, so that it normalises."""
    model.train()
    for _ in range(20 if model.config.normalization == "batch" else 0):
        source_ids, target_ids = sources(model, (9,) * 8), targets(model, 8, 9)
        model(source_ids, source_ids != model.pad_id, target_ids, torch.ones_like(target_ids).bool())
    return model.eval()


@torch.no_grad()
def expected(model: Transformer, source_ids: Tensor, target_ids: Tensor) -> np.ndarray:
    real = torch.ones_like(target_ids).bool()
    found: np.ndarray = model(source_ids, source_ids != model.pad_id, target_ids, real).log_softmax(-1).numpy()
    return found


@pytest.mark.parametrize("settings", STRUCTURES, ids=str)
def test_equals_the_model_for_every_structure_and_shape(
    random_model: Callable[..., Transformer], settings: dict[str, Any]
) -> None:
    model = with_statistics(random_model(**settings))
    graphs = graphs_of(model)
    for lengths in LENGTHS:
        source_ids = sources(model, lengths)
        memory = graphs.read(source_ids)
        assert np.array_equal(memory["source_mask"], (source_ids != model.pad_id).numpy())
        for width in (1, 3):
            target_ids = targets(model, len(lengths) * width, 9)
            wanted = expected(model, source_ids.repeat_interleave(width, dim=0), target_ids)
            for place, found in enumerate(graphs.steps(memory, target_ids, model.pad_id)):
                assert np.isneginf(found[:, -1]).all()
                assert np.allclose(found, wanted[:, place], atol=1e-5, rtol=1e-6)


def test_sinusoids_have_no_end(random_model: Callable[..., Transformer]) -> None:
    model = random_model(num_encoder_layers=1)
    graphs = graphs_of(model)
    source_ids = sources(model, (1500,))
    mask = torch.ones_like(source_ids).bool()
    with torch.no_grad():
        state = model.start(model.encode(source_ids, mask), mask)
    memory = graphs.read(source_ids)
    for ours, names in zip(state.memory, cache_names("memory", 1), strict=True):
        for tensor, name in zip(ours, names, strict=True):
            assert np.allclose(memory[name], tensor.numpy(), atol=1e-5, rtol=0)

    length = 50_000
    random = torch.Generator().manual_seed(1)
    past = KeysAndValues(*(torch.randn(1, 2, length, 8, generator=random) for _ in range(2)))
    with torch.no_grad():
        logits, _ = model.decode_step(torch.tensor([5]), type(state)(state.memory, (past,), mask, length))
    given = dict(zip(*cache_names("past", 1), map(Tensor.numpy, past), strict=True))
    found = graphs.run(graphs.decoder_step, {"last_ids": np.array([5]), **memory, **given})
    assert np.allclose(found["log_probabilities"], logits.log_softmax(-1).numpy(), atol=1e-5, rtol=0)


def test_learned_positions_end_with_an_error(random_model: Callable[..., Transformer]) -> None:
    model = random_model(positions="learned", max_positions=4)
    graphs = graphs_of(model)
    with pytest.raises(Exception, match="broadcast an axis"):
        graphs.read(sources(model, (5,)))
    memory = graphs.read(sources(model, (4,)))
    with pytest.raises(Exception, match="out of data bounds"):
        list(graphs.steps(memory, targets(model, 1, 5), model.pad_id))


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_smaller_weights_are_close_and_pad_is_still_nothing(
    random_model: Callable[..., Transformer], precision: str
) -> None:
    model = random_model(output_bias=True)
    rough, exact = graphs_of(model, precision), graphs_of(model)
    source_ids, target_ids = sources(model, (3, 9, 1, 6)), targets(model, 4, 9)
    memory = rough.read(source_ids)
    pairs = zip(
        rough.steps(memory, target_ids, model.pad_id),
        exact.steps(exact.read(source_ids), target_ids, model.pad_id),
        strict=True,
    )
    differences = np.concatenate([found[:, :-1] - wanted[:, :-1] for found, wanted in pairs])
    assert 1e-5 < np.abs(differences).mean() < {"float16": 5e-3, "int8": 0.1}[precision]
    assert all(np.isneginf(found[:, -1]).all() for found in rough.steps(memory, target_ids, model.pad_id))


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
def test_the_same_model_gives_the_same_bytes(random_model: Callable[..., Transformer], precision: str) -> None:
    first, second = (
        (encoder_graph(model, precision), decoder_step_graph(model, precision))
        for model in (random_model(), random_model())
    )
    assert first == second


def test_smaller_weights_make_smaller_files(random_model: Callable[..., Transformer]) -> None:
    model = random_model(d_model=64, d_ff=256)
    sizes = [len(encoder_graph(model, precision)) for precision in ("float32", "float16", "int8")]
    assert sizes[1] < 0.6 * sizes[0]
    assert sizes[2] < 0.4 * sizes[0]
