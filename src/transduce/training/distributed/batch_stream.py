"""The batches of a run in order, as a pure function of the seed, and each rank's share of them."""

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
from transduce.training.distributed.ranks import ALONE, Ranks


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


def batch_stream(
    prepared: PreparedData,
    text: TextConfig,
    training: TrainingConfig,
    start: BatchPosition,
    ranks: Ranks = ALONE,
    planned_ranks: int = 1,
) -> Iterator[tuple[BatchPosition, Batch]]:
    """This rank's share of endless batches from `start` on, each with the position after it.

    Every rank plans the same batches, of `training.batch_tokens` for each of `planned_ranks`, and of n ranks each takes
    every n-th pair of a batch. Where there are fewer pairs than ranks, some ranks get a pair without loss, so that all
    of them take part in collective operations.
    """
    place = start
    pad_id = prepared.tokenizer.pad_id
    while True:
        store = load_epoch_store(prepared, text, training, place.epoch, ranks)
        seen = select_epoch_pairs(prepared, training.seed, place.epoch)
        plan = plan_batches(store.lengths, planned_ranks * training.batch_tokens, training.seed, place.epoch, seen)
        del seen  # 4 bytes a pair
        shares = [rows[ranks.rank :: ranks.size] if ranks.rank < len(rows) else rows[:1] for rows in plan]
        for number, batch in enumerate(read_batches(store, shares, place.batch, pad_id), start=place.batch + 1):
            has_share = ranks.rank < len(plan[number - 1])
            yield BatchPosition(place.epoch, number, len(plan)), batch if has_share else batch.mask_loss()
        place = BatchPosition(place.epoch + 1)


def load_epoch_store(
    prepared: PreparedData, text: TextConfig, training: TrainingConfig, epoch: int, ranks: Ranks = ALONE
) -> TokenStore:
    """Open the token ids of an epoch; with BPE-dropout the first rank writes them, and the others read them."""
    make = partial(open_epoch_store, prepared, text.bpe_dropout, training.seed, epoch)
    return ranks.call_first_rank_first(make) if text.bpe_dropout else make()


def split_into_micro_batches(batches: Sequence[Batch], most_tokens: int, ranks: Ranks = ALONE) -> list[Batch]:
    """Split `batches` into micro-batches of at most `most_tokens` a side, as many on every rank.

    A rank that has fewer of them than another repeats its last one, with its loss masked.
    """
    parts = [part for batch in batches for part in batch.split(most_tokens)]
    return parts + [parts[-1].mask_loss()] * (ranks.max(len(parts)) - len(parts))
