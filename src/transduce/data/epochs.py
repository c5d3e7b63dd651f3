"""What one epoch trains on: the stored ids, or ids segmented anew by BPE-dropout."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int

from transduce.data.batch import Batch
from transduce.data.encoding import in_chunks, read_pairs
from transduce.data.preparation import PreparedData
from transduce.data.store import TokenStore, create_store
from transduce.errors import RunError


def epoch_store(prepared: PreparedData, dropout: float, seed: int, epoch: int) -> TokenStore:
    """The training pairs as epoch `epoch` sees them, a pure function of the arguments.

    Without `dropout` that is `prepared.train`. Otherwise every pair is segmented anew with that share of the merges
    skipped at random (Provilkov et al. 2020); the result lies under `prepared.folder` until a later epoch's.
    """
    if not dropout:
        return prepared.train
    run = f"dropout-{dropout}-seed-{seed}-epoch-"
    folder = prepared.folder / "epochs" / f"{run}{epoch}"
    if folder.exists():
        try:
            return TokenStore.open(folder)
        except RunError:
            shutil.rmtree(folder)
    _encode_sampled(prepared, folder, dropout, seed, epoch)
    store = TokenStore.open(folder)
    _remove_earlier(folder.parent, run, epoch)
    return store


def _encode_sampled(prepared: PreparedData, folder: Path, dropout: float, seed: int, epoch: int) -> None:
    tokenizer = prepared.tokenizer
    end = [tokenizer.end_id]
    with create_store(folder, tokenizer.vocabulary) as writer:
        for index, chunk in enumerate(in_chunks(read_pairs(prepared.folder / "kept.jsonl"))):
            state = np.random.SeedSequence([seed, epoch, index]).generate_state(1)
            texts = [side for pair in chunk for side in pair]
            ids = tokenizer.encode_sampled(texts, dropout, int(state[0]))
            for source_ids, target_ids in zip(ids[::2], ids[1::2], strict=True):
                writer.add(source_ids + end, target_ids + end)


def _remove_earlier(folder: Path, run: str, epoch: int) -> None:
    for other in folder.glob(f"{run}*"):
        number = other.name.removeprefix(run)
        if number.isdigit() and int(number) < epoch:
            shutil.rmtree(other, ignore_errors=True)


def batches(store: TokenStore, plan: Sequence[Int[np.ndarray, "_"]], start: int, pad_id: int) -> Iterator[Batch]:
    """The batches of the plan from number `start` on."""
    for rows in plan[start:]:
        indices = rows.tolist()
        yield Batch.from_ids(
            [store.source(index) for index in indices], [store.target(index) for index in indices], pad_id
        )
