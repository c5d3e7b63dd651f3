"""A model that reads translations which are given to it, instead of looking for its own."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch

from transduce.bundle import Bundle, find_bundle
from transduce.config import SearchConfig
from transduce.data import Batch
from transduce.errors import UserError
from transduce.kernels.device import find_device
from transduce.model import Transformer
from transduce.text import Tokenizer
from transduce.translation.batches import batches_by_length, in_whole_rows

Pair = tuple[str, str]

MOST_LOGITS = 2**26
"""Logits of a batch, padding included: a quarter of a gigabyte, and as much again for their softmax."""

_PAIRS_AT_A_TIME = 2048


@dataclass(frozen=True)
class ForcedDecoder:
    """The network, its tokenizer, and the settings of search that came with them."""

    model: Transformer
    tokenizer: Tokenizer
    search: SearchConfig

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> "ForcedDecoder":
        """That of a bundle, or of a run folder's best bundle.

        Raises:
            BundleError: there is no bundle, or it is damaged.
            ConfigError: the device is not there.
        """
        return cls.of(Bundle.open(find_bundle(Path(path))), device=device)

    @classmethod
    def of(cls, bundle: Bundle, *, device: str = "auto") -> "ForcedDecoder":
        """That of a bundle which is open already.

        Raises:
            BundleError: the bundle was changed since.
            ConfigError: the device is not there.
        """
        model = bundle.load_model().to(find_device(device))
        return cls(model, bundle.load_tokenizer(), bundle.description.search)

    def fits(self, source: str, target: str) -> bool:
        """Whether the model reads both texts as wholes: attention over thousands of positions takes gigabytes."""
        most = min(self.search.max_pieces, self.model.longest - 1)
        (ids,) = self.tokenizer.encode_targets([target])
        return max(len(self.tokenizer.encode(source)), len(ids)) <= most

    @contextmanager
    def batches(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], first_line: int = 1
    ) -> Iterator[Iterator[tuple[list[int], Batch]]]:
        """Batches of pairs of similar length, on the model's device, each with the indices of its pairs.

        While the context lasts there is neither dropout nor gradient; after it the model is in the mode, training or
        evaluation, in which it was found.

        Args:
            sources: ids, `</s>` included.
            targets: for each source, ids, `</s>` included.
            first_line: what errors call the first pair.

        Raises:
            UserError: a side is longer than the learned positions of the model.
        """
        for line, sides in enumerate(zip(sources, targets, strict=True), start=first_line):
            for name, ids in zip(("source", "target"), sides, strict=True):
                if len(ids) > self.model.longest:
                    raise UserError(
                        f"line {line}: the {name} has {len(ids)} tokens, </s> included; this model has learned "
                        f"positions up to {self.model.longest} (model.max_positions): split the pair or delete it"
                    )
        was_training = self.model.training
        self.model.eval()
        try:
            with torch.inference_mode():
                yield self._batches(sources, targets)
        finally:
            self.model.train(was_training)

    def _batches(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> Iterator[tuple[list[int], Batch]]:
        device = next(self.model.parameters()).device
        most_tokens = min(self.search.batch_tokens, MOST_LOGITS // self.model.config.vocabulary)
        lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
        for indices in batches_by_length(lengths, most_tokens):
            chosen = [sources[index] for index in indices], [targets[index] for index in indices]
            batch, limits = Batch.from_ids(*chosen, self.tokenizer.pad_id), (self.tokenizer.pad_id, self.model.longest)
            source = in_whole_rows(batch.source_ids, batch.source_mask, *limits)
            target = in_whole_rows(batch.target_ids, batch.target_mask, *limits)
            yield indices, Batch(*source, *target).to(device)


def numbered_blocks(pairs: Iterable[Pair]) -> Iterator[tuple[int, list[Pair]]]:
    """Some thousand pairs at a time, enough to find companions of similar length; with the first one's line number."""
    waiting, line = iter(pairs), 1
    while block := list(islice(waiting, _PAIRS_AT_A_TIME)):
        yield line, block
        line += len(block)
