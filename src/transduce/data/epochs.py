"""The pairs of one epoch: stored ids, or ids segmented anew by BPE-dropout."""

import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from jaxtyping import Int

from transduce.data.batch import Batch
from transduce.data.cache import writable_cache
from transduce.data.preparation import PreparedData, read_pairs
from transduce.data.store import TokenStore, create_store
from transduce.data.training_text import iterate_chunks
from transduce.errors import RunError

MOST_REMOVALS = 3
"""Times that an epoch is made, before whatever keeps it from being read counts as an error."""


def open_epoch_store(prepared: PreparedData, dropout: float, seed: int, epoch: int) -> TokenStore:
    """The training pairs as epoch `epoch` sees them, a pure function of the arguments.

    Without `dropout` that is `prepared.train`. Otherwise every pair is segmented anew with that share of the merges
    skipped at random (Provilkov et al. 2020), unless it would become longer than the longest of `prepared.train`, which
    is what learned positions and memory are there for. The result lies under `prepared.folder` until a later epoch's.

    Raises:
        ConfigError, WriteError: the cache cannot be written.
    """
    if not dropout:
        return prepared.train
    folder = _epoch_folder(prepared, dropout, seed, epoch)
    # Another run that is ahead removes it, perhaps a moment after it was made here.
    for _ in range(MOST_REMOVALS):
        with suppress(RunError, FileNotFoundError):  # damaged, or not there
            return _open_store(prepared, folder, dropout, seed, epoch)
        shutil.rmtree(folder, ignore_errors=True)
        with writable_cache(prepared.folder.parent):
            _encode_sampled(prepared, folder, dropout, seed, epoch)
    return _open_store(prepared, folder, dropout, seed, epoch)


def _open_store(prepared: PreparedData, folder: Path, dropout: float, seed: int, epoch: int) -> TokenStore:
    store = TokenStore.open(folder, prepared.known.digest)
    prepared.known.save()
    remove_epochs(prepared, dropout, seed, before=epoch)
    return store


def remove_epochs(prepared: PreparedData, dropout: float, seed: int, *, before: int) -> None:
    """Remove what `open_epoch_store` has written of the epochs before `before`. Asked for again, it is made again."""
    for folder in (prepared.folder / "epochs").glob(_epoch_folder(prepared, dropout, seed, "*").name):
        number = folder.name.rpartition("-")[2]
        if number.isdigit() and int(number) < before:
            shutil.rmtree(folder, ignore_errors=True)


def _epoch_folder(prepared: PreparedData, dropout: float, seed: int, epoch: int | str) -> Path:
    return prepared.folder / "epochs" / f"dropout-{dropout}-seed-{seed}-epoch-{epoch}"


def _encode_sampled(prepared: PreparedData, folder: Path, dropout: float, seed: int, epoch: int) -> None:
    tokenizer, longest, number = prepared.tokenizer, int(prepared.train.lengths.max()), 0
    with create_store(folder, tokenizer.vocabulary) as writer:
        for index, chunk in enumerate(iterate_chunks(read_pairs(prepared.folder / "kept.jsonl"))):
            state = np.random.SeedSequence([seed, epoch, index]).generate_state(1)
            texts = [side for pair in chunk for side in pair]
            ids = tokenizer.encode_sampled(texts, dropout, int(state[0]))
            for source_ids, target_ids in zip(ids[::2], ids[1::2], strict=True):
                pair = tokenizer.as_source(source_ids), tokenizer.as_target(target_ids)
                if max(map(len, pair)) > longest:
                    pair = tuple(side.tolist() for side in prepared.train.pair(number))
                writer.add(*pair)
                number += 1


def select_epoch_pairs(prepared: PreparedData, seed: int, epoch: int) -> Int[np.ndarray, "seen"]:
    """Indices of the training pairs, each as often as epoch `epoch` has it; a pure function of the arguments.

    A corpus of weight 2.5 is there twice, and half of it once more: a random half, chosen anew in every epoch.
    """
    parts = []
    start = 0
    for number, corpus in enumerate(prepared.corpora):
        size = corpus.cleaning["kept"]
        indices = np.arange(start, start + size, dtype=np.int32)
        whole, fraction = divmod(corpus.weight, 1)
        parts += [indices] * int(whole)
        if size and fraction:
            # A stream of its own for each corpus; the plan of the epoch has that of seed and epoch alone.
            random = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch], spawn_key=(number,))))
            parts.append(random.choice(indices, max(1, round(size * fraction)), replace=False, shuffle=False))
        start += size
    return np.concatenate(parts)


def count_max_repetitions(prepared: PreparedData) -> Int[np.ndarray, "pairs"] | None:
    """The largest number of times that an epoch has each training pair; None if it is 1 for all."""
    if all(corpus.weight <= 1 for corpus in prepared.corpora):
        return None
    times, sizes = zip(*((math.ceil(one.weight), one.cleaning["kept"]) for one in prepared.corpora), strict=True)
    return np.repeat(times, sizes)


def read_batches(store: TokenStore, plan: Sequence[Int[np.ndarray, "_"]], start: int, pad_id: int) -> Iterator[Batch]:
    """The batches of the plan from number `start` on."""
    for rows in plan[start:]:
        sources, targets = zip(*map(store.pair, rows.tolist()), strict=True)
        yield Batch.from_ids(sources, targets, pad_id)
