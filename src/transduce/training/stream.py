"""The batches of a whole run, in order: a pure function of the seed, to be entered at any place."""

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
from transduce.training.ranks import ALONE, Ranks


@dataclass(frozen=True)
class Place:
    """Where in the run's batches the next one is: its epoch, from 0, and how many of that epoch's are behind."""

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
    start: Place,
    ranks: Ranks = ALONE,
    planned_ranks: int = 1,
) -> Iterator[tuple[Place, Batch]]:
    """This rank's share of endless batches from `start` on, each with the place behind it.

    Every rank plans the same batches, of `training.batch_tokens` for each of `planned_ranks`, and takes every so many
    of a batch's pairs. Where there are fewer pairs than ranks, some get a silenced pair: what the ranks do together,
    each must take part in.
    """
    place = start
    pad_id = prepared.tokenizer.pad_id
    while True:
        store = shared_epoch_store(prepared, text, training, place.epoch, ranks)
        seen = select_epoch_pairs(prepared, training.seed, place.epoch)
        plan = plan_batches(store.lengths, planned_ranks * training.batch_tokens, training.seed, place.epoch, seen)
        del seen  # 4 bytes a pair
        shares = [rows[ranks.rank :: ranks.size] if ranks.rank < len(rows) else rows[:1] for rows in plan]
        for number, batch in enumerate(read_batches(store, shares, place.batch, pad_id), start=place.batch + 1):
            has_share = ranks.rank < len(plan[number - 1])
            yield Place(place.epoch, number, len(plan)), batch if has_share else batch.mask_loss()
        place = Place(place.epoch + 1)


def shared_epoch_store(
    prepared: PreparedData, text: TextConfig, training: TrainingConfig, epoch: int, ranks: Ranks = ALONE
) -> TokenStore:
    """What `open_epoch_store` gives: with BPE-dropout the first rank writes it, and the others find it written."""
    make = partial(open_epoch_store, prepared, text.bpe_dropout, training.seed, epoch)
    return ranks.after_first(make) if text.bpe_dropout else make()


def in_parts(batches: Sequence[Batch], most_tokens: int, ranks: Ranks = ALONE) -> list[Batch]:
    """All rows of `batches`, split into parts of at most `most_tokens` a side (`Batch.split`), as many on every rank.

    What the ranks do together, each must take part in: one with fewer parts than another repeats its last, silenced.
    """
    parts = [part for batch in batches for part in batch.split(most_tokens)]
    return parts + [parts[-1].mask_loss()] * (ranks.largest(len(parts)) - len(parts))
