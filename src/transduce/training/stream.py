"""The batches of a whole run, in order: a pure function of the seed, to be entered at any place."""

from collections.abc import Iterator
from dataclasses import dataclass

from transduce.config import TextConfig, TrainingConfig
from transduce.data import Batch, PreparedData, batches, epoch_pairs, epoch_store, plan_batches


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
    prepared: PreparedData, text: TextConfig, training: TrainingConfig, start: Place
) -> Iterator[tuple[Place, Batch]]:
    """Endless batches from `start` on, each with the place behind it."""
    place = start
    pad_id = prepared.tokenizer.pad_id
    while True:
        store = epoch_store(prepared, text.bpe_dropout, training.seed, place.epoch)
        seen = epoch_pairs(prepared, training.seed, place.epoch)
        plan = plan_batches(store.lengths, training.batch_tokens, training.seed, place.epoch, seen)
        del seen  # 4 bytes a pair
        for number, batch in enumerate(batches(store, plan, place.batch, pad_id), start=place.batch + 1):
            yield Place(place.epoch, number, len(plan)), batch
        place = Place(place.epoch + 1)
