"""What turns batches of source ids into hypotheses. The native one runs the model itself."""

import sys
from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transduce.config import SearchConfig
from transduce.model import DecoderState, Transformer
from transduce.search import Hypothesis, beam_search, greedy_search

MOST_PROBABILITIES = 2**26
"""Probabilities of a step, for all hypotheses of a batch: a quarter of a gigabyte, and some copies of it."""


@runtime_checkable
class Engine(Protocol):
    """Anything that can translate ids."""

    def search(
        self, sources: Sequence[Sequence[int]], config: SearchConfig, num_best: int = 1
    ) -> list[list[Hypothesis]]:
        """For each source (ids, `</s>` included), its `num_best` hypotheses, best first."""
        ...


class NativeEngine:
    """The model in this process, on the device it lies on.

    Sentences of similar length are translated together, so that little of a batch is padding.
    """

    def __init__(self, model: Transformer, end_id: int) -> None:
        self.model = model
        self.end_id = end_id

    @torch.inference_mode()
    def search(
        self, sources: Sequence[Sequence[int]], config: SearchConfig, num_best: int = 1
    ) -> list[list[Hypothesis]]:
        """See `Engine`. The model is left in the mode, training or evaluation, in which it was found."""
        found: list[list[Hypothesis]] = [[] for _ in sources]
        was_training = self.model.training
        self.model.eval()
        try:
            most_rows = max(1, MOST_PROBABILITIES // (config.beam * self.model.config.vocabulary))
            for indices in batches_by_length([len(source) for source in sources], config.batch_tokens, most_rows):
                results = self._search_batch([sources[index] for index in indices], config, num_best)
                for index, hypotheses in zip(indices, results, strict=True):
                    found[index] = hypotheses
        finally:
            self.model.train(was_training)
        return found

    def _search_batch(
        self, sources: Sequence[Sequence[int]], config: SearchConfig, num_best: int
    ) -> list[list[Hypothesis]]:
        device = next(self.model.parameters()).device
        lengths = torch.tensor([len(source) for source in sources])
        source_ids = torch.full((len(sources), int(lengths.max())), self.model.pad_id)
        for row, source in zip(source_ids, sources, strict=True):
            row[: len(source)] = torch.tensor(source)
        source_ids, lengths = source_ids.to(device), lengths.to(device)
        source_mask = torch.arange(source_ids.size(1), device=device) < lengths[:, None]
        state = self.model.start(self.model.encode(source_ids, source_mask), source_mask)
        max_lengths = (lengths + config.max_extra_length).clamp(max=self.model.longest)
        ends = {"start_id": self.model.pad_id, "end_id": self.end_id}
        if config.beam == 1:
            greedy = greedy_search(self._step, state, max_lengths=max_lengths, alpha=config.length_penalty, **ends)
            return [[hypothesis] for hypothesis in greedy]
        return beam_search(
            self._step,
            state,
            max_lengths=max_lengths,
            beam=config.beam,
            alpha=config.length_penalty,
            num_best=num_best,
            **ends,
        )

    def _step(
        self, last_ids: Int[Tensor, " rows"], state: DecoderState
    ) -> tuple[Float[Tensor, "rows vocabulary"], DecoderState]:
        logits, state = self.model.decode_step(last_ids, state)
        return logits.float().log_softmax(dim=-1), state


def batches_by_length(lengths: Sequence[int], batch_tokens: int, most_rows: int = sys.maxsize) -> Iterator[list[int]]:
    """Indices of sentences to be read together: longest first, at most `batch_tokens` with padding, and `most_rows`.

    A sentence longer than that is a batch of its own.
    """
    waiting = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    while waiting:
        rows = max(1, min(most_rows, batch_tokens // lengths[waiting[0]]))
        yield waiting[:rows]
        waiting = waiting[rows:]
