"""The batches of a run in order, each rank's share of them, and its sequential micro-batches.

Sequential micro-batches are parts of a batch whose gradients are summed; they are computed one after the other, in less
memory than the whole batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from transduce.config import TextConfig, TrainingConfig
from transduce.data import (
    Batch,
    PreparedData,
    TokenStore,
    open_epoch_store,
    plan_batches,
    read_batches,
    select_epoch_pairs,
)
from transduce.training.distributed import SINGLE_RANK, Ranks


@dataclass(frozen=True)
class BatchPosition:
    """Position of the next batch: its epoch, from 0, and how many batches of that epoch come before it."""

    epoch: int = 0
    batch: int = 0
    num_batches: int = 1

    @property
    def epochs(self) -> float:
        """Passes over the corpus so far, with the fraction of the current one."""
        return self.epoch + self.batch / self.num_batches


def iterate_batches(
    prepared: PreparedData,
    text: TextConfig,
    training: TrainingConfig,
    start: BatchPosition,
    ranks: Ranks = SINGLE_RANK,
    planned_ranks: int = 1,
) -> Iterator[tuple[BatchPosition, Batch]]:
    """Yield this rank's share of every batch from `start` on, without end, each with the position after it.

    Every rank plans the same batches, of at most `planned_ranks` times `training.batch_tokens` tokens. Of n ranks, each
    takes every n-th pair of a batch. If a batch has fewer pairs than there are ranks, the other ranks get a pair
    without loss, so that all ranks take part in collective operations.
    """
    position = start
    pad_id = prepared.tokenizer.pad_id
    while True:
        store = load_epoch_store(prepared, text, training, position.epoch, ranks)
        seen = select_epoch_pairs(prepared, training.seed, position.epoch)
        plan = plan_batches(store.lengths, planned_ranks * training.batch_tokens, training.seed, position.epoch, seen)
        del seen  # 4 bytes per pair
        shares = [rows[ranks.rank :: ranks.size] if ranks.rank < len(rows) else rows[:1] for rows in plan]
        for number, batch in enumerate(read_batches(store, shares, position.batch, pad_id), start=position.batch + 1):
            has_share = ranks.rank < len(plan[number - 1])
            yield BatchPosition(position.epoch, number, len(plan)), batch if has_share else batch.mask_loss()
        position = BatchPosition(position.epoch + 1)


def load_epoch_store(
    prepared: PreparedData, text: TextConfig, training: TrainingConfig, epoch: int, ranks: Ranks = SINGLE_RANK
) -> TokenStore:
    """Open the training text of an epoch in token ids.

    With BPE-dropout or augmentation, each epoch has token ids of its own. The ranks that write files make them, before
    the others open them.
    """
    make = partial(open_epoch_store, prepared, text, training.seed, epoch)
    return ranks.call_on_file_writers_first(make) if text.sampling else make()


def split_into_sequential_micro_batches(
    batches: Sequence[Batch], max_tokens: int, ranks: Ranks = SINGLE_RANK
) -> list[Batch]:
    """Split `batches` into micro-batches of at most `max_tokens` per side, to be computed one after the other.

    Their number is the same on every rank: a rank with fewer micro-batches than another repeats its last one, with the
    loss masked.
    """
    micro_batches = [part for batch in batches for part in batch.split_by_tokens(max_tokens)]
    num_missing = ranks.max(len(micro_batches)) - len(micro_batches)
    return micro_batches + [micro_batches[-1].mask_loss()] * num_missing
